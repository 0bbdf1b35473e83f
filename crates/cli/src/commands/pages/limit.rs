use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Debug)]
pub(super) struct Limit {
    free: Mutex<usize>,
    freed: Condvar,
}

#[derive(Debug)]
pub(super) struct Permit(Arc<Limit>);

impl Limit {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(count), freed: Condvar::new() })
    }

    pub(super) fn take(self: &Arc<Self>) -> Permit {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Permit(Arc::clone(self))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_next_waits_for_a_permit_that_is_given_back() {
        let limit = Limit::new(2);
        let (first, _second) = (limit.take(), limit.take());
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _third = limit.take();
                sender.send(()).unwrap();
            });
            assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err());
            drop(first);
            receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        });
    }
}
