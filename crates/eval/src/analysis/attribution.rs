//! Compares outlier turns with all other turns in their advantage and in their dependence on goal
//! and history (STAPO, section 3.3, figure 2, and appendices D and K).
//!
//! The attribution of a part of the prompt is
//! `1/L sum_l (log pi(a_l | c, a_<l) - log pi(a_l | c without the part, a_<l))`, in nats per token.
//! The attribution's mean over sampled responses estimates
//! `KL[pi(.|c) || pi(.|c without the part)]` per token.
//!
//! Masked prompts use the windowed layout. If the config uses the concatenated layout, the policy
//! has not been trained on windowed prompts, so the attribution also measures how unfamiliar
//! windowed prompts are.
//!
//! Differs from the paper: parts are hidden as in STAPO's masked prompts, and all turns are
//! measured. The paper ablates features with Captum and does not state what replaces the features.

use serde::Serialize;
use turnwise_core::{Batch, ContextMask, Learner as _, TokenSequence};
use turnwise_credit::{CreditInputs, Pipeline};
use turnwise_model::NativeLearner;
use turnwise_train::step::masked_contexts::MaskedPrompts;
use turnwise_train::{TrainError, learner_config};

use super::AnalysisSettings;
use crate::EvalError;

/// Parts of the prompt to hide, in the order of [`Attribution::parts`].
const MASKS: [ContextMask; 3] = [ContextMask::GoalAndHistory, ContextMask::Goal, ContextMask::History];

/// Maximum number of sequences per forward pass.
const CHUNK: usize = 256;

/// Means over one set of turns: the outlier turns, or all other turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Attribution {
    /// Number of turns in the mean.
    pub turns: usize,
    /// Mean step advantage.
    pub advantage: f64,
    /// Attribution to goal and history together, to the goal, and to the history, in nats per
    /// token.
    pub parts: [f64; 3],
}

impl Attribution {
    fn add(&mut self, advantage: f64, parts: [f64; 3]) {
        self.turns += 1;
        let weight = 1.0 / self.turns as f64;
        self.advantage += (advantage - self.advantage) * weight;
        for (mean, part) in self.parts.iter_mut().zip(parts) {
            *mean += (part - *mean) * weight;
        }
    }
}

/// Measurements of outliers and other turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AttributionStudy {
    /// Outlier turns.
    pub outliers: Attribution,
    /// Other turns.
    pub inliers: Attribution,
    /// Number of outliers with low entropy.
    pub low: usize,
    /// Number of outliers with high entropy.
    pub high: usize,
    /// Number of turns left out, because they have no response or because a masked prompt is empty
    /// or too long.
    pub left_out: usize,
}

/// Measures every turn and averages over the outlier turns and over all other turns. `tick`
/// receives the numbers of finished turns and of all turns.
///
/// # Errors
/// Returns [`EvalError::Train`] if credit assignment fails, outlier detection is off, a prompt
/// cannot be built or the model fails; [`EvalError::Interrupted`] if stopped.
pub fn attribution(
    settings: &AnalysisSettings<'_>,
    batch: &Batch,
    pipeline: &Pipeline,
    tick: &mut dyn FnMut(usize, usize),
) -> Result<AttributionStudy, EvalError> {
    let config = settings.config;
    let report = pipeline.report(&CreditInputs::new(batch), true).map_err(TrainError::from)?;
    let outliers = report.outliers.ok_or_else(|| TrainError::Config {
        origin: "credit.outliers".into(),
        reason: "is not set, so that no turn is an outlier".into(),
    })?;
    let mut study =
        AttributionStudy { low: outliers.low, high: outliers.high, ..AttributionStudy::default() };
    let prompter = settings.runner.prompter();
    let mut learner =
        NativeLearner::new(settings.weights.clone(), learner_config(config, config.rollout.temperature))
            .map_err(TrainError::from)?;
    let longest = config.rollout.max_model_len;
    let mut turns = Vec::new();
    for ((group, trajectory, turn), &outlier) in outliers.mask.iter() {
        let data = &batch.groups[group].trajectories[trajectory];
        let masked = MASKS.map(|mask| {
            let (layout, history) = (config.prompt.layout, config.prompt.history);
            MaskedPrompts { prompter, layout, history, mask }.masked(data, turn)
        });
        let [both, goal, history] = masked;
        let masked = [
            both.map_err(TrainError::from)?,
            goal.map_err(TrainError::from)?,
            history.map_err(TrainError::from)?,
        ];
        let logprobs = &data.turns[turn].old_logprobs;
        let fits = |masked: &TokenSequence| masked.spans[0].start > 0 && masked.tokens.len() <= longest;
        if logprobs.is_empty() || !masked.iter().all(fits) {
            study.left_out += 1;
            continue;
        }
        let step = report.explanations.row(group, trajectory).and_then(|row| row.get(turn));
        let step = step.and_then(|stages| stages.iter().find_map(|stage| stage.facts.get("step")));
        turns.push((outlier, step.unwrap_or(0.0), mean(logprobs), masked));
    }
    let (mut done, all) = (0, turns.len());
    for chunk in turns.chunks(CHUNK / MASKS.len()) {
        if settings.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(EvalError::Interrupted);
        }
        let sequences: Vec<&TokenSequence> = chunk.iter().flat_map(|(_, _, _, masked)| masked).collect();
        let scored = learner.logprobs(&sequences).map_err(TrainError::from)?;
        for ((outlier, advantage, whole, _), masked) in chunk.iter().zip(scored.chunks(MASKS.len())) {
            let parts = std::array::from_fn(|part| whole - mean(&masked[part]));
            let side = if *outlier { &mut study.outliers } else { &mut study.inliers };
            side.add(*advantage, parts);
        }
        done += chunk.len();
        tick(done, all);
    }
    Ok(study)
}

fn mean(logprobs: &[f32]) -> f64 {
    logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>() / logprobs.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_the_turns() {
        let mut side = Attribution::default();
        side.add(1.0, [3.0, 0.0, 1.0]);
        side.add(-2.0, [1.0, 0.0, 2.0]);
        assert_eq!(side, Attribution { turns: 2, advantage: -0.5, parts: [2.0, 0.0, 1.5] });
        assert_eq!(mean(&[-1.0, -3.0]), -2.0);
    }
}
