//! The warm start: supervised updates on demonstrations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use turnwise_core::{LearnError, TokenSequence};
use turnwise_objective::{SupervisedObjective, SupervisedSequence};

use crate::TrainError;
use crate::learners::sft_schedule;
use crate::run::metrics::Metrics;
use crate::run::observer::{Event, Observer};
use crate::run::{Run, RunEnd};
use crate::sft::{self, BatchPlan, SftSequence};

/// Does the supervised updates that are left.
pub(crate) fn run(
    run: &mut Run,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunEnd, TrainError> {
    let total = run.config.sft.steps;
    if run.state.position.step >= total {
        return Ok(RunEnd::Finished);
    }
    observer.event(Event::Stage("making demonstrations"));
    let sequences = demonstrations(run, observer)?;
    observer.event(Event::Note(format!(
        "{} sequences, {} tokens",
        sequences.len(),
        sequences.iter().map(|sequence| sequence.tokens.tokens.len()).sum::<usize>()
    )));
    let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.tokens.tokens.len()).collect();
    let plan = BatchPlan::new(&lengths, run.config.sft.batch_tokens, total, run.config.seed);
    if plan.is_empty() {
        return Err(TrainError::Config {
            origin: "sft".into(),
            reason: format!("no demonstration could be made on the split `{}`", run.config.env.split),
        });
    }
    let schedule = sft_schedule(&run.config);
    observer.event(Event::Stage("warm start"));
    while run.state.position.step < total {
        let started = Instant::now();
        let step = run.state.position.step;
        let batch: Vec<&SftSequence> = plan.batch(step).iter().map(|&index| &sequences[index]).collect();
        let tokens: Vec<TokenSequence> = batch.iter().map(|sequence| sequence.tokens.clone()).collect();
        let weights = sft::weights(&batch, run.config.sft.observation_weight);
        let objective = SupervisedObjective::new(
            weights.into_iter().map(|weights| SupervisedSequence { weights }).collect(),
        )?;
        let report = run.learners.policy.forward_backward(&tokens, &objective)?;
        if !report.loss.is_finite() {
            return Err(LearnError::Backend(format!(
                "the loss of warm start step {} is {}",
                step + 1,
                report.loss
            ))
            .into());
        }
        let rate = schedule.learning_rate(step);
        let stepped = run.learners.policy.step(rate)?;
        let seconds = started.elapsed().as_secs_f64();

        run.state.position.step += 1;
        let mut metrics = Metrics::default();
        metrics.set("loss/sft", report.loss);
        metrics.set("loss/gradient_norm", stepped.gradient_norm);
        metrics.set("train/learning_rate", rate);
        metrics.set("train/tokens", report.total_tokens as f64);
        metrics.set("perf/tokens_per_s", report.total_tokens as f64 / seconds.max(1e-9));
        metrics.set("perf/tokens_computed", (report.total_tokens - report.shared_tokens) as f64);
        metrics.set("perf/tokens_saved", report.shared_tokens as f64);
        run.metrics.write(run.state.position, &metrics)?;
        observer.event(Event::Step { position: run.state.position, total, metrics: &metrics });
        if stop.load(Ordering::Relaxed) {
            return Ok(RunEnd::Interrupted);
        }
        let every = run.config.sft.checkpoint_every;
        if every > 0 && run.state.position.step.is_multiple_of(every) && run.state.position.step < total {
            run.save(observer)?;
        }
    }
    Ok(RunEnd::Finished)
}

fn demonstrations(run: &Run, observer: &mut dyn Observer) -> Result<Vec<SftSequence>, TrainError> {
    let config = &run.config;
    let played = run.actor.world.demonstrations(config, config.sft.demonstrations)?;
    let rest = match played.dropped {
        0 => String::new(),
        _ => format!("; the others did not reach their goal within {} turns", config.env.max_turns),
    };
    observer.event(Event::Note(format!(
        "{} of {} demonstrations are imitated{rest}",
        played.episodes.len(),
        config.sft.demonstrations
    )));
    let prompter = run.actor.prompter();
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
    Ok(sequences)
}
