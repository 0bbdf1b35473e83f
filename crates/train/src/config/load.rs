//! Reading configs: preset <- files, left to right <- overrides.

use std::path::{Path, PathBuf};

use toml::{Table, Value};
use turnwise_credit::selection::{DynamicConfig, SelectionConfig};
use turnwise_credit::{CreditConfig, PRESETS};
use turnwise_decompose::JudgeConfig;
use turnwise_decompose::turnrd::TurnRdConfig;
use turnwise_objective::ObjectiveConfig;

use super::renamed;
use super::{Config, DecomposerConfig, OverlongSettings, TurnRdSettings};
use crate::TrainError;

/// The whole configs that come with the program: name and TOML text.
const CONFIGS: [(&str, &str); 1] = [("quickstart", include_str!("../../../../configs/quickstart.toml"))];

/// The names of all presets.
pub fn presets() -> impl Iterator<Item = &'static str> {
    CONFIGS.iter().map(|(name, _)| *name).chain(PRESETS)
}

/// What a config is put together from.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// A preset to start from, before any file; a file's own `preset` key is used otherwise.
    pub preset: Option<String>,
    /// Config files; later ones win.
    pub files: Vec<PathBuf>,
    /// `key.sub=value`; they win over files. The value is TOML, or a bare string.
    pub overrides: Vec<String>,
}

/// Reads, merges and checks a config. Lists are replaced whole.
///
/// # Errors
/// An unknown key names its file and line (or the override) and the nearest right key.
pub fn load(source: &ConfigSource) -> Result<Config, TrainError> {
    let mut merged = Table::new();
    let mut preset = source.preset.clone();
    let mut files = Vec::new();
    for path in &source.files {
        let text = std::fs::read_to_string(path).map_err(|error| TrainError::io(path, error))?;
        let table = parse(&text, &path.display().to_string())?;
        if let Some(Value::String(name)) = table.get("preset") {
            preset = preset.or_else(|| Some(name.clone()));
        }
        files.push(table);
    }
    let mut overrides = Vec::new();
    for text in &source.overrides {
        let table = parse_override(text)?;
        if let Some(Value::String(name)) = table.get("preset") {
            preset = Some(name.clone());
        }
        overrides.push((text, table));
    }
    if let Some(name) = &preset {
        merge(&mut merged, preset_table(name)?);
    }
    for table in files {
        merge(&mut merged, table);
    }
    for (text, table) in overrides {
        let mut with = merged.clone();
        merge(&mut with, table);
        // Checked one by one, so that an error can name the override it comes from.
        typed(with.clone(), text)?;
        merged = with;
    }
    if let Some(name) = preset {
        merged.insert("preset".into(), Value::String(name));
    }
    let config = typed(merged, "config")?;
    config.check()?;
    Ok(config)
}

fn preset_table(name: &str) -> Result<Table, TrainError> {
    if let Some((_, text)) = CONFIGS.iter().find(|(known, _)| *known == name) {
        return parse(text, &format!("preset {name}"));
    }
    let fail = |reason: String| TrainError::Config { origin: "preset".into(), reason };
    if PRESETS.contains(&name)
        && let (Some(credit), Some(objective)) = (CreditConfig::preset(name), ObjectiveConfig::preset(name))
    {
        let mut config = Config { credit, objective, ..Config::default() };
        // A method says how turns are credited, what the loss is and which data it wants, and nothing else.
        let mut keys = vec!["credit", "objective"];
        if name.ends_with("dapo") || name == "stapo-dynamic" {
            config.rollout.selection = SelectionConfig::Dynamic(DynamicConfig::default());
            keys.push("rollout.selection");
        }
        if name.ends_with("dapo") {
            config.rollout.overlong = Some(OverlongSettings::default());
            keys.push("rollout.overlong");
        }
        let network = |film| TurnRdConfig { film, ..TurnRdConfig::default() };
        let turnrd = |film| TurnRdSettings { network: network(film), ..TurnRdSettings::default() };
        config.decomposer = match name {
            "has-judge" => DecomposerConfig::Judge(JudgeConfig::default()),
            "has-turnrd" => DecomposerConfig::Turnrd(turnrd(false)),
            "has-turnrd-film" => DecomposerConfig::Turnrd(turnrd(true)),
            _ => DecomposerConfig::None,
        };
        if config.decomposer != DecomposerConfig::None {
            keys.push("decomposer");
        }
        if name.starts_with("so-") {
            (config.train.update_epochs, config.train.num_minibatches) = (4, 2);
            keys.extend(["train.update_epochs", "train.num_minibatches"]);
        }
        let table = Table::try_from(config).map_err(|error| fail(error.to_string()))?;
        return Ok(only(&table, &keys));
    }
    let known: Vec<&str> = presets().collect();
    let mut reason = format!("unknown preset `{name}`");
    if let Some(nearest) = suggest(name, &known) {
        reason.push_str(&format!("; did you mean `{nearest}`?"));
    }
    reason.push_str(&format!(" There are: {}", known.join(", ")));
    Err(fail(reason))
}

