//! A step's updates: epochs over the training set, in minibatches of whole trajectories.

use std::collections::BTreeMap;
use std::sync::Arc;

use turnwise_core::{
    Batch, GradientPass, GradientScale, LearnError, LossMetrics, MaskedContext, Objective, Purpose, Rng,
    Seed, TokenBatch, TurnSpan,
};
use turnwise_model::Schedule;
use turnwise_objective::{LeftOut, Loss, ObjectiveBatch, Surrogate};

use crate::TrainError;
use crate::config::{Config, Shuffle};
use crate::learners::Learners;
use crate::learners::critic::CriticReport;
use crate::learners::policy::PolicyLearner;
use crate::step::training_set::{TrainingSequence, TrainingTrajectory};

/// Statistics of a step's updates, summed over minibatches.
#[derive(Clone, Debug, Default)]
pub struct UpdateReport {
    /// Mean loss over updates.
    pub loss: f64,
    /// Sums over tokens.
    pub metrics: LossMetrics,
    /// Mean gradient norm before clipping.
    pub grad_norm: f64,
    /// Number of updates.
    pub updates: u64,
    /// Number of tokens in the sequences.
    pub tokens: usize,
    /// Number of tokens saved by computing shared prefixes only once.
    pub shared_tokens: usize,
    /// Number of response tokens in sequences without a gradient, which are neither computed nor
    /// clipped.
    pub left_out_tokens: usize,
    /// Metrics of the gradient scaling by name, averaged over updates.
    pub scaling: BTreeMap<String, f64>,
    pub(crate) critic: Option<CriticReport>,
    /// [`turnwise_core::Turn::clipped`] by group index, index of the trajectory in its group, and
    /// turn.
    clipped: BTreeMap<(usize, usize, usize), Vec<i32>>,
}

impl UpdateReport {
    /// Returns the next step's KL coefficient, computed from the mean KL per token in nats. The
    /// mean KL is `in_reward` (the KL subtracted from the rewards) if it is set, and otherwise the
    /// KL measured during the updates.
    pub(crate) fn next_kl_coef(&self, loss: &Loss, in_reward: Option<f64>) -> Option<f64> {
        let in_loss = self.metrics.mean(self.metrics.reference_kl);
        (self.updates > 0).then(|| loss.next_kl_coef(in_reward.unwrap_or(in_loss)))
    }

    fn count_clipped(&mut self, sequence: &TrainingSequence<'_>, branches: &[Surrogate]) {
        let mut rest = branches;
        for span in &sequence.tokens.spans {
            let (own, after) = rest.split_at((span.end - span.start).min(rest.len()));
            rest = after;
            if own.iter().all(|branch| *branch == Surrogate::Unclipped) {
                continue;
            }
            let turn = (sequence.group, sequence.member, span.turn);
            let counts = self.clipped.entry(turn).or_insert_with(|| vec![0; own.len()]);
            for (count, branch) in counts.iter_mut().zip(own) {
                *count += match branch {
                    Surrogate::Unclipped => 0,
                    Surrogate::ClippedLow => -1,
                    Surrogate::ClippedHigh => 1,
                };
            }
        }
    }

    pub(crate) fn record_clipped(&mut self, batch: &mut Batch) {
        for ((group, member, turn), counts) in std::mem::take(&mut self.clipped) {
            batch.groups[group].trajectories[member].turns[turn].clipped = counts;
        }
    }

    /// Returns the fraction of response tokens that were clipped. Tokens without a forward pass
    /// count as not clipped.
    pub(crate) fn share_of_tokens(&self, clipped: f64) -> f64 {
        let tokens = self.metrics.tokens + self.left_out_tokens as f64;
        if tokens > 0.0 { clipped / tokens } else { 0.0 }
    }
}

