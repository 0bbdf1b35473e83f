use turnwise_core::{TokenBatch, TokenSequence};

use crate::backend::Network;
use crate::packing::{Packing, Shared, deal, deal_shared, input_length};
use crate::vision::numbered_by_rows;

pub(crate) struct PassOver<'a> {
    pub(crate) network: Network<'a, f32>,
    pub(crate) batch: &'a TokenBatch<'a>,
    pub(crate) scored: bool,
    /// True if shared prefixes are computed only once.
    pub(crate) share: bool,
}

impl PassOver<'_> {
    pub(crate) fn companions(&self) -> Vec<Vec<usize>> {
        let TokenBatch { sequences, masked_contexts } = self.batch;
        let mut companions = vec![Vec::new(); if masked_contexts.is_empty() { 0 } else { sequences.len() }];
        for (index, masked_context) in masked_contexts.iter().enumerate() {
            companions[masked_context.sequence].push(index);
        }
        companions
    }

    pub(crate) fn fill<'s>(&self, packing: &mut Packing, sequences: impl Iterator<Item = &'s TokenSequence>) {
        if self.share { packing.fill_tree(sequences) } else { packing.fill(sequences) }
    }

    pub(crate) fn deal(
        &self,
        companions: &[Vec<usize>],
        budget: usize,
        lanes: usize,
    ) -> Vec<Vec<Vec<usize>>> {
        let config = &self.network.parameters.config;
        if !self.share {
            return deal(&self.lengths(companions), budget, lanes, config);
        }
        let inputs = self.batch.sequences.iter().map(|sequence| &sequence.tokens[..input_length(sequence)]);
        let inputs: Vec<_> = inputs.map(|tokens| numbered_by_rows(self.network.pictures, tokens)).collect();
        let shared = inputs
            .iter()
            .zip(self.lengths(companions))
            .map(|(tokens, all)| Shared { tokens, beside: all - tokens.len() });
        deal_shared(&shared.collect::<Vec<_>>(), budget, lanes, config)
    }

    /// Returns the number of tokens in each sequence and its masked contexts together.
    fn lengths(&self, companions: &[Vec<usize>]) -> Vec<usize> {
        let mut lengths: Vec<usize> =
            self.batch.sequences.iter().map(|sequence| input_length(sequence)).collect();
        for (length, companions) in lengths.iter_mut().zip(companions) {
            let masked = |&index: &usize| input_length(self.batch.masked_contexts[index].tokens);
            *length += companions.iter().map(masked).sum::<usize>();
        }
        lengths
    }
}
