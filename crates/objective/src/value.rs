//! The critic's clipped value loss (Schulman et al. 2017; as in common PPO implementations).
//!
//! `loss = mean over response tokens of 0.5 max((v - R)^2, (clip(v) - R)^2)`,
//! `clip(v) = v_old + clamp(v - v_old, -clip, clip)`, over the whole optimizer batch.

use serde::{Deserialize, Serialize};
use turnwise_core::{LossMetrics, Objective, ObjectiveError, TokenGradients, TokenStatistics};

/// Settings of the value loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ValueConfig {
    /// How far a value may move from its old value before its loss is clipped.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub clip: f64,
}

impl Default for ValueConfig {
    fn default() -> Self {
        Self { clip: 0.5 }
    }
}

/// The value loss of one sequence and its derivative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueGradient {
    /// Part of the batch loss.
    pub loss: f64,
    /// `d loss / d value` per response token.
    pub d_values: Vec<f64>,
    /// Number of tokens on the clipped branch, where the derivative is 0.
    pub clipped: f64,
    /// Number of unmasked tokens.
    pub tokens: f64,
}

/// Value loss of one optimizer batch.
#[derive(Clone, Debug)]
pub struct ValueObjective<'a> {
    clip: f64,
    old_values: Vec<&'a [f64]>,
    returns: Vec<&'a [f64]>,
    masks: Vec<&'a [bool]>,
    tokens: f64,
}

impl<'a> ValueObjective<'a> {
    /// Creates the loss from the old values (those from which the advantages were computed) and the
    /// targets `returns`, both `[sequence][response token]`. `masks` selects the tokens that count;
    /// without an entry, all tokens of the sequence count.
    ///
    /// # Errors
    /// Fails on a negative clip range, arrays of different length, NaN and infinity.
    pub fn new(
        config: &ValueConfig,
        old_values: Vec<&'a [f64]>,
        returns: Vec<&'a [f64]>,
        masks: Vec<&'a [bool]>,
    ) -> Result<Self, ObjectiveError> {
        if config.clip.is_nan() || config.clip < 0.0 {
            return Err(ObjectiveError::Setting(format!(
                "value.clip is {}; it must be 0 or more",
                config.clip
            )));
        }
        if old_values.len() != returns.len() {
            return Err(ObjectiveError::Setting(format!(
                "{} sequences have old_values and {} have returns",
                old_values.len(),
                returns.len()
            )));
        }
        let objective = Self { clip: config.clip, old_values, returns, masks, tokens: 0.0 };
        let mut tokens = 0.0;
        for (sequence, (old, returns)) in objective.old_values.iter().zip(&objective.returns).enumerate() {
            let expected = returns.len();
            let masked = objective.masks.get(sequence).map_or(expected, |mask| mask.len());
            for (what, found) in [("old_values", old.len()), ("mask", masked)] {
                if found != expected {
                    return Err(ObjectiveError::Length { sequence, what, found, expected });
                }
            }
            for token in (0..expected).filter(|&token| objective.counts(sequence, token)) {
                for (what, value) in [("old_values", old[token]), ("returns", returns[token])] {
                    if !value.is_finite() {
                        return Err(ObjectiveError::NotFinite { sequence, token, what, value });
                    }
                }
                tokens += 1.0;
            }
        }
        Ok(Self { tokens, ..objective })
    }

    fn counts(&self, sequence: usize, token: usize) -> bool {
        self.masks.get(sequence).is_none_or(|mask| mask[token])
    }

    /// Returns one sequence's part of the loss and its derivative.
    ///
    /// # Errors
    /// Fails on a wrong number of values, and on NaN or infinity at an unmasked token.
    pub fn gradient(&self, sequence: usize, values: &[f64]) -> Result<ValueGradient, ObjectiveError> {
        let (Some(old), Some(returns)) = (self.old_values.get(sequence), self.returns.get(sequence)) else {
            let count = self.returns.len();
            let text = format!("sequence {sequence} was asked for, the batch has {count}");
            return Err(ObjectiveError::Setting(text));
        };
        let (found, expected) = (values.len(), returns.len());
        if found != expected {
            return Err(ObjectiveError::Length { sequence, what: "values", found, expected });
        }
        let mut gradient = ValueGradient { d_values: vec![0.0; expected], ..ValueGradient::default() };
        for token in (0..expected).filter(|&token| self.counts(sequence, token)) {
            let (value, old, target) = (values[token], old[token], returns[token]);
            if !value.is_finite() {
                return Err(ObjectiveError::NotFinite { sequence, token, what: "values", value });
            }
            // Inside the range use the value itself: `old + (value - old)` rounds differently.
            let moved = value - old;
            let clipped =
                if moved.abs() <= self.clip { value } else { old + moved.clamp(-self.clip, self.clip) };
            let (free, bound) = ((value - target).powi(2), (clipped - target).powi(2));
            gradient.tokens += 1.0;
            gradient.loss += 0.5 * free.max(bound) / self.tokens;
            if bound > free {
                gradient.clipped += 1.0;
            } else {
                gradient.d_values[token] = (value - target) / self.tokens;
            }
        }
        Ok(gradient)
    }
}

/// The learner passes the critic's values instead of log-probs.
impl Objective for ValueObjective<'_> {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let values: Vec<f64> = tokens.logprobs.iter().copied().map(f64::from).collect();
        let found = self.gradient(sequence, &values)?;
        Ok(TokenGradients {
            loss: found.loss,
            d_logprobs: found.d_values.iter().map(|&slope| slope as f32).collect(),
            metrics: LossMetrics {
                tokens: found.tokens,
                clipped_high: found.clipped,
                ..LossMetrics::default()
            },
            ..TokenGradients::default()
        })
    }
}
