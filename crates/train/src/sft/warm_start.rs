//! The warm start: supervised updates on demonstrations.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use turnwise_core::{LearnError, TokenSequence};
use turnwise_model::Schedule;
use turnwise_objective::{SupervisedObjective, SupervisedSequence};

use crate::TrainError;
use crate::config::Config;
use crate::learners::policy::PolicyLearner;
use crate::record::metrics::Metrics;
use crate::record::observer::{Event, Observer};
use crate::rollout::actor::Actor;
use crate::sft::{self, BatchPlan, SftSequence};

/// The demonstrations of a run as sequences, and the updates that they are dealt to.
pub(crate) struct WarmStart<'a> {
    config: &'a Config,
    sequences: Vec<SftSequence>,
    plan: BatchPlan,
}

impl<'a> WarmStart<'a> {
    /// Plays the demonstrations and plans all updates; `None` if `stop` was set before they were played.
    pub(crate) fn new(
        config: &'a Config,
        actor: &Actor,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Self>, TrainError> {
        observer.event(Event::Stage("making demonstrations"));
        let Some(sequences) = demonstrations(config, actor, observer, stop)? else { return Ok(None) };
        let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.tokens.tokens.len()).collect();
        observer.event(Event::Note(format!(
            "{} sequences, {} tokens",
            sequences.len(),
            lengths.iter().sum::<usize>()
        )));
        let plan = BatchPlan::new(&lengths, config.sft.batch_tokens, config.sft.steps, config.seed);
        if plan.is_empty() {
            return Err(TrainError::Config {
                origin: "sft".into(),
                reason: format!("no demonstration could be made on the split `{}`", config.env.split),
            });
        }
        Ok(Some(Self { config, sequences, plan }))
    }

    /// Does update `step` and returns its numbers.
    pub(crate) fn update(&self, policy: &mut dyn PolicyLearner, step: u64) -> Result<Metrics, TrainError> {
        let started = Instant::now();
        let batch: Vec<&SftSequence> =
            self.plan.batch(step).iter().map(|&index| &self.sequences[index]).collect();
        let tokens: Vec<TokenSequence> = batch.iter().map(|sequence| sequence.tokens.clone()).collect();
        let weights = sft::weights(&batch, self.config.sft.observation_weight);
        let objective = SupervisedObjective::new(
            weights.into_iter().map(|weights| SupervisedSequence { weights }).collect(),
        )?;
        let report = policy.forward_backward(&tokens, &objective)?;
        if !report.loss.is_finite() {
            return Err(LearnError::Backend(format!(
                "the loss of warm start step {} is {}",
                step + 1,
                report.loss
            ))
            .into());
        }
        let rate = self.schedule().learning_rate(step);
        let stepped = policy.step(rate)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut metrics = Metrics::default();
        metrics.set("loss/sft", report.loss);
        metrics.set("loss/gradient_norm", stepped.gradient_norm);
        metrics.set("train/learning_rate", rate);
        metrics.set("train/tokens", report.total_tokens as f64);
        metrics.set("perf/tokens_per_s", report.total_tokens as f64 / seconds.max(1e-9));
        metrics.set("perf/tokens_computed", (report.total_tokens - report.shared_tokens) as f64);
        metrics.set("perf/tokens_saved", report.shared_tokens as f64);
        Ok(metrics)
    }

    fn schedule(&self) -> Schedule {
        let sft = &self.config.sft;
        Schedule {
            peak: sft.learning_rate,
            warmup_steps: sft.warmup,
            shape: sft.schedule,
            total_steps: sft.steps,
        }
    }
}

fn demonstrations(
    config: &Config,
    actor: &Actor,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Option<Vec<SftSequence>>, TrainError> {
    let total = config.sft.demonstrations;
    let stopped = || stop.load(Ordering::Relaxed);
    let played = actor.world.demonstrations(config, total, &mut |played| {
        observer.event(Event::Demonstrations { played, total });
        if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if stopped() {
        return Ok(None);
    }
    let rest = match played.dropped {
        0 => String::new(),
        _ => format!("; the others did not reach their goal within {} turns", config.env.max_turns),
    };
    observer.event(Event::Note(format!(
        "{} of {} demonstrations are imitated{rest}",
        played.episodes.len(),
        total
    )));
    let prompter = actor.prompter();
    let mut sequences = Vec::new();
    for demonstration in &played.episodes {
        sequences.extend(sft::sequences(
            demonstration,
            prompter,
            config.prompt.layout,
            config.prompt.history,
            config.rollout.max_context,
        )?);
    }
    Ok(Some(sequences))
}
