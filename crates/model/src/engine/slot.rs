use std::sync::Arc;

use turnwise_core::{RequestId, Rng, SampleRequest, SamplingParams};
use turnwise_text::StopStringMatcher;

use crate::pictures::Prepared;

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) session: Option<u64>,
    /// Tokens of the slot's last request, which may belong to a session that has ended.
    pub(super) tokens: Vec<u32>,
    /// Time, row and column of each token; empty without images.
    pub(super) places: Vec<[u32; 3]>,
    /// Number of leading tokens with cached keys and values.
    pub(super) computed: usize,
    pub(super) used: u64,
    pub(super) active: Option<Active>,
    /// True if the session ended while its request was active.
    pub(super) ended: bool,
}

/// Images of a prompt, held until the request is finished.
pub(super) type Held = Vec<Arc<Prepared>>;

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request: RequestId,
    pub(super) asked: SampleRequest,
    pub(super) pictures: Held,
}

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
    pub(super) cached: usize,
}

impl Slot {
    pub(super) fn place(&self, position: usize) -> [u32; 3] {
        self.places.get(position).copied().unwrap_or([position as u32; 3])
    }

    /// Ends the session, whose cache stays usable until the slot is reused.
    pub(super) fn end(&mut self) {
        self.session = None;
        self.ended = false;
    }
}
