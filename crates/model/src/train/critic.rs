use turnwise_core::{LearnError, Learner as _, LossReport, Objective, StepReport, TokenBatch, TokenSequence};

use crate::{LearnerConfig, ModelError, NativeLearner, OptimizerState, TensorInfo, Weights};

/// PPO's value model: `V(s_t) = w . norm(h_t) + b`, with the hidden state `h_t` of the position
/// before token `t`. The model has a copy of the policy's layers, or an adapter on the policy's
/// base.
pub struct Critic(NativeLearner);

impl Critic {
    /// Creates a critic from weights with a value head ([`crate::Parameters::to_critic`],
    /// [`crate::load_critic`], [`crate::Adapter::critic`]).
    ///
    /// # Errors
    /// Fails like [`NativeLearner::new`], or if the weights have no value head.
    pub fn new(weights: impl std::convert::Into<Weights>, config: LearnerConfig) -> Result<Self, ModelError> {
        let weights = weights.into();
        if !weights.has_value_head() {
            return Err(ModelError::Setting {
                key: "critic".into(),
                reason: "these weights have no value head; make them with `to_critic`".into(),
            });
        }
        Ok(Self(NativeLearner::new(weights, config)?))
    }

    /// Returns the value before each response token, one list per sequence.
    ///
    /// # Errors
    /// Fails like [`turnwise_core::Learner::logprobs`].
    pub fn values(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.0.logprobs(batch)
    }

    /// Adds the gradient of a loss over values. The objective receives values instead of log-probs.
    ///
    /// # Errors
    /// Fails like [`turnwise_core::Learner::forward_backward`], and discards the accumulated
    /// gradient.
    pub fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.0.forward_backward(batch, objective)
    }

    /// Updates the weights.
    ///
    /// # Errors
    /// Fails like [`turnwise_core::Learner::step`].
    pub fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        self.0.step(learning_rate)
    }

    /// Rejects trained weights that are not finite.
    ///
    /// # Errors
    /// Fails like [`NativeLearner::check_finite`].
    pub fn check_finite(&self) -> Result<(), LearnError> {
        self.0.check_finite()
    }

    /// Copies weights and moments to the host.
    ///
    /// # Errors
    /// Fails like [`NativeLearner::fetch`].
    pub fn fetch(&self) -> Result<(), LearnError> {
        self.0.fetch()
    }

    /// Frees memory; see [`NativeLearner::release`].
    pub fn release(&mut self) {
        self.0.release();
    }

    /// Returns the current weights.
    pub fn weights(&self) -> Weights {
        self.0.weights()
    }

    /// Returns the trained tensors.
    pub fn trained_tensors(&self) -> &[TensorInfo] {
        self.0.trained_tensors()
    }

    /// Returns the moments and the step count.
    pub fn optimizer_state(&self) -> &OptimizerState {
        self.0.optimizer_state()
    }

    /// Restores a checkpoint's optimizer.
    ///
    /// # Errors
    /// Fails like [`NativeLearner::restore_optimizer`].
    pub fn restore_optimizer(&mut self, state: OptimizerState) -> Result<(), ModelError> {
        self.0.restore_optimizer(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::decoder::Workspace;
    use crate::cpu::decoder::tests::{batch, config, parameters, whole_backward};
    use crate::packing::Packing;
    use crate::testing::{check_gradient, random};
    use crate::{Parameters, load_critic, load_model, save_model};
    use turnwise_core::{ObjectiveError, TokenGradients, TokenStatistics};

    fn critic(seed: u64) -> Parameters<f64> {
        let mut critic = parameters(&config(4, 2, false), seed).to_critic();
        let value = critic.layout.value.clone().unwrap();
        let head = random(seed + 1, value.len());
        critic.data[value].copy_from_slice(&head);
        critic
    }

    #[test]
    fn a_value_is_the_head_on_the_hidden_state_and_its_gradient_the_derivative() {
        let critic = critic(3);
        assert!(critic.tensor("lm_head.weight").is_none());
        let mut packing = Packing::default();
        packing.fill(batch(23, 1).iter());
        let coefficients: Vec<[f64; 2]> =
            random(9, packing.targets.len()).into_iter().map(|d| [d, 0.0]).collect();
        let mut workspace = Workspace::new(&critic.config, false);
        let loss = |workspace: &mut Workspace<f64>, critic: &Parameters<f64>| -> f64 {
            let rows = workspace.forward(critic, &packing, 0.5);
            rows.iter().zip(&coefficients).map(|(row, [d, _])| d * row.logprob).sum()
        };
        loss(&mut workspace, &critic);
        let mut gradient = vec![0.0; critic.data.len()];
        whole_backward(&mut workspace, &critic, &packing, &(0..5), &coefficients, &mut gradient);
        for tensor in &critic.layout.tensors {
            let mut moved = critic.clone();
            let place = tensor.range.clone();
            check_gradient(&tensor.name, &critic.data[place.clone()], &gradient[place.clone()], |values| {
                moved.data[place.clone()].copy_from_slice(values);
                loss(&mut workspace, &moved)
            });
        }
    }

    #[test]
    fn a_critic_starts_at_zero_and_learns_its_targets() {
        struct Squares;
        impl Objective for Squares {
            fn evaluate(
                &self,
                sequence: usize,
                tokens: TokenStatistics<'_>,
            ) -> Result<TokenGradients, ObjectiveError> {
                let off = |value: f32| value - (sequence as f32 - 1.5);
                Ok(TokenGradients {
                    loss: tokens.logprobs.iter().map(|&v| f64::from(off(v)).powi(2)).sum(),
                    d_logprobs: tokens.logprobs.iter().map(|&v| 2.0 * off(v)).collect(),
                    ..TokenGradients::default()
                })
            }
        }
        let policy: Parameters<f32> = parameters(&config(4, 2, true), 3).cast();
        assert!(Critic::new(policy.clone(), LearnerConfig::default()).is_err());
        let mut critic = Critic::new(policy.to_critic(), LearnerConfig::default()).unwrap();
        let batch = batch(23, 1);
        assert!(
            critic
                .values(&TokenBatch::of(&batch).sequences)
                .unwrap()
                .iter()
                .flatten()
                .all(|&value| value == 0.0)
        );
        let first = critic.forward_backward(&TokenBatch::of(&batch), &Squares).unwrap().loss;
        critic.step(1e-2).unwrap();
        for _ in 0..60 {
            critic.forward_backward(&TokenBatch::of(&batch), &Squares).unwrap();
            critic.step(1e-2).unwrap();
        }
        let last = critic.forward_backward(&TokenBatch::of(&batch), &Squares).unwrap().loss;
        assert!(last < 0.05 * first, "{first} to {last}");
    }

    #[test]
    fn what_is_written_is_read_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        let critic: Parameters<f32> = critic(4).cast();
        save_model(&critic, folder.path()).unwrap();
        assert_eq!(load_critic(folder.path()).unwrap(), critic);
        // A critic's files lack the output layer.
        assert!(load_model(folder.path()).unwrap_err().to_string().contains("lm_head.weight"));
    }
}
