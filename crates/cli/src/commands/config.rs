//! `turnwise config show|check`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use turnwise_train::config::{ConfigSource, load, presets};

use super::train::split_arguments;
use crate::ui;

/// Show or check a config.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print the resolved config, every default spelled out.
    Show(Sources),
    /// Say whether a config can run; exit with 2 and the reason when not.
    Check(Sources),
    /// List the presets.
    Presets,
}

#[derive(Args)]
struct Sources {
    /// Config files, later ones win, and overrides written key.sub=value.
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Start from this preset.
    #[arg(long)]
    preset: Option<String>,
}

impl Sources {
    fn source(self) -> ConfigSource {
        let (files, overrides) = split_arguments(self.sources);
        ConfigSource { preset: self.preset, files, overrides }
    }
}

pub(crate) fn run(args: ConfigArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        ConfigCommand::Show(sources) => ui::print(load(&sources.source())?.to_toml()?.trim_end()),
        ConfigCommand::Check(sources) => {
            let config = load(&sources.source())?;
            ui::print(&format!("the config of run `{}` is sound", config.name));
        }
        ConfigCommand::Presets => {
            for name in presets() {
                ui::print(name);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
