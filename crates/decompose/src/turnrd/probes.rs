//! Checks whether a trained network uses the goal (paper, section 5.2).

use serde::{Deserialize, Serialize};
use turnwise_core::{Purpose, Seed};

use super::layout::TAG;
use super::loss::value_targets;
use super::{SampleSource, TurnRd};
use turnwise_model::ModelError;

/// Change in the values when FiLM is set to zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilmZeroed {
    /// `sum |V_t - V_t with gamma = beta = 0| / sum |V_t|` over all turns.
    pub relative_change: f64,
    /// Number of trajectories.
    pub samples: usize,
}

/// Errors with correct goals, and with goals shuffled among trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GoalsShuffled {
    /// Mean squared error with correct goals.
    pub mse: f64,
    /// Mean squared error with shuffled goals.
    pub shuffled_mse: f64,
    /// Fraction of trajectories with a larger error after shuffling.
    pub worse: f64,
    /// True if the errors compare `V_t` with progress, false if they compare `Rhat` with the return
    /// because no trajectory has progress.
    pub of_values: bool,
    /// Number of trajectories.
    pub samples: usize,
}

impl GoalsShuffled {
    /// Returns the relative increase of the error that shuffling causes; `None` if `mse` is 0.
    pub fn relative_growth(&self) -> Option<f64> {
        (self.mse > 0.0).then(|| self.shuffled_mse / self.mse - 1.0)
    }
}

/// L2 norms of FiLM's gamma and beta, averaged over trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilmNorms {
    /// Norm of gamma.
    pub gamma: f64,
    /// Norm of beta.
    pub beta: f64,
}

impl TurnRd {
    /// Returns a copy with FiLM's weights set to zero, so that FiLM changes no feature.
    pub fn without_film(&self) -> Self {
        let mut model = self.clone();
        if let Some(film) = &model.tensors.film {
            model.weights[film.weight.clone()].fill(0.0);
            model.weights[film.bias.clone()].fill(0.0);
        }
        model
    }

    /// Measures the change in values when FiLM is set to zero; 0 without FiLM.
    ///
    /// # Errors
    /// Fails on an unreadable or malformed sample.
    pub fn probe_film_zeroed(&self, samples: &mut dyn SampleSource) -> Result<FilmZeroed, ModelError> {
        let zeroed = self.without_film();
        let (mut change, mut size) = (0.0, 0.0);
        self.each(samples, &mut |_, sample, credits| {
            let plain = zeroed.credits(&sample.turns, &sample.goal, sample.ret)?;
            for (with, without) in credits.values.iter().zip(&plain.values) {
                change += (with - without).abs();
                size += with.abs();
            }
            Ok(())
        })?;
        let relative_change = if size > 0.0 { change / size } else { 0.0 };
        Ok(FilmZeroed { relative_change, samples: samples.len() })
    }

    /// Compares errors with correct goals and goals shuffled by `seed`.
    ///
    /// # Errors
    /// Fails on an unreadable or malformed sample.
    pub fn probe_goals_shuffled(
        &self,
        samples: &mut dyn SampleSource,
        seed: u64,
    ) -> Result<GoalsShuffled, ModelError> {
        let mut dealt: Vec<usize> = (0..samples.len()).collect();
        Seed::derive(seed, Purpose::Shuffle, &[TAG, u64::MAX]).rng().shuffle(&mut dealt);
        let mut of_values = false;
        for index in 0..samples.len() {
            of_values |= samples.sample(index)?.progress.iter().any(Option::is_some);
        }
        let mut found = GoalsShuffled { of_values, ..GoalsShuffled::default() };
        for (index, &other) in dealt.iter().enumerate() {
            let sample = samples.sample(index)?;
            sample.check(&self.config, self.input_dim)?;
            let targets = value_targets(&self.config, &sample.progress);
            if of_values && !targets.iter().any(Option::is_some) {
                continue;
            }
            let error = |goal: &[f32]| -> Result<f64, ModelError> {
                let credits = self.credits(&sample.turns, goal, sample.ret)?;
                if !of_values {
                    return Ok((credits.estimate - sample.ret).powi(2));
                }
                let errors: Vec<f64> = credits
                    .values
                    .iter()
                    .zip(&targets)
                    .filter_map(|(value, target)| target.map(|target| (value - target).powi(2)))
                    .collect();
                Ok(errors.iter().sum::<f64>() / errors.len() as f64)
            };
            let (own, shuffled) = (error(&sample.goal)?, error(&samples.sample(other)?.goal)?);
            found.mse += own;
            found.shuffled_mse += shuffled;
            found.worse += f64::from(shuffled > own);
            found.samples += 1;
        }
        let count = found.samples.max(1) as f64;
        found.mse /= count;
        found.shuffled_mse /= count;
        found.worse /= count;
        Ok(found)
    }

    /// Returns the norms of gamma and beta; `None` without FiLM or samples.
    ///
    /// # Errors
    /// Fails on an unreadable or malformed sample.
    pub fn probe_film_norms(&self, samples: &mut dyn SampleSource) -> Result<Option<FilmNorms>, ModelError> {
        if self.tensors.film.is_none() || samples.is_empty() {
            return Ok(None);
        }
        let mut norms = FilmNorms::default();
        let norm = |values: &[f32]| values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        for index in 0..samples.len() {
            let sample = samples.sample(index)?;
            sample.check(&self.config, self.input_dim)?;
            let pack = self.pack([(&sample.turns[..], &sample.goal[..])].into_iter(), None);
            let trace = self.network().forward(&pack);
            let (gamma, beta) = trace.film.split_at(self.config.hidden);
            norms.gamma += norm(gamma) / samples.len() as f64;
            norms.beta += norm(beta) / samples.len() as f64;
        }
        Ok(Some(norms))
    }
}
