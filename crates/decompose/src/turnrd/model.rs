//! Training, credits and goodness of fit.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::{Purpose, Seed};

use super::config::setting;
use super::layout::{TAG, Tensors};
use super::loss::{Derivatives, Losses, Prediction, losses};
use super::network::{Dropout, Network, Pack, Trace};
use super::pass::Pass;
use super::sample::check_vectors;
use super::{CreditRule, InputNorm, Sample, SampleSource, TurnRdConfig};
use turnwise_model::layers::sum_gradients;
use turnwise_model::{ModelError, OptimizerState};

/// A network that splits returns into credits, with its optimizer state.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRd {
    pub(super) config: TurnRdConfig,
    pub(super) input_dim: usize,
    pub(super) tensors: Tensors,
    pub(super) weights: Vec<f32>,
    pub(super) optimizer: OptimizerState,
}

/// Results for one trajectory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Credits {
    /// Values `V_t`.
    pub values: Vec<f64>,
    /// Weights `w_t`, summing to 1.
    pub weights: Vec<f64>,
    /// Credits `r_t`, summing to the return.
    pub credits: Vec<f64>,
    /// Estimated return `Rhat`.
    pub estimate: f64,
}

/// Progress of a training round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainProgress {
    /// Number of finished minibatches, over all epochs so far.
    pub done: usize,
    /// Number of minibatches in all epochs together.
    pub total: usize,
    /// Losses of the last minibatch.
    pub losses: Losses,
}

/// Report on one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Means over minibatches.
    #[serde(flatten)]
    pub losses: Losses,
    /// Mean gradient norm before clipping.
    pub grad_norm: f64,
}

/// Report on a training round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainReport {
    /// Epochs in order.
    pub epochs: Vec<EpochReport>,
}

/// How well the estimated returns fit the actual ones; each trajectory counts with its sample
/// weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Number of trajectories.
    pub samples: usize,
    /// Mean squared error of `Rhat`.
    pub mse: f64,
    /// Variance of the returns, which is the mean squared error of predicting their mean.
    pub variance: f64,
    /// `1 - mse / variance`; `None` if all returns are equal.
    pub r2: Option<f64>,
    /// `max |sum_t r_t - R|`.
    pub sum_drift: f64,
}

impl TurnRd {
    /// Creates a network for vectors of width `input_dim`.
    ///
    /// # Errors
    /// Fails on an invalid setting.
    pub fn new(config: TurnRdConfig, input_dim: usize, seed: u64) -> Result<Self, ModelError> {
        let mut model = Self::zeros(config, input_dim)?;
        model.weights = model.tensors.init(seed);
        Ok(model)
    }

    pub(super) fn zeros(config: TurnRdConfig, input_dim: usize) -> Result<Self, ModelError> {
        config.check()?;
        if !(1..=1 << 20).contains(&input_dim) {
            return Err(setting("input_dim", format!("is {input_dim}; must be 1 to 1048576")));
        }
        let tensors = Tensors::new(&config, input_dim);
        let (weights, optimizer) = (vec![0.0; tensors.layout.len], OptimizerState::new(tensors.layout.len));
        Ok(Self { config, input_dim, tensors, weights, optimizer })
    }

    /// Returns the settings.
    pub fn config(&self) -> &TurnRdConfig {
        &self.config
    }

    /// Returns the width of turn and goal vectors.
    pub fn input_dim(&self) -> usize {
        self.input_dim
    }

    /// Returns the number of weights.
    pub fn parameters(&self) -> usize {
        self.weights.len()
    }

    /// Returns the number of optimizer steps.
    pub fn steps(&self) -> u64 {
        self.optimizer.step
    }

