//! Changes of settings when a run resumes.

use toml::{Table, Value};
use turnwise_settings::{Problem, SettingsError};

use super::layers::Layer;
use super::load::has_critic;
use super::{Config, Registries};

/// Keys that must not change, because they define the run's tasks, model and token sequences.
const FIXED: [&str; 14] = [
    "name",
    "seed",
    "preset",
    "env",
    "policy.model",
    "policy.lora",
    "policy.scratch",
    "sft.data.path",
    "sft.data.held_out",
    "critic.lora",
    // The checkpoint stores the network's settings.
    "decomposer.network",
    "decomposer.round_steps",
    // Panels are fixed at a run's start.
    "eval.tasks",
    "eval.splits",
];

pub(super) fn table_of(config: &Config) -> Result<Table, SettingsError> {
    Table::try_from(config).map_err(|error| SettingsError(vec![Problem::new("config", error.to_string())]))
}

pub(super) fn put(
    settings: &mut Layer,
    overrides: &[String],
    registries: &Registries,
) -> Result<(), SettingsError> {
    let mut found = Vec::new();
    for text in overrides {
        let argument = Layer::argument(text)?;
        let before = settings.table.clone();
        settings.put(argument);
        let origin = Some(format!("argument `{text}`"));
        let fixed = fixed(&before, &settings.table);
        found.extend(fixed.into_iter().map(|problem| Problem { origin: origin.clone(), ..problem }));
    }
    SettingsError::of(found)?;
    // A method without a critic drops the run's critic.
    let is_named = overrides.iter().any(|text| text.trim_start().starts_with("critic"));
    if !is_named && !has_critic(settings, &registries.methods) {
        settings.remove("critic");
    }
    Ok(())
}

pub(crate) fn check_fixed(began: &Config, config: &Config) -> Result<(), SettingsError> {
    let (before, after) = (table_of(began)?, table_of(config)?);
    let mut found = fixed(&before, &after);
    if at(&before, "decomposer.kind") != at(&after, "decomposer.kind") {
        // Defaults of another kind do not count as changes.
        found.retain(|problem| !problem.key.starts_with("decomposer."));
    }
    SettingsError::of(found)
}

fn fixed(before: &Table, after: &Table) -> Vec<Problem> {
    let without = at(after, "decomposer.kind") != at(before, "decomposer.kind")
        && at(after, "decomposer.kind").and_then(Value::as_str) != Some("turnrd");
    let is_fixed = |key: &&str| !(without && key.starts_with("decomposer."));
    let changed = |key: &&str| at(before, key) != at(after, key);
    let reason = "belongs to what the run began with and cannot change; start a new run";
    FIXED.into_iter().filter(is_fixed).filter(changed).map(|key| Problem::new(key, reason)).collect()
}

fn at<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.as_table()?.get(part))
}

#[cfg(test)]
mod tests {
    use super::super::load::resolve;
    use super::*;
    use crate::TrainError;
    use crate::config::{DecomposerConfig, TurnRdSettings};

    fn amend(config: &Config, overrides: &[String]) -> Result<Config, TrainError> {
        let mut settings = Layer::code(table_of(config)?, "config of the run");
        put(&mut settings, overrides, &Registries::builtin())?;
        resolve(&settings, &Registries::builtin())
    }

    fn with(overrides: &[&str]) -> Result<Config, TrainError> {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        amend(&Config::default(), &overrides)
    }

    #[test]
    fn what_may_change_changes() {
        let config =
            with(&["train.steps=900", "train.learning_rate=1e-7", "optimizer.clip_norm=0.1"]).unwrap();
        assert_eq!((config.train.steps, config.train.learning_rate), (900, 1e-7));
        let plain = crate::config::load(&crate::config::ConfigSource::default()).unwrap();
        assert_eq!(amend(&plain, &[]).unwrap(), plain);
    }

    #[test]
    fn what_a_run_began_with_stays() {
        for fixed in [
            "seed=1",
            "eval.tasks=7",
            "env.split=valid_seen",
            "policy.scratch.layers=9",
            "policy.lora.rank=4",
        ] {
            let error = with(&[fixed]).unwrap_err().to_string();
            assert!(error.contains(fixed) && error.contains("cannot change"), "{error}");
        }
        assert!(with(&["train.learning_rate=-1"]).is_err());
        let config =
            Config { decomposer: DecomposerConfig::Turnrd(TurnRdSettings::default()), ..Config::default() };
        for fixed in ["decomposer.network.epochs=3", "decomposer.round_steps=7"] {
            let error = amend(&config, &[fixed.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(fixed) && error.contains("cannot change"), "{error}");
        }
    }

    #[test]
    fn a_method_is_left_with_the_settings_of_its_network_and_critic() {
        let begun = |overrides: &[&str]| {
            let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
            crate::config::load(&crate::config::ConfigSource { overrides, ..Default::default() }).unwrap()
        };
        let to = |config: &Config, overrides: &[&str]| {
            amend(config, &overrides.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let turnrd = begun(&["preset=has-turnrd", "decomposer.network.epochs=3"]);
        let left = to(&turnrd, &["credit.refinements=[]", "decomposer.kind=none"]).unwrap();
        assert_eq!(left.decomposer, DecomposerConfig::default());
        let ppo = begun(&["preset=ppo", "policy.lora.rank=4", "critic.lora.rank=8"]);
        let left = to(&ppo, &["credit.estimator={kind=\"grpo\"}"]).unwrap();
        assert_eq!((left.critic, left.policy.lora.is_some()), (Config::default().critic, true));
        assert!(to(&ppo, &["credit.estimator={kind=\"grpo\"}", "critic.lora.rank=4"]).is_err());
        let error = to(&ppo, &["credit.estimator={kind=\"grpo\"}", "train.learning_rate=-1"]).unwrap_err();
        assert!(error.to_string().contains("train.learning_rate"), "{error}");
    }
}
