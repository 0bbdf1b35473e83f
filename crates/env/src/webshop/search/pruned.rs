//! The best documents for a query without looking at every posting: MaxScore (Turtle and Flood 1995).
//!
//! Every term has a bound, the most it adds to any document. Terms are put in the order of their bounds. Once
//! `limit` documents are found, those terms whose bounds together stay below the worst of them cannot bring in a
//! document by themselves: only the postings of the others are walked, and the former are asked about the documents
//! found there, as long as a document can still come in. Nothing is approximated: scores, order and ties are those of
//! the walk over all postings.

use std::collections::BinaryHeap;

use tantivy::postings::{Postings as _, SegmentPostings, TermInfo};
use tantivy::schema::IndexRecordOption;
use tantivy::{DocSet as _, TERMINATED};

use super::SearchError;
use super::bm25::term_score;
use super::index::{Candidate, Segment};

/// The postings of one term.
struct List {
    /// The term's place in the query: gains are added in this order, whatever the order of the lists.
    place: usize,
    weight: f32,
    bound: f64,
    postings: SegmentPostings,
}

/// Whether no score up to this one can be among the best. Rounding keeps the order of numbers, and the factor is far
/// more than what the order of a sum can change.
fn hopeless(most: f64, worst: Option<f32>) -> bool {
    worst.is_some_and(|worst| ((most * (1.0 + 1e-9)) as f32) < worst)
}

impl Segment {
    /// The best `limit` documents, best first.
    pub(super) fn best_pruned<'a>(
        &self,
        terms: impl Iterator<Item = (f32, &'a TermInfo)>,
        inverse_norms: &[f32; 256],
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError> {
        let mut lists = Vec::new();
        for (place, (weight, info)) in terms.enumerate() {
            let bound = f64::from(term_score(weight, 1, self.reach(info, inverse_norms)?));
            let postings = self.postings.read_postings_from_terminfo(info, IndexRecordOption::WithFreqs);
            let postings = postings.map_err(tantivy::TantivyError::from)?;
            lists.push(List { place, weight, bound, postings });
        }
        lists.sort_by(|left, right| left.bound.total_cmp(&right.bound));
        // The most that the lists up to each can add together.
        let most: Vec<f64> = lists
            .iter()
            .scan(0.0, |sum, list| {
                *sum += list.bound;
                Some(*sum)
            })
            .collect();
        let mut gains = vec![0.0; lists.len()];
        let mut heap: BinaryHeap<Candidate> = BinaryHeap::with_capacity(limit + 1);
        let mut worst = None;
        // Lists from here on are walked.
        let mut first = 0;
        loop {
            let document = lists[first..].iter().map(|list| list.postings.doc()).min().unwrap_or(TERMINATED);
            if document == TERMINATED {
                return Ok(heap.into_sorted_vec());
            }
            let inverse_norm = inverse_norms[usize::from(self.norms.fieldnorm_id(document))];
            gains.fill(0.0);
            let mut sum = 0.0;
            for list in &mut lists[first..] {
                if list.postings.doc() == document {
                    let gain = f64::from(term_score(list.weight, list.postings.term_freq(), inverse_norm));
                    gains[list.place] = gain;
                    sum += gain;
                    list.postings.advance();
                }
            }
            let open = (0..first).rev().all(|place| {
                if hopeless(sum + most[place], worst) {
                    return false;
                }
                let list = &mut lists[place];
                if list.postings.doc() < document {
                    list.postings.seek(document);
                }
                if list.postings.doc() == document {
                    let gain = f64::from(term_score(list.weight, list.postings.term_freq(), inverse_norm));
                    gains[list.place] = gain;
                    sum += gain;
                }
                true
            });
            if !open {
                continue;
            }
            heap.push(self.candidate(document, gains.iter().sum::<f64>() as f32));
            if heap.len() > limit {
                heap.pop();
            }
            if heap.len() == limit {
                worst = heap.peek().map(|candidate| candidate.score);
                while first < lists.len() && hopeless(most[first], worst) {
                    first += 1;
                }
            }
        }
    }
}
