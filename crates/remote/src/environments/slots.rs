//! Limits concurrent sessions per server.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::ServerError;

/// Delay before a server whose connection was lost is used again.
const CLOSED: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Slots {
    servers: Mutex<Vec<Use>>,
    each: usize,
    freed: Condvar,
}

#[derive(Clone, Debug, Default)]
struct Use {
    sessions: usize,
    /// When a server whose connection was lost may be used again. Without a delay, the lost server
    /// would get every new session, because it has the fewest sessions.
    closed_until: Option<Instant>,
}

impl Use {
    fn is_closed(&self, now: Instant) -> bool {
        self.closed_until.is_some_and(|until| now < until)
    }
}

impl Slots {
    pub(crate) fn new(servers: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { servers: Mutex::new(vec![Use::default(); servers]), each, freed: Condvar::new() })
    }

    pub(crate) fn free(&self) -> usize {
        let servers = self.lock();
        let open = open(&servers);
        open.into_iter().map(|server| self.each.saturating_sub(servers[server].sessions)).sum()
    }

    /// Takes a slot on the server with the fewest sessions, if one becomes free within `wait`.
    /// Skips the servers in `avoid`. Also skips recently lost servers, unless all are lost. After
    /// the delay, a single session first tests a lost server.
    pub(crate) fn take(self: &Arc<Self>, avoid: &[usize], wait: Duration) -> Option<Slot> {
        let until = Instant::now() + wait;
        let mut servers = self.lock();
        loop {
            let is_free = |server: &usize| servers[*server].sessions < self.each && !avoid.contains(server);
            let free = open(&servers).into_iter().filter(is_free);
            if let Some(server) = free.min_by_key(|server| servers[*server].sessions) {
                let chosen = &mut servers[server];
                chosen.sessions += 1;
                if chosen.closed_until.is_some() {
                    chosen.closed_until = Some(Instant::now() + CLOSED);
                }
                return Some(Slot { slots: Arc::clone(self), server });
            }
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            // A tested server counts as one that becomes free.
            let looks = servers.iter().filter_map(|server| server.closed_until);
            let next = looks.map(|until| until.saturating_duration_since(now)).filter(|time| !time.is_zero());
            let left = next.min().map_or(left, |next| left.min(next));
            servers = self.freed.wait_timeout(servers, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn note<T>(&self, server: usize, begun: &Result<T, ServerError>) {
        let lost = matches!(begun, Err(ServerError::Lost(_)));
        self.lock()[server].closed_until = lost.then(|| Instant::now() + CLOSED);
        self.freed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Use>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the servers that are not lost, or all servers if all are lost, so that their failure is
/// reported.
fn open(servers: &[Use]) -> Vec<usize> {
    let now = Instant::now();
    let open: Vec<usize> = (0..servers.len()).filter(|&server| !servers[server].is_closed(now)).collect();
    if open.is_empty() { (0..servers.len()).collect() } else { open }
}

#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    pub(crate) server: usize,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock()[self.server].sessions -= 1;
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn sessions_are_spread_and_come_back() {
        let slots = Slots::new(2, 2);
        let taken: Vec<Slot> = (0..4).map_while(|_| slots.take(&[], NOW)).collect();
        let servers: Vec<usize> = taken.iter().map(|slot| slot.server).collect();
        assert_eq!((servers, slots.free()), (vec![0, 1, 0, 1], 0));
        assert!(slots.take(&[], NOW).is_none());
        drop(taken);
        assert_eq!(slots.free(), 4);
        assert_eq!(slots.take(&[0], NOW).map(|slot| slot.server), Some(1));
        assert!(slots.take(&[0, 1], NOW).is_none());
    }

    #[test]
    fn a_server_that_is_lost_gets_no_sessions_until_it_answers() {
        let lost: Result<(), ServerError> = Err(ServerError::Lost("gone".into()));
        let slots = Slots::new(2, 2);
        slots.note(0, &lost);
        let taken: Vec<Slot> = (0..3).map_while(|_| slots.take(&[], NOW)).collect();
        assert_eq!(taken.iter().map(|slot| slot.server).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(slots.free(), 0);
        slots.lock()[0].closed_until = Some(Instant::now());
        let look = slots.take(&[], NOW);
        assert_eq!(look.as_ref().map(|slot| slot.server), Some(0));
        assert!(slots.take(&[], NOW).is_none());
        slots.note(0, &Ok(()));
        assert_eq!(slots.take(&[], NOW).map(|slot| slot.server), Some(0));
        slots.note(0, &lost);
        slots.note(1, &lost);
        assert_eq!(slots.take(&[], NOW).map(|slot| slot.server), Some(0));
    }

    #[test]
    fn whoever_waits_gets_what_is_given_back() {
        let slots = Slots::new(1, 1);
        let slot = slots.take(&[], NOW);
        let other = Arc::clone(&slots);
        let waiting = std::thread::spawn(move || other.take(&[], Duration::from_mins(1)).is_some());
        drop(slot);
        assert!(waiting.join().unwrap());
    }
}
