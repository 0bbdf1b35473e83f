//! Search result cache.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Hit, RetrievalError, Retriever};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    query: Arc<str>,
    top_k: usize,
}

struct Entry {
    hits: Vec<Hit>,
    used: u64,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    order: BTreeMap<u64, Key>,
    clock: u64,
}

/// Cache hits and misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Number of queries that were in the cache or repeated within a call.
    pub hits: u64,
    /// Number of queries that had to be searched.
    pub misses: u64,
}

impl CacheCounts {
    /// Returns the hit rate; 0 without queries.
    pub fn hit_rate(self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// A retriever with an LRU cache, keyed by query and `top_k`. Errors are not cached.
pub struct Cached {
    inner: Arc<dyn Retriever>,
    capacity: usize,
    kept: Mutex<Kept>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cached").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Cached {
    /// Caches up to `capacity` queries.
    pub fn new(inner: Arc<dyn Retriever>, capacity: usize) -> Self {
        Self { inner, capacity, kept: Mutex::default(), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// Returns the numbers of cache hits and misses so far.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }

    /// Returns the number of cached queries.
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    /// Returns true if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Vec<Hit>> {
        let entry = self.entries.get_mut(key)?;
        self.clock += 1;
        if let Some(key) = self.order.remove(&entry.used) {
            self.order.insert(self.clock, key);
        }
        entry.used = self.clock;
        Some(entry.hits.clone())
    }

    fn put(&mut self, key: Key, hits: Vec<Hit>, capacity: usize) {
        self.clock += 1;
        let entry = Entry { hits, used: self.clock };
        if let Some(before) = self.entries.insert(key.clone(), entry) {
            self.order.remove(&before.used);
        }
        self.order.insert(self.clock, key);
        while self.entries.len() > capacity {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.entries.remove(&oldest);
        }
    }
}

impl Retriever for Cached {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        let keys: Vec<Key> = queries.iter().map(|&query| Key { query: query.into(), top_k }).collect();
        let mut found: Vec<Option<Vec<Hit>>> = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            keys.iter().map(|key| kept.get(key)).collect()
        };
        let mut unknown: Vec<usize> = Vec::new();
        let mut known_at: HashMap<&Key, usize> = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            if found[index].is_none() && !known_at.contains_key(key) {
                known_at.insert(key, unknown.len());
                unknown.push(index);
            }
        }
        self.misses.fetch_add(unknown.len() as u64, Ordering::Relaxed);
        self.hits.fetch_add((queries.len() - unknown.len()) as u64, Ordering::Relaxed);
        if !unknown.is_empty() {
            let asked: Vec<&str> = unknown.iter().map(|&index| queries[index]).collect();
            let answers = self.inner.search(&asked, top_k)?;
            {
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                for (&index, hits) in unknown.iter().zip(&answers) {
                    kept.put(keys[index].clone(), hits.clone(), self.capacity);
                }
            }
            for (key, found) in keys.iter().zip(&mut found) {
                if found.is_none() {
                    *found = known_at.get(key).and_then(|&place| answers.get(place)).cloned();
                }
            }
        }
        found
            .into_iter()
            .map(|hits| {
                hits.ok_or_else(|| RetrievalError::Index {
                    reason: "a query was left without an answer".into(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Echo, ids};

    #[test]
    fn the_last_queries_are_kept() {
        let echo = Arc::new(Echo::default());
        let cached = Cached::new(Arc::clone(&echo) as Arc<dyn Retriever>, 2);
        let ask = |queries: &[&str], top_k: usize| ids(&cached.search(queries, top_k).unwrap());
        assert_eq!(ask(&["a", "b", "a"], 2), [["a/0", "a/1"], ["b/0", "b/1"], ["a/0", "a/1"]]);
        assert_eq!(echo.asked(), ["a", "b"]);
        assert_eq!(cached.counts(), CacheCounts { hits: 1, misses: 2 });
        // `a` is used again, so `b` is evicted.
        assert_eq!(ask(&["a"], 2), [["a/0", "a/1"]]);
        assert_eq!(ask(&["c", "a"], 2), [["c/0", "c/1"], ["a/0", "a/1"]]);
        assert_eq!((cached.len(), echo.asked()), (2, vec!["a".into(), "b".into(), "c".into()]));
        ask(&["b"], 2);
        assert_eq!(echo.asked().len(), 4);
        assert_eq!(ask(&["b"], 1), [["b/0"]]);
        assert_eq!(echo.asked().len(), 5);
        assert!((cached.counts().hit_rate() - 3.0 / 8.0).abs() < 1e-12);
    }

    #[test]
    fn errors_are_not_kept() {
        let echo = Arc::new(Echo::default());
        let cached = Cached::new(Arc::clone(&echo) as Arc<dyn Retriever>, 10);
        echo.fail(1);
        assert!(cached.search(&["a"], 1).is_err());
        assert!(cached.is_empty());
        assert_eq!(ids(&cached.search(&["a"], 1).unwrap()), [["a/0"]]);
    }

    #[test]
    fn nothing_is_kept_without_room() {
        let echo = Arc::new(Echo::default());
        let cached = Cached::new(Arc::clone(&echo) as Arc<dyn Retriever>, 0);
        for _ in 0..2 {
            assert_eq!(ids(&cached.search(&["a", "a"], 1).unwrap()), [["a/0"], ["a/0"]]);
        }
        assert_eq!((echo.asked().len(), cached.len()), (2, 0));
    }
}
