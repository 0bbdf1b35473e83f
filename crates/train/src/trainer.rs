//! A run: warm start, then reinforcement learning, with checkpoints from which it goes on bit for bit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use turnwise_core::{Batch, Group, Learner as _, Purpose, SamplingParams, Trajectory};
use turnwise_credit::{Inputs, Pipeline};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::engine::{EngineConfig, EngineWeights, NativeEngine};
use turnwise_model::{
    LearnerConfig, NativeLearner, OptimizerState, Parameters, Schedule, Tokenizer, save_model,
};

use crate::TrainError;
use crate::checkpoint::{self, CheckpointState};
use crate::config::{self, Config};
use crate::log::Logged;
use crate::metrics::{Metrics, MetricsWriter};
use crate::observer::{EvaluationPoint, Event, Observer};
use crate::rollout::{self, Job, RolloutContext};
use crate::rundir::{Phase, Position, RunDirectory, write_atomically};
use crate::setup::{self, Policy, World};
use crate::tasks::TaskOrder;
use crate::{panel, step_metrics, update, warm_start};

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
    parser: ActionParser,
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
            Some(path) => Policy::load(path)?,
            None => Policy::from_scratch(&config, &world, &template)?,
        };
        observer.event(Event::Note(format!(
            "model: {} parameters, {} layers of width {}, vocabulary {}",
            policy.weights.layout.len,
            policy.weights.config.num_hidden_layers,
            policy.weights.config.hidden_size,
            policy.weights.config.vocab_size
        )));
        let directory = RunDirectory::create(root)?;
        directory.write_json("panel.json", &panels)?;
        let phase = if config.sft.steps > 0 { Phase::Sft } else { Phase::Rl };
        let position = Position { phase, step: 0 };
        let metrics = MetricsWriter::open(&directory, position, config.sft.steps)?;
        let run = Self {
            learner: new_learner(&config, phase, policy.weights)?,
            parser: setup::parser(&config, &template),
            tokenizer: policy.tokenizer,
            template,
            world,
            position,
            metrics,
            config,
            directory,
        };
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
        let layout = policy.weights.layout.clone();
        let mut learner = new_learner(&config, state.position.phase, policy.weights)?;
        learner.restore_optimizer(OptimizerState::load(&checkpoint.optimizer(), &layout)?)?;
        let metrics = MetricsWriter::open(&directory, state.position, config.sft.steps)?;
        observer.event(Event::Note(format!("resuming at {}", state.position.label())));
        Ok(Self {
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
    pub fn weights(&self) -> Arc<Parameters<f32>> {
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
            let weights = Arc::unwrap_or_clone(self.learner.weights());
            self.learner = new_learner(&self.config, Phase::Rl, weights)?;
            self.position = Position { phase: Phase::Rl, step: 0 };
            self.save(observer)?;
        }
        self.reinforce(observer, stop)
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
        let mut reference = self.reference()?;
        observer.event(Event::Stage("reinforcement learning"));
        while self.position.step < total {
            let Some(metrics) = self.rl_step(&order, &pipeline, reference.as_mut(), observer, stop)? else {
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

    /// One rollout and its updates; `None` when it was stopped before anything changed.
    fn rl_step(
        &mut self,
        order: &TaskOrder,
        pipeline: &Pipeline,
        mut reference: Option<&mut NativeLearner>,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Metrics>, TrainError> {
        let step = self.position.step;
        let started = Instant::now();
        let Some(mut batch) = self.rollout(order, step, observer, stop)? else { return Ok(None) };
        let rollout_seconds = started.elapsed().as_secs_f64();

        let started = Instant::now();
        if let (Some(reference), true) = (reference.as_deref_mut(), self.config.objective.kl_in_reward()) {
            update::subtract_reward_kl(reference, &self.config.objective, &mut batch)?;
        }
        // A seed of its own for every step, for the methods that draw.
        let seed = self.config.seed ^ (step + 1).rotate_left(32);
        let credit = pipeline.report(&Inputs { seed, ..Inputs::new(&batch) }, false)?;
        let advantages = credit.advantages;
        for (group, group_advantages) in batch.groups.iter_mut().zip(&advantages.0) {
            for (trajectory, turn_advantages) in group.trajectories.iter_mut().zip(group_advantages) {
                trajectory.advantages = Some(turn_advantages.clone());
            }
        }
        let credit_seconds = started.elapsed().as_secs_f64();

        let started = Instant::now();
        let mismatch = step_metrics::mismatch(&mut self.learner, &batch)?;
        let skip_zero = self.config.train.skip_zero_advantage
            && !self.config.objective.needs_reference()
            && self.config.objective.entropy_coef == 0.0;
        let mut set = update::training_set(&batch, &advantages, skip_zero);
        if self.config.train.recompute_old_logprobs {
            update::recompute_old_logprobs(&mut self.learner, &mut set)?;
        }
        if let (Some(reference), true) = (reference, self.config.objective.needs_reference()) {
            update::reference_logprobs(reference, &mut set)?;
        }
        let schedule = Schedule {
            peak: self.config.train.learning_rate,
            warmup_steps: self.config.train.warmup,
            shape: self.config.train.schedule,
            total_steps: self.config.train.steps
                * (self.config.train.epochs * self.config.train.minibatches) as u64,
        };
        let report = update::run(
            &mut self.learner,
            &set,
            &self.config.objective,
            &self.config.train,
            self.config.seed,
            step,
            |update| schedule.learning_rate(update),
        )?;
        let update_seconds = started.elapsed().as_secs_f64();

        if self.config.train.save_trajectories {
            let position = Position { phase: Phase::Rl, step: step + 1 };
            self.directory.write_trajectories(position, batch.trajectories())?;
        }
        let mut metrics = Metrics::default();
        step_metrics::rollout(&mut metrics, &batch, rollout_seconds);
        step_metrics::credit(&mut metrics, &advantages);
        for (name, value) in &credit.diagnostics {
            metrics.set(name, *value);
        }
        step_metrics::updates(&mut metrics, &report, update_seconds);
        metrics.set("rollout/mismatch_kl", mismatch);
        metrics.set("perf/credit_s", credit_seconds);
        let updates_done = (step + 1) * (self.config.train.epochs * self.config.train.minibatches) as u64;
        metrics.set("train/learning_rate", schedule.learning_rate(updates_done.saturating_sub(1)));
        Ok(Some(metrics))
    }

    fn rollout(
        &self,
        order: &TaskOrder,
        step: u64,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Batch>, TrainError> {
        let settings = &self.config.rollout;
        let jobs: Vec<Job> = order
            .step(step, settings.groups)
            .into_iter()
            .enumerate()
            .flat_map(|(group, task)| {
                (0..settings.group_size).map(move |sample| Job { task: task.clone(), group, sample })
            })
            .collect();
        let context = RolloutContext {
            task_set: self.world.task_set(),
            tokenizer: &self.tokenizer,
            template: &self.template,
            parser: &self.parser,
            layout: self.config.prompt.layout,
            history: self.config.prompt.history,
            params: sampling_params(&self.config, &self.template, &self.tokenizer, settings.temperature)?,
            max_context: settings.max_context,
            reward_scale: self.config.env.reward_scale,
            slots: settings.slots,
            run_seed: self.config.seed,
            purpose: Purpose::Rollout,
            step,
            stop,
        };
        let mut samplers = engines(
            &self.learner.weights(),
            &self.tokenizer,
            self.learner.weights_version(),
            settings.lanes,
            settings.slots,
            settings.max_context,
        )?;
        let total = jobs.len();
        let trajectories = rollout::run(&context, &jobs, &mut samplers, |progress| {
            observer.event(Event::Rollout {
                finished: progress.finished.load(Ordering::Relaxed),
                total,
                solved: progress.solved.load(Ordering::Relaxed),
                tokens: progress.tokens.load(Ordering::Relaxed),
            });
        })?;
        Ok(trajectories.map(|trajectories| into_batch(trajectories, settings.groups)))
    }

    /// The frozen policy that a KL term refers to: the weights that reinforcement learning started from.
    fn reference(&self) -> Result<Option<NativeLearner>, TrainError> {
        if !self.config.objective.needs_reference() && !self.config.objective.kl_in_reward() {
            return Ok(None);
        }
        let start = Position { phase: Phase::Rl, step: 0 };
        let path = self.directory.checkpoints().join(start.label());
        Ok(Some(new_learner(&self.config, Phase::Rl, Policy::load(&path)?.weights)?))
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
        let state =
            CheckpointState { position: self.position, weights_version: self.learner.weights_version() };
        let written = checkpoint::write(&self.directory, &state, |folder| {
            let policy = folder.join("policy");
            save_model(&self.learner.weights(), &policy)?;
            write_atomically(&policy.join("tokenizer.json"), self.tokenizer.to_json()?.as_bytes())?;
            let layout = &self.learner.weights().layout;
            self.learner.optimizer_state().save(&folder.join("optimizer.safetensors"), layout)?;
            Ok(())
        })?;
        let phase_ends = [
            Position { phase: Phase::Sft, step: self.config.sft.steps },
            Position { phase: Phase::Rl, step: 0 },
        ];
        checkpoint::prune(&self.directory, self.config.train.keep_last, &phase_ends)?;
        self.directory.set_status("running", self.position)?;
        observer.event(Event::Checkpoint(&written.path));
        Ok(())
    }
}

fn new_learner(config: &Config, phase: Phase, weights: Parameters<f32>) -> Result<NativeLearner, TrainError> {
    let temperature = if phase == Phase::Rl { config.rollout.temperature } else { 1.0 };
    Ok(NativeLearner::new(weights, learner_config(config, temperature))?)
}

/// The learner's settings for a phase.
pub fn learner_config(config: &Config, temperature: f32) -> LearnerConfig {
    LearnerConfig {
        micro_batch_tokens: config.train.micro_batch_tokens,
        lanes: config.train.lanes,
        temperature: f64::from(temperature),
        recompute: config.train.recompute_layers,
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
    weights: &Arc<Parameters<f32>>,
    tokenizer: &Arc<Tokenizer>,
    version: u64,
    lanes: usize,
    slots: usize,
    max_context: usize,
) -> Result<Vec<NativeEngine>, TrainError> {
    let config = EngineConfig { slots, max_context };
    // Packed once, shared by the lanes.
    let packed = Arc::new(EngineWeights::pack(weights, version)?);
    (0..lanes)
        .map(|_| Ok(NativeEngine::with_weights(Arc::clone(&packed), config, Some(Arc::clone(tokenizer)))?))
        .collect()
}

/// Trajectories in job order as groups.
fn into_batch(trajectories: Vec<Trajectory>, groups: usize) -> Batch {
    let mut batch = Batch { groups: vec![Group::default(); groups] };
    for trajectory in trajectories {
        let group = trajectory.group;
        batch.groups[group].trajectories.push(trajectory);
    }
    batch
}
