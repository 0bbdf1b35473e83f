//! Sequences packed one after the other without padding, and how a batch is cut into micro-batches.

use std::cmp::Reverse;
use std::ops::Range;

use turnwise_core::TokenSequence;

use crate::ModelConfig;

/// A row of a packed micro-batch whose output is looked at: it predicts `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) row: usize,
    pub(crate) token: u32,
}

/// One micro-batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packing {
    /// Input tokens of all sequences.
    pub(crate) tokens: Vec<u32>,
    /// Start of each sequence among the tokens, and the end.
    pub(crate) offsets: Vec<usize>,
    /// Targets, in sequence order and then in span order.
    pub(crate) targets: Vec<Target>,
    /// Start of each sequence among the targets, and the end.
    pub(crate) target_offsets: Vec<usize>,
    /// Identity of each sequence in random draws: its place, until somebody says otherwise.
    pub(crate) identities: Vec<u64>,
}

impl Packing {
    /// Packs checked sequences.
    ///
    /// Here, and nowhere else, is the shift by one: the row of position `p - 1` predicts token `p`. What
    /// comes after the last row that predicts something is not run at all.
    pub(crate) fn fill<'a>(&mut self, sequences: impl Iterator<Item = &'a TokenSequence>) {
        self.tokens.clear();
        self.targets.clear();
        self.offsets.clear();
        self.target_offsets.clear();
        self.offsets.push(0);
        self.target_offsets.push(0);
        for sequence in sequences {
            let first = self.tokens.len();
            self.tokens.extend_from_slice(&sequence.tokens[..input_length(sequence)]);
            self.targets.extend(
                sequence
                    .response_positions()
                    .map(|p| Target { row: first + p - 1, token: sequence.tokens[p] }),
            );
            self.offsets.push(self.tokens.len());
            self.target_offsets.push(self.targets.len());
        }
        self.identities.clear();
        self.identities.extend(0..self.sequences() as u64);
    }

    /// Number of sequences.
    pub(crate) fn sequences(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Length of the longest sequence.
    pub(crate) fn longest(&self) -> usize {
        self.offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }

    /// The targets of a run of sequences.
    pub(crate) fn targets_of(&self, sequences: &Range<usize>) -> Range<usize> {
        self.target_offsets[sequences.start]..self.target_offsets[sequences.end]
    }

    /// The tokens of a run of sequences.
    pub(crate) fn tokens_of(&self, sequences: &Range<usize>) -> Range<usize> {
        self.offsets[sequences.start]..self.offsets[sequences.end]
    }
}

/// Number of tokens of a sequence that have to be run: all before the last response token.
pub(crate) fn input_length(sequence: &TokenSequence) -> usize {
    sequence.response_positions().last().unwrap_or(0)
}

/// Deals the sequences of a batch to lanes: for each lane its micro-batches, each a list of indices.
///
/// A micro-batch holds at most `budget` input tokens, or one longer sequence. Sequences go in order of
/// falling cost to the micro-batch with the least, micro-batches likewise to lanes, so that the lanes
/// end at about the same time. Depends on nothing but its arguments. Sequences that predict nothing
/// are left out.
pub(crate) fn deal(
    lengths: &[usize],
    budget: usize,
    lanes: usize,
    config: &ModelConfig,
) -> Vec<Vec<Vec<usize>>> {
    let mut order: Vec<usize> = (0..lengths.len()).filter(|&index| lengths[index] > 0).collect();
    order.sort_by_key(|&index| Reverse(lengths[index]));
    let total: usize = order.iter().map(|&index| lengths[index]).sum();
    let cost = |length: usize| cost(length, config);
    let mut count = total.div_ceil(budget.max(1)).max(1).next_multiple_of(lanes).min(order.len().max(1));
    let bins = loop {
        let mut bins: Vec<Bin> = vec![Bin::default(); count];
        let mut fits = true;
        for &index in &order {
            let room = |bin: &Bin| bin.members.is_empty() || bin.tokens + lengths[index] <= budget;
            let Some(bin) = bins.iter_mut().filter(|bin| room(bin)).min_by_key(|bin| bin.cost) else {
                fits = false;
                break;
            };
            bin.members.push(index);
            bin.tokens += lengths[index];
            bin.cost += cost(lengths[index]);
        }
        if fits {
            break bins;
        }
        count = (count + lanes).min(order.len());
    };
    let mut dealt: Vec<(usize, Vec<Vec<usize>>)> = vec![(0, Vec::new()); lanes];
    let mut bins: Vec<Bin> = bins.into_iter().filter(|bin| !bin.members.is_empty()).collect();
    bins.sort_by_key(|bin| Reverse(bin.cost));
    for mut bin in bins {
        bin.members.sort_unstable();
        if let Some((load, micro_batches)) = dealt.iter_mut().min_by_key(|(load, _)| *load) {
            *load += bin.cost;
            micro_batches.push(bin.members);
        }
    }
    dealt.into_iter().map(|(_, micro_batches)| micro_batches).collect()
}

