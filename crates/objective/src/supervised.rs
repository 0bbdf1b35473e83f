//! Weighted cross-entropy on given responses (SFT).

use turnwise_core::{DirectLoss, LossMetrics, Objective, ObjectiveError, TokenGradients, TokenStatistics};

use crate::Gradient;

/// Objective `loss = -sum w_t ln pi(t) / sum w`, both sums over the whole optimizer batch.
#[derive(Clone, Debug)]
pub struct SupervisedObjective {
    weights: Vec<Vec<f64>>,
    total: f64,
}

impl SupervisedObjective {
    /// Creates the objective from each response token's weight (`[sequence][token]`, 0 or more).
    ///
    /// # Errors
    /// Fails on a negative, NaN or infinite weight, or if all weights are 0.
    pub fn new(weights: Vec<Vec<f64>>) -> Result<Self, ObjectiveError> {
        for (index, sequence) in weights.iter().enumerate() {
            for (token, &value) in sequence.iter().enumerate() {
                if !value.is_finite() {
                    return Err(ObjectiveError::NotFinite { sequence: index, token, what: "weights", value });
                }
                if value < 0.0 {
                    return Err(ObjectiveError::Setting(format!(
                        "sequence {index}, token {token}: weight {value} is negative"
                    )));
                }
            }
        }
        let total = weights.iter().flatten().sum::<f64>();
        if total <= 0.0 {
            return Err(ObjectiveError::Setting(
                "no response token has a weight: there is nothing to learn from in this batch".into(),
            ));
        }
        Ok(Self { weights, total })
    }

    /// Creates the objective from the response lengths, with weight 1 for each token.
    ///
    /// # Errors
    /// Fails if there are no response tokens.
    pub fn uniform(lengths: &[usize]) -> Result<Self, ObjectiveError> {
        Self::new(lengths.iter().map(|&length| vec![1.0; length]).collect())
    }

    /// Returns one sequence's part of the loss and its derivatives.
    ///
    /// # Errors
    /// Fails on wrong lengths, and on NaN or infinite log-probs of weighted tokens.
    pub fn gradient(&self, sequence: usize, logprobs: &[f64]) -> Result<Gradient, ObjectiveError> {
        let Some(weights) = self.weights.get(sequence) else {
            return Err(ObjectiveError::Setting(format!(
                "sequence {sequence} was asked for, the batch has {}",
                self.weights.len()
            )));
        };
        if logprobs.len() != weights.len() {
            return Err(ObjectiveError::Length {
                sequence,
                what: "logprobs",
                found: logprobs.len(),
                expected: weights.len(),
            });
        }
        let mut gradient = Gradient { d_logprobs: vec![0.0; weights.len()], ..Gradient::default() };
        for (token, (&weight, &value)) in weights.iter().zip(logprobs).enumerate() {
            if weight == 0.0 {
                continue;
            }
            if !value.is_finite() {
                return Err(ObjectiveError::NotFinite { sequence, token, what: "logprobs", value });
            }
            gradient.loss -= weight * value / self.total;
            gradient.d_logprobs[token] = -weight / self.total;
            gradient.metrics.tokens += 1.0;
        }
        gradient.metrics = LossMetrics { policy_loss: gradient.loss, ..gradient.metrics };
        Ok(gradient)
    }
}

impl Objective for SupervisedObjective {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let logprobs: Vec<f64> = tokens.logprobs.iter().copied().map(f64::from).collect();
        self.gradient(sequence, &logprobs).map(Into::into)
    }

    fn direct(&self, sequence: usize) -> Option<DirectLoss> {
        let weights = self.weights.get(sequence)?;
        Some(DirectLoss::CrossEntropy { weights: weights.iter().map(|weight| weight / self.total).collect() })
    }
}
