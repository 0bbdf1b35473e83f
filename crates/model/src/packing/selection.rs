use std::ops::Range;

use super::Packing;

/// Rows of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) depth: usize,
}

/// Consecutive rows, which may belong to several sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) rows: Range<usize>,
    pub(crate) segments: Vec<Segment>,
}

/// The rows that the selected sequences need: their own and those of their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Maximal runs in ascending order.
    pub(crate) runs: Vec<Run>,
    /// True if all rows are selected.
    pub(crate) whole: bool,
}

impl Packing {
    pub(crate) fn everything(&self) -> Selection {
        self.select(&vec![true; self.sequences()])
    }

    pub(crate) fn select(&self, wanted: &[bool]) -> Selection {
        // Leading own rows needed, per sequence.
        let mut needed = vec![0; self.sequences()];
        for sequence in (0..self.sequences()).filter(|&sequence| wanted[sequence]) {
            needed[sequence] = self.own(sequence).len();
            for part in self.path(sequence) {
                // Each part of a path starts with the first own row of a sequence.
                let owner = self.offsets.partition_point(|&offset| offset <= part.start) - 1;
                needed[owner] = needed[owner].max(part.len());
            }
        }
        let mut selection = Selection { runs: Vec::new(), whole: true };
        for (sequence, &count) in needed.iter().enumerate() {
            let own = self.own(sequence);
            selection.whole &= count == own.len();
            if count == 0 {
                continue;
            }
            let rows = own.start..own.start + count;
            let segment = Segment { sequence, rows: rows.clone(), depth: self.depth(sequence) };
            match selection.runs.last_mut() {
                Some(run) if run.rows.end == rows.start => {
                    run.rows.end = rows.end;
                    run.segments.push(segment);
                }
                _ => selection.runs.push(Run { rows, segments: vec![segment] }),
            }
        }
        selection
    }

    pub(crate) fn outputs_of(&self, wanted: &[bool]) -> Vec<Range<usize>> {
        let mut needed = vec![false; self.outputs.len()];
        for sequence in (0..self.sequences()).filter(|&sequence| wanted[sequence]) {
            for target in &self.targets[self.targets_of(&(sequence..sequence + 1))] {
                needed[target.output] = true;
            }
        }
        runs(&needed)
    }
}

pub(crate) fn runs(needed: &[bool]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut index = 0;
    for same in needed.chunk_by(|a, b| a == b) {
        if same[0] {
            runs.push(index..index + same.len());
        }
        index += same.len();
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::decoder::tests::sequence;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of ranges is what is meant")]
    fn a_sequence_needs_its_rows_and_its_path_and_no_more() {
        let all = [
            sequence(&[1, 2, 3, 4, 5, 9], &[(4, 6)]),
            sequence(&[1, 2, 3, 6, 7, 9], &[(3, 6)]),
            sequence(&[8, 8, 8], &[(1, 3)]),
            sequence(&[1, 2, 3, 6, 7, 7, 7], &[(6, 7)]),
            sequence(&[1, 2, 3], &[(2, 3)]),
        ];
        let mut packing = Packing::default();
        packing.fill_tree(all.iter());
        assert_eq!(packing.offsets, [0, 5, 7, 9, 10, 10]);
        let rows = |wanted: [bool; 5]| {
            let selection = packing.select(&wanted);
            assert_eq!(selection.whole, selection == packing.everything());
            let runs: Vec<Range<usize>> = selection.runs.iter().map(|run| run.rows.clone()).collect();
            for run in &selection.runs {
                let mut end = run.rows.start;
                for segment in &run.segments {
                    assert_eq!(segment.rows.start, end);
                    assert_eq!(segment.depth, packing.depth(segment.sequence));
                    end = segment.rows.end;
                }
                assert_eq!(end, run.rows.end);
            }
            runs
        };
        assert_eq!(rows([true; 5]), [0..10]);
        assert_eq!(rows([true, true, true, true, false]), [0..10]);
        assert_eq!(rows([false, false, false, true, false]), [0..3, 5..7, 9..10]);
        assert_eq!(rows([false, true, true, false, false]), [0..3, 5..9]);
        assert_eq!(rows([false, false, false, false, true]), [0..2]);
        assert!(rows([false; 5]).is_empty());
        assert_eq!(packing.outputs.len(), 9);
        assert_eq!(packing.outputs_of(&[true, false, false, false, false]), [0..2]);
        assert_eq!(packing.outputs_of(&[false, true, false, false, true]), [2..5, 8..9]);
    }
}
