//! Starts a run from the end of another run's SFT, if the SFT settings of both are equal.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use toml::{Table, Value};

use crate::TrainError;
use crate::config::{
    Config, ConfigSource, PolicyLearnerConfig, Registries, differences, list_differences, load,
};
use crate::learners::Learners;
use crate::learners::decomposer::RunDecomposer;
use crate::learners::open_device;
use crate::plan::memory;
use crate::plan::preflight::{Checked, checked, shape_of};
use crate::record::abandoned::abandon_cut_off_start;
use crate::record::checkpoint::{self, Checkpoint, CheckpointState};
use crate::record::directory::{Phase, Position, RunDirectory};
use crate::record::earlier_configs;
use crate::record::lock::RunLock;
use crate::record::log::Remembered;
use crate::record::metrics::{MetricsWriter, recover};
use crate::record::observer::{Event, Observer};
use crate::record::state::RunState;
use crate::rollout::EnvRunner;
use crate::run::Run;
use crate::run::builder::RunBuilder;
use turnwise_policy::base;

/// Keys that do not affect SFT. All other keys count as used by SFT, so forgetting to list a new
/// key here cannot let runs with different SFT share a checkpoint.
const RL_ONLY: [&str; 46] = [
    "name",
    "preset",
    "credit",
    "objective",
    "decomposer",
    "critic",
    // Demonstrations are imitated whatever their reward.
    "env.reward_scale",
    "prompt.validity",
    "rollout.tasks_per_step",
    "rollout.group_size",
    "rollout.temperature",
    "rollout.top_p",
    "rollout.top_k",
    "rollout.max_response_tokens",
    "rollout.max_num_seqs",
    "rollout.engine",
    "rollout.max_staleness",
    "rollout.on_error",
    "rollout.max_resamples",
    "rollout.env_threads",
    "rollout.env_timeout_s",
    "rollout.env_retries",
    "rollout.num_workers",
    "rollout.filter_groups",
    "rollout.compact_filter",
    "rollout.overlong",
    "train.steps",
    "train.learning_rate",
    "train.warmup",
    "train.schedule",
    "train.num_minibatches",
    "train.shuffle",
    "train.ppo_epochs",
    "train.skip_zero_advantage",
    "train.skip_equal_groups",
    "train.recompute_old_logprobs",
    "train.rollout_correction",
    "train.checkpoint_every",
    "train.keep_last",
    "train.keep_best",
    "train.save_trajectories",
    "train.explain",
    "eval.tasks",
    "eval.temperature",
    "eval.every",
    // The last checkpoint is always kept.
    "sft.checkpoint_every",
];

/// Returns the settings that SFT depends on, as TOML. If two configs give equal texts, their SFT is
/// bit-identical. `None` if there is no SFT.
///
/// # Errors
/// Fails if TOML cannot represent a value.
pub fn warm_start_settings(config: &Config, registries: &Registries) -> Result<Option<String>, TrainError> {
    if config.sft.steps == 0 {
        return Ok(None);
    }
    let table = table_of(config, registries)?;
    let text = toml::to_string(&table).map_err(|error| unwritable(&error))?;
    Ok(Some(text))
}

fn unwritable(error: &dyn std::fmt::Display) -> TrainError {
    TrainError::Config { origin: "config".into(), reason: error.to_string() }
}

fn table_of(config: &Config, registries: &Registries) -> Result<Table, TrainError> {
    let mut table = Table::try_from(config).map_err(|error| unwritable(&error))?;
    let of_world = registries.environments.kind(&config.env.kind).map_or(&[][..], |kind| kind.credit_keys());
    for key in RL_ONLY.map(String::from).into_iter().chain(of_world.iter().map(|key| format!("env.{key}"))) {
        match key.split_once('.') {
            None => {
                table.remove(&key);
            }
            Some((outer, inner)) => {
                if let Some(Value::Table(table)) = table.get_mut(outer) {
                    table.remove(inner);
                }
            }
        }
    }
    Ok(table)
}

