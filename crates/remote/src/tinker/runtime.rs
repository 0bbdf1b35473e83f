//! The async runtime behind blocking calls: one thread that drives requests and the heartbeat.

use std::future::Future;
use std::sync::mpsc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::error::TinkerError;

/// A thread with a runtime. It ends when this is dropped, and what runs on it with it.
pub(crate) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
}

impl Runtime {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start() -> Result<Self, TinkerError> {
        let fail = |error: std::io::Error| TinkerError::Setting {
            key: "url",
            reason: format!("no thread can be started for the service: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let _ = runtime.block_on(stopped);
        };
        std::thread::Builder::new().name("tinker".into()).spawn(run).map_err(fail)?;
        Ok(Self { handle, stop: Some(stop) })
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Runs a task on the thread and waits for its result.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, TinkerError>> + Send + 'static,
    ) -> Result<T, TinkerError> {
        let (sender, receiver) = mpsc::channel();
        self.handle.spawn(async move {
            let _ = sender.send(task.await);
        });
        let ended = |_| TinkerError::Protocol { what: "a request", reason: "its thread ended".into() };
        receiver.recv().map_err(ended)?
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}
