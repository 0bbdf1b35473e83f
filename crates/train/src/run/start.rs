//! Starting and resuming runs.

use std::path::Path;
use std::sync::Arc;

use turnwise_model::Weights;
use turnwise_model::vision::VisionConfig;
use turnwise_policy::Policy;
use turnwise_settings::{Problem, SettingsError};
use turnwise_text::Tokenizer;

use crate::TrainError;
use crate::config::{self, Config, ConfigSource, DecomposerConfig, Registries};
use crate::learners::critic::RunCritic;
use crate::learners::decomposer::RunDecomposer;
use crate::learners::settings::critic_learner;
use crate::learners::{Learners, open_device};
use crate::plan::preflight::{Checked, Preflight, check_context, checked, preflight};
use crate::record::abandoned::{abandon_cut_off_start, abandon_results};
use crate::record::checkpoint::Checkpoint;
use crate::record::directory::{Phase, Position, RunDirectory};
use crate::record::lock::RunLock;
use crate::record::log::Remembered;
use crate::record::metrics::MetricsWriter;
use crate::record::observer::{Event, Observer};
use crate::record::state::{RL_START, RunState};
use crate::record::{checkpoint, earlier_configs, panels};
use crate::rollout::EnvRunner;
use crate::rollout::first_prompts;
use crate::run::Run;
use crate::run::builder::RunBuilder;
use crate::run::shared_warm_start::warm_start_of;
use crate::run::source::NewRun;
use crate::setup::World;
use crate::sft::conversations::{self, SftData, SftSummary};

impl RunBuilder {
    /// Runs all checks of [`RunBuilder::start`] or [`RunBuilder::start_from`], but writes nothing.
    ///
    /// The model only needs its `config.json`: `policy.model` may be its folder or the file itself.
    /// The result lists other missing parts (weights, the device).
    ///
    /// # Errors
    /// Fails like [`RunBuilder::start`] or [`RunBuilder::start_from`].
    pub fn preflight(
        &self,
        other: Option<&Path>,
        observer: &mut dyn Observer,
    ) -> Result<Preflight, TrainError> {
        if let Some(other) = other {
            warm_start_of(&self.registries, &self.config, &RunDirectory::open(other)?)?;
        }
        self.policies.check(&self.config)?;
        preflight(&self.config, &self.registries, &self.root, observer)
    }

    /// Starts a run in a new directory.
    ///
    /// # Errors
    /// Fails if a check rejects the run, or if a part of the run cannot be created. All checks come
    /// before any long work.
    pub fn start(self, observer: &mut dyn Observer) -> Result<Run, TrainError> {
        let Self { mut config, root, registries, policies, ignore_memory, .. } = self;
        let observer = &mut Remembered { inner: observer, notes: Vec::new() };
        policies.check(&config)?;
        RunDecomposer::check_service(&config)?;
        if let Some(data) = &mut config.sft.data {
            data.path = conversations::absolute(&data.path)?;
        }
        let Checked { directory, template, world } = checked(&config, &registries, &root, observer)?;
        let (world, panels) = world.unzip();
        open_device(&config, observer)?;
        let lock = RunLock::take(directory.root())?;
        RunDirectory::check_free(directory.root())?;
        abandon_cut_off_start(directory.root())?;
        let state = RunState::new(&config);
        let (policy, tokenizer) = policies.start(
            &NewRun {
                config: &config,
                registries: &registries,
                phase: state.position.phase,
                world: world.as_ref(),
                template: &template,
                directory: &directory,
                ignore_memory,
            },
            observer,
        )?;
        check_context(&config, policy.max_model_len())?;
        let conversations = conversations_of(&config, &registries, &tokenizer, observer)?;
        if let (Some(found), Some(settings)) = (&conversations, &config.sft.data) {
            config.sft.steps = found.plan(&config, settings).len() as u64;
        }
        let runner = runner_of(&config, &registries, world, tokenizer, policy.vision())?;
        let directory = RunDirectory::create(directory.root())?;
        if let Some(panels) = panels {
            directory.write_json("panel.json", &panels)?;
        }
        if let Some(found) = &conversations {
            directory.write_json(conversations::SUMMARY, &found.summary)?;
        }
        let decomposer = RunDecomposer::open(&config, &directory, policy.hidden_size(), 0)?;
        let metrics = MetricsWriter::open(&directory, state.position, config.sft.steps, |text| {
            observer.event(Event::Note(text));
        })?;
        let learners = Learners { policy, critic: None, decomposer };
        let notes = Vec::new();
        let (learning, lock) = (None, Some(lock));
        let mut run = Run {
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
        };
        run.begin_critic()?;
        run.save(observer)?;
        run.notes = std::mem::take(&mut observer.notes);
        // Written last: a folder with a config can be resumed.
        run.directory.write("config.toml", run.config.to_toml()?.as_bytes())?;
        Ok(run)
    }

