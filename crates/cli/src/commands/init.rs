//! `turnwise init`: files to start from.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use crate::ui;

/// Write files to start from.
#[derive(Args)]
pub(crate) struct InitArgs {
    #[command(subcommand)]
    command: InitCommand,
}

#[derive(Subcommand)]
enum InitCommand {
    /// Write a world in Python with a tool, a config that trains on it, and a test.
    World(WorldArgs),
}

#[derive(Args)]
struct WorldArgs {
    /// The folder to make; its last part is the world's name.
    name: PathBuf,
}

/// The files of a world by name.
const FILES: [(&str, &str); 4] = [
    ("world.py", include_str!("../../templates/world/world.py")),
    ("turnwise_env.py", include_str!("../../../../examples/python_environment/turnwise_env.py")),
    ("train.toml", include_str!("../../templates/world/train.toml")),
    ("test_world.py", include_str!("../../templates/world/test_world.py")),
];

pub(crate) fn run(args: InitArgs) -> anyhow::Result<ExitCode> {
    let InitCommand::World(WorldArgs { name }) = args.command;
    write_world(&name)?;
    let folder = name.display();
    ui::print(&format!("{folder} has a world in Python:"));
    ui::print(&format!("  {:<16} the world: its tool, its tasks, its expert", "world.py"));
    ui::print(&format!("  {:<16} a config that trains on it", "train.toml"));
    ui::print(&format!("  {:<16} tests of the world", "test_world.py"));
    ui::print(&format!("  {:<16} what speaks with the trainer", "turnwise_env.py"));
    ui::print("Run");
    ui::print(&format!("  python3 -m unittest discover {folder}"));
    ui::print(&format!("  turnwise train {folder}/train.toml"));
    Ok(ExitCode::SUCCESS)
}

fn write_world(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    if name.is_empty() || !name.chars().all(allowed) {
        bail!("{shown}: a world's name has letters, digits, `_` and `-`; choose another");
    }
    let path = folder.to_str().with_context(|| format!("{shown}: is not written in UTF-8"))?;
    if folder.exists() {
        bail!("{shown}: is there already; choose another name");
    }
    std::fs::create_dir_all(folder).with_context(|| format!("{shown}: cannot be made"))?;
    for (file, text) in FILES {
        let target = folder.join(file);
        // The helper is the same for every world.
        let text = match file {
            "turnwise_env.py" => text.to_owned(),
            // A path in a basic string of TOML.
            _ => text
                .replace("\"FOLDER\"", &toml::Value::from(path).to_string())
                .replace("\"NAME\"", &format!("\"{name}\""))
                .replace("NAME", path),
        };
        std::fs::write(&target, text).with_context(|| format!("{}: cannot be written", target.display()))?;
    }
    Ok(())
}
