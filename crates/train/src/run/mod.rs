//! A run: SFT, then RL, with checkpoints for bit-identical resumes.

pub mod best;
mod builder;
pub mod export;
pub mod models;
mod shared_warm_start;
pub mod source;
mod start;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::Tasks;
use turnwise_model::Weights;

use crate::TrainError;
use crate::config::{Config, Registries};
use crate::embedder::embedder;
use crate::learners::Learners;
use crate::learners::critic::RunCritic;
use crate::learners::decomposer::RunDecomposer;
use crate::learners::settings::critic_learner;
use crate::record::checkpoint::{self, CheckpointState};
use crate::record::directory::{Phase, Position, RunDirectory, RunStatus};
use crate::record::learning::Learning;
use crate::record::lock::RunLock;
use crate::record::log::Logged;
use crate::record::metrics::{MetricsWriter, read_metrics};
use crate::record::observer::{EvaluationPoint, Event, Observer};
use crate::record::state::{RL_START, RunState};
use crate::rollout::EnvRunner;
use crate::rollout::engines::sampling_lanes;
use crate::rollout::queue::{CreditNeeds, RolloutQueue, SamplerSource as _};
use crate::rollout::tasks::TaskOrder;
use crate::sft::conversations::SftData;
use crate::sft::warm_start::WarmStart;
use crate::step::{Method, StepContext, Stepped, step};

pub use builder::RunBuilder;
pub use shared_warm_start::warm_start_settings;

/// How [`Run::train`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All steps are done.
    Finished,
    /// The run stopped early, after writing a checkpoint.
    Interrupted,
}

/// A run in memory.
pub struct Run {
    pub(crate) config: Config,
    pub(crate) registries: Registries,
    pub(crate) directory: RunDirectory,
    /// `None` if the run only does SFT on conversations.
    pub(crate) runner: Option<Arc<EnvRunner>>,
    pub(crate) conversations: Option<SftData>,
    pub(crate) learners: Learners,
    pub(crate) state: RunState,
    pub(crate) metrics: MetricsWriter,
    /// `None` before RL.
    pub(crate) learning: Option<Learning>,
    pub(crate) notes: Vec<String>,
    /// Lock of the run directory, held until the end of [`Run::train`].
    pub(crate) lock: Option<RunLock>,
}

impl Run {
    /// Returns the run directory.
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// Returns the config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the known environments and methods.
    pub fn registries(&self) -> &Registries {
        &self.registries
    }

    /// Returns the weights, if they are in this process.
    pub fn weights(&self) -> Option<Weights> {
        self.learners.policy.weights()
    }

    /// Returns why nothing was trained; `None` if an update was made, or if there were no RL steps.
    pub fn nothing_trained(&self) -> Option<String> {
        self.learning.as_ref()?.nothing_trained(&self.config)
    }

