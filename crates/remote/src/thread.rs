//! The thread on which requests are under way, behind calls that block.

use std::future::Future;
use std::sync::mpsc;
use std::thread::JoinHandle;

use thiserror::Error;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Error of a wait for what runs on a thread that is gone.
#[derive(Clone, Copy, Debug, Error)]
#[error("the thread of the requests has ended")]
pub(crate) struct ThreadEnded;

/// A thread with a runtime. It ends when this is dropped, and what runs on it with it.
#[derive(Debug)]
pub(crate) struct RequestThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RequestThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let work = move || {
            // Ends with the sender, dropped or used.
            let _ = runtime.block_on(stopped);
        };
        let thread = std::thread::Builder::new().name("turnwise-requests".into()).spawn(work)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// The runtime, to start tasks on.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a future on the thread and waits for its result.
    ///
    /// # Errors
    /// The thread has ended.
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

    /// Runs a future that can fail on the thread and waits for its result.
    ///
    /// # Errors
    /// The future's, or the thread has ended.
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
        // A task that held the last of its owners drops it on the thread itself, which cannot wait for its own end.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !own(thread)) {
            let _ = thread.join();
        }
    }
}
