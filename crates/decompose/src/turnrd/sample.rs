//! Training data.

use super::TurnRdConfig;
use super::config::setting;
use turnwise_model::ModelError;

/// One finished trajectory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Turn vectors, row-major `[turns, D]`.
    pub turns: Vec<f32>,
    /// Goal vector, `[D]`.
    pub goal: Vec<f32>,
    /// Return `R`.
    pub ret: f64,
    /// Progress after each turn, `[turns]`, or empty.
    pub progress: Vec<Option<f32>>,
    /// Weight in the losses, above 0 ([`super::Replay::view`]).
    pub weight: f64,
}

impl Sample {
    /// Rejects invalid shapes and numbers; returns the number of turns.
    pub(super) fn check(&self, config: &TurnRdConfig, input_dim: usize) -> Result<usize, ModelError> {
        let turns = check_vectors(config, input_dim, &self.turns, &self.goal)?;
        if !(self.progress.is_empty() || self.progress.len() == turns) {
            let reason = format!("has {} entries for {turns} turns", self.progress.len());
            return Err(setting("sample.progress", reason));
        }
        if !self.progress.iter().flatten().all(|value| value.is_finite()) {
            return Err(setting("sample.progress", "holds a number that is not finite"));
        }
        if !self.ret.is_finite() {
            return Err(setting("sample.ret", format!("is {}; must be finite", self.ret)));
        }
        if !(self.weight > 0.0 && self.weight.is_finite()) {
            return Err(setting("sample.weight", format!("is {}; must be finite and above 0", self.weight)));
        }
        Ok(turns)
    }
}

/// Checks the vectors; returns the number of turns.
pub(super) fn check_vectors(
    config: &TurnRdConfig,
    input_dim: usize,
    turns: &[f32],
    goal: &[f32],
) -> Result<usize, ModelError> {
    if turns.is_empty() || !turns.len().is_multiple_of(input_dim) {
        let reason =
            format!("has {} numbers, which is not one or more vectors of width {input_dim}", turns.len());
        return Err(setting("sample.turns", reason));
    }
    let count = turns.len() / input_dim;
    if count > config.max_turns {
        let reason = format!(
            "is {}, and a trajectory has {count} turns; a network keeps the number that it was made with: train one with a larger one",
            config.max_turns
        );
        return Err(setting("max_turns", reason));
    }
    if goal.len() != input_dim {
        let reason = format!("has width {}, the network was made for {input_dim}", goal.len());
        return Err(setting("sample.goal", reason));
    }
    for (key, vector) in [("sample.turns", turns), ("sample.goal", goal)] {
        if !vector.iter().all(|value| value.is_finite()) {
            return Err(setting(key, "holds a number that is not finite"));
        }
    }
    Ok(count)
}

/// Samples read on demand.
pub trait SampleSource {
    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Returns true if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a sample's age in rounds; 0 for the newest.
    fn age(&self, index: usize) -> u32 {
        let _ = index;
        0
    }

    /// Returns a sample by its index in `0..len()`.
    ///
    /// # Errors
    /// Fails if the sample is unreadable.
    fn sample(&mut self, index: usize) -> Result<Sample, ModelError>;
}

impl SampleSource for &[Sample] {
    fn len(&self) -> usize {
        <[Sample]>::len(self)
    }

    fn sample(&mut self, index: usize) -> Result<Sample, ModelError> {
        self.get(index).cloned().ok_or_else(|| setting("sample", format!("there is no sample {index}")))
    }
}
