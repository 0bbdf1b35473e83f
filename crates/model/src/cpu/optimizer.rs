use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::files::hf::mapped::Mapped;
use crate::files::{self, bytes_of, floats_of};
use crate::ops::dispatch::{Loop, vectorised};
use crate::ops::gradients::CHUNK;
use crate::{ModelError, TensorInfo};

/// Settings of AdamW. Defaults: betas 0.9 and 0.95, epsilon 1e-8, no weight decay, clipping at 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay rate of the first moment.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub beta1: f64,
    /// Decay rate of the second moment.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub beta2: f64,
    /// Added to the square root of the second moment.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub epsilon: f64,
    /// Decoupled weight decay of matrices; norms and biases do not decay.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
    /// Maximum global gradient norm; 0 disables clipping.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub clip_norm: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0, clip_norm: 1.0 }
    }
}

/// AdamW's moments and step count.
///
/// Follows Loshchilov and Hutter (2019), "Decoupled Weight Decay Regularization", as implemented in
/// `torch.optim.AdamW`. With the gradient `g` clipped to `g min(1, clip / (norm + 1e-6))`,
///
/// ```text
/// m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2        p = p (1 - lr decay)
/// p = p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerState {
    /// Number of updates.
    pub step: u64,
    /// First moments, laid out like the trained parameters.
    pub first: Vec<f32>,
    /// Second moments.
    pub second: Vec<f32>,
}

impl OptimizerState {
    /// Returns the optimizer state before the first update.
    pub fn new(len: usize) -> Self {
        Self { step: 0, first: vec![0.0; len], second: vec![0.0; len] }
    }

    pub(crate) fn rates(&self, config: &AdamWConfig, learning_rate: f64, norm: f64) -> (Rates, f32) {
        let clip = if config.clip_norm > 0.0 { (config.clip_norm / (norm + 1e-6)).min(1.0) } else { 1.0 };
        let t = (self.step + 1) as f64;
        let rates = Rates {
            clip: clip as f32,
            beta1: config.beta1 as f32,
            rest1: (1.0 - config.beta1) as f32,
            beta2: config.beta2 as f32,
            rest2: (1.0 - config.beta2) as f32,
            rate: (learning_rate / (1.0 - config.beta1.powf(t))) as f32,
            correction: (1.0 / (1.0 - config.beta2.powf(t)).sqrt()) as f32,
            epsilon: config.epsilon as f32,
        };
        (rates, (1.0 - learning_rate * config.weight_decay) as f32)
    }

    /// Applies one update with a finite gradient of global norm `norm`. `tensors` lists the tensors
    /// in the order of `gradient`, `weights` and the moments.
    pub fn update(
        &mut self,
        config: &AdamWConfig,
        tensors: &[TensorInfo],
        learning_rate: f64,
        norm: f64,
        gradient: &[f32],
        weights: &mut [f32],
    ) {
        let (rates, keep) = self.rates(config, learning_rate, norm);
        self.step += 1;
        let mut work = Vec::new();
        let (mut weights, mut first, mut second) = (weights, &mut *self.first, &mut *self.second);
        let mut gradient = gradient;
        for tensor in tensors {
            let keep = if tensor.decays { keep } else { 1.0 };
            let mut left = tensor.range.len();
            while left > 0 {
                let count = left.min(CHUNK);
                left -= count;
                let (weight, rest) = weights.split_at_mut(count);
                weights = rest;
                let (m, rest) = first.split_at_mut(count);
                first = rest;
                let (v, rest) = second.split_at_mut(count);
                second = rest;
                let (g, rest) = gradient.split_at(count);
                gradient = rest;
                work.push((weight, m, v, g, keep));
            }
        }
        work.into_par_iter().for_each(|(weight, m, v, g, keep)| rates.apply(weight, m, v, g, keep));
    }

    /// Writes the moments atomically as `exp_avg.<name>` and `exp_avg_sq.<name>`, as in PyTorch,
    /// with the step count in the header.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if there are fewer moments than the tensors need.
    pub fn save(&self, path: &Path, trained: &[TensorInfo]) -> Result<(), ModelError> {
        let mut tensors = Vec::new();
        for tensor in trained {
            for (kind, moments) in [("exp_avg", &self.first), ("exp_avg_sq", &self.second)] {
                let Some(values) = moments.get(tensor.range.clone()) else {
                    return Err(ModelError::file(path, "the optimizer state belongs to another model"));
                };
                let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes_of(values))
                    .map_err(|error| ModelError::file(path, error))?;
                tensors.push((format!("{kind}.{}", tensor.name), view));
            }
        }
        let header = [("step".to_string(), self.step.to_string())].into();
        files::write_tensors(path, tensors, header)
    }

    /// Restores a saved optimizer state exactly.
    ///
    /// # Errors
    /// Fails if the file cannot be read, lacks `step` or is incomplete, or if a tensor's moments
    /// are missing or misshapen.
    pub fn load(path: &Path, trained: &[TensorInfo]) -> Result<Self, ModelError> {
        let file = Mapped::open(path)?;
        let (_, header) =
            SafeTensors::read_metadata(file.bytes()).map_err(|error| ModelError::file(path, error))?;
        let step = header
            .metadata()
            .as_ref()
            .and_then(|entries: &std::collections::HashMap<String, String>| entries.get("step")?.parse().ok())
            .ok_or_else(|| ModelError::file(path, "the header has no `step`: not an optimizer state"))?;
        let tensors =
            SafeTensors::deserialize(file.bytes()).map_err(|error| ModelError::file(path, error))?;
        let views: BTreeMap<String, TensorView<'_>> = tensors.tensors().into_iter().collect();
        let mut state = Self::new(trained.last().map_or(0, |tensor| tensor.range.end));
        state.step = step;
        for tensor in trained {
            for (kind, moments) in [("exp_avg", &mut state.first), ("exp_avg_sq", &mut state.second)] {
                let name = format!("{kind}.{}", tensor.name);
                let to = &mut moments[tensor.range.clone()];
                let view = views.get(&name);
                floats_of(path, &name, view, &tensor.shape, to)?;
                if let Some(view) = view {
                    file.release(view.data());
                }
            }
        }
        Ok(state)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) clip: f32,
    pub(crate) beta1: f32,
    pub(crate) rest1: f32,
    pub(crate) beta2: f32,
    pub(crate) rest2: f32,
    pub(crate) rate: f32,
    pub(crate) correction: f32,
    pub(crate) epsilon: f32,
}

impl Rates {
    fn apply(&self, weights: &mut [f32], first: &mut [f32], second: &mut [f32], gradient: &[f32], keep: f32) {
        struct Rows;

        impl Loop<(Rates, [&mut [f32]; 3], &[f32], f32)> for Rows {
            type Output = ();
            #[expect(
                clippy::inline_always,
                reason = "it is compiled for wider vectors only where it is inlined"
            )]
            #[inline(always)]
            fn run((rates, [weights, first, second], gradient, keep): (Rates, [&mut [f32]; 3], &[f32], f32)) {
                let rows = weights.iter_mut().zip(first).zip(second).zip(gradient);
                for (((weight, m), v), &g) in rows {
                    let g = g * rates.clip;
                    *m = rates.beta1 * *m + rates.rest1 * g;
                    *v = rates.beta2 * *v + rates.rest2 * g * g;
                    let step = rates.rate * *m / (v.sqrt() * rates.correction + rates.epsilon);
                    *weight = *weight * keep - step;
                }
            }
        }

        vectorised(Rows, (*self, [weights, first, second], gradient, keep));
    }
}
