//! The sessions that servers have room for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A number of sessions on each of several servers.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Sessions in use, by server.
    used: Mutex<Vec<usize>>,
    /// Sessions that a server has room for.
    each: usize,
    freed: Condvar,
}

impl Slots {
    /// `servers` with room for `each` sessions.
    pub(crate) fn new(servers: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { used: Mutex::new(vec![0; servers]), each, freed: Condvar::new() })
    }

    /// Number of sessions that can begin now.
    pub(crate) fn free(&self) -> usize {
        self.lock().iter().map(|used| self.each.saturating_sub(*used)).sum()
    }

    /// A session on the server with the fewest, but for those of `avoid`; `None` where none is free within `wait`.
    pub(crate) fn take(self: &Arc<Self>, avoid: &[usize], wait: Duration) -> Option<Slot> {
        let until = Instant::now() + wait;
        let mut used = self.lock();
        loop {
            let open = |server: &usize| used[*server] < self.each && !avoid.contains(server);
            let chosen = (0..used.len()).filter(open).min_by_key(|server| used[*server]);
            if let Some(server) = chosen {
                used[server] += 1;
                return Some(Slot { slots: Arc::clone(self), server });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            used = self.freed.wait_timeout(used, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    /// The server.
    pub(crate) server: usize,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock()[self.server] -= 1;
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
    fn whoever_waits_gets_what_is_given_back() {
        let slots = Slots::new(1, 1);
        let slot = slots.take(&[], NOW);
        let other = Arc::clone(&slots);
        let waiting = std::thread::spawn(move || other.take(&[], Duration::from_mins(1)).is_some());
        drop(slot);
        assert!(waiting.join().unwrap());
    }
}
