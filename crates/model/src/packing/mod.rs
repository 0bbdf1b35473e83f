mod deal;
mod families;
mod selection;
mod tree;

use std::ops::Range;

use turnwise_core::TokenSequence;

pub(crate) use deal::deal;
pub(crate) use families::{Shared, deal_shared};
#[cfg(feature = "cuda")]
pub(crate) use selection::runs;
pub(crate) use selection::{Run, Segment, Selection};
use tree::Tree;
pub(crate) use tree::common_prefix;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) row: usize,
    /// Index in [`Packing::outputs`].
    pub(crate) output: usize,
    pub(crate) token: u32,
}

/// The rows of one micro-batch.
///
/// A flat packing has one row per token. In a tree, a token that follows the same prefix in several
/// sequences has one row. The row belongs to the first of these sequences and is on the path of the
/// others. A row's position is the number of earlier tokens in its sequence. Offset fields list the
/// start of each sequence or output, then the end of the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packing {
    pub(crate) tokens: Vec<u32>,
    pub(crate) offsets: Vec<usize>,
    paths: Vec<Range<usize>>,
    path_offsets: Vec<usize>,
    pub(crate) targets: Vec<Target>,
    pub(crate) target_offsets: Vec<usize>,
    /// Rows that predict a token, in order of their first target.
    pub(crate) outputs: Vec<usize>,
    by_output: Vec<usize>,
    output_offsets: Vec<usize>,
    /// Seed of each sequence's random draws.
    pub(crate) identities: Vec<u64>,
}

impl Packing {
    pub(crate) fn fill<'a>(&mut self, sequences: impl Iterator<Item = &'a TokenSequence>) {
        self.fill_rows(sequences, false);
    }

    pub(crate) fn fill_tree<'a>(&mut self, sequences: impl Iterator<Item = &'a TokenSequence>) {
        self.fill_rows(sequences, true);
    }

    /// Fills the rows. Only this function shifts targets against rows: the row at position `p - 1`
    /// predicts token `p`. Tokens after the last predicting row are not computed.
    fn fill_rows<'a>(&mut self, sequences: impl Iterator<Item = &'a TokenSequence>, share: bool) {
        self.tokens.clear();
        self.paths.clear();
        self.targets.clear();
        self.outputs.clear();
        for offsets in [&mut self.offsets, &mut self.path_offsets, &mut self.target_offsets] {
            offsets.clear();
            offsets.push(0);
        }
        let mut tree = Tree::default();
        let mut output_of_row: Vec<usize> = Vec::new();
        let mut rows: Vec<usize> = Vec::new();
        for sequence in sequences {
            let inputs = &sequence.tokens[..input_length(sequence)];
            let first_range = self.paths.len();
            if share {
                tree.insert(inputs, &mut self.tokens, &mut self.paths);
            } else {
                self.tokens.extend_from_slice(inputs);
            }
            let first = self.offsets.last().copied().unwrap_or(0);
            rows.clear();
            rows.extend(self.paths[first_range..].iter().cloned().flatten());
            rows.extend(first..self.tokens.len());
            output_of_row.resize(self.tokens.len(), usize::MAX);
            for position in sequence.response_positions() {
                let row = rows[position - 1];
                if output_of_row[row] == usize::MAX {
                    output_of_row[row] = self.outputs.len();
                    self.outputs.push(row);
                }
                let token = sequence.tokens[position];
                self.targets.push(Target { row, output: output_of_row[row], token });
            }
            self.offsets.push(self.tokens.len());
            self.path_offsets.push(self.paths.len());
            self.target_offsets.push(self.targets.len());
        }
        self.sort_by_output();
        self.identities.clear();
        self.identities.extend(0..self.sequences() as u64);
    }

    fn sort_by_output(&mut self) {
        self.output_offsets.clear();
        self.output_offsets.resize(self.outputs.len() + 1, 0);
        for target in &self.targets {
            self.output_offsets[target.output + 1] += 1;
        }
        for index in 0..self.outputs.len() {
            self.output_offsets[index + 1] += self.output_offsets[index];
        }
        let mut next = self.output_offsets.clone();
        self.by_output.clear();
        self.by_output.resize(self.targets.len(), 0);
        for (index, target) in self.targets.iter().enumerate() {
            self.by_output[next[target.output]] = index;
            next[target.output] += 1;
        }
    }

    pub(crate) fn sequences(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    pub(crate) fn longest(&self) -> usize {
        (0..self.sequences()).map(|index| self.depth(index) + self.own(index).len()).max().unwrap_or(0)
    }

    pub(crate) fn targets_of(&self, sequences: &Range<usize>) -> Range<usize> {
        self.target_offsets[sequences.start]..self.target_offsets[sequences.end]
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn tokens_of(&self, sequences: &Range<usize>) -> Range<usize> {
        self.offsets[sequences.start]..self.offsets[sequences.end]
    }

    pub(crate) fn own(&self, sequence: usize) -> Range<usize> {
        self.offsets[sequence]..self.offsets[sequence + 1]
    }

    /// Returns the ranges of earlier rows that a sequence shares, in position order; none in a flat
    /// packing.
    pub(crate) fn path(&self, sequence: usize) -> &[Range<usize>] {
        &self.paths[self.path_offsets[sequence]..self.path_offsets[sequence + 1]]
    }

    pub(crate) fn depth(&self, sequence: usize) -> usize {
        self.path(sequence).iter().map(ExactSizeIterator::len).sum()
    }

    pub(crate) fn shared(&self) -> usize {
        self.paths.iter().map(ExactSizeIterator::len).sum()
    }

    pub(crate) fn targets_of_output(&self, output: usize) -> &[usize] {
        &self.by_output[self.output_offsets[output]..self.output_offsets[output + 1]]
    }

    /// Returns time, row and column (M-RoPE) of each packed row. `after` computes them from the
    /// row's token and from the preceding token with its time, row and column.
    pub(crate) fn places(&self, after: impl Fn(Option<(u32, [u32; 3])>, u32) -> [u32; 3]) -> Vec<[u32; 3]> {
        let mut places: Vec<[u32; 3]> = Vec::with_capacity(self.tokens.len());
        for sequence in 0..self.sequences() {
            let last = self.path(sequence).last().map(|part| part.end - 1);
            let mut before = last.map(|row| (self.tokens[row], places[row]));
            for row in self.own(sequence) {
                let place = after(before, self.tokens[row]);
                places.push(place);
                before = Some((self.tokens[row], place));
            }
        }
        places
    }

    /// Returns the sequence's id and the position of each row. Each row must belong to a single
    /// sequence.
    pub(crate) fn coordinates(&self, rows: Range<usize>) -> impl Iterator<Item = [u64; 2]> {
        let first = self.offsets.partition_point(|&offset| offset <= rows.start).saturating_sub(1);
        (first..self.sequences())
            .take_while({
                let end = rows.end;
                move |&sequence| self.offsets[sequence] < end
            })
            .flat_map(move |sequence| {
                let (own, depth) = (self.own(sequence), self.depth(sequence));
                let here = own.start.max(rows.start)..own.end.min(rows.end);
                let identity = self.identities[sequence];
                here.map(move |row| [identity, (depth + row - own.start) as u64])
            })
    }
}

/// Returns the number of tokens that the model runs on: those before the last response token.
pub(crate) fn input_length(sequence: &TokenSequence) -> usize {
    sequence.response_positions().last().unwrap_or(0)
}

#[cfg(test)]
mod layout_tests;
#[cfg(test)]
pub(crate) mod tests;
