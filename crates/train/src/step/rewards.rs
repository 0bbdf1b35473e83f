//! Reward shaping. [`turnwise_core::Turn::reward`] does not change.

use turnwise_core::{Batch, TokenSequence};
use turnwise_objective::{Loss, kl_estimate};

use crate::TrainError;
use crate::config::Config;
use crate::learners::Learners;
use crate::learners::policy::PolicyLearner;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShapedRewards {
    /// Mean KL over tokens, if the KL is subtracted from the rewards.
    pub(crate) reference_kl: Option<f64>,
    pub(crate) overlong_turns: Option<usize>,
}

pub(crate) fn shape_rewards(
    batch: &mut Batch,
    loss: &Loss,
    config: &Config,
    learners: &mut Learners,
) -> Result<ShapedRewards, TrainError> {
    let mut shaped = ShapedRewards::default();
    let trajectories = batch.groups.iter_mut().flat_map(|group| &mut group.trajectories);
    trajectories.for_each(|trajectory| trajectory.scale_rewards(config.env.reward_scale));
    if loss.passes().reward_reference_logprobs {
        let anew = config.train.recompute_old_logprobs;
        shaped.reference_kl = Some(subtract_reward_kl(learners.policy.as_mut(), loss, batch, anew)?);
    }
    if let Some(overlong) = &config.rollout.overlong {
        let shaping = overlong.shaping(config.rollout.max_response_tokens);
        shaped.overlong_turns = Some(shaping.apply(batch)?);
    }
    Ok(shaped)
}

/// Returns the mean KL over tokens. If `anew` is set, the learner recomputes the policy's
/// log-probs, because a top-k sampler reports those of its truncated distribution.
fn subtract_reward_kl(
    policy: &mut dyn PolicyLearner,
    loss: &Loss,
    batch: &mut Batch,
    anew: bool,
) -> Result<f64, TrainError> {
    let (mut sum, mut tokens) = (0.0, 0.0);
    let estimator = loss.config().kl.estimator;
    let sequences: Vec<&TokenSequence> =
        batch.trajectories().flat_map(|trajectory| &trajectory.sequences).collect();
    let mut own = if anew { policy.logprobs(&sequences)?.into_iter() } else { Vec::new().into_iter() };
    let mut scored = policy.reference_logprobs(&sequences)?.into_iter();
    for trajectory in batch.groups.iter_mut().flat_map(|group| &mut group.trajectories) {
        for (sequence, logprobs) in trajectory.sequences.iter().zip(scored.by_ref()) {
            let own = own.next();
            let mut start = 0;
            for span in &sequence.spans {
                let turn = &mut trajectory.turns[span.turn];
                let range = start..start + span.len();
                let of_turn = &logprobs[range.clone()];
                let old = own.as_ref().map_or_else(|| turn.old_logprobs.clone(), |own| own[range].to_vec());
                let penalties: Vec<f64> = (0..span.len())
                    .map(|token| -loss.reward_kl(&old[token..=token], &of_turn[token..=token]))
                    .collect();
                turn.shape_token_rewards(&penalties);
                for (&old, &reference) in old.iter().zip(of_turn) {
                    sum += kl_estimate(estimator, f64::from(old), f64::from(reference)).0;
                    tokens += 1.0;
                }
                start += span.len();
            }
        }
    }
    Ok(if tokens > 0.0 { sum / tokens } else { 0.0 })
}
