use std::process::ExitCode;

use clap::{Args, Subcommand};
use turnwise_train::config::{ConfigSource, reference_page, schema, whole_configs};

use super::train::split_arguments;
use crate::registries::{methods, registries};
use crate::ui;
use crate::worlds::load;

/// Show or check a config.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print the resolved config as a valid config file, with each key's meaning, range and
    /// default.
    Show(Sources),
    /// Check whether a config can run; if not, print the reasons and exit with status 2.
    Check(Sources),
    /// List the presets: methods and full configs (`turnwise config show --preset NAME > FILE`
    /// saves one).
    Presets,
    /// Print the JSON Schema for config files. Editors with Taplo (Even Better TOML) use the schema
    /// if a config starts with `#:schema config.schema.json`.
    Schema,
    /// Print the config reference in Markdown: each key with its range, default and meaning.
    Reference,
}

#[derive(Args)]
struct Sources {
    /// Config files (later ones take precedence) and overrides, e.g. train.steps=20.
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Method preset (replaces the config's method), or a full base config.
    #[arg(long)]
    preset: Option<String>,
}

impl Sources {
    fn source(self) -> ConfigSource {
        let (files, overrides) = split_arguments(self.sources);
        ConfigSource { preset: self.preset, files, overrides, ..ConfigSource::default() }
    }
}

pub(crate) fn run(args: ConfigArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        ConfigCommand::Show(sources) => ui::print(load(sources.source())?.to_annotated_toml()?.trim_end()),
        ConfigCommand::Check(sources) => {
            let config = load(sources.source())?;
            config.warnings(&registries()).iter().for_each(|warning| ui::print(warning));
            ui::print(&format!("the config of run `{}` is sound", config.name));
        }
        ConfigCommand::Schema => ui::print(&schema(&registries())),
        ConfigCommand::Reference => ui::print(reference_page().trim_end_matches('\n')),
        ConfigCommand::Presets => {
            let known = methods();
            let methods = known.presets().map(|preset| preset.name);
            let whole: Vec<&str> = whole_configs().collect();
            for name in whole.iter().take(1).copied().chain(methods).chain(whole.iter().skip(1).copied()) {
                ui::print(name);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
