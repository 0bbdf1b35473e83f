//! A run: warm start, then reinforcement learning, with checkpoints from which it goes on bit for bit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::{Learner as _, Purpose, SamplingParams, Seed};
use turnwise_credit::{EstimatorConfig, Pipeline};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::engine::{EngineConfig, EngineWeights, NativeEngine};
use turnwise_model::{
    Adapter, AdapterBase, Compute, LearnerConfig, NativeLearner, OptimizerState, Schedule, Tokenizer,
    Weights, load_adapter, save_adapter, save_model,
};

use crate::TrainError;
use crate::base::{self, BaseModel};
use crate::checkpoint::{self, CheckpointState};
use crate::config::{self, Config};
use crate::critic::RunCritic;
use crate::decomposer::RunDecomposer;
use crate::log::Logged;
use crate::metrics::MetricsWriter;
use crate::observer::{EvaluationPoint, Event, Observer};
use crate::rundir::{Phase, Position, RunDirectory, write_atomically};
use crate::setup::{self, Policy, World};
use crate::tasks::TaskOrder;
use crate::{panel, warm_start};

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
        let template = setup::template(&config)?;
        let _ = Pipeline::from_config(&config.credit)?;
        observer.event(Event::Stage("building the world"));
        let world = World::new(&config.env, &config.splits(), observer)?;
        let panels = panel::pin(&config, world.task_set())?;
        let policy = match &config.policy.model {
            Some(path) => Policy::load_telling(path, observer)?,
            None => Policy::from_scratch(&config, &world, &template)?,
        };
        observer.event(Event::Note(format!(
            "model: {} parameters, {} layers of width {}, vocabulary {}",
            policy.weights.base.layout.len,
            policy.weights.config().num_hidden_layers,
            policy.weights.config().hidden_size,
            policy.weights.config().vocab_size
        )));
        note_compute(config.policy.compute, observer);
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
        let decomposer = RunDecomposer::open(&config, directory.root(), hidden, 0)?;
        let phase = if config.sft.steps > 0 { Phase::Sft } else { Phase::Rl };
        let position = Position { phase, step: 0 };
        let metrics = MetricsWriter::open(&directory, position, config.sft.steps)?;
        let mut run = Self {
            learner: new_learner(&config, phase, weights)?,
            base,
            parser: setup::parser(&config, &template),
            tokenizer: policy.tokenizer,
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
        let template = setup::template(&config)?;
        observer.event(Event::Stage("building the world"));
        let world = World::new(&config.env, &config.splits(), observer)?;
        panel::verify(&directory, &config, world.task_set())?;
        let checkpoint = checkpoint::latest(&directory)?;
        let state = checkpoint.state()?;
        let policy = Policy::load(&checkpoint.policy())?;
        let mut learner = new_learner(&config, state.position.phase, policy.weights)?;
        let moments = OptimizerState::load(&checkpoint.optimizer(), learner.trained_tensors())?;
        learner.restore_optimizer(moments)?;
        let metrics = MetricsWriter::open(&directory, state.position, config.sft.steps)?;
        observer.event(Event::Note(format!("resuming at {}", state.position.label())));
        note_compute(config.policy.compute, observer);
        let critic = if checkpoint.critic().is_dir() {
            let weights = || match learner.weights() {
                weights @ Weights { adapter: Some(_), .. } => Ok(weights),
                // The policy has moved on from what the critic's adapter stands on.
                _ => Ok(Policy::load(&directory.checkpoints().join(RL_START.label()))?.weights),
            };
            Some(RunCritic::load(&checkpoint, weights, critic_learner(&config), config.critic.clone())?)
        } else {
            None
        };
        let steps = if state.position.phase == Phase::Rl { state.position.step } else { 0 };
        let hidden = learner.model().hidden_size;
        let decomposer = RunDecomposer::open(&config, directory.root(), hidden, steps)?;
        Ok(Self {
            critic,
            decomposer,
            base: state.base,
            tasks_drawn: state.tasks_drawn.unwrap_or(steps * config.rollout.groups as u64),
            kl_coef: state.kl_coef.unwrap_or(config.objective.kl.coef),
            parser: setup::parser(&config, &template),
            tokenizer: policy.tokenizer,
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
            self.learner = new_learner(&self.config, Phase::Rl, self.learner.weights())?;
            self.position = RL_START;
            self.begin_critic()?;
            self.save(observer)?;
        }
        self.reinforce(observer, stop)
    }

    /// Makes the critic, where the estimator needs one and reinforcement learning begins.
    fn begin_critic(&mut self) -> Result<(), TrainError> {
        let needed = matches!(self.config.credit.estimator, EstimatorConfig::Ppo(_));
        if needed && self.position.phase == Phase::Rl {
            let (weights, settings) = (self.learner.weights(), self.config.critic.clone());
            let learner = critic_learner(&self.config);
            self.critic = Some(RunCritic::new(&weights, self.config.critic_lora(), learner, settings)?);
        }
        Ok(())
    }

    fn reinforce(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome, TrainError> {
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
        let objective = &self.config.objective;
        let selective = objective.selective.as_ref().is_some_and(|selective| {
            selective.penalty_coef() != 0.0 || selective.kl_coef(objective.kl.coef) != 0.0
        });
        if objective.needs_reference() || objective.kl_in_reward() || selective {
            let path = self.directory.checkpoints().join(RL_START.label());
            let weights = self.learner.weights();
            let reference = if weights.adapter.is_some() {
                let adapter = load_adapter(&path.join("policy"), weights.config())?;
                let off = adapter.is_silent();
                if off { weights.without_adapter() } else { Weights::adapted(weights.base, adapter)? }
            } else {
                Policy::load(&path)?.weights
            };
            self.learner.set_reference(reference)?;
        }
        Ok(())
    }

    fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
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
        let base = self.base.as_ref().map_or_else(AdapterBase::default, BaseModel::named);
        let written = checkpoint::write(&self.directory, &state, |folder| {
            let policy = folder.join("policy");
            let weights = self.learner.weights();
            match &weights.adapter {
                Some(adapter) => save_adapter(adapter, &policy, &base)?,
                None => save_model(&weights.base, &policy)?,
            }
            write_atomically(&policy.join("tokenizer.json"), self.tokenizer.to_json()?.as_bytes())?;
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

/// What a new run trains: all weights of the policy, or a fresh adapter on them with the place where the
/// weights stay. An adapter that the policy came with becomes part of them.
fn begin_weights(
    config: &Config,
    policy: &Policy,
    directory: &RunDirectory,
) -> Result<(Weights, Option<BaseModel>), TrainError> {
    let base = policy.weights.merged()?;
    let Some(lora) = &config.policy.lora else { return Ok((base.into(), None)) };
    let outside = match &config.policy.model {
        // A folder of its own outlives the run; the checkpoints of another run may not.
        Some(path) if policy.weights.adapter.is_none() => {
            Some(setup::policy_folder(path)?).filter(|folder| base::enclosing_run(folder).is_none())
        }
        _ => None,
    };
    let folder = if let Some(folder) = outside {
        folder
    } else {
        let folder = directory.path(base::FOLDER);
        save_model(&base, &folder)?;
        write_atomically(&folder.join("tokenizer.json"), policy.tokenizer.to_json()?.as_bytes())?;
        folder
    };
    let folder = folder.canonicalize().map_err(|error| TrainError::io(&folder, error))?;
    let name = folder.to_string_lossy().into_owned();
    let model = BaseModel { name, revision: None, crc32c: base.checksum() };
    let seed = Seed::derive(config.seed, Purpose::Init, &[1]);
    let adapter = Adapter::init(&base.config, lora, seed)?;
    Ok((Weights::adapted(base, adapter)?, Some(model)))
}

/// Where reinforcement learning starts.
const RL_START: Position = Position { phase: Phase::Rl, step: 0 };

/// Who draws dropout, so that no two learners share their draws.
enum Dropout {
    Sft,
    Rl,
    Critic,
}

fn dropout_seed(config: &Config, who: Dropout) -> u64 {
    Seed::derive(config.seed, Purpose::Dropout, &[who as u64]).rng().bits()
}

fn new_learner(config: &Config, phase: Phase, weights: Weights) -> Result<NativeLearner, TrainError> {
    let (temperature, who) = match phase {
        Phase::Sft => (1.0, Dropout::Sft),
        Phase::Rl => (config.rollout.temperature, Dropout::Rl),
    };
    let seed = dropout_seed(config, who);
    Ok(NativeLearner::new(weights, LearnerConfig { seed, ..learner_config(config, temperature) })?)
}

fn critic_learner(config: &Config) -> LearnerConfig {
    let seed = dropout_seed(config, Dropout::Critic);
    LearnerConfig { seed, ..learner_config(config, config.rollout.temperature) }
}

/// Says what a choice of numbers comes to on this machine, where it is not the reference.
fn note_compute(compute: Compute, observer: &mut dyn Observer) {
    if compute != Compute::F32 {
        let note = compute.fallback().unwrap_or_else(|| format!("training computes {}", compute.path()));
        observer.event(Event::Note(note));
    }
}

/// The learner's settings for a phase.
pub fn learner_config(config: &Config, temperature: f32) -> LearnerConfig {
    LearnerConfig {
        micro_batch_tokens: config.train.micro_batch_tokens,
        lanes: config.train.lanes,
        temperature: f64::from(temperature),
        recompute: config.train.recompute_layers,
        compute: config.policy.compute,
        seed: config.seed,
        optimizer: config.optimizer,
    }
}

/// The schedule of the warm start.
pub(crate) fn sft_schedule(config: &Config) -> Schedule {
    Schedule {
        peak: config.sft.learning_rate,
        warmup_steps: config.sft.warmup,
        shape: config.sft.schedule,
        total_steps: config.sft.steps,
    }
}

/// How responses are sampled under a config: the template says where they end.
pub fn sampling_params(
    config: &Config,
    template: &PromptTemplate,
    tokenizer: &Tokenizer,
    temperature: f32,
) -> Result<SamplingParams, TrainError> {
    let mut params = SamplingParams {
        temperature,
        top_p: config.rollout.top_p,
        top_k: config.rollout.top_k,
        max_tokens: config.rollout.max_response_tokens,
        ..SamplingParams::default()
    };
    for stop in template.stop() {
        // A stop string that is one token is looked for as a token: no decoding while sampling.
        match tokenizer.encode(stop).as_slice() {
            [token] => params.stop_tokens.push(*token),
            _ => params.stop_strings.push(stop.clone()),
        }
    }
    Ok(params)
}

/// One engine per lane over the same weights.
pub fn engines(
    weights: &Weights,
    tokenizer: &Arc<Tokenizer>,
    version: u64,
    lanes: usize,
    slots: usize,
    max_context: usize,
) -> Result<Vec<NativeEngine>, TrainError> {
    let config = EngineConfig { slots, max_context };
    // Packed once, shared by the lanes.
    let packed = Arc::new(EngineWeights::of(weights, version)?);
    (0..lanes)
        .map(|_| Ok(NativeEngine::with_weights(Arc::clone(&packed), config, Some(Arc::clone(tokenizer)))?))
        .collect()
}
