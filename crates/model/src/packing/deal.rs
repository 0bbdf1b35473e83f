use std::cmp::Reverse;

use crate::ModelConfig;

/// Returns each lane's micro-batches, as sequence indices. Skips sequences without tokens to
/// predict.
///
/// A micro-batch has at most `budget` input tokens, or consists of a single longer sequence. In
/// descending order of cost, each sequence goes to the cheapest micro-batch that has room.
/// Micro-batches go to the cheapest lane, also in descending order of cost.
pub(crate) fn deal(
    lengths: &[usize],
    budget: usize,
    lanes: usize,
    config: &ModelConfig,
) -> Vec<Vec<Vec<usize>>> {
    let of = |(index, &length): (usize, &usize)| Piece {
        members: vec![index],
        tokens: length,
        cost: cost(length, 0, config),
    };
    let mut pieces: Vec<Piece> =
        lengths.iter().enumerate().map(of).filter(|piece| piece.tokens > 0).collect();
    pieces.sort_by_key(|piece| Reverse(piece.tokens));
    lanes_of(gather(&pieces, budget, lanes), lanes).into_iter().map(|lane| lane.micro_batches).collect()
}

/// Sequences that must stay in the same micro-batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) members: Vec<usize>,
    pub(super) tokens: usize,
    /// Multiply-adds per layer.
    pub(super) cost: usize,
}

/// Puts each piece into the cheapest micro-batch that has room.
pub(super) fn gather(pieces: &[Piece], budget: usize, lanes: usize) -> Vec<Piece> {
    let total: usize = pieces.iter().map(|piece| piece.tokens).sum();
    let most = pieces.len().max(1);
    let mut count = total.div_ceil(budget.max(1)).max(1).next_multiple_of(lanes).min(most);
    loop {
        let mut bins: Vec<Piece> = vec![Piece::default(); count];
        let fits = pieces.iter().all(|piece| {
            let room = |bin: &Piece| bin.members.is_empty() || bin.tokens + piece.tokens <= budget;
            let Some(bin) = bins.iter_mut().filter(|bin| room(bin)).min_by_key(|bin| bin.cost) else {
                return false;
            };
            bin.members.extend_from_slice(&piece.members);
            bin.tokens += piece.tokens;
            bin.cost += piece.cost;
            true
        });
        if fits {
            bins.retain(|bin| !bin.members.is_empty());
            return bins;
        }
        count = (count + lanes).min(most);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    pub(super) micro_batches: Vec<Vec<usize>>,
    pub(super) cost: usize,
}

pub(super) fn lanes_of(mut bins: Vec<Piece>, lanes: usize) -> Vec<Load> {
    let mut dealt = vec![Load::default(); lanes];
    bins.sort_by_key(|bin| Reverse(bin.cost));
    for mut bin in bins {
        bin.members.sort_unstable();
        if let Some(lane) = dealt.iter_mut().min_by_key(|lane| lane.cost) {
            lane.cost += bin.cost;
            lane.micro_batches.push(bin.members);
        }
    }
    dealt
}

/// Returns the multiply-adds per layer for `length` tokens after `before` others.
pub(super) fn cost(length: usize, before: usize, config: &ModelConfig) -> usize {
    let heads = 2 * config.query_width() + 2 * config.key_value_width();
    let matrices = config.hidden_size * (heads + 3 * config.intermediate_size);
    length * (matrices + (2 * before + length) * config.query_width())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::decoder::tests::config;

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
                    lane.iter().flatten().map(|&index| cost(lengths[index], 0, &config)).sum()
                };
                let loads: Vec<usize> = dealt.iter().map(load).collect();
                let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
                assert!(most - least <= cost(400, 0, &config), "{loads:?}");
            }
        }
        assert_eq!(deal(&[], 10, 2, &config), vec![Vec::<Vec<usize>>::new(); 2]);
        assert_eq!(deal(&[0, 0], 10, 1, &config), vec![Vec::<Vec<usize>>::new(); 1]);
    }
}