/// Runs `train.ppo_epochs` passes of `train.num_minibatches` updates over the training set of step
/// `at`.
///
/// # Errors
/// Fails on NaN or infinity, before the update is applied if possible.
pub(crate) fn update(
    set: &[TrainingTrajectory<'_>],
    loss: &Loss,
    learners: &mut Learners,
    config: &Config,
    at: u64,
) -> Result<UpdateReport, TrainError> {
    let mut report = UpdateReport::default();
    let (epochs, minibatches) = (config.train.ppo_epochs, config.train.num_minibatches);
    let schedule = schedule(config);
    // The critic's first values are meaningless.
    let policy_too = learners.critic.is_none() || at >= config.critic.warmup_steps;
    let of_policy = at.saturating_sub(config.critic.warmup_steps);
    for epoch in 0..epochs {
        let mut rng = Seed::derive(config.seed, Purpose::Shuffle, &[at, epoch as u64]).rng();
        let order = shuffled(set, config.train.shuffle, &mut rng);
        for minibatch in 0..minibatches {
            let cut = |index: usize| index * order.len() / minibatches;
            let chosen = &order[cut(minibatch)..cut(minibatch + 1)];
            let found = Minibatch::of(chosen.iter().flat_map(|&index| &set[index]));
            if policy_too {
                report.left_out_tokens += found.left_out.tokens;
            }
            if found.sequences.is_empty() {
                continue;
            }
            if let Some(critic) = &mut learners.critic {
                let (old_values, returns) =
                    found.sequences.iter().filter_map(|sequence| sequence.values).unzip();
                let report = report.critic.get_or_insert_default();
                critic.update(&found.batch.sequences, old_values, returns, report)?;
            }
            if policy_too {
                let index = ((of_policy as usize * epochs + epoch) * minibatches + minibatch) as u64;
                let rate = schedule.learning_rate(index);
                policy_update(learners.policy.as_mut(), loss, &found, rate, &mut report)?;
            }
        }
    }
    if report.updates > 0 {
        let updates = report.updates as f64;
        let sums = [&mut report.loss, &mut report.grad_norm].into_iter();
        sums.chain(report.scaling.values_mut()).for_each(|sum| *sum /= updates);
    }
    learners.check_finite()?;
    Ok(report)
}

fn shuffled(set: &[TrainingTrajectory<'_>], shuffle: Shuffle, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..set.len()).collect();
    match shuffle {
        Shuffle::Trajectories => rng.shuffle(&mut order),
        Shuffle::Groups => {
            let group = |index: usize| set[index].first().map(|sequence| sequence.group);
            let mut groups: Vec<Vec<usize>> =
                order.chunk_by(|&one, &next| group(one) == group(next)).map(<[usize]>::to_vec).collect();
            rng.shuffle(&mut groups);
            order = groups.concat();
        }
    }
    order
}

pub(crate) fn schedule(config: &Config) -> Schedule {
    let train = &config.train;
    Schedule {
        peak: train.learning_rate,
        warmup_steps: train.warmup,
        shape: train.schedule,
        total_steps: train.steps.saturating_sub(config.critic.warmup_steps)
            * (train.ppo_epochs * train.num_minibatches) as u64,
    }
}

struct Minibatch<'a> {
    sequences: Vec<&'a TrainingSequence<'a>>,
    batch: TokenBatch<'a>,
    left_out: LeftOut,
}

impl<'a> Minibatch<'a> {
    fn of(all: impl Iterator<Item = &'a TrainingSequence<'a>>) -> Self {
        let (sequences, others): (Vec<_>, Vec<_>) = all.partition(|sequence| sequence.has_gradient);
        let mut left_out = LeftOut::default();
        for sequence in others {
            left_out.add(&sequence.objective);
        }
        let mut batch = TokenBatch::of(sequences.iter().map(|data| data.tokens));
        for (sequence, data) in sequences.iter().enumerate() {
            let context = |&(span, tokens): &(_, _)| MaskedContext { sequence, span, tokens };
            batch.masked_contexts.extend(data.masked_contexts.iter().map(context));
        }
        Self { sequences, batch, left_out }
    }
}

fn policy_update(
    policy: &mut dyn PolicyLearner,
    loss: &Loss,
    minibatch: &Minibatch<'_>,
    rate: f64,
    report: &mut UpdateReport,
) -> Result<(), TrainError> {
    let Minibatch { sequences, batch, left_out } = minibatch;
    let shared = sequences.iter().map(|sequence| Arc::clone(&sequence.objective)).collect();
    let masked: Vec<TurnSpan> = batch.masked_contexts.iter().map(|context| context.tokens.spans[0]).collect();
    let objective = loss.for_minibatch(ObjectiveBatch { sequences: shared, left_out: *left_out }, &masked)?;
    let found = policy.forward_backward(batch, &objective)?;
    if !found.loss.is_finite() {
        return Err(LearnError::Backend(format!("the loss is {}", found.loss)).into());
    }
    for (sequence, branches) in objective.take_clipped() {
        report.count_clipped(sequences[sequence], &branches);
    }
    if objective.passes().gradient != GradientPass::Plain {
        let scale = scale_gradient(policy, &objective, batch)?;
        for (tag, value) in scale.metrics {
            *report.scaling.entry(tag).or_default() += value;
        }
    }
    let stepped = policy.step(rate)?;
    report.loss += found.loss;
    report.metrics.add(&found.metrics);
    report.grad_norm += stepped.grad_norm;
    report.tokens += found.total_tokens;
    report.shared_tokens += found.shared_tokens;
    report.updates += 1;
    Ok(())
}

/// Scales the gradient by a factor computed from the backward pass and, if needed, from the norm of
/// a second gradient.
fn scale_gradient(
    policy: &mut dyn PolicyLearner,
    objective: &dyn Objective,
    batch: &TokenBatch<'_>,
) -> Result<GradientScale, TrainError> {
    policy.stash_gradient()?;
    let norm = match objective.second_pass()? {
        None => 0.0,
        Some(pass) => {
            let some = TokenBatch::of(pass.sequences.iter().map(|&index| batch.sequences[index]));
            policy.forward_backward(&some, &*pass.objective)?;
            policy.grad_norm()?
        }
    };
    let scale = objective.gradient_scale(norm)?;
    policy.restore_gradient(scale.factor)?;
    Ok(scale)
}

#[cfg(test)]
mod tests {
    use turnwise_core::TokenSequence;
    use turnwise_objective::ObjectiveSequence;

    use super::*;

    fn set<'a>(groups: &[usize], tokens: &'a TokenSequence) -> Vec<TrainingTrajectory<'a>> {
        let sequence = |group| TrainingSequence {
            group,
            member: 0,
            tokens,
            objective: Arc::new(ObjectiveSequence::new(Vec::new(), Vec::new(), Vec::new())),
            masked_contexts: Vec::new(),
            values: None,
            has_gradient: true,
        };
        let of_group = |(group, count): (usize, &usize)| vec![vec![sequence(group)]; *count];
        groups.iter().enumerate().flat_map(of_group).collect()
    }

    #[test]
    fn tokens_that_were_not_run_count_in_the_share_of_clipped_ones() {
        let metrics = LossMetrics { tokens: 8.0, clipped_low: 2.0, ..LossMetrics::default() };
        let mut report = UpdateReport { metrics, ..UpdateReport::default() };
        assert_eq!(report.share_of_tokens(report.metrics.clipped_low), 0.25);
        report.left_out_tokens = 8;
        assert_eq!(report.share_of_tokens(report.metrics.clipped_low), 0.125);
        assert_eq!(UpdateReport::default().share_of_tokens(0.0), 0.0);
    }

    #[test]
    fn groups_stay_together_where_groups_are_shuffled() {
        let tokens = TokenSequence { tokens: vec![1, 2], spans: Vec::new() };
        let set = set(&[4, 4, 0, 3, 4], &tokens);
        let mut orders = std::collections::BTreeSet::new();
        let mut mixed = 0;
        for seed in 0..20 {
            for (shuffle, together) in [(Shuffle::Groups, true), (Shuffle::Trajectories, false)] {
                let mut rng = Seed::derive(seed, Purpose::Shuffle, &[0]).rng();
                let order = shuffled(&set, shuffle, &mut rng);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.iter().copied().eq(0..15), "{order:?}");
                let groups: Vec<usize> = order.iter().map(|&index| set[index][0].group).collect();
                let runs = groups.chunk_by(|one, next| one == next).count();
                if together {
                    assert_eq!(runs, 4, "{groups:?}");
                    orders.insert(groups);
                } else {
                    mixed += usize::from(runs > 4);
                }
            }
        }
        assert!(orders.len() > 5 && mixed == 20, "{} orders, {mixed} mixed", orders.len());
    }
}
