use std::cmp::Reverse;
use std::ops::Range;

use super::deal::{Load, Piece, cost, gather, lanes_of};
use super::tree::common_prefix;
use crate::ModelConfig;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) tokens: &'a [u32],
    /// Number of tokens in the sequence's masked contexts, which run in the same micro-batch but
    /// share no rows.
    pub(crate) beside: usize,
}

/// Distributes sequences over lanes, as the function [`deal`](super::deal()) does, but keeps those
/// with a common prefix together.
///
/// Sorts the sequences, so that each adds only the rows that it does not share with its
/// predecessor. Cuts the list at the shortest shared prefixes until each piece is within `budget`
/// and a cost limit; a prefix on both sides of a cut is computed twice. Tries several cost limits
/// and takes the one whose slowest lane is fastest.
pub(crate) fn deal_shared(
    sequences: &[Shared<'_>],
    budget: usize,
    lanes: usize,
    config: &ModelConfig,
) -> Vec<Vec<Vec<usize>>> {
    let mut order: Vec<usize> = (0..sequences.len())
        .filter(|&index| sequences[index].tokens.len() + sequences[index].beside > 0)
        .collect();
    order.sort_by_key(|&index| sequences[index].tokens);
    let shared: Vec<usize> = std::iter::once(0)
        .chain(
            order.windows(2).map(|pair| common_prefix(sequences[pair[0]].tokens, sequences[pair[1]].tokens)),
        )
        .take(order.len())
        .collect();
    let mut place = vec![0; sequences.len()];
    order.iter().enumerate().for_each(|(at, &index)| place[index] = at);
    let families = Families { sequences, order, place, shared, config };
    let all = 0..families.order.len();
    let whole = families.piece(&all).cost;
    let mut best: Option<Vec<Load>> = None;
    for parts in (0..).map(|power| lanes << power) {
        let limit = (whole / parts).max(1);
        let mut pieces = Vec::new();
        families.cut(all.clone(), budget, limit, &mut pieces);
        let singles = pieces.len() == families.order.len();
        pieces.sort_by_key(|piece| Reverse(piece.tokens));
        let mut bins = gather(&pieces, budget, lanes);
        // Pieces that meet in a micro-batch share their prefix again.
        for bin in &mut bins {
            *bin = families.piece_of(&mut bin.members);
        }
        let dealt = lanes_of(bins, lanes);
        let costliest = |lanes: &[Load]| lanes.iter().map(|lane| lane.cost).max();
        if best.as_ref().is_none_or(|best| costliest(&dealt) < costliest(best)) {
            best = Some(dealt);
        }
        if singles || parts >= 64 * lanes {
            break;
        }
    }
    best.unwrap_or_default().into_iter().map(|lane| lane.micro_batches).collect()
}

struct Families<'a> {
    sequences: &'a [Shared<'a>],
    order: Vec<usize>,
    /// Position of each sequence in lexicographic order.
    place: Vec<usize>,
    /// Number of tokens that each sequence shares with its predecessor in `order`.
    shared: Vec<usize>,
    config: &'a ModelConfig,
}

