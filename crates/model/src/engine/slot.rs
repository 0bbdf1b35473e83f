//! Memory of one session.

use std::sync::Arc;

use turnwise_core::{RequestId, Rng, SampleRequest, SamplingParams};
use turnwise_text::StopStringMatcher;

use crate::pictures::Prepared;

/// Memory of one session.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) session: Option<u64>,
    /// Prompt and response of its last request, or of the session that was there before.
    pub(super) tokens: Vec<u32>,
    /// Time, row and column of each token, if a picture is among them.
    pub(super) places: Vec<[u32; 3]>,
    /// Leading tokens whose keys and values are cached.
    pub(super) computed: usize,
    /// Clock when it was last used.
    pub(super) used: u64,
    pub(super) active: Option<Active>,
    /// The session ended while its request was in work.
    pub(super) ended: bool,
}

/// Pictures of a prompt, which stay in memory until its request is done.
pub(super) type Held = Vec<Arc<Prepared>>;

/// A request that waits for a slot.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request: RequestId,
    pub(super) asked: SampleRequest,
    pub(super) pictures: Held,
}

/// A request in work.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) request: RequestId,
    pub(super) prompt_len: usize,
    pub(super) _pictures: Held,
    pub(super) params: SamplingParams,
    pub(super) rng: Rng,
    pub(super) logprobs: Vec<f32>,
    pub(super) entropies: Vec<f32>,
    pub(super) matcher: StopStringMatcher,
    /// Tokens of its prompt whose keys and values were cached.
    pub(super) cached: usize,
}

impl Slot {
    /// Returns time, row and column of a token.
    pub(super) fn place(&self, position: usize) -> [u32; 3] {
        self.places.get(position).copied().unwrap_or([position as u32; 3])
    }

    /// Ends its session. The cache stays for sessions with the same start, until the slot is
    /// needed.
    pub(super) fn end(&mut self) {
        self.session = None;
        self.ended = false;
    }
}
