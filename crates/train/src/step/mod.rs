//! One step of reinforcement learning: rollouts, credit, updates.

pub mod masked_contexts;
pub(crate) mod record;
pub mod update;

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use turnwise_core::Batch;
use turnwise_credit::embedding::HashedNgrams;
use turnwise_credit::{CreditReport, Inputs, Pipeline, attach_explanations};
use turnwise_model::Schedule;
use turnwise_objective::{KlPlace, ObjectiveConfig};

use crate::TrainError;
use crate::learners::critic::{CriticReport, explained_variance};
use crate::learners::decomposer::RunDecomposer;
use crate::learners::provider::ModelProvider;
use crate::rollout::tasks::TaskOrder;
use crate::run::Run;
use crate::run::directory::{Phase, Position};
use crate::run::metrics::Metrics;
use crate::run::observer::Observer;
use crate::step::masked_contexts::MaskedPrompts;
use crate::step::update::{SetInputs, UpdateReport, Updates};

impl Run {
    /// One rollout and its updates; `None` when it was stopped before anything changed.
    pub(crate) fn rl_step(
        &mut self,
        order: &TaskOrder,
        pipeline: &Pipeline,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Metrics>, TrainError> {
        let step = self.position.step;
        let started = Instant::now();
        // Sampling has its own copy of the weights and its cache; what training works in need not lie beside.
        self.release();
        let Some(sampled) = self.sample(order, observer, stop)? else { return Ok(None) };
        let (mut batch, mut sampled_metrics) = (sampled.batch, sampled.metrics);
        let rollout_seconds = started.elapsed().as_secs_f64();
        let mut metrics = Metrics::default();
        record::rollout(&mut metrics, &batch, rollout_seconds);
        metrics.0.append(&mut sampled_metrics.0);
        metrics.set("rollout/mismatch_kl", record::mismatch(&mut self.learner, &batch)?);

        let started = Instant::now();
        let objective = self.objective_of_step();
        let mut reference_kl = None;
        if objective.kl_in_reward() {
            reference_kl = Some(update::subtract_reward_kl(&mut self.learner, &objective, &mut batch)?);
        }
        if let Some(overlong) = &self.config.rollout.overlong {
            let shaping = overlong.shaping(self.config.rollout.max_response_tokens);
            metrics.set("rollout/overlong_turns", shaping.apply(&mut batch)? as f64);
        }
        let passes_seconds = started.elapsed().as_secs_f64();

        let mut provider = ModelProvider {
            critic: self.critic.as_mut(),
            decomposer: self.decomposer.as_mut(),
            policy: &mut self.learner,
            tokenizer: &self.tokenizer,
            step,
            credits_seconds: 0.0,
            passes_seconds: 0.0,
        };
        let supplies = pipeline.supply(&batch, &mut provider)?;
        let (decomposer_seconds, values_seconds) = (provider.credits_seconds, provider.passes_seconds);
        let started = Instant::now();
        let embedder = HashedNgrams::default();
        let inputs =
            Inputs::new(&batch).at(self.config.seed, step).with_embedder(&embedder).with_supplies(&supplies);
        let mut credit = pipeline.report(&inputs, self.config.train.explain)?;
        let credit_seconds = started.elapsed().as_secs_f64();
        attach(&mut batch, &mut credit);
        record::credit(&mut metrics, &credit.advantages);
        for (name, value) in &credit.diagnostics {
            metrics.set(name, *value);
        }
        if let (Some(values), Some(tokens)) = (&supplies.values, &credit.tokens) {
            metrics.set("critic/explained_variance", explained_variance(values, &tokens.returns));
        }

        let started = Instant::now();
        let mut set = {
            let blind = self.blind_sequences(&batch, &credit)?;
            update::training_set(
                &batch,
                &SetInputs {
                    advantages: &credit.advantages,
                    tokens: credit.tokens.as_ref().zip(supplies.values.as_ref()),
                    blind: &blind,
                    skip_zero: self.may_skip_zero(&objective),
                },
            )
        };
        if self.config.train.recompute_old_logprobs {
            update::recompute_old_logprobs(&mut self.learner, &mut set)?;
        }
        if objective.needs_reference_logprobs() {
            update::reference_logprobs(&mut self.learner, &mut set)?;
        }
        let schedule = self.schedule();
        let mut critic_report = CriticReport::default();
        let updates = Updates {
            objective: &objective,
            train: &self.config.train,
            seed: self.config.seed,
            step,
            policy: self.critic.is_none() || step >= self.config.critic.warmup_steps,
        };
        let critic = self.critic.as_mut().map(|critic| (critic, &mut critic_report));
        let report = updates.run(&mut self.learner, critic, &set, |update| schedule.learning_rate(update))?;
        let update_seconds = started.elapsed().as_secs_f64() + passes_seconds + values_seconds;

        record::updates(&mut metrics, &report, update_seconds);
        if self.critic.is_some() {
            metrics.set("critic/loss", critic_report.loss);
            metrics.set("critic/clip_frac", critic_report.clip_fraction);
            metrics.set("critic/gradient_norm", critic_report.gradient_norm);
        }
        let started = Instant::now();
        match &mut self.decomposer {
            Some(RunDecomposer::TurnRd(turnrd)) => turnrd.end_of_step(step, &mut metrics)?,
            Some(RunDecomposer::Judge(judge)) => {
                for (name, value) in judge.metrics().entries() {
                    metrics.set(name, value);
                }
            }
            None => {}
        }
        if self.decomposer.is_some() {
            metrics.set("perf/decomposer_s", decomposer_seconds + started.elapsed().as_secs_f64());
        }
        self.adapt_kl(reference_kl, &report, &mut metrics);
        metrics.set("perf/credit_s", credit_seconds);
        let updates_done =
            (step + 1) * (self.config.train.update_epochs * self.config.train.num_minibatches) as u64;
        metrics.set("train/learning_rate", schedule.learning_rate(updates_done.saturating_sub(1)));
        if self.config.train.save_trajectories {
            let position = Position { phase: Phase::Rl, step: step + 1 };
            self.directory.write_trajectories(position, batch.trajectories())?;
        }
        self.tasks_drawn += sampled.drawn;
        Ok(Some(metrics))
    }

    /// The objective with this step's KL coefficient: the one that adapts, and what STAPO's ablation adds.
    fn objective_of_step(&self) -> ObjectiveConfig {
        let mut objective = self.config.objective.clone();
        objective.kl.coef = self.kl_coef;
        if let Some(selective) = &objective.selective {
            objective.kl.coef = selective.kl_coef(objective.kl.coef);
        }
        objective
    }

    /// Whether a trajectory whose advantages are all zero has no part in the loss.
    fn may_skip_zero(&self, objective: &ObjectiveConfig) -> bool {
        self.config.train.skip_zero_advantage
            && !objective.needs_reference()
            && objective.entropy_coef == 0.0
            && self.critic.is_none()
    }

    fn schedule(&self) -> Schedule {
        let train = &self.config.train;
        Schedule {
            peak: train.learning_rate,
            warmup_steps: train.warmup,
            shape: train.schedule,
            total_steps: train.steps * (train.update_epochs * train.num_minibatches) as u64,
        }
    }

    /// The blind sequences of the outlier turns, where the objective has the selective term.
    fn blind_sequences(
        &self,
        batch: &Batch,
        credit: &CreditReport,
    ) -> Result<Vec<Vec<(usize, turnwise_core::TokenSequence)>>, TrainError> {
        let (Some(selective), Some(outliers)) = (&self.config.objective.selective, &credit.outliers) else {
            return Ok(Vec::new());
        };
        let prompts = MaskedPrompts {
            template: &self.template,
            tokenizer: &self.tokenizer,
            chat: self.chat.as_ref(),
            layout: self.config.prompt.layout,
            history: self.config.prompt.history,
            mask: selective.mask,
        };
        let longest = self.learner.model().max_position_embeddings;
        Ok(prompts.of_batch(batch, &outliers.mask, longest)?)
    }

    /// Lets the KL coefficient follow what was measured.
    fn adapt_kl(&mut self, in_reward: Option<f64>, report: &UpdateReport, metrics: &mut Metrics) {
        let kl = &self.config.objective.kl;
        if let Some(measured) = in_reward {
            metrics.set("loss/reference_kl", measured);
        }
        if kl.coef != 0.0 {
            metrics.set("train/kl_coef", self.kl_coef);
        }
        if let Some(adaptive) = &kl.adaptive {
            let measured = match kl.place {
                KlPlace::Loss => report.metrics.mean(report.metrics.reference_kl),
                KlPlace::Reward => in_reward.unwrap_or(0.0),
            };
            // Without an update nothing was measured.
            if report.updates > 0 {
                self.kl_coef = adaptive.next(self.kl_coef, measured);
            }
        }
    }
}

/// Notes every turn's advantage, and its explanation where there is one, in the trajectories.
fn attach(batch: &mut Batch, credit: &mut CreditReport) {
    for (group, group_advantages) in batch.groups.iter_mut().zip(credit.advantages.groups()) {
        for (trajectory, turn_advantages) in group.trajectories.iter_mut().zip(group_advantages) {
            trajectory.advantages = Some(turn_advantages.clone());
        }
    }
    attach_explanations(batch, std::mem::take(&mut credit.explanations));
}
