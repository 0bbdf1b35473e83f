//! A learner's settings in each phase.

use turnwise_core::{Purpose, Seed};
use turnwise_model::LearnerConfig;

use crate::config::Config;
use crate::record::position::Phase;

/// Returns the learner's settings for a sampling temperature.
pub fn learner_config(config: &Config, temperature: f32) -> LearnerConfig {
    LearnerConfig {
        micro_batch_tokens: config.train.micro_batch_tokens,
        device: config.policy.device,
        lanes: config.train.num_workers,
        temperature: f64::from(temperature),
        recompute: config.train.recompute_layers,
        share_prefixes: config.policy.share_prefixes,
        compute: config.policy.compute,
        seed: config.seed,
        optimizer: config.optimizer,
    }
}

enum Dropout {
    Sft,
    Rl,
    Critic,
}

fn dropout_seed(config: &Config, who: Dropout) -> u64 {
    Seed::derive(config.seed, Purpose::Dropout, &[who as u64]).rng().bits()
}

pub(crate) fn phase_learner(config: &Config, phase: Phase) -> LearnerConfig {
    let (temperature, who) = match phase {
        Phase::Sft => (1.0, Dropout::Sft),
        Phase::Rl => (config.rollout.temperature, Dropout::Rl),
    };
    LearnerConfig { seed: dropout_seed(config, who), ..learner_config(config, temperature) }
}

pub(crate) fn critic_learner(config: &Config) -> LearnerConfig {
    let seed = dropout_seed(config, Dropout::Critic);
    LearnerConfig { seed, ..learner_config(config, config.rollout.temperature) }
}
