use std::ops::Range;

use super::pages::{Cache, PAGE};
use crate::backend::Row;

/// Rows of one sequence at consecutive positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) sequence: usize,
    pub(super) rows: Range<usize>,
    /// Number of positions that the first row attends to; each later row attends to one more.
    pub(super) len: usize,
}

/// Consecutive pages of a sequence's page table that are read by the same rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) sequence: usize,
    pub(super) pages: Range<usize>,
    /// Range of the rows that read the pages, counted from the tree's first member.
    pub(super) members: Range<usize>,
}

/// Single-row runs of [`Sharing`] whose sequences start with the same page.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    pub(super) members: Range<usize>,
    pub(super) spans: Range<usize>,
}

/// A step's rows, grouped by the pages they read.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    pub(super) long: Vec<Run>,
    /// Single-row runs, sorted by the page tables of their sequences.
    pub(super) members: Vec<Run>,
    pub(super) trees: Vec<Tree>,
    pub(super) spans: Vec<Span>,
}

impl Sharing {
    pub(super) fn plan(&mut self, rows: &[Row], cache: &Cache) {
        self.long.clear();
        self.members.clear();
        self.trees.clear();
        self.spans.clear();
        let mut first = 0;
        for run in rows.chunk_by(|row, next| row.slot == next.slot && row.position + 1 == next.position) {
            let rows = first..first + run.len();
            first = rows.end;
            let run = Run { sequence: run[0].slot, rows, len: run[0].position + 1 };
            if run.rows.len() > 1 { &mut self.long } else { &mut self.members }.push(run);
        }
        self.members.sort_unstable_by(|a, b| pages(a, cache).cmp(pages(b, cache)));
        let mut first = 0;
        while first < self.members.len() {
            let members = self.alike(cache, first..self.members.len(), 0);
            let spans = self.spans.len();
            self.split(cache, first, members.clone(), 0);
            first = members.end;
            self.trees.push(Tree { members, spans: spans..self.spans.len() });
        }
    }

    fn split(&mut self, cache: &Cache, base: usize, members: Range<usize>, depth: usize) {
        // Members are sorted, so pages shared by first and last are shared by all.
        let first = pages(&self.members[members.start], cache);
        let last = pages(&self.members[members.end - 1], cache);
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        if common > depth {
            self.spans.push(Span {
                sequence: self.members[members.start].sequence,
                pages: depth..common,
                members: members.start - base..members.end - base,
            });
        }
        if members.len() == 1 {
            return;
        }
        let mut first = members.start;
        while first < members.end {
            let part = self.alike(cache, first..members.end, common);
            first = part.end;
            self.split(cache, base, part, common);
        }
    }

    fn alike(&self, cache: &Cache, members: Range<usize>, depth: usize) -> Range<usize> {
        let page = |member: &Run| pages(member, cache)[depth];
        let first = page(&self.members[members.start]);
        let count = self.members[members.clone()].iter().take_while(|member| page(member) == first).count();
        members.start..members.start + count
    }
}

/// Returns the pages that a row reads. The last page was just made writable, so no other row reads
/// it.
fn pages<'a>(member: &Run, cache: &'a Cache) -> &'a [usize] {
    &cache.table(member.sequence)[..member.len.div_ceil(PAGE)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::Heads;

    fn row(slot: usize, position: usize) -> Row {
        Row { slot, position, token: 0, place: [position as u32; 3], logits: true }
    }

    #[test]
    fn rows_meet_the_pages_that_they_share_together() {
        let heads = Heads { queries: 1, keys: 1, width: 1 };
        let mut cache = Cache::new(heads, 1, 5);
        for position in 0..80 {
            cache.claim(3, position);
        }
        // 1 and 3 share three pages, 0 one of them, 2 none; 4 is a prompt.
        cache.take_over(3, 1, 48);
        cache.take_over(3, 0, 16);
        cache.take_over(3, 4, 32);
        let rows = [row(0, 40), row(1, 48), row(2, 3), row(3, 79), row(4, 32), row(4, 33)];
        for row in &rows {
            cache.claim(row.slot, row.position);
        }
        let mut sharing = Sharing::default();
        sharing.plan(&rows, &cache);
        assert_eq!(sharing.long, [Run { sequence: 4, rows: 4..6, len: 33 }]);
        let mut whole = 0;
        for tree in &sharing.trees {
            let members = &sharing.members[tree.members.clone()];
            let mut seen = vec![Vec::new(); members.len()];
            for span in &sharing.spans[tree.spans.clone()] {
                for member in span.members.clone() {
                    seen[member].extend_from_slice(&cache.table(span.sequence)[span.pages.clone()]);
                }
            }
            for (member, seen) in members.iter().zip(seen) {
                assert_eq!(seen, pages(member, &cache), "every page once and in order");
                whole += seen.len();
            }
        }
        let read: usize = sharing.spans.iter().map(|span| span.pages.len()).sum();
        assert_eq!((whole, read), (3 + 4 + 1 + 5, 13 - 2 - 2), "the first page for three, two more for two");
    }
}
