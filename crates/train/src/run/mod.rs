//! A run: warm start, then reinforcement learning, with checkpoints from which it goes on bit for bit.

pub mod checkpoint;
pub mod directory;
pub mod export;
pub(crate) mod log;
pub mod metrics;
pub mod observer;
pub mod panel;
pub mod tensorboard;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::Learner as _;
use turnwise_credit::{EstimatorConfig, Pipeline};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::{
    AdapterBase, NativeLearner, OptimizerState, Weights, load_adapter, save_adapter, save_model,
};
use turnwise_policy::{BaseModel, Policy, policy_folder};
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::config::{self, Config};
use crate::learners::critic::RunCritic;
use crate::learners::decomposer::RunDecomposer;
use crate::learners::{begin_weights, critic_learner, new_learner, open_device, phase_learner};
use crate::plan::{memory, preflight};
use crate::rollout::tasks::TaskOrder;
use crate::run::checkpoint::CheckpointState;
use crate::run::directory::{Phase, Position, RunDirectory};
use crate::run::log::Logged;
use crate::run::metrics::MetricsWriter;
use crate::run::observer::{EvaluationPoint, Event, Observer};
use crate::setup::{self, World};
use crate::sft::warm_start;

/// Where reinforcement learning starts.
const RL_START: Position = Position { phase: Phase::Rl, step: 0 };

/// How a call of [`Run::train`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// It was asked to stop; a checkpoint was written first.
    Interrupted,
}

/// A run in memory.
pub struct Run {
    pub(crate) config: Config,
    pub(crate) directory: RunDirectory,
    pub(crate) world: World,
    pub(crate) template: PromptTemplate,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// The chat format around prompts, where the policy has one and the config wants it.
    pub(crate) chat: Option<ChatFormat>,
    pub(crate) learner: NativeLearner,
    pub(crate) position: Position,
    pub(crate) metrics: MetricsWriter,
    pub(crate) parser: ActionParser,
    /// The model that the adapter stands on, where one is trained.
    pub(crate) base: Option<BaseModel>,
    /// PPO's critic, from the start of reinforcement learning on.
    pub(crate) critic: Option<RunCritic>,
    /// The decomposer, where credit needs one.
    pub(crate) decomposer: Option<RunDecomposer>,
    /// Tasks drawn from the training order so far.
    pub(crate) tasks_drawn: u64,
    /// The KL coefficient now.
    pub(crate) kl_coef: f64,
}

impl Run {
    /// Starts a new run in `root`. Everything that can be checked is checked before long work starts.
    pub fn start(config: Config, root: &Path, observer: &mut dyn Observer) -> Result<Self, TrainError> {
        config.check()?;
        open_device(&config, observer)?;
        let template = setup::template(&config)?;
        let _ = Pipeline::from_config(&config.credit)?;
        observer.event(Event::Stage("building the world"));
        let world = World::new(&config.env, &config.splits(), observer)?;
        let panels = panel::pin(&config, world.task_set())?;
        let policy = if let Some(path) = &config.policy.model {
            let folder = policy_folder(path, &mut |note| observer.event(Event::Note(note)))?;
            // Said before the weights are read, which may be what does not fit.
            if let Ok((_, model)) = preflight::shape_of(&folder) {
                memory::warn(&config, &model, observer);
            }
            Policy::load(&folder)?
        } else {
            let policy = setup::policy_from_scratch(&config, &world, &template)?;
            memory::warn(&config, policy.weights.config(), observer);
            policy
        };
        let chat = setup::chat(&config, &policy.tokenizer)?;
        observer.event(Event::Note(format!(
            "model: {} parameters, {} layers of width {}, vocabulary {}",
            policy.weights.base.layout.len,
            policy.weights.config().num_hidden_layers,
            policy.weights.config().hidden_size,
            policy.weights.config().vocab_size
        )));
        let directory = RunDirectory::create(root)?;
        directory.write_json("panel.json", &panels)?;
        let hidden = policy.weights.config().hidden_size;
        let (weights, base) = begin_weights(&config, &policy, &directory)?;
        if let Some(adapter) = &weights.adapter {
            observer.event(Event::Note(format!(
                "adapter: {} parameters of rank {} are trained, the model's own stay",
                adapter.layout.len, adapter.config.rank
            )));
            if config.policy.model.is_none() {
                let note = "the adapter stands on a model from scratch, whose weights are random and stay so; it \
                            learns little there. Set policy.model to a model or a run";
                observer.event(Event::Note(note.into()));
            }
        }
        let decomposer = RunDecomposer::open(&config, &directory, hidden, 0)?;
        let phase = if config.sft.steps > 0 { Phase::Sft } else { Phase::Rl };
        let position = Position { phase, step: 0 };
        let metrics = MetricsWriter::open(&directory, position, config.sft.steps)?;
        let mut run = Self {
            learner: new_learner(&config, phase, weights)?,
            base,
            parser: setup::parser(&config, &template),
            tokenizer: policy.tokenizer,
            chat,
            template,
            world,
            position,
            metrics,
            critic: None,
            decomposer,
            tasks_drawn: 0,
            kl_coef: config.objective.kl.coef,
            config,
            directory,
        };
        run.begin_critic()?;
        run.save(observer)?;
        // Written last: a folder with a config is a run that can be resumed.
        run.directory.write("config.toml", run.config.to_toml()?.as_bytes())?;
        Ok(run)
    }

