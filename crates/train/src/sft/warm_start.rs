//! SFT updates.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use turnwise_core::{LearnError, TokenBatch, TokenSequence};
use turnwise_env::demonstration::Demonstration;
use turnwise_model::Schedule;
use turnwise_objective::SupervisedObjective;

use crate::TrainError;
use crate::config::{Config, SftDataConfig};
use crate::learners::policy::PolicyLearner;
use crate::record::metrics::Metrics;
use crate::record::observer::{Event, Observer};
use crate::rollout::EnvRunner;
use crate::sft::conversations::SftData;
use crate::sft::{self, BatchPlan, DemonstratedSummaries, SftSequence};

pub(crate) struct WarmStart<'a> {
    config: &'a Config,
    sequences: Vec<SftSequence>,
    held_out: Vec<SftSequence>,
    plan: BatchPlan,
    every: u64,
}

impl<'a> WarmStart<'a> {
    /// Plays the demonstrations and plans all updates; `None` if `stop` was set first.
    pub(crate) fn new(
        config: &'a Config,
        runner: &EnvRunner,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Self>, TrainError> {
        observer.event(Event::Stage("making demonstrations"));
        let Some(sequences) = demonstrations(config, runner, observer, stop)? else { return Ok(None) };
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
        Ok(Some(Self { config, sequences, held_out: Vec::new(), plan, every: 0 }))
    }

    pub(crate) fn of_conversations(config: &'a Config, data: SftData, settings: &SftDataConfig) -> Self {
        let plan = data.plan(config, settings);
        let every = match settings.held_out_every {
            0 => (plan.len() as u64).div_ceil(settings.epochs),
            every => every,
        };
        let SftData { sequences, held_out, .. } = data;
        Self { config, sequences, held_out, plan, every }
    }

    pub(crate) fn measures_at(&self, step: u64) -> bool {
        let total = self.config.sft.steps;
        !self.held_out.is_empty()
            && (step == 0 || step == total || (self.every > 0 && step.is_multiple_of(self.every)))
    }

    pub(crate) fn held_out_loss(&self, policy: &mut dyn PolicyLearner) -> Result<f64, TrainError> {
        let (mut sum, mut count) = (0.0, 0_usize);
        let mut rest = self.held_out.as_slice();
        while !rest.is_empty() {
            let mut tokens = 0;
            let fits = |sequence: &&SftSequence| {
                tokens += sequence.tokens.tokens.len();
                tokens <= self.config.sft.batch_tokens
            };
            let number = rest.iter().take_while(fits).count().max(1);
            let (batch, after) = rest.split_at(number);
            rest = after;
            let batch: Vec<&TokenSequence> = batch.iter().map(|sequence| &sequence.tokens).collect();
            for logprobs in policy.logprobs(&batch)? {
                sum -= logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>();
                count += logprobs.len();
            }
        }
        Ok(sum / count.max(1) as f64)
    }

    pub(crate) fn update(&self, policy: &mut dyn PolicyLearner, step: u64) -> Result<Metrics, TrainError> {
        let started = Instant::now();
        let batch: Vec<&SftSequence> =
            self.plan.batch(step).iter().map(|&index| &self.sequences[index]).collect();
        let weights = sft::weights(&batch, self.config.sft.observation_weight);
        let objective = SupervisedObjective::new(weights)?;
        let report = policy
            .forward_backward(&TokenBatch::of(batch.iter().map(|sequence| &sequence.tokens)), &objective)?;
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
        metrics.set("loss/grad_norm", stepped.grad_norm);
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
    runner: &EnvRunner,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Option<Vec<SftSequence>>, TrainError> {
    let total = config.sft.demonstrations;
    let stopped = || stop.load(Ordering::Relaxed);
    let played = runner.world.demonstrations(config, &runner.template, total, &mut |played| {
        observer.event(Event::Demonstrations { played, total });
        if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if stopped() {
        return Ok(None);
    }
    let failed = played.failure.as_ref().map(|failure| {
        format!("; {} failed in the environment, the first: {}", played.failed, failure.trim())
    });
    let missed = (played.dropped > played.failed)
        .then(|| format!("; the others did not reach their goal within {} turns", config.env.max_turns));
    let rest: String = [failed, missed].into_iter().flatten().collect();
    observer.event(Event::Note(format!(
        "{} of {} demonstrations are imitated{rest}",
        played.episodes.len(),
        total
    )));
    let prompter = runner.prompter();
    let (written, too_long) = (Cell::new(0_usize), Cell::new(0_usize));
    let summarize = |demonstration: &Demonstration, turn| {
        let summary = runner.world.summarize(demonstration, turn);
        let is_long = prompter.demonstrated_summary(&summary).len() > config.prompt.max_summary_tokens;
        written.set(written.get() + 1);
        too_long.set(too_long.get() + usize::from(is_long));
        summary
    };
    let summaries =
        config.prompt.compact_after.map(|after| DemonstratedSummaries { after, summary: &summarize });
    let mut sequences = Vec::new();
    for demonstration in &played.episodes {
        sequences.extend(sft::sequences(
            demonstration,
            prompter,
            config.prompt.layout,
            config.prompt.history,
            config.rollout.max_model_len,
            summaries,
        )?);
    }
    if summaries.is_some() {
        let limit = config.prompt.max_summary_tokens;
        let long = match too_long.get() {
            0 => String::new(),
            long => format!("; {long} have more than prompt.max_summary_tokens = {limit} tokens: raise it"),
        };
        observer.event(Event::Note(format!("the demonstrations have {} summaries{long}", written.get())));
    }
    Ok(Some(sequences))
}
