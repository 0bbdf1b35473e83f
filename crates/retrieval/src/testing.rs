//! A test retriever with failures on demand.

use std::sync::{Arc, Mutex};

use crate::{Hit, Passage, RetrievalError, Retriever};

/// Returns `query/0`, `query/1` ..
#[derive(Default)]
pub(crate) struct Echo {
    calls: Mutex<Vec<Vec<String>>>,
    failures: Mutex<usize>,
    refused: Mutex<Option<String>>,
    broken: Mutex<Option<String>>,
    panics: Mutex<Option<String>>,
}

impl Echo {
    pub(crate) fn fail(&self, count: usize) {
        *self.failures.lock().unwrap() = count;
    }

    pub(crate) fn refuse(&self, query: &str) {
        *self.refused.lock().unwrap() = Some(query.to_owned());
    }

    /// Makes calls that contain this query fail in the same way as a server whose search fails.
    pub(crate) fn break_down_at(&self, query: &str) {
        *self.broken.lock().unwrap() = Some(query.to_owned());
    }

    pub(crate) fn panic_at(&self, query: &str) {
        *self.panics.lock().unwrap() = Some(query.to_owned());
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.calls.lock().unwrap().concat()
    }

    pub(crate) fn calls(&self) -> Vec<usize> {
        self.calls.lock().unwrap().iter().map(Vec::len).collect()
    }
}

impl Retriever for Echo {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        {
            let mut failures = self.failures.lock().unwrap();
            if *failures > 0 {
                *failures -= 1;
                return Err(RetrievalError::Timeout { server: "echo".into(), seconds: "0".into() });
            }
        }
        let has = |place: &Mutex<Option<String>>| {
            place.lock().unwrap().as_ref().is_some_and(|query| queries.contains(&query.as_str()))
        };
        if has(&self.refused) {
            return Err(RetrievalError::Index { reason: "refused".into() });
        }
        if has(&self.broken) {
            return Err(RetrievalError::Status { server: "echo".into(), status: 500, body: String::new() });
        }
        assert!(!has(&self.panics), "as asked for");
        self.calls.lock().unwrap().push(queries.iter().map(|&query| query.to_owned()).collect());
        let hit = |query: &str, rank: usize| Hit {
            passage: Arc::new(Passage { id: format!("{query}/{rank}"), contents: String::new() }),
            score: 1.0 / (rank + 1) as f32,
        };
        Ok(queries.iter().map(|query| (0..top_k).map(|rank| hit(query, rank)).collect()).collect())
    }
}

pub(crate) fn ids(lists: &[Vec<Hit>]) -> Vec<Vec<String>> {
    lists.iter().map(|list| list.iter().map(|hit| hit.passage.id.clone()).collect()).collect()
}
