//! Decoding steps on a key-value cache.

use std::fmt::Debug;
use std::ops::Range;

use turnwise_core::{SampleError, SamplingParams};

use crate::pictures::Pictures;

/// One token to run through the model. The rows of a sequence are in ascending order of position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Index of the sequence's slot in the cache.
    pub(crate) slot: usize,
    /// Position in the sequence.
    pub(crate) position: usize,
    /// Token at the position.
    pub(crate) token: u32,
    /// Time, row and column of M-RoPE. All three equal the position unless an image precedes the
    /// token.
    pub(crate) place: [u32; 3],
    /// True if the logits for the next token are needed.
    pub(crate) logits: bool,
}

/// A sampled token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) token: u32,
    pub(crate) logprob: f32,
    pub(crate) entropy: f32,
}

/// The key-value caches of all slots of an engine, and the kernels that use them.
pub(crate) trait Decoding: Debug + Send {
    /// Returns the version of the weights.
    fn version(&self) -> u64;

    /// Returns the size of the vocabulary.
    fn vocabulary(&self) -> usize;

    /// Returns the images if the model has a vision tower.
    fn pictures(&self) -> Option<&Pictures> {
        None
    }

    /// Returns the maximum number of prompt tokens per step, in addition to the tokens being
    /// decoded.
    fn prompt_rows(&self) -> usize;

    /// Copies keys and values of a range of positions from another slot. Both slots must have the
    /// same tokens up to the end of the range.
    fn copy(&mut self, from: usize, to: usize, positions: Range<usize>) -> Result<(), SampleError>;

    /// Keeps the first positions of a slot and discards the rest; on a device, later writes
    /// overwrite it.
    fn keep(&mut self, _slot: usize, _positions: usize) {}

    /// Runs all rows through the model and keeps the logits of those that request them.
    fn step(&mut self, rows: &[Row]) -> Result<(), SampleError>;

    /// Samples a token for every row that requested logits, in order, using one number from
    /// `[0, 1)` per row. Returns `None` for a row whose logits are not finite.
    fn choose(&mut self, draws: &[(&SamplingParams, f64)]) -> Result<Vec<Option<Choice>>, SampleError>;

    /// Returns the `count` most probable tokens of a row, with log-probs. The row must have
    /// requested logits in the last step. Empty on backends that keep logits on the device.
    fn best(
        &self,
        _place: usize,
        _params: &SamplingParams,
        _chosen: &Choice,
        _count: usize,
    ) -> Vec<(u32, f32)> {
        Vec::new()
    }

    /// Returns true if [`Decoding::best`] is supported.
    fn knows_best(&self) -> bool {
        false
    }
}
