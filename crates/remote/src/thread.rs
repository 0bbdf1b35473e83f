//! Runs async requests for blocking callers.

use std::future::Future;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use thiserror::Error;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use turnwise_core::{RequestId, SampleError};

/// The thread ended while a caller waited.
#[derive(Clone, Copy, Debug, Error)]
#[error("the thread of the requests has ended")]
pub(crate) struct ThreadEnded;

/// An async runtime; dropping it cancels its tasks.
#[derive(Debug)]
pub(crate) struct RequestThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RequestThread {
    pub(crate) fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let work = move || {
            // Ends when the sender is dropped or used.
            let _ = runtime.block_on(stopped);
        };
        let thread = std::thread::Builder::new().name("turnwise-requests".into()).spawn(work)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ThreadEnded> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let _ = sender.send(future.await);
        });
        receiver.recv().map_err(|_| ThreadEnded)
    }

    pub(crate) fn try_wait<T: Send + 'static, E: From<ThreadEnded> + Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E> {
        self.wait(future)?
    }
}

impl Drop for RequestThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread cannot join itself, but its task may be the last owner.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !own(thread)) {
            let _ = thread.join();
        }
    }
}

/// The task panicked or its thread ended.
#[derive(Clone, Copy, Debug, Error)]
#[error("the task of a request has ended without an outcome")]
pub(crate) struct TaskEnded;

impl From<TaskEnded> for SampleError {
    fn from(error: TaskEnded) -> Self {
        Self::Backend(error.to_string())
    }
}

pub(crate) struct Outcomes<T> {
    sender: Sender<Result<(RequestId, T), TaskEnded>>,
    receiver: Receiver<Result<(RequestId, T), TaskEnded>>,
}

impl<T> Outcomes<T> {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver }
    }

    pub(crate) fn promise(&self, request: RequestId) -> Promise<T> {
        Promise { request, sender: Some(self.sender.clone()) }
    }

    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Option<(RequestId, T)>, TaskEnded> {
        let found = match deadline {
            None => self.receiver.recv().map_err(RecvTimeoutError::from),
            Some(at) => self.receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match found {
            Ok(outcome) => outcome.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(TaskEnded),
        }
    }

    pub(crate) fn take(&self) -> Result<Option<(RequestId, T)>, TaskEnded> {
        self.receiver.try_recv().ok().transpose()
    }
}

/// Sends one result, or an error if it is dropped without one. The receiver cannot detect a dropped
/// promise otherwise, because it also owns a sender and its channel never closes.
pub(crate) struct Promise<T> {
    request: RequestId,
    sender: Option<Sender<Result<(RequestId, T), TaskEnded>>>,
}

impl<T> Promise<T> {
    pub(crate) fn keep(mut self, outcome: T) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Ok((self.request, outcome)));
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Err(TaskEnded));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_task_that_ends_without_an_outcome_is_an_error_of_the_wait() {
        let thread = RequestThread::start().unwrap();
        let outcomes: Outcomes<&str> = Outcomes::new();
        let soon = || Some(Instant::now() + Duration::from_secs(10));
        let promise = outcomes.promise(3);
        thread.handle().spawn(async move { promise.keep("found") });
        assert_eq!(outcomes.wait(soon()).unwrap(), Some((3, "found")));
        assert_eq!(outcomes.wait(Some(Instant::now())).unwrap(), None);
        let promise = outcomes.promise(4);
        let panics = || -> &'static str { panic!("the panic of a test") };
        thread.handle().spawn(async move { promise.keep(panics()) });
        assert!(outcomes.wait(soon()).is_err());
        let promise = outcomes.promise(5);
        let handle = thread.handle().clone();
        handle.spawn(async move {
            std::future::pending::<()>().await;
            promise.keep("never");
        });
        drop(thread);
        assert!(outcomes.wait(soon()).is_err());
        let promise = outcomes.promise(6);
        handle.spawn(async move { promise.keep("never") });
        assert!(outcomes.wait(soon()).is_err());
        assert_eq!(outcomes.take().unwrap(), None);
    }
}