/// The named keys of a table and of its tables (`outer.inner`).
fn only(table: &Table, keys: &[&str]) -> Table {
    let mut chosen = Table::new();
    for key in keys {
        let (outer, inner) = key.split_once('.').map_or((*key, None), |(outer, inner)| (outer, Some(inner)));
        match (table.get(outer), inner) {
            (Some(value), None) => {
                chosen.insert(outer.to_owned(), value.clone());
            }
            (Some(Value::Table(nested)), Some(inner)) => {
                let to = chosen.entry(outer).or_insert_with(|| Value::Table(Table::new()));
                if let (Value::Table(to), Some(value)) = (to, nested.get(inner)) {
                    to.insert(inner.to_owned(), value.clone());
                }
            }
            _ => {}
        }
    }
    chosen
}

/// Parses one file and checks its keys and types against the schema, so that the error has a line.
fn parse(text: &str, origin: &str) -> Result<Table, TrainError> {
    if let Some(reason) = text.parse().ok().as_ref().and_then(renamed::find) {
        return Err(TrainError::Config { origin: origin.into(), reason });
    }
    if let Err(error) = toml::from_str::<Config>(text) {
        let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        let place = line.map_or_else(String::new, |line| format!("line {line}: "));
        return Err(TrainError::Config {
            origin: origin.into(),
            reason: format!("{place}{}", with_suggestion(error.message())),
        });
    }
    text.parse::<Table>()
        .map_err(|error| TrainError::Config { origin: origin.into(), reason: error.message().to_owned() })
}

pub(super) fn parse_override(text: &str) -> Result<Table, TrainError> {
    let fail = |reason: String| Err(TrainError::Config { origin: format!("override `{text}`"), reason });
    let Some((key, value)) = text.split_once('=') else {
        return fail("an override is written key.sub=value".into());
    };
    let key = key.trim();
    let value = value.trim();
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return fail("an override is written key.sub=value; the key is incomplete".into());
    }
    // What is not TOML is a bare string: paths and names need no quotes.
    let value = format!("value = {value}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(value.to_owned()));
    let mut table = Table::new();
    let mut parts = key.rsplit('.');
    let last = parts.next().unwrap_or(key);
    table.insert(last.to_owned(), value);
    for part in parts {
        let mut outer = Table::new();
        outer.insert(part.to_owned(), Value::Table(table));
        table = outer;
    }
    match renamed::find(&table) {
        Some(reason) => fail(reason),
        None => Ok(table),
    }
}

