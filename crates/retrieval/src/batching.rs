//! Batches concurrent searches.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Hit, RetrievalError, Retriever};

/// Limits of [`Batching`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchingOptions {
    /// Maximum queries in a joint search. A call with more queries is searched alone.
    pub max_queries: usize,
    /// How long a search waits for more queries.
    pub wait: Duration,
    /// Maximum concurrent searches. Further queries wait and join the next search.
    pub in_flight: usize,
}

impl Default for BatchingOptions {
    fn default() -> Self {
        Self { max_queries: 64, wait: Duration::from_millis(2), in_flight: 2 }
    }
}

type Answer = Result<Vec<Vec<Hit>>, RetrievalError>;

struct Request {
    queries: Vec<String>,
    top_k: usize,
    answer: Mutex<Option<Answer>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Request>>,
    queries: usize,
    running: usize,
}

/// Merges the queries of concurrent callers into one search, because servers and encoders are
/// faster in batches. One of the callers runs the search.
pub struct Batching {
    inner: Arc<dyn Retriever>,
    options: BatchingOptions,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Batching {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batching").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Batching {
    /// Batches searches of `inner`.
    pub fn new(inner: Arc<dyn Retriever>, options: BatchingOptions) -> Self {
        Self { inner, options, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first waiting request, and others with the same `top_k` that fit into one search.
    fn take(&self, state: &mut State) -> Vec<Arc<Request>> {
        let Some(top_k) = state.waiting.front().map(|request| request.top_k) else { return Vec::new() };
        let (mut taken, mut left, mut queries) = (Vec::new(), VecDeque::new(), 0);
        for request in state.waiting.drain(..) {
            let fits = taken.is_empty() || queries + request.queries.len() <= self.options.max_queries;
            if request.top_k == top_k && fits {
                queries += request.queries.len();
                taken.push(request);
            } else {
                left.push_back(request);
            }
        }
        state.waiting = left;
        state.queries -= queries;
        taken
    }

    fn serve(&self, requests: &[Arc<Request>]) {
        let search = |queries: &[&str], top_k: usize| {
            catch_unwind(AssertUnwindSafe(|| self.inner.search(queries, top_k))).unwrap_or_else(|_| {
                Err(RetrievalError::Index { reason: "the search ended by a panic".to_owned() })
            })
        };
        let Some(top_k) = requests.first().map(|request| request.top_k) else { return };
        let queries: Vec<&str> =
            requests.iter().flat_map(|request| &request.queries).map(String::as_str).collect();
        let answer = search(&queries, top_k);
        let give = |request: &Request, answer: Answer| {
            *request.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        };
        match answer {
            Ok(lists) if lists.len() == queries.len() => {
                let mut lists = lists.into_iter();
                for request in requests {
                    give(request, Ok(lists.by_ref().take(request.queries.len()).collect()));
                }
            }
            // If a query may have caused the error, requests are repeated one by one.
            Err(error) if error.may_lie_in_a_query() && requests.len() > 1 => {
                for request in requests {
                    let queries: Vec<&str> = request.queries.iter().map(String::as_str).collect();
                    give(request, search(&queries, top_k));
                }
            }
            Err(error) => requests.iter().for_each(|request| give(request, Err(error.clone()))),
            Ok(lists) => {
                let reason = format!("{} lists for {} queries", lists.len(), queries.len());
                let error = RetrievalError::Index { reason };
                for request in requests {
                    give(request, Err(error.clone()));
                }
            }
        }
    }
}

impl Retriever for Batching {
    fn search(&self, queries: &[&str], top_k: usize) -> Answer {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        if queries.len() >= self.options.max_queries {
            return self.inner.search(queries, top_k);
        }
        let request = Arc::new(Request {
            queries: queries.iter().map(|&query| query.to_owned()).collect(),
            top_k,
            answer: Mutex::new(None),
        });
        let mut state = self.lock();
        state.waiting.push_back(Arc::clone(&request));
        state.queries += queries.len();
        self.changed.notify_all();
        loop {
            if let Some(answer) = request.answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return answer;
            }
            if state.running >= self.options.in_flight.max(1) || state.waiting.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // Reserved at once, so that no other caller also waits for queries.
            state.running += 1;
            let until = Instant::now() + self.options.wait;
            while state.queries < self.options.max_queries {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || state.waiting.is_empty() {
                    break;
                }
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            let requests = self.take(&mut state);
            drop(state);
            self.serve(&requests);
            state = self.lock();
            state.running -= 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Echo, ids};

    fn together(
        options: BatchingOptions,
        echo: &Arc<Echo>,
        callers: usize,
    ) -> Vec<Result<Vec<Vec<String>>, RetrievalError>> {
        let batching = Batching::new(Arc::clone(echo) as Arc<dyn Retriever>, options);
        std::thread::scope(|scope| {
            let batching = &batching;
            let callers: Vec<_> = (0..callers)
                .map(|caller| {
                    scope.spawn(move || {
                        let queries = [format!("{caller}a"), format!("{caller}b")];
                        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
                        batching.search(&queries, 1 + caller % 2).map(|lists| ids(&lists))
                    })
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        })
    }

    #[test]
    fn everybody_gets_the_answers_to_their_own_queries() {
        let echo = Arc::new(Echo::default());
        let options = BatchingOptions { max_queries: 8, wait: Duration::from_millis(100), in_flight: 1 };
        let answers = together(options, &echo, 12);
        for (caller, answer) in answers.into_iter().enumerate() {
            let list = |name: &str| -> Vec<String> {
                (0..=caller % 2).map(|rank| format!("{caller}{name}/{rank}")).collect()
            };
            assert_eq!(answer.unwrap(), [list("a"), list("b")]);
        }
        let calls = echo.calls();
        assert_eq!(calls.iter().sum::<usize>(), 24);
        assert!(calls.iter().all(|&queries| queries <= 8), "{calls:?}");
        assert!(calls.len() <= 8, "{calls:?}");
    }

    #[test]
    fn a_failure_reaches_those_it_belongs_to() {
        let options = BatchingOptions { max_queries: 64, wait: Duration::from_millis(100), in_flight: 1 };
        let echo = Arc::new(Echo::default());
        echo.fail(1);
        let failed = together(options, &echo, 2).into_iter().filter(Result::is_err).count();
        assert!((1..=2).contains(&failed), "{failed}");
        let echo = Arc::new(Echo::default());
        echo.refuse("3a");
        let answers = together(options, &echo, 6);
        let failed: Vec<usize> = (0..6).filter(|&caller| answers[caller].is_err()).collect();
        assert_eq!(failed, [3]);
        let echo = Arc::new(Echo::default());
        echo.break_down_at("1a");
        let answers = together(options, &echo, 4);
        let failed: Vec<usize> = (0..4).filter(|&caller| answers[caller].is_err()).collect();
        assert_eq!(failed, [1]);
        let echo = Arc::new(Echo::default());
        echo.panic_at("2b");
        let answers = together(options, &echo, 4);
        let failed: Vec<usize> = (0..4).filter(|&caller| answers[caller].is_err()).collect();
        assert_eq!(failed, [2]);
    }

    #[test]
    fn a_lone_caller_is_answered() {
        let echo = Arc::new(Echo::default());
        let options = BatchingOptions { wait: Duration::ZERO, ..BatchingOptions::default() };
        assert_eq!(together(options, &echo, 1).remove(0).unwrap(), [["0a/0"], ["0b/0"]]);
        let batching = Batching::new(Arc::clone(&echo) as Arc<dyn Retriever>, options);
        assert_eq!(batching.search(&[], 3).unwrap(), Vec::<Vec<Hit>>::new());
        assert_eq!(batching.search(&["x"; 70], 1).unwrap().len(), 70);
        assert_eq!(echo.calls(), [2, 70]);
    }
}
