//! Merges the sources of a config, then checks and parses it.

use std::path::{Path, PathBuf};

use toml::{Table, Value};
use turnwise_credit::{CreditConfig, Pipeline};
use turnwise_settings::{Problem, SettingsError, problems, schema_of};

use super::layers::Layer;
use super::presets::{METHOD_KEYS, Preset, embedded_name};
use super::{Config, EnvConfig, Registries, amend, env_schema, switches};
use crate::TrainError;
use crate::config::Methods;

const TRAINING_KEYS: [&str; 9] = [
    "credit",
    "objective",
    "decomposer",
    "critic",
    "sft",
    "train",
    "rollout.filter_groups",
    "rollout.compact_filter",
    "rollout.overlong",
];

/// Sources of a config, in ascending precedence:
///
/// 1. the defaults;
/// 2. the preset from the command line, if it is a full config (`quickstart`);
/// 3. the preset named by the last file with a `preset` key;
/// 4. the files, left to right;
/// 5. the preset from the command line ([`ConfigSource::preset`] or `preset=NAME`), if it is a
///    method;
/// 6. the overrides, left to right.
///
/// Tables merge key by key; lists, and tables with another `kind`, are replaced. A method from the
/// command line replaces the files' method preset and method settings (`credit`, `objective`,
/// `decomposer`, `rollout.filter_groups`, `rollout.compact_filter`, `rollout.overlong`), and
/// removes a `critic` that it does not need.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// Preset from the command line: a method or a full config.
    pub preset: Option<String>,
    /// Config files; later ones win.
    pub files: Vec<PathBuf>,
    /// Overrides `key.sub=value`; values are TOML or plain strings.
    pub overrides: Vec<String>,
    /// Purpose of the config.
    pub purpose: ConfigPurpose,
    /// Known environments and methods.
    pub registries: Registries,
}

/// Purpose of a loaded config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfigPurpose {
    /// A new run.
    #[default]
    Train,
    /// Playing a policy. Training settings of presets and files (`credit`, `objective`,
    /// `decomposer`, `critic`, `sft`, `train`, group selection) and the rules about them are
    /// ignored.
    Play,
    /// Resuming a run from its `config.toml`. The config's preset is not applied again, and some
    /// keys are fixed.
    Resume,
}

impl ConfigSource {
    /// Returns the source of an existing run's config.
    pub fn of_run(root: &Path) -> Self {
        let files = vec![root.join("config.toml")];
        Self { files, purpose: ConfigPurpose::Resume, ..Self::default() }
    }

    /// Adds the origin (file and line, or argument) to invalid settings that lack one.
    pub fn locate(&self, error: TrainError) -> TrainError {
        match (error, self.layer()) {
            (TrainError::Settings(SettingsError(mut problems)), Ok(layer)) => {
                for problem in problems.iter_mut().filter(|problem| problem.origin.is_none()) {
                    problem.origin = layer.origin(&problem.key);
                }
                SettingsError(problems).into()
            }
            (error, _) => error,
        }
    }

    fn layer(&self) -> Result<Layer, TrainError> {
        let Self { registries, overrides, .. } = self;
        match self.purpose {
            ConfigPurpose::Train => merged(self, &mut |_| Ok(())),
            ConfigPurpose::Play => merged(self, &mut |layer| {
                for key in TRAINING_KEYS {
                    layer.remove(key);
                }
                layer.put(Layer::argument("train.steps=0")?);
                layer.put(Layer::argument("sft.steps=0")?);
                Ok(())
            }),
            ConfigPurpose::Resume => {
                let mut layer = Layer::default();
                for path in &self.files {
                    layer.put(read(path)?);
                }
                if !overrides.is_empty() {
                    // With all defaults, so that an override with a default's value changes
                    // nothing.
                    layer.table = amend::table_of(&resolve(&layer, registries)?)?;
                    amend::put(&mut layer, overrides, registries)?;
                }
                Ok(layer)
            }
        }
    }
}

/// Loads and checks a config.
///
/// # Errors
/// Returns all invalid settings, each with origin, key, value and valid range.
pub fn load(source: &ConfigSource) -> Result<Config, TrainError> {
    resolve(&source.layer()?, &source.registries)
}

fn merged(
    source: &ConfigSource,
    amend: &mut dyn FnMut(&mut Layer) -> Result<(), SettingsError>,
) -> Result<Layer, TrainError> {
    let files = source.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let mut named = source.preset.clone();
    let mut arguments = Vec::new();
    for text in &source.overrides {
        let mut layer = Layer::argument(text)?;
        if let Some(name) = layer.text("preset") {
            match &named {
                Some(other) if other != name => {
                    let reason = format!("is `{name}`, and the preset `{other}` was asked for too; name one");
                    return Err(SettingsError(vec![Problem::new("preset", reason)]).into());
                }
                _ => named = Some(name.to_owned()),
            }
        }
        if layer.text("preset").is_some() {
            layer.remove("preset");
        }
        arguments.push(layer);
    }
    let mut merged = merge(files, named.as_deref(), &source.registries.methods)?;
    amend(&mut merged)?;
    // Arguments that set a `kind` replace their table, so they come first.
    arguments.sort_by_key(|argument: &Layer| !argument.names_a_kind());
    merged.put_all(arguments);
    Ok(merged)
}

