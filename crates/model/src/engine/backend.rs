//! The backend of an engine: this thread, or a device.
#![cfg_attr(not(feature = "cuda"), expect(clippy::unnecessary_wraps, reason = "only a device can fail"))]

use std::ops::Range;
use std::sync::Arc;

use pulp::Arch;
use turnwise_core::{SampleError, SamplingParams};

use crate::cpu::decode::{Cache, Choice, EngineVision, EngineWeights, Forward, Row, TokenSampler, best};

/// Prompt rows that a step on the CPU takes in besides the rows of sequences being decoded.
pub(super) const PROMPT_ROWS: usize = 128;

/// The caches of all slots, and what computes on them.
#[derive(Debug)]
pub(super) enum Backend {
    /// On this thread.
    Host(Box<Host>),
    /// On a device.
    #[cfg(feature = "cuda")]
    Cuda { engine: Box<crate::cuda::Engine>, version: u64 },
}

/// The CPU's.
#[derive(Debug)]
pub(super) struct Host {
    forward: Forward,
    arch: Arch,
    token_sampler: TokenSampler,
    cache: Cache,
}

impl Backend {
    /// Empty caches on this thread.
    pub(super) fn host(weights: Arc<EngineWeights>, slots: usize, max_context: usize) -> Self {
        let arch = Arch::new();
        let cache = Cache::new(weights.heads, weights.layers.len(), slots);
        let forward = Forward::new(weights, arch, max_context);
        Self::Host(Box::new(Host { forward, arch, token_sampler: TokenSampler::default(), cache }))
    }

    /// Returns the version of the weights.
    pub(super) fn version(&self) -> u64 {
        match self {
            Self::Host(host) => host.forward.weights.version,
            #[cfg(feature = "cuda")]
            Self::Cuda { version, .. } => *version,
        }
    }

    /// Returns the tokens of the vocabulary.
    pub(super) fn vocabulary(&self) -> usize {
        match self {
            Self::Host(host) => host.forward.weights.vocab,
            #[cfg(feature = "cuda")]
            Self::Cuda { engine, .. } => engine.vocabulary(),
        }
    }

    /// Returns the tower of a model that reads pictures.
    pub(super) fn vision(&self) -> Option<&EngineVision> {
        match self {
            Self::Host(host) => host.forward.weights.vision.as_ref(),
            #[cfg(feature = "cuda")]
            Self::Cuda { .. } => None,
        }
    }

    /// Prompt rows that a step takes in.
    pub(super) fn prompt_rows(&self) -> usize {
        match self {
            Self::Host(_) => PROMPT_ROWS,
            #[cfg(feature = "cuda")]
            Self::Cuda { .. } => crate::cuda::PROMPT_ROWS,
        }
    }

    /// Gives a slot the keys and values of some positions of another, which has the same tokens up to their end.
    pub(super) fn copy(
        &mut self,
        from: usize,
        to: usize,
        positions: Range<usize>,
    ) -> Result<(), SampleError> {
        match self {
            Self::Host(host) => host.cache.take_over(from, to, positions.end),
            #[cfg(feature = "cuda")]
            Self::Cuda { engine, .. } => engine.copy(from, to, positions)?,
        }
        Ok(())
    }

    /// Keeps the first positions of a slot; a device overwrites the others.
    pub(super) fn keep(&mut self, slot: usize, positions: usize) {
        match self {
            Self::Host(host) => host.cache.keep(slot, positions),
            #[cfg(feature = "cuda")]
            Self::Cuda { .. } => {}
        }
    }

    /// Computes all rows and leaves the logits of those that want them.
    pub(super) fn step(&mut self, rows: &[Row]) -> Result<(), SampleError> {
        match self {
            Self::Host(host) => host.forward.step(rows, &mut host.cache),
            #[cfg(feature = "cuda")]
            Self::Cuda { engine, .. } => engine.step(rows)?,
        }
        Ok(())
    }

    /// Returns the choice of every row that wanted logits, in order, each with a number drawn from `[0, 1)`;
    /// `None` if its logits are not finite.
    pub(super) fn choose(
        &mut self,
        draws: &[(&SamplingParams, f64)],
    ) -> Result<Vec<Option<Choice>>, SampleError> {
        match self {
            Self::Host(host) => {
                let (stride, vocab) = (host.forward.logits_stride(), host.forward.weights.vocab);
                let rows = host.forward.logits.chunks_exact(stride).zip(draws);
                let token_sampler = &mut host.token_sampler;
                let choose = |(logits, (params, uniform)): (&[f32], &(&SamplingParams, f64))| {
                    token_sampler.choose(host.arch, logits, vocab, params, *uniform)
                };
                Ok(rows.map(choose).collect())
            }
            #[cfg(feature = "cuda")]
            Self::Cuda { engine, .. } => Ok(engine.choose(draws)?),
        }
    }

    /// Returns the most probable tokens of a row that wanted logits in the last step; none on a device, which keeps its
    /// logits.
    pub(super) fn best(
        &self,
        place: usize,
        params: &SamplingParams,
        chosen: &Choice,
        count: usize,
    ) -> Vec<(u32, f32)> {
        match self {
            Self::Host(_) if count == 0 => Vec::new(),
            Self::Host(host) => {
                let stride = host.forward.logits_stride();
                let logits = &host.forward.logits[place * stride..][..host.forward.weights.vocab];
                best(logits, params, chosen, count)
            }
            #[cfg(feature = "cuda")]
            Self::Cuda { .. } => Vec::new(),
        }
    }

    /// Returns true if [`Backend::best`] returns tokens.
    pub(super) fn knows_best(&self) -> bool {
        matches!(self, Self::Host(_))
    }
}
