//! Back-pressure: the requests that one server is given at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Longest time that a server is left alone after a failure.
const LONGEST: Duration = Duration::from_secs(30);

/// Shortest of these times, doubled with every failure in a row.
const SHORTEST: Duration = Duration::from_millis(100);

/// Lets a number of requests through that grows while the server answers and is halved when it says that it is busy
/// (additive increase, multiplicative decrease), and none for a while after a failure. A second bound follows the queue that the
/// server reports.
pub(crate) struct Gate {
    most: usize,
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    in_flight: usize,
    limit: f64,
    /// Bound by what the server reports of its queue and its cache.
    uncrowded: f64,
    open_at: Instant,
    failures: u32,
}

/// One request under way.
pub(crate) struct Passed<'a>(&'a Gate);

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
        self.0.freed.notify_one();
    }
}

impl Gate {
    pub(crate) fn new(most: usize) -> Self {
        let (limit, open_at) = (most as f64, Instant::now());
        let state = State { in_flight: 0, limit, uncrowded: limit, open_at, failures: 0 };
        Self { most, state: Mutex::new(state), freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room.
    pub(crate) async fn pass(&self) -> Passed<'_> {
        loop {
            let open_at = {
                let mut state = self.state();
                if Instant::now() >= state.open_at {
                    if state.in_flight < (state.limit.min(state.uncrowded) as usize).max(1) {
                        state.in_flight += 1;
                        return Passed(self);
                    }
                    None
                } else {
                    Some(state.open_at)
                }
            };
            match open_at {
                // One that was freed may have gone to a request that has ended since: look again from time to time.
                None => drop(tokio::time::timeout(SHORTEST, self.freed.notified()).await),
                Some(at) => tokio::time::sleep_until(at).await,
            }
        }
    }

    /// The server answered.
    pub(crate) fn answered(&self) {
        let mut state = self.state();
        state.failures = 0;
        state.limit = (state.limit + 1.0 / state.limit.max(1.0)).min(self.most as f64);
    }

    /// The server is busy, and says for how long or not.
    pub(crate) fn busy(&self, retry_after: Option<Duration>) {
        let mut state = self.state();
        // One of many that were refused together: they are one refusal.
        if Instant::now() < state.open_at {
            return;
        }
        state.limit = (state.limit / 2.0).max(1.0);
        close(&mut state, retry_after);
    }

    /// The server reports how many requests wait in its queue, and whether its cache is nearly full. What waits there is
    /// not sent the next time, at most half of what is under way at once; a report without either gives a quarter back.
    pub(crate) fn reported(&self, waiting: u64, nearly_full: bool) {
        let mut state = self.state();
        let here = state.in_flight as f64;
        if waiting == 0 && !nearly_full {
            state.uncrowded = (1.25 * state.uncrowded + 1.0).min(self.most as f64);
        } else if state.in_flight > 0 {
            // A queue of others alone is no reason to send nothing.
            let wanted = if waiting > 0 { (here - waiting as f64).max(here / 2.0) } else { 0.75 * here };
            state.uncrowded = state.uncrowded.min(wanted).max(1.0);
        }
    }

    /// Requests under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    /// The server failed.
    pub(crate) fn failed(&self) {
        let mut state = self.state();
        if Instant::now() >= state.open_at {
            close(&mut state, None);
        }
    }

    /// Refusals and failures in a row, those that came together as one.
    pub(crate) fn failures(&self) -> u32 {
        self.state().failures
    }

    /// False while requests are held back because of a failure.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state();
        state.failures == 0 || Instant::now() >= state.open_at
    }

    /// Requests that it lets through at a time.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
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
            let gate = Gate::new(8);
            gate.busy(Some(Duration::ZERO));
            assert_eq!(gate.limit(), 4);
            gate.busy(Some(Duration::from_millis(50)));
            // Refused together with the one before.
            gate.busy(None);
            assert_eq!((gate.limit(), gate.is_open(), gate.failures()), (2, false, 2));
            for _ in 0..100 {
                gate.answered();
            }
            assert_eq!((gate.limit(), gate.is_open(), gate.failures()), (8, true, 0));
        });
    }

    #[test]
    fn what_waits_in_a_servers_queue_is_not_sent_the_next_time() {
        block(async {
            let gate = Gate::new(16);
            let mut passed = Vec::new();
            for _ in 0..12 {
                passed.push(gate.pass().await);
            }
            gate.reported(0, false);
            assert_eq!(gate.limit(), 16);
            gate.reported(4, false);
            assert_eq!(gate.limit(), 8);
            // No more than half at once, whatever waits.
            gate.reported(1000, false);
            assert_eq!(gate.limit(), 6);
            gate.reported(0, true);
            assert_eq!(gate.limit(), 6, "the cache asks for less than 9, and 6 are less");
            passed.truncate(2);
            gate.reported(0, true);
            assert_eq!(gate.limit(), 1);
            for expected in [2, 4, 6, 9, 12, 16, 16] {
                gate.reported(0, false);
                assert_eq!(gate.limit(), expected);
            }
            // What others have in the queue is theirs.
            passed.clear();
            gate.reported(50, true);
            assert_eq!((gate.limit(), gate.in_flight()), (16, 0));
            // A refusal counts beside it.
            gate.busy(Some(Duration::ZERO));
            assert_eq!(gate.limit(), 8);
        });
    }

    #[test]
    fn no_more_pass_than_the_limit() {
        block(async {
            let gate = Gate::new(2);
            let (one, _two) = (gate.pass().await, gate.pass().await);
            let third = tokio::time::timeout(Duration::from_millis(30), gate.pass());
            assert!(third.await.is_err());
            drop(one);
            gate.pass().await;
        });
    }
}
