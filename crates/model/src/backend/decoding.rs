//! Steps of sampling over a cache of keys and values.

use std::fmt::Debug;
use std::ops::Range;

use turnwise_core::{SampleError, SamplingParams};

use crate::pictures::Pictures;

/// One token to compute. Rows of a sequence are in ascending order of position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Slot of the sequence in the cache.
    pub(crate) slot: usize,
    /// Position in the sequence.
    pub(crate) position: usize,
    /// Token at the position.
    pub(crate) token: u32,
    /// Time, row and column of M-RoPE; all equal the position unless a picture precedes it.
    pub(crate) place: [u32; 3],
    /// Whether to compute the logits of the next token.
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

    /// Returns the pictures if the model reads pictures.
    fn pictures(&self) -> Option<&Pictures> {
        None
    }

    /// Returns the maximum number of prompt rows per step, in addition to the decoded rows.
    fn prompt_rows(&self) -> usize;

    /// Copies the keys and values of positions from another slot, whose tokens are equal up to their end.
    fn copy(&mut self, from: usize, to: usize, positions: Range<usize>) -> Result<(), SampleError>;

    /// Keeps the first positions of a slot; a device overwrites the others.
    fn keep(&mut self, _slot: usize, _positions: usize) {}

    /// Computes all rows and keeps the logits of those that request them.
    fn step(&mut self, rows: &[Row]) -> Result<(), SampleError>;

    /// Returns the choice of every row that requested logits, in order, each with a number drawn
    /// from `[0, 1)`; `None` if its logits are not finite.
    fn choose(&mut self, draws: &[(&SamplingParams, f64)]) -> Result<Vec<Option<Choice>>, SampleError>;

    /// Returns the `count` most probable tokens, with log-probs, of a row whose logits were
    /// requested in the last step. Empty on backends that keep logits on the device.
    fn best(
        &self,
        _place: usize,
        _params: &SamplingParams,
        _chosen: &Choice,
        _count: usize,
    ) -> Vec<(u32, f32)> {
        Vec::new()
    }

    /// Returns true if [`Decoding::best`] returns tokens.
    fn knows_best(&self) -> bool {
        false
    }
}
