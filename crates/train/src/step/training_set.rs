//! Sequences with old log-probs, advantages and results of extra passes.

use std::sync::Arc;

use turnwise_core::{Batch, PerToken, PerTurn, TokenSequence};
use turnwise_credit::compact::CompactFilterConfig;
use turnwise_credit::gae::TokenAdvantages;
use turnwise_objective::{Advantages, CorrectionSums, Loss, ObjectiveSequence, RolloutCorrection};

use crate::TrainError;
use crate::config::Config;
use crate::learners::Learners;
use crate::learners::policy::PolicyLearner;
use crate::rollout::EnvRunner;
use crate::step::credit::Credited;
use crate::step::masked_contexts::{MaskedPrompts, MaskedTurns};

/// The sequences to train on, which borrow the step's batch and credit.
pub(crate) struct TrainingSet<'a> {
    pub(crate) trajectories: Vec<TrainingTrajectory<'a>>,
    /// Number of outlier turns whose masked sequence was left out; `None` without a masked-context
    /// pass.
    pub(crate) masked_too_long: Option<usize>,
    pub(crate) filtered: Option<usize>,
    pub(crate) corrected: Option<CorrectionSums>,
}

pub(crate) fn training_set<'a>(
    batch: &'a Batch,
    credit: &'a Credited,
    masked: &'a MaskedTurns,
    loss: &Loss,
    learners: &mut Learners,
    config: &'a Config,
) -> Result<TrainingSet<'a>, TrainError> {
    let masked_too_long = credit.report.outliers.as_ref().filter(|_| !masked.is_empty()).map(|outliers| {
        let wanted = batch.trajectories().zip(outliers.mask.rows()).map(|(trajectory, mask)| {
            let with_tokens = trajectory.turns.iter().zip(mask);
            with_tokens.filter(|(turn, outlier)| **outlier && !turn.response_ids.is_empty()).count()
        });
        wanted.sum::<usize>() - masked.iter().map(Vec::len).sum::<usize>()
    });
    let mut trajectories = paired(
        batch,
        &SetInputs {
            advantages: &credit.report.advantages,
            tokens: credit.report.tokens.as_ref(),
            values: credit.values.as_ref(),
            masked,
            skip_zero: may_skip_zero(loss, learners, config),
            skip_equal_groups: config.train.skip_equal_groups,
            filter: config.rollout.compact_filter.as_ref(),
        },
    );
    let filtered =
        config.rollout.compact_filter.as_ref().map(|filter| {
            batch.trajectories().filter(|trajectory| filter.reason(trajectory).is_some()).count()
        });
    let mut corrected = None;
    if config.train.recompute_old_logprobs {
        let sampled = recompute_old_logprobs(learners.policy.as_mut(), &mut trajectories)?;
        if let Some(correction) = &config.train.rollout_correction {
            corrected = Some(correct(correction, &mut trajectories, &sampled)?);
        }
    }
    if loss.passes().reference_logprobs {
        reference_logprobs(learners.policy.as_mut(), &mut trajectories)?;
    }
    Ok(TrainingSet { trajectories, masked_too_long, filtered, corrected })
}

fn may_skip_zero(loss: &Loss, learners: &Learners, config: &Config) -> bool {
    config.train.skip_zero_advantage && !loss.acts_without_advantage() && learners.critic.is_none()
}

/// Returns the masked sequences of outlier turns; empty if the loss needs none.
pub(crate) fn masked_turns(
    batch: &Batch,
    credit: &Credited,
    loss: &Loss,
    runner: &EnvRunner,
    learners: &Learners,
    config: &Config,
) -> Result<MaskedTurns, TrainError> {
    let (Some(pass), Some(outliers)) = (loss.passes().masked_context, &credit.report.outliers) else {
        return Ok(Vec::new());
    };
    let prompts = MaskedPrompts {
        prompter: runner.prompter(),
        layout: config.prompt.layout,
        history: config.prompt.history,
        mask: pass.mask,
    };
    Ok(prompts.of_batch(batch, &outliers.mask, learners.policy.max_model_len())?)
}

/// A sequence with its loss inputs.
#[derive(Clone, Debug)]
pub struct TrainingSequence<'a> {
    /// Group index in the rollout.
    pub group: usize,
    /// Trajectory index in the group.
    pub member: usize,
    /// Token ids and response spans.
    pub tokens: &'a TokenSequence,
    /// Loss inputs per token and turn.
    pub objective: Arc<ObjectiveSequence>,
    /// Outlier turns as masked-context sequences, each with the index of its span.
    pub masked_contexts: Vec<(usize, &'a TokenSequence)>,
    /// The critic's old values and targets, one per response token.
    pub values: Option<(&'a [f64], &'a [f64])>,
    /// Whether the sequence has a gradient. A sequence without a gradient gets no forward pass, but
    /// still counts in the loss's means.
    pub has_gradient: bool,
}