/// Returns the value that the overrides set for a key such as `env.kind`, if any.
///
/// # Errors
/// Fails on an invalid override.
pub fn overridden(overrides: &[String], key: &str) -> Result<Option<String>, TrainError> {
    let mut merged = Layer::default();
    for text in overrides {
        merged.put(Layer::argument(text)?);
    }
    let mut table = &merged.table;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        match table.get(part) {
            Some(Value::Table(inner)) => table = inner,
            Some(Value::String(text)) if parts.peek().is_none() => return Ok(Some(text.clone())),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn merge(mut files: Vec<Layer>, named: Option<&str>, methods: &Methods) -> Result<Layer, SettingsError> {
    let command = named.map(|name| Preset::named(name, None, methods)).transpose()?;
    let has_method = command.as_ref().is_some_and(|preset| !preset.is_whole());
    let mut merged = Layer::default();
    let mut method = None;
    match command {
        // A full config may name a method, like other files.
        Some(preset) if preset.is_whole() => files.insert(0, preset.into_layer()),
        preset => method = preset.map(Preset::into_layer),
    }
    let of_file =
        files.iter().rev().find_map(|file| Some((file.text("preset")?.to_owned(), file.origin("preset"))));
    if let Some((name, origin)) = &of_file {
        let preset = Preset::named(name, origin.as_deref(), methods)?;
        if preset.is_whole() || !has_method {
            merged.put(preset.into_layer());
        }
    }
    merged.put_all(files);
    if let Some(method) = method {
        for key in METHOD_KEYS {
            merged.remove(key);
        }
        merged.put(method);
        if !has_critic(&merged, methods) {
            merged.remove("critic");
        }
    }
    if let Some(name) = named.filter(|_| has_method || of_file.is_none()) {
        merged.table.insert("preset".into(), Value::String(name.to_owned()));
    }
    Ok(merged)
}

pub(super) fn has_critic(layer: &Layer, methods: &Methods) -> bool {
    let credit = layer.table.get("credit").cloned().unwrap_or_else(|| Value::Table(Table::new()));
    let pipeline = credit
        .try_into::<CreditConfig>()
        .ok()
        .and_then(|credit| Pipeline::with_registry(&credit, &methods.credit).ok());
    pipeline.is_some_and(|pipeline| pipeline.required_inputs().values)
}

fn read(path: &Path) -> Result<Layer, TrainError> {
    let text = std::fs::read_to_string(path).map_err(|error| match embedded_name(path) {
        Some(name) if error.kind() == std::io::ErrorKind::NotFound => TrainError::Config {
            origin: path.display().to_string(),
            reason: format!(
                "file not found; write the copy that comes with the program by \
                 `turnwise config show --preset {name} > {}`, and name that",
                path.file_name().unwrap_or_default().display()
            ),
        },
        _ => TrainError::io(path, error),
    })?;
    Ok(Layer::file(&text, &path.display().to_string())?)
}

pub(super) fn resolve(layer: &Layer, registries: &Registries) -> Result<Config, TrainError> {
    let Registries { environments, methods } = registries;
    let mut table = layer.table.clone();
    // The kind decides which keys the table may have.
    let env = table.entry("env").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(env) = env {
        env.entry("kind").or_insert_with(|| Value::String(EnvConfig::default().kind));
    }
    let value = Value::Table(table);
    let mut found = problems(&schema_with(registries), &value);
    let kind = value.get("env").and_then(|env| env.get("kind")).and_then(Value::as_str);
    // The registry suggests names and knows which environments need another build.
    if let Some(Err(SettingsError(unknown))) = kind.map(|kind| environments.kind(kind))
        && let Some(problem) = found.iter_mut().find(|problem| problem.key == "env.kind")
    {
        problem.reason = unknown.iter().map(|unknown| unknown.reason.as_str()).collect::<Vec<_>>().join("; ");
    }
    located(layer, found)?;
    let mut config: Config = match value.try_into() {
        Ok(config) => config,
        // Only texts with their own syntax can still fail.
        Err(error) => {
            let reason = error.to_string().trim().replace('\n', " ");
            return Err(SettingsError(vec![Problem::new("config", reason)]).into());
        }
    };
    let of_env = |error: SettingsError| {
        let keyed = error.0.into_iter().map(|problem| {
            let key = if problem.key.is_empty() { "env".into() } else { format!("env.{}", problem.key) };
            Problem { key, ..problem }
        });
        keyed.collect::<Vec<_>>()
    };
    match environments.kind(&config.env.kind).and_then(|kind| kind.resolve(&config.env.settings)) {
        Ok(settings) => config.env.settings = settings,
        Err(error) => located(layer, of_env(error))?,
    }
    if let Err(error) = methods.spell_out(&mut config.credit, &mut config.objective) {
        located(layer, error.0)?;
    }
    let mut found = config.rule_problems(registries);
    found.extend(switches::without_switch(&layer.table));
    located(layer, found)?;
    Ok(config)
}

pub(super) fn schema_with(registries: &Registries) -> serde_json::Value {
    let mut schema = schema_of::<Config>();
    schema["properties"]["env"] = env_schema(&registries.environments);
    registries.methods.extend_schema(&mut schema);
    schema
}

fn located(layer: &Layer, mut problems: Vec<Problem>) -> Result<(), SettingsError> {
    for problem in &mut problems {
        problem.origin = layer.origin(&problem.key);
    }
    SettingsError::of(problems)
}
