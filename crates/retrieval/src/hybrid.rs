//! Combines retrievers by rank.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::{Hit, Passage, RetrievalError, Retriever};

/// Reciprocal rank fusion: a passage's score is the sum of `1 / (k + rank)` (ranks from 1) over the
/// retrievers that found it. Passages from different retrievers are matched by id; ties are ordered
/// by id.
///
/// Source: Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and
/// individual Rank Learning Methods" (SIGIR 2009), with k = 60.
pub struct Hybrid {
    sources: Vec<Arc<dyn Retriever>>,
    k: f64,
    depth: usize,
}

impl std::fmt::Debug for Hybrid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Hybrid")
            .field("sources", &self.sources.len())
            .field("k", &self.k)
            .field("depth", &self.depth)
            .finish()
    }
}

impl Hybrid {
    /// The paper's constant.
    pub const K: f64 = 60.0;

    /// Combines retrievers. Each retriever is asked for `depth` passages, or for `top_k` if `top_k`
    /// is larger.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`] if there are no retrievers, or if `k` is negative or
    /// NaN.
    pub fn new(sources: Vec<Arc<dyn Retriever>>, k: f64, depth: usize) -> Result<Self, RetrievalError> {
        let refuse = |key: &str, reason: &str| {
            Err(RetrievalError::Setting { key: key.to_owned(), reason: reason.to_owned() })
        };
        if sources.is_empty() {
            return refuse("sources", "a hybrid needs at least one retriever");
        }
        if !k.is_finite() || k < 0.0 {
            return refuse(
                "k",
                "the constant of reciprocal rank fusion is a number from 0 on; the paper has 60",
            );
        }
        Ok(Self { sources, k, depth })
    }

    fn fuse(&self, lists: &[&[Hit]], top_k: usize) -> Vec<Hit> {
        let mut scores: HashMap<&str, (f64, &Arc<Passage>)> = HashMap::new();
        for list in lists {
            let mut rank = 0.0;
            let mut seen: std::collections::HashSet<&str> = std::collections::HashSet::new();
            for hit in *list {
                // A repeated passage counts at its first rank.
                if seen.insert(&hit.passage.id) {
                    rank += 1.0;
                    scores.entry(&hit.passage.id).or_insert((0.0, &hit.passage)).0 += 1.0 / (self.k + rank);
                }
            }
        }
        let mut fused: Vec<(f64, &Arc<Passage>)> = scores.into_values().collect();
        fused.sort_by(|left, right| match right.0.total_cmp(&left.0) {
            Ordering::Equal => left.1.id.cmp(&right.1.id),
            other => other,
        });
        fused.truncate(top_k);
        fused
            .into_iter()
            .map(|(score, passage)| Hit { passage: Arc::clone(passage), score: score as f32 })
            .collect()
    }
}

impl Retriever for Hybrid {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        let depth = self.depth.max(top_k);
        let found: Vec<Vec<Vec<Hit>>> =
            self.sources.iter().map(|source| source.search(queries, depth)).collect::<Result<_, _>>()?;
        (0..queries.len())
            .map(|query| {
                let lists: Option<Vec<&[Hit]>> =
                    found.iter().map(|lists| lists.get(query).map(Vec::as_slice)).collect();
                lists.map(|lists| self.fuse(&lists, top_k)).ok_or_else(|| RetrievalError::Index {
                    reason: "a query was left without an answer".to_owned(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static [&'static str]);

    impl Retriever for Fixed {
        fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
            let hit = |id: &&str| Hit {
                passage: Arc::new(Passage { id: (*id).to_owned(), contents: String::new() }),
                score: 5.0,
            };
            Ok(queries.iter().map(|_| self.0.iter().take(top_k).map(hit).collect()).collect())
        }
    }

    fn hybrid(lists: &[&'static [&'static str]], depth: usize) -> Hybrid {
        let sources = lists.iter().map(|&list| Arc::new(Fixed(list)) as Arc<dyn Retriever>).collect();
        Hybrid::new(sources, Hybrid::K, depth).unwrap()
    }

    #[test]
    fn ranks_are_added_by_hand() {
        let found = hybrid(&[&["a", "b", "c"], &["c", "d", "a"]], 10).search(&["q"], 3).unwrap().remove(0);
        let found: Vec<(&str, f32)> = found.iter().map(|hit| (hit.passage.id.as_str(), hit.score)).collect();
        // `a` and `c` tie, ordered by id; then `b` and `d`.
        let both = (1.0 / 61.0 + 1.0 / 63.0) as f32;
        assert_eq!(found, [("a", both), ("c", both), ("b", (1.0 / 62.0) as f32)]);
    }

    #[test]
    fn depth_decides_what_can_meet() {
        let lists: [&[&str]; 2] = [&["a", "x"], &["b", "x"]];
        let best = |depth: usize| hybrid(&lists, depth).search(&["q"], 1).unwrap()[0][0].passage.id.clone();
        assert_eq!((best(1), best(2)), ("a".to_owned(), "x".to_owned()));
    }

    #[test]
    fn a_passage_counts_once_in_a_list() {
        let found = hybrid(&[&["a", "a", "b"]], 10).search(&["q"], 9).unwrap().remove(0);
        let found: Vec<(&str, f32)> = found.iter().map(|hit| (hit.passage.id.as_str(), hit.score)).collect();
        assert_eq!(found, [("a", (1.0 / 61.0) as f32), ("b", (1.0 / 62.0) as f32)]);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert!(Hybrid::new(Vec::new(), 60.0, 5).is_err());
        let one = || vec![Arc::new(Fixed(&[])) as Arc<dyn Retriever>];
        assert!(Hybrid::new(one(), -1.0, 5).is_err() && Hybrid::new(one(), f64::NAN, 5).is_err());
        assert!(Hybrid::new(one(), 0.0, 0).is_ok());
    }
}