impl TrainingSequence<'_> {
    /// Returns the loss inputs for modification; no minibatch shares them yet.
    fn loss_inputs(&mut self) -> &mut ObjectiveSequence {
        Arc::make_mut(&mut self.objective)
    }
}

/// Sequences of a trajectory, which stay in one minibatch.
pub type TrainingTrajectory<'a> = Vec<TrainingSequence<'a>>;

/// Inputs of a training set.
#[derive(Clone, Copy)]
pub struct SetInputs<'a> {
    /// Advantage of each turn.
    pub advantages: &'a PerTurn<f64>,
    /// Value targets, and token advantages that replace turn advantages.
    pub tokens: Option<&'a TokenAdvantages>,
    /// The critic's values, if any.
    pub values: Option<&'a PerToken<f64>>,
    /// Masked-context sequences of outlier turns, `[trajectory][turn]` in batch order; may be
    /// empty.
    pub masked: &'a [Vec<(usize, TokenSequence)>],
    /// Skip trajectories with only zero advantages.
    pub skip_zero: bool,
    /// Leave out groups with equal returns.
    pub skip_equal_groups: bool,
    /// Filter for truncated or looping trajectories; dropped trajectories get no forward pass.
    pub filter: Option<&'a CompactFilterConfig>,
}

/// Pairs each sequence with its old log-probs and advantages. Leaves out trajectories without
/// response tokens and, with `skip_equal_groups`, groups of equal returns. Trajectories dropped by
/// `filter` or `skip_zero` are included, but have no gradient.
pub fn paired<'a>(batch: &'a Batch, inputs: &SetInputs<'a>) -> Vec<TrainingTrajectory<'a>> {
    let mut set = Vec::new();
    let mut row = 0;
    for (index, (group, group_advantages)) in batch.groups.iter().zip(inputs.advantages.groups()).enumerate()
    {
        let equal = inputs.skip_equal_groups && group.has_equal_returns();
        for (member, (trajectory, turn_advantages)) in
            group.trajectories.iter().zip(group_advantages).enumerate()
        {
            let masked = inputs.masked.get(row).map_or(&[][..], Vec::as_slice);
            row += 1;
            let zero = match inputs.tokens {
                Some(tokens) => tokens.advantages[(index, member)].iter().all(|&advantage| advantage == 0.0),
                None => turn_advantages.iter().all(|&advantage| advantage == 0.0),
            };
            if equal {
                continue;
            }
            let filtered = inputs.filter.is_some_and(|filter| filter.reason(trajectory).is_some());
            let mut start = 0;
            let mut sequences = TrainingTrajectory::new();
            for sequence in &trajectory.sequences {
                let tokens = start..start + sequence.response_tokens();
                start = tokens.end;
                if tokens.is_empty() {
                    continue;
                }
                let old_logprobs = sequence
                    .spans
                    .iter()
                    .flat_map(|span| &trajectory.turns[span.turn].old_logprobs)
                    .copied()
                    .collect();
                let per_turn = sequence.spans.iter().map(|span| turn_advantages[span.turn]).collect();
                let mut objective = ObjectiveSequence {
                    success: trajectory.success,
                    ..ObjectiveSequence::new(sequence.spans.clone(), old_logprobs, per_turn)
                };
                if let Some(found) = inputs.tokens {
                    objective.advantages =
                        Advantages::PerToken(found.advantages[(index, member)][tokens.clone()].to_vec());
                }
                let values = inputs.tokens.zip(inputs.values).map(|(found, values)| {
                    let (old_values, returns) = (&values[(index, member)], &found.returns[(index, member)]);
                    (&old_values[tokens.clone()], &returns[tokens.clone()])
                });
                let span_of = |turn: usize| sequence.spans.iter().position(|span| span.turn == turn);
                let masked_contexts =
                    masked.iter().filter_map(|(turn, tokens)| Some((span_of(*turn)?, tokens))).collect();
                sequences.push(TrainingSequence {
                    group: index,
                    member,
                    tokens: sequence,
                    objective: Arc::new(objective),
                    masked_contexts,
                    values,
                    has_gradient: !(filtered || inputs.skip_zero && zero && masked.is_empty()),
                });
            }
            if !sequences.is_empty() {
                set.push(sequences);
            }
        }
    }
    set
}