/// Multiply-adds of a sequence in one layer: the matrices, and half the sequence in attention.
fn cost(length: usize, config: &ModelConfig) -> usize {
    let heads = 2 * config.query_width() + 2 * config.key_value_width();
    let matrices = config.hidden_size * (heads + 3 * config.intermediate_size);
    length * (matrices + length * config.query_width())
}

#[derive(Clone, Default)]
struct Bin {
    members: Vec<usize>,
    tokens: usize,
    cost: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::tests::{config, sequence};

    #[test]
    fn the_row_before_a_token_predicts_it() {
        let (a, b) = (sequence(&[7, 8, 9, 10, 11], &[(1, 2), (3, 4)]), sequence(&[5, 6], &[(1, 2)]));
        let mut packing = Packing::default();
        packing.fill([&a, &b].into_iter());
        // The last two tokens of `a` and the last of `b` are never inputs.
        assert_eq!(packing.tokens, [7, 8, 9, 5]);
        assert_eq!(packing.offsets, [0, 3, 4]);
        let targets: Vec<(usize, u32)> = packing.targets.iter().map(|t| (t.row, t.token)).collect();
        assert_eq!(targets, [(0, 8), (2, 10), (3, 6)]);
        assert_eq!(packing.targets_of(&(1..2)), 2..3);
        assert_eq!((packing.sequences(), packing.longest()), (2, 3));
    }

    #[test]
    fn every_sequence_is_dealt_once_within_the_budget() {
        let config = config(4, 2, true);
        let lengths: Vec<usize> = (0..57).map(|index| (index * 37) % 101).chain([400]).collect();
        for lanes in [1, 2, 3, 8] {
            for budget in [1, 100, 256, 100_000] {
                let dealt = deal(&lengths, budget, lanes, &config);
                assert_eq!(dealt.len(), lanes);
                let mut seen: Vec<usize> = dealt.iter().flatten().flatten().copied().collect();
                seen.sort_unstable();
                let expected: Vec<usize> = (0..lengths.len()).filter(|&index| lengths[index] > 0).collect();
                assert_eq!(seen, expected);
                for members in dealt.iter().flatten() {
                    let tokens: usize = members.iter().map(|&index| lengths[index]).sum();
                    assert!(tokens <= budget || members.len() == 1, "{tokens} tokens in {members:?}");
                }
                let load = |lane: &Vec<Vec<usize>>| -> usize {
                    lane.iter().flatten().map(|&index| cost(lengths[index], &config)).sum()
                };
                let loads: Vec<usize> = dealt.iter().map(load).collect();
                let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
                assert!(most - least <= cost(400, &config), "{loads:?}");
            }
        }
        assert_eq!(deal(&[], 10, 2, &config), vec![Vec::<Vec<usize>>::new(); 2]);
        assert_eq!(deal(&[0, 0], 10, 1, &config), vec![Vec::<Vec<usize>>::new(); 1]);
    }
}
