use std::process::ExitCode;

use clap::{Args, Subcommand};
use turnwise_train::config::{ConfigSource, config_summary, reference_page, schema, whole_configs};

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

/// Returns the presets and what each one is: a method's settings, or a full config's first sentence.
fn presets() -> Vec<(&'static str, String)> {
    let about = |name| (name, config_summary(name).unwrap_or_default());
    let mut whole = whole_configs().map(about);
    let first = whole.next();
    let known = methods();
    let methods = known.presets().map(|preset| {
        let settings: Vec<&str> =
            preset.settings.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let settings = settings.join("; ");
        let about = match preset.base {
            Some(base) => format!("{base} with {settings}"),
            None => settings,
        };
        (preset.name, about)
    });
    first.into_iter().chain(methods).chain(whole).collect()
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
            for (name, about) in presets() {
                ui::print(format!("{name:<26} {about}").trim_end());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
