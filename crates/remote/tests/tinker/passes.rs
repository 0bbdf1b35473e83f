//! Tests of the double's losses and models.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use turnwise_core::{
    Learner as _, Objective, ObjectiveError, Purpose, Seed, TokenBatch, TokenGradients, TokenSequence,
    TokenStatistics, TurnSpan,
};
use turnwise_model::{
    AdamWConfig, Adapter, LearnerConfig, LoraConfig, NativeLearner, OptimizerState, Parameters, Weights,
};

/// Scale of adapters, as at the services.
const ALPHA: f64 = 32.0;

/// A sequence as the double reads it, one entry a target.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) tokens: Vec<u32>,
    pub(crate) weights: Vec<f32>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) advantages: Vec<f32>,
}

/// The losses of a service over all targets.
struct ServiceLoss<'a> {
    examples: &'a [Received],
    name: &'a str,
    bounds: (f64, f64),
    sequence_mean: bool,
}

impl Objective for ServiceLoss<'_> {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let Received { weights, logprobs: old, advantages, .. } = &self.examples[sequence];
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let divisor = if self.sequence_mean { sum.max(1e-9) } else { 1.0 };
        let mut found = TokenGradients::default();
        for (index, &logprob) in tokens.logprobs.iter().enumerate() {
            let weight = f64::from(weights[index]);
            let ratio = || (f64::from(logprob) - f64::from(old[index])).exp();
            let (loss, slope) = match self.name {
                "cross_entropy" => (-f64::from(logprob), -1.0),
                "importance_sampling" => {
                    let value = -ratio() * f64::from(advantages[index]);
                    (value, value)
                }
                "ppo" => {
                    let (ratio, advantage) = (ratio(), f64::from(advantages[index]));
                    let clipped = ratio.clamp(self.bounds.0, self.bounds.1) * advantage;
                    if ratio * advantage <= clipped {
                        (-ratio * advantage, -ratio * advantage)
                    } else {
                        (-clipped, 0.0)
                    }
                }
                other => return Err(ObjectiveError::Setting(format!("no loss `{other}`"))),
            };
            let (loss, slope) = if weight == 0.0 { (0.0, 0.0) } else { (weight * loss, weight * slope) };
            found.loss += loss / divisor;
            found.d_logprobs.push((slope / divisor) as f32);
        }
        Ok(found)
    }
}

/// A model of the double.
pub(crate) struct Model {
    pub(crate) learner: NativeLearner,
    /// Sequences since the last step.
    count: usize,
    /// Requests that it has had, creation aside.
    pub(crate) requests: usize,
    /// Bodies and futures of numbered requests.
    pub(crate) numbered: HashMap<i64, (Vec<u8>, String)>,
}

/// Weights and optimiser.
#[derive(Clone)]
pub(crate) struct Saved {
    weights: Weights,
    optimizer: OptimizerState,
}

/// Settings of the double's learners, but for the rate: they must be what a step sends.
pub(crate) const OPTIMIZER: AdamWConfig =
    AdamWConfig { beta1: 0.8, beta2: 0.9, epsilon: 1e-3, weight_decay: 0.0, clip_norm: 0.0 };

pub(crate) fn learner_config() -> LearnerConfig {
    LearnerConfig { lanes: 1, optimizer: OPTIMIZER, ..LearnerConfig::default() }
}

impl Model {
    pub(crate) fn new(base: &Arc<Parameters<f32>>, rank: usize, seed: u64) -> Self {
        let lora = LoraConfig { rank, alpha: ALPHA, ..LoraConfig::default() };
        let adapter = Adapter::init(&base.config, &lora, Seed::derive(seed, Purpose::Init, &[])).unwrap();
        let weights = Weights::adapted(Arc::clone(base), adapter).unwrap();
        Self::of(weights)
    }

    fn of(weights: Weights) -> Self {
        let learner = NativeLearner::new(weights, learner_config()).unwrap();
        Self { learner, count: 0, requests: 0, numbered: HashMap::new() }
    }

    pub(crate) fn saved(&self) -> Saved {
        Saved { weights: self.learner.weights(), optimizer: self.learner.optimizer_state().clone() }
    }

    pub(crate) fn load(&mut self, saved: &Saved, optimizer: bool) {
        let mut learner = NativeLearner::new(saved.weights.clone(), learner_config()).unwrap();
        if optimizer {
            learner.restore_optimizer(saved.optimizer.clone()).unwrap();
        }
        self.learner = learner;
    }

    /// A pass; the log-probabilities of all targets.
    pub(crate) fn pass(
        &mut self,
        examples: &[Received],
        loss: &str,
        config: &Value,
        sequence_mean: bool,
        forward_only: bool,
    ) -> Result<Vec<Vec<f32>>, String> {
        let sequences: Vec<TokenSequence> = examples
            .iter()
            .map(|example| TokenSequence {
                tokens: example.tokens.clone(),
                spans: vec![TurnSpan { turn: 0, start: 1, end: example.tokens.len() }],
            })
            .collect();
        let logprobs = self
            .learner
            .logprobs(&TokenBatch::of(&sequences).sequences)
            .map_err(|error| error.to_string())?;
        if !forward_only {
            let bound = |name: &str, default| config[name].as_f64().unwrap_or(default);
            let bounds = (bound("clip_low_threshold", 0.8), bound("clip_high_threshold", 1.2));
            let objective = ServiceLoss { examples, name: loss, bounds, sequence_mean };
            self.learner
                .forward_backward(&TokenBatch::of(&sequences), &objective)
                .map_err(|error| error.to_string())?;
            self.count += examples.len();
        }
        Ok(logprobs)
    }

    /// A step; the norm of its gradient.
    pub(crate) fn step(&mut self, rate: f64, batch_mean: bool) -> Result<f64, String> {
        if batch_mean && self.count > 1 {
            let gradient = self.learner.take_gradient();
            self.learner.put_gradient(gradient, 1.0 / self.count as f64);
        }
        self.count = 0;
        self.learner.step(rate).map(|report| report.grad_norm).map_err(|error| error.to_string())
    }
}
