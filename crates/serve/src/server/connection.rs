//! Connections with read and write timeouts.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use super::{Limits, Stop};

const MOST_HEADERS: usize = 64;
const HEAD_BYTES: usize = 32 << 10;

/// Pause after a connection could not be accepted, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn accept(
    listener: std::net::TcpListener,
    router: Router,
    limits: Limits,
    mut stop: watch::Receiver<Stop>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let room = Arc::new(Semaphore::new(limits.connections.max(1)));
    let mut connections = JoinSet::new();
    while *stop.borrow_and_update() == Stop::Not {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await.ok();
            (permit, listener.accept().await)
        };
        tokio::select! {
            (permit, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let (router, stop) = (router.clone(), stop.clone());
                    connections.spawn(async move {
                        serve(stream, router, limits, stop).await;
                        drop(permit);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            _ = stop.changed() => {}
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while *stop.borrow_and_update() == Stop::Gently {
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { break },
            changed = stop.changed() => if changed.is_err() { break },
        }
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, router: Router, limits: Limits, mut stop: watch::Receiver<Stop>) {
    // Chunks are small and the client waits for each.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Deadlined { stream, limit: limits.write, stalled: None });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEAD_BYTES);
    let mut connection = pin!(builder.serve_connection(io, TowerToHyperService::new(router)));
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            changed = stop.changed() => match *stop.borrow() {
                Stop::Not if changed.is_ok() => {}
                Stop::Gently if changed.is_ok() => connection.as_mut().graceful_shutdown(),
                _ => return,
            },
        }
    }
}

/// A connection that fails if a write makes no progress during `limit`.
struct Deadlined {
    stream: TcpStream,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Deadlined {
    fn checked<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Deadlined {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Deadlined {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.checked(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.checked(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
