//! One RL step: sampling, rewards, credit, training set, updates and metrics.

pub mod credit;
mod entropies;
pub mod masked_contexts;
pub(crate) mod metrics;
pub mod rewards;
pub mod training_set;
pub mod update;

use std::sync::atomic::AtomicBool;

use turnwise_core::{Batch, Trajectory};
use turnwise_credit::{Embedder, Pipeline};
use turnwise_objective::Loss;

use crate::TrainError;
use crate::config::Config;
use crate::learners::Learners;
use crate::record::directory::{Position, RunDirectory};
use crate::record::learning::unread_response;
use crate::record::metrics::Metrics;
use crate::record::observer::Observer;
use crate::record::state::RunState;
use crate::rollout::EnvRunner;
use crate::rollout::queue::RolloutQueue;
use crate::step::credit::assign;
use crate::step::entropies::fill_entropies;
use crate::step::metrics::{StepMetrics, mismatch};
use crate::step::rewards::shape_rewards;
use crate::step::training_set::{masked_turns, training_set};
use crate::step::update::update;

pub(crate) struct Method<'a> {
    pub(crate) config: &'a Config,
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) loss: &'a Loss,
    pub(crate) embedder: &'a dyn Embedder,
}

pub(crate) struct StepContext<'a> {
    pub(crate) directory: &'a RunDirectory,
    pub(crate) rollouts: &'a mut RolloutQueue,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) stop: &'a AtomicBool,
}

pub(crate) struct Stepped {
    pub(crate) metrics: Metrics,
    pub(crate) unread: Option<String>,
}

pub(crate) fn step(
    runner: &EnvRunner,
    learners: &mut Learners,
    state: &mut RunState,
    method: &Method<'_>,
    context: &mut StepContext<'_>,
) -> Result<Option<Stepped>, TrainError> {
    let (config, at) = (method.config, state.position.step);
    let mut record = StepMetrics::default();
    let StepContext { directory, rollouts, observer, .. } = context;
    let Some(mut sampled) =
        record.timed("rollout", || rollouts.next(learners, state, *observer, context.stop))?
    else {
        return Ok(None);
    };
    let mut batch = sampled.batch;
    sampled.overflows.warn(at, config, *observer);
    record.timed("passes", || fill_entropies(&mut batch, method, learners.policy.as_mut()))?;
    let mismatch = record.timed("passes", || mismatch(learners.policy.as_mut(), &batch))?;
    record.sampled(&batch, sampled.metrics, mismatch, config);

    let loss = method.loss.with_kl_coef(state.kl_coef)?;
    let shaped = record.timed("rewards", || shape_rewards(&mut batch, &loss, config, learners))?;
    let model_inputs = record.timed("credit_inputs", || {
        learners.supply(method.pipeline, &batch, at, runner.prompter(), context.observer)
    })?;
    let credit = record.timed("credit", || assign(&mut batch, model_inputs, method, at))?;
    record.credited(&batch, &shaped, &credit);

    let masked = record.timed("passes", || masked_turns(&batch, &credit, &loss, runner, learners, config))?;
    let set = record.timed("passes", || training_set(&batch, &credit, &masked, &loss, learners, config))?;
    record.prepared(&set, &batch);
    let result = record.timed("update", || update(&set.trajectories, &loss, learners, config, at));
    // From here on the batch is only counted and written.
    runner.hide_pictures(&mut batch, &mut sampled.masked);
    let mut report = result.map_err(|error| directory.keep_diverged(error, state.position, &batch))?;
    report.record_clipped(&mut batch);
    let learnt = record.timed("decomposer", || learners.end_of_step(at))?;
    record.updated(&report, learnt);

    let done = Position { step: at + 1, ..state.position };
    if config.train.save_trajectories {
        record.timed("record", || write_trajectories(directory, done, &batch, &mut sampled.masked))?;
    }
    let metrics = record.finish(&shaped, &loss, state, config);
    state.kl_coef = report.next_kl_coef(&loss, shaped.reference_kl).unwrap_or(state.kl_coef);
    state.tasks_drawn += sampled.drawn;
    state.position = done;
    Ok(Some(Stepped { metrics, unread: unread_response(&batch) }))
}

/// Writes the trajectories. Trajectories that were not trained on come last, each in its own group,
/// because no advantage compares them with others.
fn write_trajectories(
    directory: &RunDirectory,
    position: Position,
    batch: &Batch,
    masked: &mut [Trajectory],
) -> Result<(), TrainError> {
    for (index, trajectory) in masked.iter_mut().enumerate() {
        trajectory.group = batch.groups.len() + index;
    }
    directory.write_trajectories(position, batch.trajectories().chain(&*masked))?;
    Ok(())
}