/// Returns the last checkpoint of another run's SFT, if this config can use it.
pub(super) fn warm_start_of(
    registries: &Registries,
    config: &Config,
    source: &RunDirectory,
) -> Result<Checkpoint, TrainError> {
    if config.sft.data.is_some() {
        let reason = "is set, and a warm start on conversations is taken over as a model: set policy.model to that run".into();
        return Err(TrainError::Config { origin: "sft.data".into(), reason });
    }
    if config.sft.steps == 0 {
        let reason =
            "is 0, so that there is no warm start to take over from another run; start without it".into();
        return Err(TrainError::Config { origin: "sft.steps".into(), reason });
    }
    for path in earlier_configs::of_warm_start(source, config.sft.steps)? {
        let of_run = ConfigSource { files: vec![path.clone()], ..ConfigSource::of_run(source.root()) };
        let theirs = load(&ConfigSource { registries: registries.clone(), ..of_run })?;
        let differing = differences(&table_of(&theirs, registries)?, &table_of(config, registries)?);
        if !differing.is_empty() {
            let reason = format!(
                "its warm start is of other settings (its value, then this config's) and would give other weights: {}; set them \
                 alike, or start without it",
                list_differences(&differing)
            );
            return Err(TrainError::file(&path, reason));
        }
    }
    checkpoint::at(source, Position { phase: Phase::Sft, step: config.sft.steps })
}

