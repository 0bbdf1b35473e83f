//! Servers of the doubles, each on its own thread.
#![allow(dead_code, reason = "every test binary uses its part")]

use std::net::SocketAddr;
use std::thread::JoinHandle;

use axum::Router;
use tokio::sync::oneshot;

/// A router behind an address of this machine. It has ended once this is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(router: Router) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
                let _ = stopped.await;
            });
            // What stalls is left behind.
            runtime.shutdown_background();
        });
        let address = receiver.recv().unwrap();
        Self { url: format!("http://{address}"), address, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().unwrap().join();
    }
}

/// An address where nothing listens.
pub(crate) fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
