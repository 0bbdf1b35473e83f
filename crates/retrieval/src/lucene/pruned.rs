//! Pruned search: MaxScore (Turtle and Flood 1995).
//!
//! Terms are sorted by an upper bound on their contribution to a score. Terms whose bounds add up
//! to less than the worst of the `limit` best scores cannot alone put a document among the best.
//! Only the postings of the remaining terms are read in full; for their documents, the other terms
//! are looked up while the document can still qualify. Results equal those of a full search.

use std::collections::BinaryHeap;

use super::SearchError;
use super::bm25::term_score;
use super::index::{Candidate, SearchIndex};
use super::postings::{Cursor, END, List};

struct Walk<'a> {
    /// The term's index in the query. Scores are added in the query's order.
    index: usize,
    weight: f32,
    bound: f64,
    cursor: Cursor<'a>,
}

/// Returns true if a score of at most `most` cannot be among the best; the factor allows for
/// rounding.
fn hopeless(most: f64, worst: Option<f32>) -> bool {
    worst.is_some_and(|worst| ((most * (1.0 + 1e-9)) as f32) < worst)
}

impl SearchIndex {
    pub(super) fn best_pruned(
        &self,
        terms: &[(f32, List)],
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError> {
        // The limit, which may be any number, determines the allocation.
        let limit = limit.min(self.postings.documents());
        let norms = self.postings.norms();
        let mut lists = Vec::with_capacity(terms.len());
        for (index, &(weight, list)) in terms.iter().enumerate() {
            let bound = f64::from(term_score(weight, 1, self.reach(list)?));
            lists.push(Walk { index, weight, bound, cursor: self.postings.cursor(list)? });
        }
        lists.sort_by(|left, right| left.bound.total_cmp(&right.bound));
        // Sum of the bounds up to each list.
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
        // Lists from here on are read in full.
        let mut first = 0;
        loop {
            let document = lists[first..].iter().map(|list| list.cursor.document()).min().unwrap_or(END);
            if document == END {
                return Ok(heap.into_sorted_vec());
            }
            let inverse_norm = self.inverse_norms[usize::from(norms[document as usize])];
            gains.fill(0.0);
            let mut sum = 0.0;
            for list in &mut lists[first..] {
                if list.cursor.document() == document {
                    let gain = f64::from(term_score(list.weight, list.cursor.frequency(), inverse_norm));
                    gains[list.index] = gain;
                    sum += gain;
                    list.cursor.advance()?;
                }
            }
            let mut open = true;
            for index in (0..first).rev() {
                if hopeless(sum + most[index], worst) {
                    open = false;
                    break;
                }
                let list = &mut lists[index];
                list.cursor.seek(document)?;
                if list.cursor.document() == document {
                    let gain = f64::from(term_score(list.weight, list.cursor.frequency(), inverse_norm));
                    gains[list.index] = gain;
                    sum += gain;
                }
            }
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