pub(super) fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(table)) if !replaces(inner, &table) => {
                merge(inner, table);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// A table that names another `kind` is another thing: nothing of the old one carries over.
fn replaces(old: &Table, new: &Table) -> bool {
    matches!((old.get("kind"), new.get("kind")), (Some(old), Some(new)) if old != new)
}

pub(super) fn typed(table: Table, origin: &str) -> Result<Config, TrainError> {
    Value::Table(table).try_into().map_err(|error: toml::de::Error| TrainError::Config {
        origin: if origin == "config" { origin.into() } else { format!("override `{origin}`") },
        reason: with_suggestion(error.to_string().trim()),
    })
}

/// Adds `did you mean` to serde's "unknown field `x`, expected one of `a`, `b`".
fn with_suggestion(message: &str) -> String {
    let message = message.replace('\n', " ");
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let Some((wrong, known)) = quoted.split_first() else { return message };
    if !message.starts_with("unknown ") {
        return message;
    }
    match suggest(wrong, known) {
        Some(nearest) => format!("{message}. Did you mean `{nearest}`?"),
        None => message,
    }
}

/// The known name nearest to a misspelt one, if any is near.
pub fn suggest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), *name))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// Reads the config of a run directory as it was resolved.
pub fn load_resolved(path: &Path) -> Result<Config, TrainError> {
    let text = std::fs::read_to_string(path).map_err(|error| TrainError::io(path, error))?;
    let table = parse(&text, &path.display().to_string())?;
    let config = typed(table, "config")?;
    config.check()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(overrides: &[&str]) -> Result<Config, TrainError> {
        load(&ConfigSource {
            overrides: overrides.iter().map(|text| (*text).to_owned()).collect(),
            ..ConfigSource::default()
        })
    }

    #[test]
    fn overrides_are_typed_and_win() {
        let config =
            with(&["train.steps=7", "name=here", "env.data=some/folder", "eval.splits=[\"a\"]"]).unwrap();
        assert_eq!(config.train.steps, 7);
        assert_eq!(config.name, "here");
        assert_eq!(config.env.data, Some("some/folder".into()));
        assert_eq!(config.eval.splits, ["a"]);
    }

    #[test]
    fn an_adapter_has_its_defaults_spelled_out() {
        assert_eq!(with(&[]).unwrap().policy.lora, None);
        let config = with(&["policy.lora.rank=8"]).unwrap();
        let lora = config.policy.lora.clone().unwrap();
        assert_eq!((lora.rank, lora.alpha, lora.dropout, lora.rslora), (8, 64.0, 0.0, false));
        assert_eq!(lora.targets, ["all-linear"]);
        assert_eq!(config.critic_lora(), Some(&lora));
        let text = config.to_toml().unwrap();
        assert!(
            text.contains("[policy.lora]\nrank = 8\nalpha = 64.0\ndropout = 0.0\nrslora = false"),
            "{text}"
        );
        let both =
            with(&["policy.lora={}", "critic.lora={rank=4}", "credit.estimator={kind=\"ppo\"}"]).unwrap();
        assert_eq!(both.critic_lora().unwrap().rank, 4);
    }

    #[test]
    fn a_misspelt_key_names_the_nearest() {
        let error = with(&["train.stepz=7"]).unwrap_err().to_string();
        assert!(error.contains("train.stepz=7") && error.contains("Did you mean `steps`"), "{error}");
        let error = with(&["train.steps=many"]).unwrap_err().to_string();
        assert!(error.contains("train.steps=many") && error.contains("steps"), "{error}");
        // A judge has no name of its own.
        let error = with(&["preset=has-judge"]).unwrap_err().to_string();
        assert!(error.contains("model"), "{error}");
        assert!(with(&["preset=has-judge", "decomposer.model=m"]).is_ok());
        let error = with(&["preset=grop"]).unwrap_err().to_string();
        assert!(error.contains("did you mean `grpo`"), "{error}");
    }

    #[test]
    fn a_files_error_has_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        std::fs::write(&path, "name = \"x\"\n[train]\nlearning_rat = 1.0\n").unwrap();
        let error =
            load(&ConfigSource { files: vec![path], ..ConfigSource::default() }).unwrap_err().to_string();
        assert!(
            error.contains("bad.toml") && error.contains("line 3") && error.contains("`learning_rate`"),
            "{error}"
        );
    }

    #[test]
    fn the_resolved_config_reads_back_as_itself() {
        for name in presets() {
            let overrides = if name == "has-judge" { vec!["decomposer.model=m".into()] } else { Vec::new() };
            let config =
                load(&ConfigSource { preset: Some(name.into()), files: Vec::new(), overrides }).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.toml");
            std::fs::write(&path, config.to_toml().unwrap()).unwrap();
            assert_eq!(load_resolved(&path).unwrap(), config);
        }
    }

    #[test]
    fn values_that_cannot_run_are_refused() {
        for (text, key) in [
            ("rollout.temperature=0", "rollout.temperature"),
            ("rollout.tasks_per_step=0", "rollout.tasks_per_step"),
            ("rollout.groups=4", "rollout.tasks_per_step"),
            ("env.name=webship", "env.name"),
            ("name=a/b", "name"),
            ("rollout.group_size=1", "rollout.group_size"),
            ("objective.selective.alpha=0.1", "objective.selective"),
            ("credit.outliers.lambda=1.5", "credit.outliers"),
            ("objective.kl.adaptive.target=0.1", "kl.adaptive"),
            ("decomposer={kind=\"turnrd\"}", "nothing uses it"),
            ("credit.refinements=[{kind=\"has\", decomposer=\"external\"}]", "needs one"),
            ("rollout.overlong.buffer=9999", "rollout.overlong.buffer"),
            ("rollout.selection={kind=\"dynamic\", max_rounds=0}", "max_rounds"),
            ("policy.lora.rank=0", "policy.lora.rank"),
            ("policy.lora.targets=[\"q_prj\"]", "policy.lora.targets"),
            ("policy.lora.droput=0.1", "Did you mean `dropout`"),
            ("critic.lora.rank=4", "critic.lora"),
        ] {
            let error = with(&[text]).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}
