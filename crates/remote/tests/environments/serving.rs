//! A router behind an address of this machine.

use axum::Router;
use tokio::sync::oneshot;

/// A server on a thread of its own; it ends when this is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    _stop: oneshot::Sender<()>,
}

impl Server {
    pub(crate) fn start(router: Router) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(format!("http://{}", listener.local_addr().unwrap())).unwrap();
                tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
                let _ = stopped.await;
            });
        });
        Self { url: receiver.recv().unwrap(), _stop: stop }
    }
}

/// An address where nothing listens.
pub(crate) fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
