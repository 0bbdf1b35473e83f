use std::fmt::Debug;
use std::ops::Range;

use turnwise_core::{SampleError, SamplingParams};

use crate::pictures::Pictures;

/// A token that a decoding step processes. Rows of one sequence are ordered by position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) slot: usize,
    pub(crate) position: usize,
    pub(crate) token: u32,
    /// Time, row and column for M-RoPE; all equal `position` unless an image contains or precedes
    /// the token.
    pub(crate) place: [u32; 3],
    pub(crate) logits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) token: u32,
    pub(crate) logprob: f32,
    pub(crate) entropy: f32,
}

/// Key-value caches of an engine's slots, and the kernels that use them.
pub(crate) trait Decoding: Debug + Send {
    fn version(&self) -> u64;

    fn vocabulary(&self) -> usize;

    fn pictures(&self) -> Option<&Pictures> {
        None
    }

    /// Maximum number of prompt tokens per step, in addition to one token per decoding sequence.
    fn prompt_rows(&self) -> usize;

    /// Copies the keys and values of `positions` between slots that have the same tokens up to
    /// `positions.end`.
    fn copy(&mut self, from: usize, to: usize, positions: Range<usize>) -> Result<(), SampleError>;

    /// Drops a slot's cached keys and values after its first positions.
    fn keep(&mut self, _slot: usize, _positions: usize) {}

    /// Runs the model on all rows, and keeps the logits of the rows that request them.
    fn step(&mut self, rows: &[Row]) -> Result<(), SampleError>;

    /// Samples a token for each row with logits, given its sampling parameters and a random number
    /// in `[0, 1)`. Returns `None` for a row whose logits are not finite.
    fn choose(&mut self, draws: &[(&SamplingParams, f64)]) -> Result<Vec<Option<Choice>>, SampleError>;

    /// Returns a row's most probable tokens with their log-probs. `place` is the row's index among
    /// the last step's rows with logits.
    fn best(
        &self,
        _place: usize,
        _params: &SamplingParams,
        _chosen: &Choice,
        _count: usize,
    ) -> Vec<(u32, f32)> {
        Vec::new()
    }

    fn knows_best(&self) -> bool {
        false
    }
}
