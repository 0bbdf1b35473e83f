//! The critic: its values, from which advantages are computed, and its updates.

use std::sync::Arc;

use turnwise_core::{Batch, PerToken, Purpose, Seed, TokenBatch, TokenSequence};
use turnwise_model::vision::VisionConfig;
use turnwise_model::{
    Adapter, AdapterBase, Critic, LearnerConfig, LoraConfig, OptimizerState, Parameters, Schedule,
    ScheduleKind, Weights, is_adapter, load_adapter, load_critic, save_adapter, save_model,
};
use turnwise_objective::{ValueConfig, ValueObjective};

use crate::TrainError;
use crate::config::CriticConfig;
use crate::record::checkpoint::Checkpoint;

pub(crate) struct RunCritic {
    critic: Critic,
    settings: CriticConfig,
}

fn share_pictures(weights: &mut Arc<Parameters<f32>>, policy: Option<&VisionConfig>) {
    let own = Arc::get_mut(weights).and_then(|weights| weights.config.vision.as_mut());
    if let (Some(own), Some(policy)) = (own, policy) {
        own.pictures = policy.pictures.clone();
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CriticReport {
    pub(crate) loss: f64,
    pub(crate) clip_fraction: f64,
    pub(crate) grad_norm: f64,
    updates: f64,
}

impl CriticReport {
    fn add(&mut self, loss: f64, clip_fraction: f64, grad_norm: f64) {
        self.updates += 1.0;
        self.loss += (loss - self.loss) / self.updates;
        self.clip_fraction += (clip_fraction - self.clip_fraction) / self.updates;
        self.grad_norm += (grad_norm - self.grad_norm) / self.updates;
    }
}

impl RunCritic {
    /// Creates a critic from the policy's layers. With `lora`, the critic is an adapter on the
    /// policy's base model instead; it is copied from the policy's adapter if both have the same
    /// settings.
    pub(crate) fn new(
        policy: &Weights,
        lora: Option<&LoraConfig>,
        learner: LearnerConfig,
        settings: CriticConfig,
    ) -> Result<Self, TrainError> {
        let weights = match lora {
            None => policy.merged()?.to_critic().into(),
            Some(lora) => {
                let adapter = match &policy.adapter {
                    Some(adapter) if adapter.config == lora.spelled_out()? => adapter.to_critic()?,
                    _ => {
                        let seed = Seed::derive(learner.seed, Purpose::Init, &[1]);
                        Adapter::init(policy.config(), lora, seed)?.to_critic()?
                    }
                };
                Weights::adapted(policy.base.clone(), adapter)?
            }
        };
        Ok(Self { critic: Critic::new(weights, learner)?, settings })
    }

    pub(crate) fn load(
        checkpoint: &Checkpoint,
        base: impl FnOnce() -> Result<Weights, TrainError>,
        vision: Option<&VisionConfig>,
        learner: LearnerConfig,
        settings: CriticConfig,
    ) -> Result<Self, TrainError> {
        let folder = checkpoint.critic();
        let weights = if is_adapter(&folder) {
            let Weights { mut base, .. } = base()?;
            let adapter = load_adapter(&folder, &base.config)?;
            share_pictures(&mut base, vision);
            Weights::adapted(base, adapter)?
        } else {
            let mut critic = Arc::new(load_critic(&folder)?);
            share_pictures(&mut critic, vision);
            critic.into()
        };
        let mut critic = Critic::new(weights, learner)?;
        let state = OptimizerState::load(&checkpoint.critic_optimizer(), critic.trained_tensors())?;
        critic.restore_optimizer(state)?;
        Ok(Self { critic, settings })
    }

    pub(crate) fn check_finite(&self) -> Result<(), TrainError> {
        Ok(self.critic.check_finite()?)
    }

    pub(crate) fn release(&mut self) {
        self.critic.release();
    }

    pub(crate) fn save(
        &self,
        critic: &std::path::Path,
        optimizer: &std::path::Path,
        base: &AdapterBase,
    ) -> Result<(), TrainError> {
        self.critic.fetch()?;
        let weights = self.critic.weights();
        match &weights.adapter {
            Some(adapter) => save_adapter(adapter, critic, base)?,
            None => save_model(&weights.base, critic)?,
        }
        Ok(self.critic.optimizer_state().save(optimizer, self.critic.trained_tensors())?)
    }

    pub(crate) fn values(&mut self, batch: &Batch) -> Result<PerToken<f64>, TrainError> {
        let sequences: Vec<&TokenSequence> =
            batch.trajectories().flat_map(|trajectory| &trajectory.sequences).collect();
        let mut values = self.critic.values(&sequences)?.into_iter();
        Ok(PerToken::from_rows(
            batch,
            batch.trajectories().map(|trajectory| {
                let own = values.by_ref().take(trajectory.sequences.len());
                own.flatten().map(f64::from).collect()
            }),
        ))
    }

    pub(crate) fn update(
        &mut self,
        tokens: &[&TokenSequence],
        old_values: Vec<&[f64]>,
        returns: Vec<&[f64]>,
        report: &mut CriticReport,
    ) -> Result<(), TrainError> {
        let config = ValueConfig { clip: self.settings.clip };
        let objective = ValueObjective::new(&config, old_values, returns, Vec::new())?;
        let loss = self.critic.forward_backward(&TokenBatch::of(tokens.iter().copied()), &objective)?;
        // The schedule follows the optimizer's update count, which checkpoints restore.
        let schedule = Schedule {
            peak: self.settings.learning_rate,
            warmup_steps: self.settings.warmup,
            total_steps: 0,
            shape: ScheduleKind::Constant,
        };
        let rate = schedule.learning_rate(self.critic.optimizer_state().step);
        let stepped = self.critic.step(rate)?;
        report.add(loss.loss, loss.metrics.clip_fraction(), stepped.grad_norm);
        Ok(())
    }
}

/// Returns `1 - Var(R - V) / Var(R)`: 1 if the values are exact, 0 if they are no
/// better than the mean return or if all returns are equal.
pub(crate) fn explained_variance(values: &PerToken<f64>, returns: &PerToken<f64>) -> f64 {
    let pairs = || values.values().zip(returns.values()).map(|(value, target)| (*value, *target));
    let variance = |of: &dyn Fn((f64, f64)) -> f64| {
        let count = pairs().count().max(1) as f64;
        let mean = pairs().map(of).sum::<f64>() / count;
        pairs().map(|pair| (of(pair) - mean).powi(2)).sum::<f64>() / count
    };
    let total = variance(&|(_, target)| target);
    if total > 0.0 { 1.0 - variance(&|(value, target)| target - value) / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explained_variance_is_one_minus_the_share_left() {
        let table = |rows: [[f64; 2]; 2]| PerToken::from(vec![rows.map(Vec::from).to_vec()]);
        let returns = table([[0.0, 1.0], [2.0, 3.0]]);
        assert_eq!(explained_variance(&returns, &returns), 1.0);
        assert_eq!(explained_variance(&table([[9.0; 2]; 2]), &returns), 0.0);
        let wrong = table([[3.0, 2.0], [1.0, 0.0]]);
        assert!((explained_variance(&wrong, &returns) + 3.0).abs() < 1e-12);
        assert_eq!(explained_variance(&returns, &table([[1.0; 2]; 2])), 0.0);
    }
}
