use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use turnwise_credit::{EstimatorConfig, RefinementConfig};

use crate::registries::methods;
use crate::ui;

/// Create starter files.
#[derive(Args)]
pub(crate) struct InitArgs {
    #[command(subcommand)]
    command: InitCommand,
}

#[derive(Subcommand)]
enum InitCommand {
    /// Create an environment in Python with a tool, a config for training on it, and a test.
    World(WorldArgs),
    /// Create a crate that adds your own credit method to turnwise, a config for training with it,
    /// and a test.
    Method(MethodArgs),
}

#[derive(Args)]
struct WorldArgs {
    /// Folder to create; its name becomes the environment's name.
    name: PathBuf,
}

#[derive(Args)]
struct MethodArgs {
    /// Folder to create; its name becomes the name of both the crate and the method.
    name: PathBuf,
    /// Git repository of turnwise that the crate depends on.
    #[arg(long, value_name = "URL", conflicts_with = "path")]
    git: Option<String>,
    /// Local checkout of turnwise that the crate depends on [default: the one this program was
    /// built from].
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,
}

const METHOD: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../../templates/method/Cargo.toml")),
    ("src/main.rs", include_str!("../../templates/method/src/main.rs")),
    ("src/method.rs", include_str!("../../templates/method/src/method.rs")),
    ("method.toml", include_str!("../../templates/method/method.toml")),
];

const FILES: [(&str, &str); 4] = [
    ("world.py", include_str!("../../templates/world/world.py")),
    ("turnwise_env.py", include_str!("../../../../examples/python_environment/turnwise_env.py")),
    ("train.toml", include_str!("../../templates/world/train.toml")),
    ("test_world.py", include_str!("../../templates/world/test_world.py")),
];

pub(crate) fn run(args: InitArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        InitCommand::World(WorldArgs { name }) => {
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
        }
        InitCommand::Method(args) => {
            write_method(&args)?;
            let folder = args.name.display();
            ui::print(&format!("{folder} has a crate that is turnwise with a method of your own:"));
            ui::print(&format!("  {:<16} the method: its settings, its preset, its tests", "src/method.rs"));
            ui::print(&format!("  {:<16} the program: turnwise with the method", "src/main.rs"));
            ui::print(&format!("  {:<16} a config that trains with it", "method.toml"));
            ui::print("Run");
            ui::print(&format!("  cd {folder} && cargo test --release"));
            ui::print("  cargo run --release -- train method.toml");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn source(args: &MethodArgs) -> anyhow::Result<String> {
    if let Some(url) = &args.git {
        return Ok(format!("{{ git = {} }}", toml::Value::from(url.as_str())));
    }
    let checkout = match &args.path {
        Some(checkout) => checkout.join("crates/cli"),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")),
    };
    if !checkout.join("Cargo.toml").is_file() {
        match &args.path {
            Some(path) => {
                bail!("--path {}: has no crates/cli/Cargo.toml; name a checkout of turnwise", path.display())
            }
            None => bail!(
                "the checkout that this program was built from is gone; name one with --path FOLDER, or a repository with --git URL"
            ),
        }
    }
    let checkout = checkout.canonicalize().with_context(|| checkout.display().to_string())?;
    let path =
        checkout.to_str().with_context(|| format!("{}: is not written in UTF-8", checkout.display()))?;
    Ok(format!("{{ path = {} }}", toml::Value::from(path)))
}

fn write_method(args: &MethodArgs) -> anyhow::Result<()> {
    let folder = &args.name;
    let source = source(args)?;
    let name = checked_name(folder, "method")?;
    if !name.starts_with(|character: char| character.is_ascii_lowercase()) {
        bail!("{}: the name of a crate begins with a lower-case letter; choose another", folder.display());
    }
    let known = methods();
    let kinds = EstimatorConfig::KINDS.iter().chain(RefinementConfig::KINDS);
    if kinds.copied().chain(known.presets().map(|preset| preset.name)).any(|kind| kind == name) {
        bail!("{}: turnwise has a method called {name}; choose another name", folder.display());
    }
    if name == "turnwise" || name == "test" {
        bail!("{}: the crate cannot be called {name}; choose another name", folder.display());
    }
    for (file, text) in METHOD {
        write_file(&folder.join(file), &text.replace("SOURCE", &source).replace("NAME", name))?;
    }
    Ok(())
}

fn checked_name<'a>(folder: &'a Path, what: &str) -> anyhow::Result<&'a str> {
    let shown = folder.display();
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    if name.is_empty() || !name.chars().all(allowed) {
        bail!("{shown}: a {what}'s name has letters, digits, `_` and `-`; choose another");
    }
    if folder.exists() {
        bail!("{shown}: is there already; choose another name");
    }
    Ok(name)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text)
    };
    write().with_context(|| format!("{}: cannot be written", path.display()))
}

fn write_world(folder: &Path) -> anyhow::Result<()> {
    let name = checked_name(folder, "world")?;
    let path = folder.to_str().with_context(|| format!("{}: is not written in UTF-8", folder.display()))?;
    for (file, text) in FILES {
        let text = match file {
            "turnwise_env.py" => text.to_owned(),
            _ => text
                .replace("\"FOLDER\"", &toml::Value::from(path).to_string())
                .replace("\"NAME\"", &format!("\"{name}\""))
                .replace("NAME", path),
        };
        write_file(&folder.join(file), &text)?;
    }
    Ok(())
}