    /// Opens a run at its newest checkpoint.
    pub fn resume(root: &Path, observer: &mut dyn Observer) -> Result<Self, TrainError> {
        let directory = RunDirectory::open(root)?;
        let config = config::load_resolved(&directory.path("config.toml"))?;
        open_device(&config, observer)?;
        let template = setup::template(&config)?;
        observer.event(Event::Stage("building the world"));
        let world = World::new(&config.env, &config.splits(), observer)?;
        panel::verify(&directory, &config, world.task_set())?;
        let checkpoint = checkpoint::latest(&directory)?;
        let state = checkpoint.state()?;
        let policy = Policy::load(&checkpoint.policy())?;
        let chat = setup::chat(&config, &policy.tokenizer)?;
        let mut learner = new_learner(&config, state.position.phase, policy.weights)?;
        let moments = OptimizerState::load(&checkpoint.optimizer(), learner.trained_tensors())?;
        learner.restore_optimizer(moments)?;
        let metrics = MetricsWriter::open(&directory, state.position, config.sft.steps)?;
        observer.event(Event::Note(format!("resuming at {}", state.position.label())));
        let critic = if checkpoint.critic().is_dir() {
            let weights = || match learner.weights() {
                weights @ Weights { adapter: Some(_), .. } => Ok(weights),
                // The policy has moved on from what the critic's adapter stands on.
                _ => Ok(Policy::load(&directory.checkpoints().join(RL_START.label()))?.weights),
            };
            let settings = config.critic.clone();
            let critic = RunCritic::load(&checkpoint, weights, critic_learner(&config), settings)?;
            Some(critic)
        } else {
            None
        };
        let steps = if state.position.phase == Phase::Rl { state.position.step } else { 0 };
        let hidden = learner.model().hidden_size;
        let decomposer = RunDecomposer::open(&config, &directory, hidden, steps)?;
        Ok(Self {
            critic,
            decomposer,
            base: state.base,
            tasks_drawn: state.tasks_drawn.unwrap_or(steps * config.rollout.tasks_per_step as u64),
            kl_coef: state.kl_coef.unwrap_or(config.objective.kl.coef),
            parser: setup::parser(&config, &template),
            tokenizer: policy.tokenizer,
            chat,
            position: state.position,
            learner,
            metrics,
            template,
            world,
            config,
            directory,
        })
    }

    /// The run's directory.
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// The run's config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The current weights.
    pub fn weights(&self) -> Weights {
        self.learner.weights()
    }

