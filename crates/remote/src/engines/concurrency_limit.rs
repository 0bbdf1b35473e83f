//! Limits concurrent requests per server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

const LONGEST: Duration = Duration::from_secs(30);

/// Pause after the first failure; it doubles with each further consecutive failure.
const SHORTEST: Duration = Duration::from_millis(100);

/// A limit on concurrent requests, raised by each success and halved when the server is busy
/// (additive increase, multiplicative decrease). A failure pauses all requests. A second limit
/// depends on the queue length that the server reports.
pub(crate) struct ConcurrencyLimit {
    most: usize,
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    in_flight: usize,
    limit: f64,
    uncrowded: f64,
    open_at: Instant,
    failures: u32,
}

pub(crate) struct Permit<'a>(&'a ConcurrencyLimit);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
        self.0.freed.notify_one();
    }
}

impl ConcurrencyLimit {
    pub(crate) fn new(most: usize) -> Self {
        let (limit, open_at) = (most as f64, Instant::now());
        let state = State { in_flight: 0, limit, uncrowded: limit, open_at, failures: 0 };
        Self { most, state: Mutex::new(state), freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn acquire(&self) -> Permit<'_> {
        loop {
            let open_at = {
                let mut state = self.state();
                if Instant::now() >= state.open_at {
                    if state.in_flight < (state.limit.min(state.uncrowded) as usize).max(1) {
                        state.in_flight += 1;
                        return Permit(self);
                    }
                    None
                } else {
                    Some(state.open_at)
                }
            };
            match open_at {
                // A permit may have been released to a request that ended, so check again.
                None => drop(tokio::time::timeout(SHORTEST, self.freed.notified()).await),
                Some(at) => tokio::time::sleep_until(at).await,
            }
        }
    }

    pub(crate) fn answered(&self) {
        let mut state = self.state();
        state.failures = 0;
        state.limit = (state.limit + 1.0 / state.limit.max(1.0)).min(self.most as f64);
    }

    /// Records that the server was too busy, and how long it asked clients to wait.
    pub(crate) fn busy(&self, retry_after: Option<Duration>) {
        let mut state = self.state();
        // Simultaneous rejections count once.
        if Instant::now() < state.open_at {
            return;
        }
        state.limit = (state.limit / 2.0).max(1.0);
        close(&mut state, retry_after);
    }

    /// Updates the limit that depends on the server's queue. If requests are waiting on the server,
    /// the limit becomes the number of requests in flight minus the number waiting, but at least
    /// half of the number in flight. If no requests wait and the server's cache has room, the limit
    /// grows by a quarter.
    pub(crate) fn reported(&self, waiting: u64, nearly_full: bool) {
        let mut state = self.state();
        let here = state.in_flight as f64;
        if waiting == 0 && !nearly_full {
            state.uncrowded = (1.25 * state.uncrowded + 1.0).min(self.most as f64);
        } else if state.in_flight > 0 {
            // A queue of others' requests does not block this run.
            let wanted = if waiting > 0 { (here - waiting as f64).max(here / 2.0) } else { 0.75 * here };
            state.uncrowded = state.uncrowded.min(wanted).max(1.0);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    pub(crate) fn failed(&self) {
        let mut state = self.state();
        if Instant::now() >= state.open_at {
            close(&mut state, None);
        }
    }

    pub(crate) fn failures(&self) -> u32 {
        self.state().failures
    }

    /// Returns true if requests may be sent (not during a pause).
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state();
        state.failures == 0 || Instant::now() >= state.open_at
    }

    #[cfg(test)]
    pub(crate) fn allowed(&self) -> usize {
        let state = self.state();
        state.limit.min(state.uncrowded) as usize
    }
}

fn close(state: &mut State, retry_after: Option<Duration>) {
    let wait = SHORTEST.saturating_mul(1 << state.failures.min(16)).min(LONGEST);
    state.failures += 1;
    state.open_at = Instant::now() + retry_after.map_or(wait, |asked| asked.min(LONGEST));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_busy_server_gets_half_and_then_more_again() {
        block(async {
            let limit = ConcurrencyLimit::new(8);
            limit.busy(Some(Duration::ZERO));
            assert_eq!(limit.allowed(), 4);
            limit.busy(Some(Duration::from_millis(50)));
            limit.busy(None);
            assert_eq!((limit.allowed(), limit.is_open(), limit.failures()), (2, false, 2));
            for _ in 0..100 {
                limit.answered();
            }
            assert_eq!((limit.allowed(), limit.is_open(), limit.failures()), (8, true, 0));
        });
    }

    #[test]
    fn what_waits_in_a_servers_queue_is_not_sent_the_next_time() {
        block(async {
            let limit = ConcurrencyLimit::new(16);
            let mut permits = Vec::new();
            for _ in 0..12 {
                permits.push(limit.acquire().await);
            }
            limit.reported(0, false);
            assert_eq!(limit.allowed(), 16);
            limit.reported(4, false);
            assert_eq!(limit.allowed(), 8);
            limit.reported(1000, false);
            assert_eq!(limit.allowed(), 6);
            limit.reported(0, true);
            assert_eq!(limit.allowed(), 6, "the cache asks for less than 9, and 6 are less");
            permits.truncate(2);
            limit.reported(0, true);
            assert_eq!(limit.allowed(), 1);
            for expected in [2, 4, 6, 9, 12, 16, 16] {
                limit.reported(0, false);
                assert_eq!(limit.allowed(), expected);
            }
            permits.clear();
            limit.reported(50, true);
            assert_eq!((limit.allowed(), limit.in_flight()), (16, 0));
            limit.busy(Some(Duration::ZERO));
            assert_eq!(limit.allowed(), 8);
        });
    }

    #[test]
    fn no_more_permits_are_given_than_the_limit() {
        block(async {
            let limit = ConcurrencyLimit::new(2);
            let (one, _two) = (limit.acquire().await, limit.acquire().await);
            let third = tokio::time::timeout(Duration::from_millis(30), limit.acquire());
            assert!(third.await.is_err());
            drop(one);
            limit.acquire().await;
        });
    }
}