impl RunBuilder {
    /// Starts a new run from the end of another run's SFT.
    ///
    /// # Errors
    /// Fails like [`RunBuilder::start`], or if the other run's SFT is incomplete, or if the two
    /// configs differ in settings that SFT depends on.
    pub fn start_from(self, other: &Path, observer: &mut dyn Observer) -> Result<Run, TrainError> {
        let Self { config, root, registries, policies, ignore_memory, .. } = self;
        let observer = &mut Remembered { inner: observer, notes: Vec::new() };
        let source = RunDirectory::open(other)?;
        let found = warm_start_of(&registries, &config, &source)?;
        let position = found.position;

        policies.check(&config)?;
        RunDecomposer::check_service(&config)?;
        let Checked { directory, world, .. } = checked(&config, &registries, &root, observer)?;
        let (world, panels) = world.unzip();
        open_device(&config, observer)?;
        if matches!(config.policy.learner, PolicyLearnerConfig::Native)
            && let Ok((_, model)) = shape_of(&found.path.join("policy"))
        {
            memory::check(&config, &registries, &model, world.as_ref(), ignore_memory, observer)?;
        }
        let lock = RunLock::take(directory.root())?;
        RunDirectory::check_free(directory.root())?;
        abandon_cut_off_start(directory.root())?;
        let directory = RunDirectory::create(directory.root())?;
        if let Some(panels) = panels {
            directory.write_json("panel.json", &panels)?;
        }
        let stored = found.state()?;
        let mut own_base = stored.base.clone();
        if source.path(base::FOLDER).is_dir() {
            let folder = directory.path(base::FOLDER);
            copy(&source.path(base::FOLDER), &folder)?;
            turnwise_files::sync_all_below(&folder).map_err(|error| TrainError::io(&folder, error))?;
            let folder = folder.canonicalize().map_err(|error| TrainError::io(&folder, error))?;
            if let Some(base) = &mut own_base {
                base.name = folder.to_string_lossy().into_owned();
            }
        }
        // The KL coefficient is this config's.
        let state = RunState { position, ..RunState::new(&config) };
        let kept = CheckpointState {
            kl_coef: config.objective.kl.adaptive.is_some().then_some(state.kl_coef),
            base: own_base,
            ..stored
        };
        let checkpoint = checkpoint::write(&directory, &kept, |folder| {
            // A service has no optimizer state but a name for it.
            for name in found.learner_files()? {
                copy(&found.path.join(&name), &folder.join(&name))?;
            }
            Ok(())
        })?;
        let mut report = |text| observer.event(Event::Note(text));
        let start = Position { phase: Phase::Sft, step: 0 };
        let mut metrics = MetricsWriter::open(&directory, start, config.sft.steps, &mut report)?;
        for line in recover(&source, position, config.sft.steps, &mut report)? {
            metrics.write_line(&line)?;
        }
        metrics.sync()?;
        directory.write("config.toml", config.to_toml()?.as_bytes())?;
        observer.event(Event::Note(format!("warm start taken over from {}", found.path.display())));
        let (policy, tokenizer) = policies.resume(&config, &registries, &checkpoint)?;
        let runner =
            world.map(|world| EnvRunner::new(&config, &registries, world, tokenizer, policy.vision()));
        let runner = runner.transpose()?.map(Arc::new);
        let decomposer = RunDecomposer::open(&config, &directory, policy.hidden_size(), 0)?;
        let learners = Learners { policy, critic: None, decomposer };
        let notes = std::mem::take(&mut observer.notes);
        let (learning, lock) = (None, Some(lock));
        let conversations = None;
        Ok(Run {
            config,
            registries,
            directory,
            runner,
            conversations,
            learners,
            state,
            metrics,
            learning,
            notes,
            lock,
        })
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), TrainError> {
    if !from.is_dir() {
        return fs::copy(from, to).map(|_| ()).map_err(|error| TrainError::io(from, error));
    }
    fs::create_dir_all(to).map_err(|error| TrainError::io(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| TrainError::io(from, error))? {
        let entry = entry.map_err(|error| TrainError::io(from, error))?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_is_left_out_is_a_key() {
        let mut config = Config { preset: Some("grpo".into()), ..Config::default() };
        config.rollout.overlong = Some(crate::config::OverlongSettings::default());
        config.rollout.compact_filter = Some(turnwise_credit::compact::CompactFilterConfig::default());
        config.train.keep_best = Some("test".into());
        config.train.rollout_correction = Some(turnwise_objective::RolloutCorrection::default());
        config.rollout.engine = Some(crate::config::ServersConfig::default());
        let table = Table::try_from(&config).unwrap();
        for key in RL_ONLY {
            let mut parts = key.split('.');
            let first = table.get(parts.next().unwrap());
            let found = parts.fold(first, |value, part| value?.as_table()?.get(part));
            assert!(found.is_some(), "{key}");
        }
    }

    #[test]
    fn settings_are_alike_up_to_what_reinforcement_learning_reads() {
        let (mut config, registries) = (Config::default(), Registries::builtin());
        assert_eq!(warm_start_settings(&config, &registries).unwrap(), None);
        config.sft.steps = 3;
        let settings = |config: &Config| warm_start_settings(config, &registries).unwrap().unwrap();
        let before = settings(&config);
        let mut other = config.clone();
        other.name = "other".into();
        other.train.learning_rate = 0.5;
        other.rollout.group_size = 3;
        other.rollout.max_staleness = 2;
        other.env.reward_scale = 10.0;
        other.objective.kl.coef = 0.25;
        assert_eq!(settings(&other), before);
        for change in [
            |config: &mut Config| config.seed = 7,
            |config: &mut Config| config.sft.batch_tokens = 7,
            |config: &mut Config| config.rollout.max_model_len = 7,
            |config: &mut Config| config.optimizer.beta1 = 0.5,
            |config: &mut Config| config.train.num_workers = 7,
        ] {
            let mut other = config.clone();
            change(&mut other);
            assert_ne!(settings(&other), before);
        }
        // Credit keys that an environment declares do not affect SFT.
        let keeps = |kind: &str, key: &str| {
            let mut config = config.clone();
            config.env.kind = kind.into();
            config.env.settings.insert(key.into(), "of its own".into());
            settings(&config).contains("of its own")
        };
        assert!(!keeps("webshop", "state_key") && keeps("webshop", "goals") && keeps("theirs", "state_key"));
        assert!(keeps("sokoban", "state_key"));
        let mut other = config.clone();
        other.train.num_workers = 7;
        other.seed = 7;
        let found =
            differences(&table_of(&config, &registries).unwrap(), &table_of(&other, &registries).unwrap());
        let keys: Vec<&str> = found.iter().map(|difference| difference.key.as_str()).collect();
        assert_eq!(keys, ["seed", "train.num_workers"]);
    }
}