    /// Does all that is left to do, or stops at the next safe place once `stop` is set.
    pub fn train(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome, TrainError> {
        self.directory.set_status("running", self.position)?;
        let mut observer = Logged::open(&self.directory, observer)?;
        let outcome = self.phases(&mut observer, stop)?;
        let state = if outcome == Outcome::Finished { "finished" } else { "interrupted" };
        self.directory.set_status(state, self.position)?;
        Ok(outcome)
    }

    fn phases(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome, TrainError> {
        if self.position.phase == Phase::Sft {
            if warm_start::run(self, observer, stop)? == Outcome::Interrupted {
                self.save(observer)?;
                return Ok(Outcome::Interrupted);
            }
            self.save(observer)?;
            // Reinforcement learning starts with fresh moments, at the sampling temperature.
            self.learner.restart(phase_learner(&self.config, Phase::Rl))?;
            self.position = RL_START;
            self.begin_critic()?;
            self.save(observer)?;
        }
        self.run_rl(observer, stop)
    }

    /// Makes the critic, where the estimator needs one and reinforcement learning begins.
    fn begin_critic(&mut self) -> Result<(), TrainError> {
        let needed = matches!(self.config.credit.estimator, EstimatorConfig::Ppo(_));
        if needed && self.position.phase == Phase::Rl {
            let (weights, settings) = (self.learner.weights(), self.config.critic.clone());
            let learner = critic_learner(&self.config);
            let critic = RunCritic::new(&weights, self.config.critic_lora(), learner, settings)?;
            self.critic = Some(critic);
        }
        Ok(())
    }

    fn run_rl(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome, TrainError> {
        let total = self.config.train.steps;
        if self.position.step == 0 {
            self.evaluate(observer)?;
        }
        if self.position.step >= total {
            return Ok(Outcome::Finished);
        }
        let tasks = self.world.task_set().tasks(&self.config.env.split)?;
        let order = TaskOrder::new(tasks, self.config.seed).ok_or_else(|| TrainError::Config {
            origin: "env.split".into(),
            reason: format!("the split `{}` has no tasks", self.config.env.split),
        })?;
        let pipeline = Pipeline::from_config(&self.config.credit)?;
        self.set_reference()?;
        observer.event(Event::Stage("reinforcement learning"));
        while self.position.step < total {
            let Some(metrics) = self.rl_step(&order, &pipeline, observer, stop)? else {
                self.save(observer)?;
                return Ok(Outcome::Interrupted);
            };
            self.position.step += 1;
            self.metrics.write(self.position, &metrics)?;
            observer.event(Event::Step { position: self.position, total, metrics: &metrics });
            let every = self.config.train.checkpoint_every;
            let last = self.position.step == total;
            let stopping = stop.load(Ordering::Relaxed);
            if last || stopping || (every > 0 && self.position.step.is_multiple_of(every)) {
                self.save(observer)?;
            }
            if stopping && !last {
                return Ok(Outcome::Interrupted);
            }
            let every = self.config.eval.every;
            if last || (every > 0 && self.position.step.is_multiple_of(every)) {
                self.evaluate(observer)?;
            }
        }
        Ok(Outcome::Finished)
    }

    /// Gives the learner the frozen policy that KL terms refer to: the weights that reinforcement learning
    /// started from. Of an adapter that is the base, without a copy of it: with the adapter switched off, or,
    /// after a warm start, with the adapter as that left it.
    fn set_reference(&mut self) -> Result<(), TrainError> {
        if memory::needs_reference(&self.config) {
            let path = self.directory.checkpoints().join(RL_START.label());
            let weights = self.learner.weights();
            let reference = if weights.adapter.is_some() {
                let adapter = load_adapter(&path.join("policy"), weights.config())?;
                let off = adapter.is_identity();
                if off { weights.without_adapter() } else { Weights::adapted(weights.base, adapter)? }
            } else {
                Policy::load(&path)?.weights
            };
            self.learner.set_reference(reference)?;
        }
        Ok(())
    }

    /// Gives the memory that training works in back, before something is sampled.
    pub(crate) fn release(&mut self) {
        self.learner.release();
        if let Some(critic) = &mut self.critic {
            critic.release();
        }
    }

    fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        self.release();
        self.learner.fetch()?;
        observer
            .evaluate(&EvaluationPoint {
                position: self.position,
                run: &self.directory,
                config: &self.config,
                world: &self.world,
                weights: self.learner.weights(),
                tokenizer: Arc::clone(&self.tokenizer),
            })
            .map_err(TrainError::Observer)
    }

    /// Writes a checkpoint of where the run is and drops old ones.
    pub(crate) fn save(&self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let state = CheckpointState {
            position: self.position,
            weights_version: self.learner.weights_version(),
            tasks_drawn: Some(self.tasks_drawn),
            kl_coef: self.config.objective.kl.adaptive.is_some().then_some(self.kl_coef),
            base: self.base.clone(),
        };
        self.learner.fetch()?;
        let base = self.base.as_ref().map_or_else(AdapterBase::default, BaseModel::named);
        let written = checkpoint::write(&self.directory, &state, |folder| {
            let policy = folder.join("policy");
            let weights = self.learner.weights();
            match &weights.adapter {
                Some(adapter) => save_adapter(adapter, &policy, &base)?,
                None => save_model(&weights.base, &policy)?,
            }
            self.tokenizer.save_folder(&policy)?;
            let tensors = self.learner.trained_tensors();
            self.learner.optimizer_state().save(&folder.join("optimizer.safetensors"), tensors)?;
            if let Some(critic) = &self.critic {
                critic.save(&folder.join("critic"), &folder.join("critic-optimizer.safetensors"), &base)?;
            }
            Ok(())
        })?;
        let phase_ends = [Position { phase: Phase::Sft, step: self.config.sft.steps }, RL_START];
        checkpoint::prune(&self.directory, self.config.train.keep_last, &phase_ends)?;
        self.directory.set_status("running", self.position)?;
        observer.event(Event::Checkpoint(&written.path));
        Ok(())
    }
}
