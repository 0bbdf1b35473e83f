use std::ops::Range;
use std::sync::Arc;

use pulp::Arch;
use turnwise_core::{SampleError, SamplingParams};

use super::choose::{TokenSampler, best};
use super::forward::Forward;
use super::pages::Cache;
use super::vision::EngineVision;
use super::weights::EngineWeights;
use crate::backend::{Choice, Decoding, Row};
use crate::pictures::Pictures;

/// Maximum number of prompt tokens per step (`Decoding::prompt_rows`).
pub(crate) const PROMPT_ROWS: usize = 128;

/// Decodes on the calling thread.
#[derive(Debug)]
pub(crate) struct Host {
    forward: Forward,
    arch: Arch,
    token_sampler: TokenSampler,
    cache: Cache,
}

impl Host {
    pub(crate) fn new(weights: Arc<EngineWeights>, slots: usize, max_model_len: usize) -> Self {
        let arch = Arch::new();
        let cache = Cache::new(weights.heads, weights.layers.len(), slots);
        let forward = Forward::new(weights, arch, max_model_len);
        Self { forward, arch, token_sampler: TokenSampler::default(), cache }
    }
}

impl Decoding for Host {
    fn version(&self) -> u64 {
        self.forward.weights.version
    }

    fn vocabulary(&self) -> usize {
        self.forward.weights.vocab
    }

    fn pictures(&self) -> Option<&Pictures> {
        self.forward.weights.vision.as_ref().map(EngineVision::pictures)
    }

    fn prompt_rows(&self) -> usize {
        PROMPT_ROWS
    }

    fn copy(&mut self, from: usize, to: usize, positions: Range<usize>) -> Result<(), SampleError> {
        self.cache.take_over(from, to, positions.end);
        Ok(())
    }

    fn keep(&mut self, slot: usize, positions: usize) {
        self.cache.keep(slot, positions);
    }

    fn step(&mut self, rows: &[Row]) -> Result<(), SampleError> {
        self.forward.step(rows, &mut self.cache);
        Ok(())
    }

    fn choose(&mut self, draws: &[(&SamplingParams, f64)]) -> Result<Vec<Option<Choice>>, SampleError> {
        let (stride, vocab) = (self.forward.logits_stride(), self.forward.weights.vocab);
        let rows = self.forward.logits.chunks_exact(stride).zip(draws);
        let token_sampler = &mut self.token_sampler;
        let choose = |(logits, (params, uniform)): (&[f32], &(&SamplingParams, f64))| {
            token_sampler.choose(self.arch, logits, vocab, params, *uniform)
        };
        Ok(rows.map(choose).collect())
    }

    fn best(&self, place: usize, params: &SamplingParams, chosen: &Choice, count: usize) -> Vec<(u32, f32)> {
        if count == 0 {
            return Vec::new();
        }
        let stride = self.forward.logits_stride();
        let logits = &self.forward.logits[place * stride..][..self.forward.weights.vocab];
        best(logits, params, chosen, count)
    }

    fn knows_best(&self) -> bool {
        true
    }
}