    /// Runs all remaining steps, or stops at the next safe point once `stop` is set.
    ///
    /// # Errors
    /// Returns the error that ended the run, also written to `status.json`; the last checkpoint is
    /// from before the failure.
    pub fn train(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<RunEnd, TrainError> {
        let lock = match self.lock.take() {
            Some(lock) => lock,
            None => RunLock::take(self.directory.root())?,
        };
        self.set_status(RunStatus::Running)?;
        let mut observer = Logged::open(&self.directory, observer, &std::mem::take(&mut self.notes))?;
        let end = match self.phases(&mut observer, stop) {
            Ok(end) => end,
            Err(error) => {
                // Report the error that ended the run, not a failure to write it.
                let _ = self.directory.set_failed(self.state.position, &error.to_string());
                return Err(error);
            }
        };
        let status = if end == RunEnd::Finished { RunStatus::Finished } else { RunStatus::Interrupted };
        self.set_status(status)?;
        drop(lock);
        Ok(end)
    }

    fn set_status(&self, state: RunStatus) -> Result<(), TrainError> {
        let learning = self.learning.as_ref();
        let mut warnings = learning.map(|learning| learning.warnings(&self.config)).unwrap_or_default();
        if state == RunStatus::Finished {
            warnings.extend(self.nothing_trained());
        }
        self.directory.set_status(state, self.state.position, warnings)
    }

    fn phases(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<RunEnd, TrainError> {
        if self.state.position.phase == Phase::Sft {
            let end = self.run_sft(observer, stop)?;
            self.save(observer)?;
            if end == RunEnd::Interrupted {
                return Ok(end);
            }
            // With a fresh optimizer, at the sampling temperature.
            self.learners.policy.begin_phase(&self.config, Phase::Rl)?;
            self.state.position = RL_START;
            self.begin_critic()?;
            self.save(observer)?;
        }
        let end = self.run_rl(observer, stop)?;
        if end == RunEnd::Finished {
            self.prune()?;
        }
        Ok(end)
    }

    fn run_sft(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<RunEnd, TrainError> {
        let (total, every) = (self.config.sft.steps, self.config.sft.checkpoint_every);
        if self.state.position.step >= total {
            return Ok(RunEnd::Finished);
        }
        let found = match (&self.config.sft.data, self.conversations.take(), &self.runner) {
            (Some(settings), Some(data), _) => {
                Some(WarmStart::of_conversations(&self.config, data, settings))
            }
            (_, _, Some(runner)) => WarmStart::new(&self.config, runner, observer, stop)?,
            _ => None,
        };
        let Some(warm_start) = found else { return Ok(RunEnd::Interrupted) };
        observer.event(Event::Stage("warm start"));
        if self.state.position.step == 0 && warm_start.measures_at(0) {
            let loss = warm_start.held_out_loss(self.learners.policy.as_mut())?;
            observer.event(Event::Note(format!("held-out loss before training: {loss:.4}")));
        }
        while self.state.position.step < total {
            let mut metrics = warm_start.update(self.learners.policy.as_mut(), self.state.position.step)?;
            self.state.position.step += 1;
            if warm_start.measures_at(self.state.position.step) {
                let loss = warm_start.held_out_loss(self.learners.policy.as_mut())?;
                metrics.set("loss/sft_held_out", loss);
                let step = self.state.position.step;
                observer
                    .event(Event::Note(format!("held-out loss after {step} of {total} updates: {loss:.4}")));
            }
            let position = self.state.position;
            self.metrics.write(position, &metrics)?;
            observer.event(Event::Step { position, total, metrics: &metrics });
            if stop.load(Ordering::Relaxed) {
                return Ok(RunEnd::Interrupted);
            }
            if every > 0 && position.step.is_multiple_of(every) && position.step < total {
                self.save(observer)?;
            }
        }
        Ok(RunEnd::Finished)
    }

    fn run_rl(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<RunEnd, TrainError> {
        let total = self.config.train.steps;
        let Some(runner) = self.runner.clone() else { return Ok(RunEnd::Finished) };
        // A kill may have interrupted an evaluation.
        if self.evaluation_due() && !self.evaluated() && self.evaluate(observer)?.is_break() {
            return self.interrupted(observer);
        }
        self.keep_best(observer)?;
        if self.state.position.step >= total {
            return Ok(RunEnd::Finished);
        }
        let tasks = Tasks::of(runner.world.task_set(), &self.config.env.split)?;
        let order = TaskOrder::new(tasks, self.config.seed).ok_or_else(|| TrainError::Config {
            origin: "env.split".into(),
            reason: format!("the split `{}` has no tasks", self.config.env.split),
        })?;
        let config = Arc::new(self.config.clone());
        let (pipeline, loss) = (self.registries.pipeline(&self.config)?, self.registries.loss(&self.config)?);
        let needs = CreditNeeds::of(&pipeline);
        let mut rollouts = RolloutQueue::new(Arc::clone(&runner), config, Arc::new(order), needs);
        let embedder = embedder(&self.config.credit)?;
        if loss.passes().needs_reference() {
            self.learners.policy.set_reference(&self.directory.checkpoints().join(RL_START.label()))?;
        }
        observer.event(Event::Stage("reinforcement learning"));
        let before = read_metrics(&self.directory.path("metrics.jsonl"))?;
        let before = before.iter().filter(|line| line.phase == Phase::Rl).map(|line| &line.metrics);
        let mut learning = Learning::new(&self.config, &self.registries, before)?;
        // Earlier warnings are already reported.
        learning.new_warnings(&self.config);
        self.learning = Some(learning);
        while self.state.position.step < total {
            let method =
                Method { config: &self.config, pipeline: &pipeline, loss: &loss, embedder: &*embedder };
            let mut context =
                StepContext { directory: &self.directory, rollouts: &mut rollouts, observer, stop };
            let Some(Stepped { metrics, unread }) =
                step(&runner, &mut self.learners, &mut self.state, &method, &mut context)?
            else {
                return self.interrupted(observer);
            };
            let position = self.state.position;
            self.metrics.write(position, &metrics)?;
            observer.event(Event::Step { position, total, metrics: &metrics });
            if let Some(learning) = &mut self.learning {
                learning.push(&metrics, unread);
                for warning in learning.new_warnings(&self.config) {
                    observer.event(Event::Note(format!("warning: {warning}")));
                }
            }
            let every = self.config.train.checkpoint_every;
            let stopping = stop.load(Ordering::Relaxed);
            if position.step == total || stopping || (every > 0 && position.step.is_multiple_of(every)) {
                self.save(observer)?;
            }
            if stopping && position.step < total {
                return Ok(RunEnd::Interrupted);
            }
            if self.evaluation_due() {
                if self.evaluate(observer)?.is_break() {
                    return self.interrupted(observer);
                }
                self.keep_best(observer)?;
            }
        }
        Ok(RunEnd::Finished)
    }

    fn keep_best(&self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let Some(split) = &self.config.train.keep_best else { return Ok(()) };
        let position = self.state.position;
        if best::beats_all_before(&self.directory, split, position)? {
            // Evaluations and checkpoints have separate periods.
            self.save(observer)?;
        }
        if let Some(best) = best::update(&self.directory, split, position)? {
            observer.event(Event::Note(format!(
                "best so far on {split}: {} with {:.1} %, kept as `best`",
                best.position.label(),
                100.0 * best.success_rate
            )));
        }
        Ok(())
    }

    fn interrupted(&self, observer: &mut dyn Observer) -> Result<RunEnd, TrainError> {
        self.save(observer)?;
        Ok(RunEnd::Interrupted)
    }

    fn begin_critic(&mut self) -> Result<(), TrainError> {
        let needed = self.registries.pipeline(&self.config)?.required_inputs().values;
        if needed && self.state.position.phase == Phase::Rl {
            let Some(weights) = self.learners.policy.weights() else {
                return Err(TrainError::Config {
                    origin: "credit.estimator".into(),
                    reason: "ppo's critic starts from the policy's weights, and this policy's are elsewhere; use a \
                             group-relative estimator"
                        .into(),
                });
            };
            let settings = self.config.critic.clone();
            let learner = critic_learner(&self.config);
            let critic = RunCritic::new(&weights, self.config.critic_lora(), learner, settings)?;
            self.learners.critic = Some(critic);
        }
        Ok(())
    }

    fn evaluation_due(&self) -> bool {
        let Position { phase, step } = self.state.position;
        let (every, total) = (self.config.eval.every, self.config.train.steps);
        phase == Phase::Rl && (step == 0 || step == total || (every > 0 && step.is_multiple_of(every)))
    }

    fn evaluated(&self) -> bool {
        self.directory.path(&format!("eval/{}.json", self.state.position.label())).is_file()
    }

    fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<ControlFlow<()>, TrainError> {
        let Some(runner) = self.runner.clone() else { return Ok(ControlFlow::Continue(())) };
        self.learners.release();
        let (lanes, max_num_seqs) = sampling_lanes(&self.config);
        let context = self.config.rollout.max_model_len;
        let mut samplers = self.learners.policy.samplers(lanes, max_num_seqs, context)?;
        observer
            .evaluate(&mut EvaluationPoint {
                position: self.state.position,
                run: &self.directory,
                config: &self.config,
                registries: &self.registries,
                world: &runner.world,
                tokenizer: &runner.tokenizer,
                vision: self.learners.policy.vision(),
                samplers: &mut samplers,
            })
            .map_err(TrainError::Observer)
    }

    pub(crate) fn save(&self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        self.learners.check_finite()?;
        let state = CheckpointState {
            position: self.state.position,
            weights_version: self.learners.policy.weights_version(),
            tasks_drawn: Some(self.state.tasks_drawn),
            kl_coef: self.config.objective.kl.adaptive.is_some().then_some(self.state.kl_coef),
            base: self.learners.policy.base().cloned(),
            judge: self.learners.decomposer.as_ref().and_then(RunDecomposer::judge_counts),
        };
        self.metrics.sync()?;
        let written = checkpoint::write(&self.directory, &state, |folder| self.learners.save(folder))?;
        self.prune()?;
        self.set_status(RunStatus::Running)?;
        observer.event(Event::Checkpoint(&written.path));
        Ok(())
    }

    fn prune(&self) -> Result<(), TrainError> {
        let mut kept = vec![Position { phase: Phase::Sft, step: self.config.sft.steps }, RL_START];
        if self.config.train.keep_best.is_some() {
            kept.extend(best::read(&self.directory)?.map(|best| best.position));
        }
        checkpoint::prune(&self.directory, self.state.position, self.config.train.keep_last, &kept)
    }
}
