//! A pass over a batch: its operands, and its split into micro-batches.

use turnwise_core::{MaskedContext, TokenSequence};

use crate::backend::Network;
use crate::packing::{Packing, Shared, deal, deal_shared, input_length};
use crate::vision::numbered_by_rows;

pub(crate) struct PassOver<'a> {
    pub(crate) network: Network<'a, f32>,
    pub(crate) batch: &'a [TokenSequence],
    pub(crate) masked_contexts: &'a [MaskedContext],
    pub(crate) scored: bool,
    /// True if shared prefixes are computed only once.
    pub(crate) share: bool,
}

impl PassOver<'_> {
    pub(crate) fn companions(&self) -> Vec<Vec<usize>> {
        let mut companions =
            vec![Vec::new(); if self.masked_contexts.is_empty() { 0 } else { self.batch.len() }];
        for (index, masked_context) in self.masked_contexts.iter().enumerate() {
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
        let inputs = self.batch.iter().map(|sequence| &sequence.tokens[..input_length(sequence)]);
        let inputs: Vec<_> = inputs.map(|tokens| numbered_by_rows(self.network.pictures, tokens)).collect();
        let shared = inputs
            .iter()
            .zip(self.lengths(companions))
            .map(|(tokens, all)| Shared { tokens, beside: all - tokens.len() });
        deal_shared(&shared.collect::<Vec<_>>(), budget, lanes, config)
    }

    /// Returns the number of tokens to run for each sequence and its masked contexts.
    fn lengths(&self, companions: &[Vec<usize>]) -> Vec<usize> {
        let mut lengths: Vec<usize> = self.batch.iter().map(input_length).collect();
        for (length, companions) in lengths.iter_mut().zip(companions) {
            *length +=
                companions.iter().map(|&c| input_length(&self.masked_contexts[c].tokens)).sum::<usize>();
        }
        lengths
    }
}