impl Families<'_> {
    fn piece(&self, range: &Range<usize>) -> Piece {
        let mut piece = Piece::default();
        for at in range.clone() {
            self.add(&mut piece, at, if at == range.start { 0 } else { self.shared[at] });
        }
        piece
    }

    fn piece_of(&self, members: &mut [usize]) -> Piece {
        members.sort_unstable_by_key(|&index| self.place[index]);
        let mut piece = Piece::default();
        for (position, &index) in members.iter().enumerate() {
            let at = self.place[index];
            let before = match position.checked_sub(1).map(|last| members[last]) {
                None => 0,
                Some(last) if self.place[last] + 1 == at => self.shared[at],
                Some(last) => common_prefix(self.sequences[last].tokens, self.sequences[index].tokens),
            };
            self.add(&mut piece, at, before);
        }
        piece
    }

    /// Adds sequence `order[at]` to `piece`, which already has the sequence's first `before`
    /// tokens.
    fn add(&self, piece: &mut Piece, at: usize, before: usize) {
        let index = self.order[at];
        let Shared { tokens, beside } = self.sequences[index];
        let own = tokens.len() - before;
        piece.members.push(index);
        piece.tokens += own + beside;
        piece.cost += cost(own, before, self.config) + cost(beside, 0, self.config);
    }

    fn cut(&self, range: Range<usize>, budget: usize, limit: usize, pieces: &mut Vec<Piece>) {
        let mut open = vec![range];
        while let Some(range) = open.pop() {
            let piece = self.piece(&range);
            let outside = [self.shared.get(range.start), self.shared.get(range.end)];
            let outside = outside.into_iter().flatten().copied().max().unwrap_or(0);
            let own = piece.cost.saturating_sub(cost(outside, 0, self.config));
            if range.len() < 2 || piece.tokens <= budget && own <= limit {
                pieces.push(piece);
                continue;
            }
            // Cut at the shortest shared prefix, nearest the middle.
            let middle = usize::midpoint(range.start, range.end);
            let place = (range.start + 1..range.end).min_by_key(|&at| (self.shared[at], at.abs_diff(middle)));
            let place = place.unwrap_or(middle);
            open.push(place..range.end);
            open.push(range.start..place);
        }
        pieces.retain(|piece| !piece.members.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::decoder::tests::config;

    fn groups(groups: usize, size: usize, head: usize, prompt: usize, response: usize) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        for member in 0..size {
            for group in 0..groups {
                let head = (0..head).map(|at| at as u32 % 7);
                let prompt = (0..prompt).map(|at| (at * 31 + group * 17 + 1) as u32 % 23);
                let response = (0..response).map(|at| (at * 5 + member * 3 + group) as u32 % 19);
                all.push(head.chain(prompt).chain(response).collect());
            }
        }
        all
    }

    fn deal_all(all: &[Vec<u32>], budget: usize, lanes: usize) -> Vec<Vec<Vec<usize>>> {
        let shared: Vec<Shared<'_>> = all.iter().map(|tokens| Shared { tokens, beside: 0 }).collect();
        deal_shared(&shared, budget, lanes, &config(4, 2, true))
    }

    fn rows(all: &[Vec<u32>], members: &[usize]) -> usize {
        let mut sorted: Vec<&[u32]> = members.iter().map(|&index| all[index].as_slice()).collect();
        sorted.sort_unstable();
        let shared: usize = sorted.windows(2).map(|pair| common_prefix(pair[0], pair[1])).sum();
        sorted.iter().map(|tokens| tokens.len()).sum::<usize>() - shared
    }

    #[test]
    fn a_group_stays_together_where_it_fits() {
        let all = groups(8, 8, 0, 256, 32);
        for (budget, lanes) in [(512, 2), (1024, 1), (1100, 2), (4096, 2), (2048, 4), (512, 8)] {
            let dealt = deal_all(&all, budget, lanes);
            assert_eq!(dealt.len(), lanes);
            let mut groups_of = Vec::new();
            let mut load = Vec::new();
            for lane in &dealt {
                load.push(lane.iter().map(|members| rows(&all, members)).sum::<usize>());
                for members in lane {
                    assert!(rows(&all, members) <= budget);
                    let mut groups: Vec<usize> = members.iter().map(|&index| index % 8).collect();
                    groups.sort_unstable();
                    groups.dedup();
                    assert_eq!(members.len(), 8 * groups.len(), "a group is cut: {members:?}");
                    groups_of.extend(groups);
                }
            }
            groups_of.sort_unstable();
            assert_eq!(groups_of, (0..8).collect::<Vec<_>>());
            assert!(load.iter().all(|&load| load == 8 * 512 / lanes), "{load:?}");
        }
        // More rows than if groups stay together.
        assert_eq!(rows(&all, &[0, 1, 2, 3, 4, 5, 6, 7]), 8 * 288);
    }

    #[test]
    fn a_group_beyond_the_budget_is_cut_and_lanes_are_balanced() {
        let all = groups(1, 16, 0, 100, 50);
        for budget in [1, 149, 150, 200, 450] {
            let dealt = deal_all(&all, budget, 2);
            let mut seen: Vec<usize> = dealt.iter().flatten().flatten().copied().collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..16).collect::<Vec<_>>());
            for members in dealt.iter().flatten() {
                assert!(rows(&all, members) <= budget || members.len() == 1, "{budget}: {members:?}");
            }
            let load = |lane: &Vec<Vec<usize>>| lane.iter().map(|members| rows(&all, members)).sum::<usize>();
            assert_eq!(load(&dealt[0]), load(&dealt[1]));
        }
        let dealt = deal_all(&all, 10_000, 2);
        assert_eq!(dealt.iter().map(|lane| rows(&all, &lane[0])).collect::<Vec<_>>(), [500, 500]);
        assert_eq!(deal_all(&all, 10_000, 1)[0].len(), 1);
    }

    #[test]
    fn lanes_end_together_whatever_is_shared() {
        let all = [groups(5, 7, 40, 60, 20), groups(3, 2, 0, 10, 90), vec![vec![4; 3], vec![], vec![5; 700]]];
        let all: Vec<Vec<u32>> = all.concat();
        let none = all.iter().position(Vec::is_empty);
        let config = config(4, 2, true);
        for lanes in [1, 2, 3, 8] {
            for budget in [1, 120, 300, 100_000] {
                let dealt = deal_all(&all, budget, lanes);
                assert_eq!(dealt, deal_all(&all, budget, lanes));
                let mut seen: Vec<usize> = dealt.iter().flatten().flatten().copied().collect();
                seen.sort_unstable();
                let expected: Vec<usize> = (0..all.len()).filter(|&index| Some(index) != none).collect();
                assert_eq!(seen, expected);
                let work = |members: &Vec<usize>| {
                    let mut sorted: Vec<&[u32]> =
                        members.iter().map(|&index| all[index].as_slice()).collect();
                    sorted.sort_unstable();
                    let before = |at: usize| {
                        at.checked_sub(1).map_or(0, |last| common_prefix(sorted[last], sorted[at]))
                    };
                    let of = |at: usize| cost(sorted[at].len() - before(at), before(at), &config);
                    (0..sorted.len()).map(of).sum::<usize>()
                };
                let loads: Vec<usize> = dealt.iter().map(|lane| lane.iter().map(work).sum()).collect();
                let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
                // The longest sequence cannot be split.
                assert!(most - least <= cost(700, 0, &config), "{lanes} {budget}: {loads:?}");
            }
        }
        assert_eq!(deal_shared(&[], 10, 2, &config), vec![Vec::<Vec<usize>>::new(); 2]);
    }

    #[test]
    fn what_is_run_beside_a_sequence_counts_in_full() {
        let tokens: Vec<u32> = (0..50).collect();
        let shared = [Shared { tokens: &tokens, beside: 30 }; 4];
        let dealt = deal_shared(&shared, 110, 1, &config(4, 2, true));
        // 50 common rows, and 30 for each sequence's masked contexts.
        assert_eq!(dealt, [[vec![0, 1], vec![2, 3]]]);
    }
}