fn recompute_old_logprobs(
    policy: &mut dyn PolicyLearner,
    set: &mut [TrainingTrajectory<'_>],
) -> Result<Vec<Vec<f32>>, TrainError> {
    let logprobs = policy.logprobs(&all_tokens(set))?;
    let replaced = with_gradient(set)
        .zip(logprobs)
        .map(|(sequence, logprobs)| std::mem::replace(&mut sequence.loss_inputs().old_logprobs, logprobs));
    Ok(replaced.collect())
}

fn correct(
    correction: &RolloutCorrection,
    set: &mut [TrainingTrajectory<'_>],
    sampled: &[Vec<f32>],
) -> Result<CorrectionSums, TrainError> {
    let mut sums = CorrectionSums::default();
    for (index, (sequence, sampled)) in with_gradient(set).zip(sampled).enumerate() {
        sums.add(&correction.apply(index, sequence.loss_inputs(), sampled)?);
    }
    Ok(sums)
}

fn reference_logprobs(
    policy: &mut dyn PolicyLearner,
    set: &mut [TrainingTrajectory<'_>],
) -> Result<(), TrainError> {
    let logprobs = policy.reference_logprobs(&all_tokens(set))?;
    for (sequence, logprobs) in with_gradient(set).zip(logprobs) {
        sequence.loss_inputs().ref_logprobs = Some(logprobs);
    }
    Ok(())
}

fn with_gradient<'s, 'a>(
    set: &'s mut [TrainingTrajectory<'a>],
) -> impl Iterator<Item = &'s mut TrainingSequence<'a>> {
    set.iter_mut().flatten().filter(|sequence| sequence.has_gradient)
}

fn all_tokens<'a>(set: &mut [TrainingTrajectory<'a>]) -> Vec<&'a TokenSequence> {
    with_gradient(set).map(|sequence| sequence.tokens).collect()
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Group, StopReason, Task, Trajectory, Turn, TurnSpan};

    use super::*;

    /// Two groups of two trajectories, each of one turn and one token. The returns are (0, 0) and
    /// (0, 1).
    fn batch() -> Batch {
        let trajectory = |reward| {
            let turn = Turn { reward, response_ids: vec![7], old_logprobs: vec![-1.0], ..Turn::default() };
            let mut trajectory = Trajectory::new(Task::new("task", "kind", "goal"), vec![turn]);
            let spans = vec![TurnSpan { turn: 0, start: 1, end: 2 }];
            trajectory.sequences.push(TokenSequence { tokens: vec![3, 7], spans });
            trajectory
        };
        let group = |rewards: [f64; 2]| Group { trajectories: rewards.map(trajectory).to_vec() };
        Batch { groups: vec![group([0.0, 0.0]), group([0.0, 1.0])] }
    }

    #[test]
    fn equal_groups_are_left_out_where_a_penalty_gave_them_advantages() {
        let batch = batch();
        let advantages = PerTurn::from_rows(&batch, [vec![-0.1], vec![0.0], vec![-1.0], vec![1.0]]);
        let size = |skip_zero, skip_equal_groups| {
            let inputs = SetInputs {
                advantages: &advantages,
                tokens: None,
                values: None,
                masked: &[],
                skip_zero,
                skip_equal_groups,
                filter: None,
            };
            let set = paired(&batch, &inputs);
            (set.len(), set.iter().flatten().filter(|sequence| sequence.has_gradient).count())
        };
        assert_eq!((size(false, false), size(true, false), size(false, true)), ((4, 4), (4, 3), (2, 2)));
    }

    #[test]
    fn a_correction_weighs_the_trajectories_that_have_a_gradient() {
        let batch = batch();
        let advantages = PerTurn::from_fn(&batch, |group, _, _| if group == 0 { 0.0 } else { 1.0 });
        let mut set = paired(
            &batch,
            &SetInputs {
                advantages: &advantages,
                tokens: None,
                values: None,
                masked: &[],
                skip_zero: true,
                skip_equal_groups: false,
                filter: None,
            },
        );
        for sequence in with_gradient(&mut set) {
            sequence.loss_inputs().old_logprobs = vec![-0.5];
        }
        let sampled = vec![vec![-1.0], vec![-4.0]];
        let sums = correct(&RolloutCorrection::default(), &mut set, &sampled).unwrap();
        let found: Vec<f64> = set
            .iter()
            .flatten()
            .flat_map(|sequence| match &sequence.objective.advantages {
                Advantages::PerSpan(values) | Advantages::PerToken(values) => values.clone(),
            })
            .collect();
        assert_eq!(found, [0.0, 0.0, 0.5_f64.exp(), 2.0]);
        assert_eq!((sums.tokens, sums.cut), (2.0, 1.0));
    }

    #[test]
    fn a_filtered_trajectory_has_no_gradient_and_stays_in_the_means() {
        let mut batch = batch();
        batch.groups[1].trajectories[1].stop = StopReason::MaxTurns;
        let advantages = PerTurn::from_rows(&batch, [vec![0.0], vec![0.0], vec![-1.0], vec![1.0]]);
        let gradients = |filter: Option<&CompactFilterConfig>| -> Vec<bool> {
            let inputs = SetInputs {
                advantages: &advantages,
                tokens: None,
                values: None,
                masked: &[],
                skip_zero: false,
                skip_equal_groups: false,
                filter,
            };
            paired(&batch, &inputs).iter().flatten().map(|sequence| sequence.has_gradient).collect()
        };
        assert_eq!(gradients(Some(&CompactFilterConfig::default())), [true, true, true, false]);
        assert_eq!(gradients(None), [true; 4]);
    }
}
