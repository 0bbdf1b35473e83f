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
/// (additive increase, multiplicative decrease), and none for a while after a failure.
pub(crate) struct Gate {
    most: usize,
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    in_flight: usize,
    limit: f64,
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
        let state = State { in_flight: 0, limit: most as f64, open_at: Instant::now(), failures: 0 };
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
                    if state.in_flight < (state.limit as usize).max(1) {
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

    /// The server failed.
    pub(crate) fn failed(&self) {
        let mut state = self.state();
        if Instant::now() >= state.open_at {
            close(&mut state, None);
        }
    }

    /// False while requests are held back because of a failure.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state();
        state.failures == 0 || Instant::now() >= state.open_at
    }

    /// Requests that it lets through at a time.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.state().limit as usize
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
            assert_eq!((gate.limit(), gate.is_open()), (2, false));
            for _ in 0..100 {
                gate.answered();
            }
            assert_eq!((gate.limit(), gate.is_open()), (8, true));
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