    /// Continues a run from a checkpoint with the builder's config, for example the run's own
    /// config ([`ConfigSource::of_run`]) with overrides.
    ///
    /// # Errors
    /// Fails if the run or its checkpoint is missing, if the config changes fixed settings, or if the
    /// environment's tasks have changed.
    pub fn resume(self, observer: &mut dyn Observer) -> Result<Run, TrainError> {
        let Self { mut config, root, registries, policies, from, .. } = self;
        let observer = &mut Remembered { inner: observer, notes: Vec::new() };
        let directory = RunDirectory::open(&root)?;
        let lock = RunLock::take(&root)?;
        let of_run = ConfigSource { registries: registries.clone(), ..ConfigSource::of_run(&root) };
        let began = config::load(&of_run)?;
        config.check(&registries)?;
        if let Some(data) = &mut config.sft.data {
            // The run's own config has an absolute path, and `sft.steps` computed from the epochs.
            if began.sft.data.as_ref().is_none_or(|begun| begun.path != data.path) {
                data.path = conversations::absolute(&data.path)?;
            }
            if config.sft.steps == 0 {
                config.sft.steps = began.sft.steps;
            }
        }
        config::check_fixed(&began, &config)?;
        if config.needs_world() && !began.needs_world() {
            let reason = "is set, and this run was started without an environment; start a new run with policy.model = this run";
            return Err(TrainError::Config { origin: "train.steps".into(), reason: reason.into() });
        }
        policies.check(&config)?;
        open_device(&config, observer)?;
        let world = if config.needs_world() {
            observer.event(Event::Stage("building the world"));
            let world = World::new(&config.env, &registries, &config.splits(), &mut |note| {
                observer.event(Event::Note(note));
            })?;
            panels::verify(&directory, &config, world.task_set())?;
            Some(world)
        } else {
            None
        };
        let checkpoint = match from {
            Some(position) => checkpoint::at(&directory, position)?,
            None => checkpoint::latest_verified(&directory, |text| observer.event(Event::Note(text)))?,
        };
        let stored = checkpoint.state()?;
        // A process that ended before its next checkpoint may have changed settings here.
        let earlier = earlier_configs::of_position(&directory, checkpoint.position)?;
        let changed = earlier != directory.path("config.toml");
        let made = if changed {
            config::load(&ConfigSource { files: vec![earlier], ..of_run })?
        } else {
            began.clone()
        };
        let state = RunState::of_checkpoint(&made, &config, &stored);
        // During RL the judge is asked soon anyway.
        if state.position.phase == Phase::Sft {
            RunDecomposer::check_service(&config)?;
        }
        let (policy, tokenizer) = policies.resume(&config, &registries, &checkpoint)?;
        let critic = critic_of(&config, &registries, &directory, &checkpoint, policy.weights())?;
        check_context(&config, policy.max_model_len())?;
        let position = state.position;
        if position.phase == Phase::Rl {
            check_begun(&began, &config, &registries, position, critic.is_some())?;
        }
        let mut conversations = None;
        if position.phase == Phase::Sft {
            conversations = conversations_of(&config, &registries, &tokenizer, observer)?;
        }
        if let (Some(found), Some(settings)) = (&conversations, &config.sft.data) {
            check_same(&directory, &found.summary)?;
            // Other epochs change the updates, unless `sft.steps` was changed, too.
            let same = began.sft.data.as_ref().is_some_and(|data| data.epochs == settings.epochs);
            if !same && config.sft.steps == began.sft.steps {
                config.sft.steps = 0;
                config.sft.steps = found.plan(&config, settings).len() as u64;
            }
        }
        let runner = runner_of(&config, &registries, world, tokenizer, policy.vision())?;
        let mut decomposer =
            RunDecomposer::open(&config, &directory, policy.hidden_size(), position.rl_step())?;
        if let (Some(decomposer), Some(counts)) = (&mut decomposer, stored.judge) {
            decomposer.resume_counts(counts);
        }
        // The config is written last, so the command can be repeated after a kill.
        if config != began || from.is_some() {
            checkpoint::abandon_after(&directory, position)?;
            abandon_results(&directory, position)?;
        }
        // Repeated steps may have other rollouts.
        if let Some(decomposer) = &mut decomposer {
            decomposer.abandon_from(position.rl_step())?;
        }
        // After rewinding before an earlier change, the earlier settings apply from here on.
        if config != began || (from.is_some() && changed) {
            let old = earlier_configs::keep(&directory, position, &began.to_toml()?)?;
            directory.write("config.toml", config.to_toml()?.as_bytes())?;
            observer.event(Event::Note(format!("settings changed; the earlier ones are in {old}")));
        }
        let metrics = MetricsWriter::open(&directory, position, config.sft.steps, |text| {
            observer.event(Event::Note(text));
        })?;
        observer.event(Event::Note(format!("resuming at {}", position.label())));
        let learners = Learners { policy, critic, decomposer };
        let notes = std::mem::take(&mut observer.notes);
        let (learning, lock) = (None, Some(lock));
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

fn runner_of(
    config: &Config,
    registries: &Registries,
    world: Option<World>,
    tokenizer: Arc<Tokenizer>,
    vision: Option<&VisionConfig>,
) -> Result<Option<Arc<EnvRunner>>, TrainError> {
    let Some(world) = world else { return Ok(None) };
    let runner = EnvRunner::new(config, registries, world, tokenizer, vision)?;
    first_prompts::check(config, &runner.world, runner.prompter())?;
    Ok(Some(Arc::new(runner)))
}

fn conversations_of(
    config: &Config,
    registries: &Registries,
    tokenizer: &Tokenizer,
    observer: &mut dyn Observer,
) -> Result<Option<SftData>, TrainError> {
    let Some(settings) = &config.sft.data else { return Ok(None) };
    SftData::load(config, registries, settings, tokenizer, observer).map(Some)
}

fn check_same(directory: &RunDirectory, found: &SftSummary) -> Result<(), TrainError> {
    let began: SftSummary = directory.read_json(conversations::SUMMARY)?;
    if began.digest == found.digest {
        return Ok(());
    }
    let reason = format!(
        "has changed since the run began: it had {} tokens in {} sequences and now has {} in {}; restore it, or start a new run",
        began.tokens, began.sequences, found.tokens, found.sequences
    );
    Err(TrainError::file(Path::new(&found.path), reason))
}

/// Rejects changes to settings that are fixed once RL has begun.
fn check_begun(
    began: &Config,
    config: &Config,
    registries: &Registries,
    position: Position,
    has_critic: bool,
) -> Result<(), TrainError> {
    let mut problems: Vec<Problem> = Vec::new();
    if began.sft != config.sft {
        let reason = "is of the warm start, which is done; leave it as it was, or start a new run";
        problems.push(Problem::new("sft", reason));
    }
    // TurnRD numbers rounds and records by RL steps from the start.
    let learns = |config: &Config| matches!(config.decomposer, DecomposerConfig::Turnrd(_));
    if position != RL_START && learns(config) && !learns(began) {
        let reason = "is \"turnrd\", whose rounds begin with reinforcement learning, and the run began without it; start a new run \
                      (`--warm-start` takes this one's warm start)";
        problems.push(Problem::new("decomposer.kind", reason));
    }
    if !has_critic && registries.pipeline(config)?.required_inputs().values {
        let reason = "needs the values of a critic, and the run began without one; start a new run";
        problems.push(Problem::new("credit.estimator", reason));
    }
    Ok(SettingsError::of(problems)?)
}

pub(super) fn critic_of(
    config: &Config,
    registries: &Registries,
    directory: &RunDirectory,
    checkpoint: &Checkpoint,
    policy: Option<Weights>,
) -> Result<Option<RunCritic>, TrainError> {
    if !checkpoint.critic().is_dir() || !registries.pipeline(config)?.required_inputs().values {
        return Ok(None);
    }
    let vision = policy.as_ref().and_then(|policy| policy.config().vision.clone());
    let weights = || match policy {
        Some(weights) if weights.adapter.is_some() => Ok(weights),
        // The critic's adapter was made on the policy at the start of RL.
        _ => Ok(Policy::load(&directory.checkpoints().join(RL_START.label()))?.weights),
    };
    let learner = critic_learner(config);
    Ok(Some(RunCritic::load(checkpoint, weights, vision.as_ref(), learner, config.critic.clone())?))
}
