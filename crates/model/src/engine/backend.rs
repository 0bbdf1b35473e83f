//! The backend of an engine: the calling thread, or a device.
#![cfg_attr(not(feature = "cuda"), expect(clippy::unnecessary_wraps, reason = "only a device can fail"))]

use std::ops::Range;
use std::sync::Arc;

use pulp::Arch;
use turnwise_core::{SampleError, SamplingParams};

use super::choose::{Choice, TokenSampler, best};
use super::forward::{Forward, Row};
use super::pages::Cache;
use super::vision::EngineVision;
use super::weights::EngineWeights;

/// Maximum prompt rows in a step on the CPU, in addition to the rows being decoded.
pub(super) const PROMPT_ROWS: usize = 128;

#[derive(Debug)]
pub(super) enum Backend {
    /// The calling thread.
    Host(Box<Host>),
    /// An engine on a device, and the version of its weights.
    #[cfg(feature = "cuda")]
    Cuda { engine: Box<crate::cuda::Engine>, version: u64 },
}

#[derive(Debug)]
pub(super) struct Host {
    forward: Forward,
    arch: Arch,
    token_sampler: TokenSampler,
    cache: Cache,
}

impl Backend {
    pub(super) fn host(weights: Arc<EngineWeights>, slots: usize, max_model_len: usize) -> Self {
        let arch = Arch::new();
        let cache = Cache::new(weights.heads, weights.layers.len(), slots);
        let forward = Forward::new(weights, arch, max_model_len);
        Self::Host(Box::new(Host { forward, arch, token_sampler: TokenSampler::default(), cache }))
    }

    pub(super) fn version(&self) -> u64 {
        match self {
            Self::Host(host) => host.forward.weights.version,
            #[cfg(feature = "cuda")]
            Self::Cuda { version, .. } => *version,
        }
    }

    pub(super) fn vocabulary(&self) -> usize {
        match self {
            Self::Host(host) => host.forward.weights.vocab,
            #[cfg(feature = "cuda")]
            Self::Cuda { engine, .. } => engine.vocabulary(),
        }
    }

    pub(super) fn vision(&self) -> Option<&EngineVision> {
        match self {
            Self::Host(host) => host.forward.weights.vision.as_ref(),
            #[cfg(feature = "cuda")]
            Self::Cuda { .. } => None,
        }
    }

    pub(super) fn prompt_rows(&self) -> usize {
        match self {
            Self::Host(_) => PROMPT_ROWS,
            #[cfg(feature = "cuda")]
            Self::Cuda { .. } => crate::cuda::PROMPT_ROWS,
        }
    }

    /// Copies keys and values of the first positions from another slot that has the same tokens
    /// there.
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

    /// Keeps only the first positions of a slot; a device overwrites the others later.
    pub(super) fn keep(&mut self, slot: usize, positions: usize) {
        match self {
            Self::Host(host) => host.cache.keep(slot, positions),
            #[cfg(feature = "cuda")]
            Self::Cuda { .. } => {}
        }
    }

    pub(super) fn step(&mut self, rows: &[Row]) -> Result<(), SampleError> {
        match self {
            Self::Host(host) => host.forward.step(rows, &mut host.cache),
            #[cfg(feature = "cuda")]
            Self::Cuda { engine, .. } => engine.step(rows)?,
        }
        Ok(())
    }

    /// Chooses a token for every row with logits, in order, from uniform numbers in `[0, 1)`.
    /// Returns `None` for logits that are not finite.
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

    /// Returns the most probable tokens of one of the last step's rows with logits. Always empty on
    /// a device, because logits are not downloaded.
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

    pub(super) fn knows_best(&self) -> bool {
        matches!(self, Self::Host(_))
    }
}
