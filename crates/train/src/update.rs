//! From a batch with advantages to the updates of one step.

use turnwise_core::{Batch, Learner, LossMetrics, Purpose, Seed, TokenSequence};
use turnwise_credit::TurnAdvantages;
use turnwise_objective::{ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, PolicyObjective, reward_kl};

use crate::TrainError;
use crate::config::TrainConfig;

/// A sequence with all that its loss needs.
#[derive(Clone, Debug)]
pub struct TrainingSequence {
    /// The tokens.
    pub tokens: TokenSequence,
    /// Per-token and per-turn numbers.
    pub objective: ObjectiveSequence,
}

/// One training unit: the sequences of one trajectory, which stay in one minibatch.
pub type TrainingTrajectory = Vec<TrainingSequence>;

/// Pairs every sequence of the batch with its old log-probabilities and advantages. Trajectories
/// without response tokens have nothing to train on and are left out, as are those whose advantages
/// are all zero when `skip_zero` says so.
pub fn training_set(batch: &Batch, advantages: &TurnAdvantages, skip_zero: bool) -> Vec<TrainingTrajectory> {
    let mut set = Vec::new();
    for (group, group_advantages) in batch.groups.iter().zip(&advantages.0) {
        for (trajectory, turn_advantages) in group.trajectories.iter().zip(group_advantages) {
            if skip_zero && turn_advantages.iter().all(|&advantage| advantage == 0.0) {
                continue;
            }
            let sequences: TrainingTrajectory = trajectory
                .sequences
                .iter()
                .filter(|sequence| sequence.response_tokens() > 0)
                .map(|sequence| TrainingSequence {
                    tokens: sequence.clone(),
                    objective: ObjectiveSequence::new(
                        sequence.spans.clone(),
                        sequence
                            .spans
                            .iter()
                            .flat_map(|span| &trajectory.turns[span.turn].old_logprobs)
                            .copied()
                            .collect(),
                        sequence.spans.iter().map(|span| turn_advantages[span.turn]).collect(),
                    ),
                })
                .collect();
            if !sequences.is_empty() {
                set.push(sequences);
            }
        }
    }
    set
}

/// What the updates of one step found, summed over minibatches.
#[derive(Clone, Debug, Default)]
pub struct UpdateReport {
    /// Mean loss over updates.
    pub loss: f64,
    /// Sums over tokens.
    pub metrics: LossMetrics,
    /// Mean gradient norm over updates, before clipping.
    pub gradient_norm: f64,
    /// Number of updates.
    pub updates: u64,
    /// Tokens run through the model.
    pub tokens: usize,
}

/// Runs `epochs` passes of `minibatches` updates each. `rate` gives the learning rate of an update,
/// counted from 0 over the whole phase; `first_update` is the number of this step's first.
pub fn run<L: Learner>(
    learner: &mut L,
    set: &[TrainingTrajectory],
    objective: &ObjectiveConfig,
    config: &TrainConfig,
    run_seed: u64,
    step: u64,
    rate: impl Fn(u64) -> f64,
) -> Result<UpdateReport, TrainError> {
    let mut report = UpdateReport::default();
    let first_update = step * (config.epochs * config.minibatches) as u64;
    for epoch in 0..config.epochs {
        let mut order: Vec<usize> = (0..set.len()).collect();
        Seed::derive(run_seed, Purpose::Shuffle, &[step, epoch as u64]).rng().shuffle(&mut order);
        for minibatch in 0..config.minibatches {
            // As even as the count allows.
            let cut = |index: usize| index * order.len() / config.minibatches;
            let chosen = &order[cut(minibatch)..cut(minibatch + 1)];
            if chosen.is_empty() {
                continue;
            }
            let sequences: Vec<&TrainingSequence> = chosen.iter().flat_map(|&index| &set[index]).collect();
            let tokens: Vec<TokenSequence> =
                sequences.iter().map(|sequence| sequence.tokens.clone()).collect();
            let batch = ObjectiveBatch {
                sequences: sequences.iter().map(|sequence| sequence.objective.clone()).collect(),
            };
            let policy = PolicyObjective::new(objective, batch)?;
            let loss = learner.forward_backward(&tokens, &policy)?;
            let update = first_update + (epoch * config.minibatches + minibatch) as u64;
            let stepped = learner.step(rate(update))?;
            report.loss += loss.loss;
            report.metrics.add(&loss.metrics);
            report.gradient_norm += stepped.gradient_norm;
            report.tokens += loss.total_tokens;
            report.updates += 1;
        }
    }
    if report.updates > 0 {
        report.loss /= report.updates as f64;
        report.gradient_norm /= report.updates as f64;
    }
    Ok(report)
}

/// Replaces the sampler's log-probabilities by the learner's own.
pub fn recompute_old_logprobs<L: Learner>(
    learner: &mut L,
    set: &mut [TrainingTrajectory],
) -> Result<(), TrainError> {
    let logprobs = score(learner, set)?;
    for (sequence, logprobs) in set.iter_mut().flatten().zip(logprobs) {
        sequence.objective.old_logprobs = logprobs;
    }
    Ok(())
}

/// Fills in the log-probabilities of the reference policy.
pub fn reference_logprobs<L: Learner>(
    reference: &mut L,
    set: &mut [TrainingTrajectory],
) -> Result<(), TrainError> {
    let logprobs = score(reference, set)?;
    for (sequence, logprobs) in set.iter_mut().flatten().zip(logprobs) {
        sequence.objective.ref_logprobs = Some(logprobs);
    }
    Ok(())
}

fn score<L: Learner>(learner: &mut L, set: &[TrainingTrajectory]) -> Result<Vec<Vec<f32>>, TrainError> {
    let tokens: Vec<TokenSequence> = set.iter().flatten().map(|sequence| sequence.tokens.clone()).collect();
    Ok(learner.logprobs(&tokens)?)
}

/// Subtracts the KL to the reference policy from the reward of every turn (`kl.where = "reward"`).
pub fn subtract_reward_kl<L: Learner>(
    reference: &mut L,
    objective: &ObjectiveConfig,
    batch: &mut Batch,
) -> Result<(), TrainError> {
    for trajectory in batch.groups.iter_mut().flat_map(|group| &mut group.trajectories) {
        let scored = reference.logprobs(&trajectory.sequences)?;
        for (sequence, logprobs) in trajectory.sequences.iter().zip(&scored) {
            let mut start = 0;
            for span in &sequence.spans {
                let turn = &mut trajectory.turns[span.turn];
                let of_turn = &logprobs[start..start + span.len()];
                turn.reward -=
                    reward_kl(objective.kl.estimator, objective.kl.coef, &turn.old_logprobs, of_turn);
                start += span.len();
            }
        }
    }
    Ok(())
}