    pub(super) fn network(&self) -> Network<'_, f32> {
        let Self { config, tensors, weights, .. } = self;
        Network { config, tensors, weights }
    }

    pub(super) fn pack<'a>(
        &self,
        trajectories: impl Iterator<Item = (&'a [f32], &'a [f32])>,
        dropout: Option<Dropout>,
    ) -> Pack<f32> {
        let mut pack = Pack { dropout, ..Pack::default() };
        for (turns, goal) in trajectories {
            pack.lengths.push(turns.len() / self.input_dim);
            for (from, to) in [(turns, &mut pack.inputs), (goal, &mut pack.goals)] {
                for vector in from.chunks_exact(self.input_dim) {
                    match self.config.input_norm {
                        InputNorm::None => to.extend_from_slice(vector),
                        InputNorm::Rms => {
                            let squares: f64 = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                            let scale = 1.0 / (squares / self.input_dim as f64 + 1e-12).sqrt();
                            to.extend(vector.iter().map(|&x| (f64::from(x) * scale) as f32));
                        }
                    }
                }
            }
        }
        pack
    }

    /// Splits a return into credits, which are bit-identical for equal arguments and weights.
    /// `turns` is row-major `[T, D]`, `goal` is `[D]`.
    ///
    /// # Errors
    /// Fails on a wrong width, more than `max_turns` turns, NaN or infinity.
    pub fn credits(&self, turns: &[f32], goal: &[f32], ret: f64) -> Result<Credits, ModelError> {
        check_vectors(&self.config, self.input_dim, turns, goal)?;
        let pack = self.pack([(turns, goal)].into_iter(), None);
        let mut predictions = predictions(&pack, &self.network().forward(&pack));
        let Prediction { weights, values, estimate, .. } = predictions.pop().unwrap_or_default();
        let credits = match self.config.credits {
            CreditRule::Projection => {
                let share = 1.0 / values.len() as f64;
                project(&values, self.config.value_clip, ret, |_| share)
            }
            CreditRule::WeightedProjection => {
                project(&values, self.config.value_clip, ret, |turn| weights[turn])
            }
            CreditRule::Attention => weights.iter().map(|weight| weight * ret).collect(),
        };
        Ok(Credits { values, weights, credits, estimate })
    }

    /// Computes [`TurnRd::credits`] for each (turns, goal, return), in parallel.
    ///
    /// # Errors
    /// Fails like [`TurnRd::credits`].
    pub fn credits_of(&self, trajectories: &[(&[f32], &[f32], f64)]) -> Result<Vec<Credits>, ModelError> {
        trajectories.par_iter().map(|(turns, goal, ret)| self.credits(turns, goal, *ret)).collect()
    }

    /// Trains one round of up to `epochs` passes in shuffled minibatches; see
    /// [`TurnRdConfig::older_per_new`] and [`TurnRdConfig::min_improvement`]. Draws are seeded by
    /// (`seed`, `round`, epoch, sample), so repeating a round is bit-exact.
    ///
    /// # Errors
    /// Fails without samples, on an unreadable or malformed sample, or on a NaN or infinite
    /// gradient; the weights are then those after the last complete minibatch.
    pub fn train(
        &mut self,
        samples: &mut dyn SampleSource,
        round: u64,
        seed: u64,
        progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<TrainReport, ModelError> {
        if samples.is_empty() {
            return Err(setting("train", "there are no samples; collect trajectories first"));
        }
        let mut report = TrainReport::default();
        for epoch in 0..self.config.epochs {
            let coordinates = [TAG, round, epoch as u64];
            let mut rng = Seed::derive(seed, Purpose::Shuffle, &coordinates).rng();
            let pass = Pass::draw(&self.config, samples, &mut rng);
            let batches = pass.order.len().div_ceil(self.config.batch);
            let total = batches * self.config.epochs;
            let mut mean = EpochReport::default();
            for (batch, indices) in pass.order.chunks(self.config.batch).enumerate() {
                let read: Vec<Sample> = indices
                    .iter()
                    .map(|&index| {
                        let mut sample = samples.sample(index)?;
                        if let Some(weight) = pass.older_weight.filter(|_| samples.age(index) > 0) {
                            sample.weight = weight;
                        }
                        Ok(sample)
                    })
                    .collect::<Result<_, ModelError>>()?;
                let dropout = Dropout {
                    run: seed,
                    round,
                    epoch: epoch as u64,
                    samples: indices.iter().map(|&index| index as u64).collect(),
                };
                let (losses, norm) = self.step(&read, &dropout)?;
                mean.losses.add(&losses, 1.0 / batches as f64);
                mean.grad_norm += norm / batches as f64;
                progress(TrainProgress { done: epoch * batches + batch + 1, total, losses });
            }
            let before = report.epochs.last().map(|epoch| epoch.losses.total);
            report.epochs.push(mean);
            let needed = self.config.min_improvement;
            if before.is_some_and(|before| needed > 0.0 && before - mean.losses.total < needed * before.abs())
            {
                break;
            }
        }
        Ok(report)
    }

    /// Trains on one minibatch.
    fn step(&mut self, samples: &[Sample], dropout: &Dropout) -> Result<(Losses, f64), ModelError> {
        for sample in samples {
            sample.check(&self.config, self.input_dim)?;
        }
        let size = samples.len().div_ceil(self.config.num_workers);
        let packs: Vec<Pack<f32>> = samples
            .chunks(size)
            .zip(dropout.samples.chunks(size))
            .map(|(samples, indices)| {
                let dropout = Dropout { samples: indices.to_vec(), ..*dropout };
                let vectors = samples.iter().map(|sample| (&sample.turns[..], &sample.goal[..]));
                self.pack(vectors, Some(dropout))
            })
            .collect();
        let network = self.network();
        let traces: Vec<Trace<f32>> = packs.par_iter().map(|pack| network.forward(pack)).collect();
        let predictions: Vec<Prediction> =
            packs.iter().zip(&traces).flat_map(|(pack, trace)| predictions(pack, trace)).collect();
        let (losses, derivatives) = losses(&self.config, &predictions, samples);
        let len = self.weights.len();
        let mut gradients: Vec<Vec<f32>> = packs
            .par_iter()
            .zip(&traces)
            .zip(derivatives.par_chunks(size))
            .map(|((pack, trace), derivatives)| {
                let mut gradient = vec![0.0; len];
                let rows = |part: fn(&Derivatives) -> &[f64]| -> Vec<f32> {
                    derivatives.iter().flat_map(part).map(|&value| value as f32).collect()
                };
                let (scores, values) = (rows(|d| &d.scores), rows(|d| &d.values));
                network.backward(pack, trace, [&scores, &values], &mut gradient);
                gradient
            })
            .collect();
        let norm = sum_gradients(&mut gradients);
        if !norm.is_finite() {
            let reason = format!("the gradient's norm is {norm}; lower learning_rate or set input_norm");
            return Err(setting("train", reason));
        }
        let Self { config, tensors, weights, optimizer, .. } = self;
        let rate = config.learning_rate;
        optimizer.update(&config.optimizer(), &tensors.layout.tensors, rate, norm, &gradients[0], weights);
        Ok((losses, norm))
    }

    /// Measures the fit of the returns, without dropout.
    ///
    /// # Errors
    /// Fails on an unreadable or malformed sample.
    pub fn fit(&self, samples: &mut dyn SampleSource) -> Result<Fit, ModelError> {
        let mut fit = Fit { samples: samples.len(), ..Fit::default() };
        let (mut weights, mut returns, mut squares) = (0.0, 0.0, 0.0);
        self.each(samples, &mut |_, sample, credits| {
            fit.mse += sample.weight * (credits.estimate - sample.ret).powi(2);
            fit.sum_drift = fit.sum_drift.max((credits.credits.iter().sum::<f64>() - sample.ret).abs());
            weights += sample.weight;
            returns += sample.weight * sample.ret;
            squares += sample.weight * sample.ret * sample.ret;
            Ok(())
        })?;
        if weights > 0.0 {
            fit.mse /= weights;
            let mean = returns / weights;
            fit.variance = (squares / weights - mean * mean).max(0.0);
            // A smaller variance is rounding error.
            fit.r2 = (fit.variance > 1e-12 * (1.0 + mean * mean)).then(|| 1.0 - fit.mse / fit.variance);
        }
        Ok(fit)
    }

    /// Visits every sample and its credits in order, with only a few samples in memory.
    pub(super) fn each(
        &self,
        samples: &mut dyn SampleSource,
        visit: &mut dyn FnMut(usize, &Sample, &Credits) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let all: Vec<usize> = (0..samples.len()).collect();
        for indices in all.chunks(64) {
            let read: Vec<Sample> =
                indices.iter().map(|&index| samples.sample(index)).collect::<Result<_, _>>()?;
            let trajectories: Vec<(&[f32], &[f32], f64)> =
                read.iter().map(|sample| (&sample.turns[..], &sample.goal[..], sample.ret)).collect();
            for ((&index, sample), credits) in indices.iter().zip(&read).zip(&self.credits_of(&trajectories)?)
            {
                sample.check(&self.config, self.input_dim)?;
                visit(index, sample, credits)?;
            }
        }
        Ok(())
    }
}

pub(super) fn predictions<T: turnwise_model::Real>(pack: &Pack<T>, trace: &Trace<T>) -> Vec<Prediction> {
    let part = |all: &[T], first: usize, turns: usize| -> Vec<f64> {
        all[first..first + turns].iter().map(|value| value.to_f64()).collect()
    };
    let of = |(first, turns)| {
        let (scores, values) = (part(trace.scores(), first, turns), part(trace.values(), first, turns));
        Prediction::new(scores.into_iter(), values.into_iter())
    };
    pack.trajectories().map(of).collect()
}

/// Returns `r_t = clip(V_t) - share_t (sum_s clip(V_s) - R)`; the shares sum to 1, each `1 / T` in
/// equation 5.
fn project(values: &[f64], clip: f64, ret: f64, share: impl Fn(usize) -> f64) -> Vec<f64> {
    let clipped: Vec<f64> = values.iter().map(|value| value.clamp(-clip, clip)).collect();
    let excess = clipped.iter().sum::<f64>() - ret;
    clipped.iter().enumerate().map(|(turn, value)| value - share(turn) * excess).collect()
}
