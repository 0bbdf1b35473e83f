//! A WebSocket connection for one request at a time.
//!
//! A task on the request thread always reads from the connection: servers send pings even while the
//! policy samples, and close connections that do not reply.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::http::header;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::wire::CLOSE;
use crate::environments::error::ServerError;
use crate::http::bearer;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const GOODBYE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
    pub(super) bytes: usize,
}

struct Order {
    text: String,
    reply: oneshot::Sender<Result<String, ServerError>>,
}

/// Closes the connection properly when dropped.
#[derive(Clone, Debug)]
pub(super) struct Session {
    orders: mpsc::Sender<Order>,
    limits: Limits,
}

impl Session {
    /// Connects to a `ws://` or `wss://` address.
    pub(super) async fn open(url: &str, key: Option<&str>, limits: Limits) -> Result<Self, ServerError> {
        let mut request = url.into_client_request().map_err(|error| lost(&error, limits))?;
        if let Some(key) = key {
            request.headers_mut().insert(header::AUTHORIZATION, bearer(key)?);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(limits.bytes))
            .max_frame_size(Some(limits.bytes));
        let connected = timeout(limits.connect, connect_async_with_config(request, Some(config), true)).await;
        let (socket, _) = connected
            .map_err(|_| ServerError::Lost("no connection in time; is the server up?".into()))?
            .map_err(|error| lost(&error, limits))?;
        let (orders, queue) = mpsc::channel(1);
        tokio::spawn(serve(socket, queue, limits));
        Ok(Self { orders, limits })
    }

    /// Sends a message and waits for the reply.
    ///
    /// # Errors
    /// Fails, and ends the session, if the connection is lost or if the reply is too slow or too
    /// large.
    pub(super) async fn ask(&self, text: String) -> Result<String, ServerError> {
        let (reply, answer) = oneshot::channel();
        let gone = || ServerError::Lost("the connection is closed".into());
        let exchange = async {
            self.orders.send(Order { text, reply }).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        };
        timeout(self.limits.answer, exchange).await.unwrap_or_else(|_| {
            let seconds = self.limits.answer.as_secs_f64();
            Err(ServerError::Lost(format!(
                "no answer within {seconds} s; raise env.timeout_s if the environment needs longer"
            )))
        })
    }
}

async fn serve(mut socket: Socket, mut orders: mpsc::Receiver<Order>, limits: Limits) {
    let mut waiting: Option<oneshot::Sender<Result<String, ServerError>>> = None;
    // A message before the first request tells why the server closes.
    let mut greeting = None;
    let mut asked = false;
    let end = loop {
        tokio::select! {
            // A message before a request is not its reply.
            biased;
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => match waiting.take() {
                    Some(reply) => {
                        let _ = reply.send(Ok(text.to_string()));
                    }
                    None if !asked && greeting.is_none() => greeting = Some(text.to_string()),
                    None => break ServerError::Answer("it sent a message that nobody asked for".into()),
                },
                Some(Ok(Message::Binary(_))) => break ServerError::Answer("it sent bytes instead of text".into()),
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.map(|frame| format!(" (code {})", u16::from(frame.code)));
                    break ServerError::Lost(format!("the server closed the connection{}", code.unwrap_or_default()));
                }
                Some(Ok(_)) => {}
                Some(Err(Error::Io(error))) => break ServerError::Lost(format!("the connection broke ({error})")),
                Some(Err(error)) => break lost(&error, limits),
                None => break ServerError::Lost("the server closed the connection".into()),
            },
            order = orders.recv() => match order {
                None => {
                    let goodbye = async {
                        let _ = socket.send(Message::text(CLOSE)).await;
                        let _ = socket.close(None).await;
                    };
                    let _ = timeout(GOODBYE, goodbye).await;
                    return;
                }
                Some(order) => {
                    asked = true;
                    if let Some(text) = greeting.take() {
                        let _ = order.reply.send(Ok(text));
                    } else {
                        waiting = Some(order.reply);
                        // If sending fails, reading returns the server's reason.
                        let _ = socket.send(Message::text(order.text)).await;
                    }
                }
            },
        }
    };
    // Close before notifying the caller.
    drop(socket);
    if let Some(reply) = waiting {
        let _ = reply.send(Err(end.clone()));
    }
    while let Some(order) = orders.recv().await {
        let _ = order.reply.send(greeting.take().map_or_else(|| Err(end.clone()), Ok));
    }
}

fn lost(error: &Error, limits: Limits) -> ServerError {
    ServerError::Lost(match error {
        Error::Io(error) => format!("no connection ({error}); is the server up?"),
        Error::Http(response) => {
            format!("it answers HTTP {} where OpenEnv has its WebSocket", response.status().as_u16())
        }
        Error::Tls(_) => {
            "the TLS connection was refused; is its certificate one that the system trusts?".into()
        }
        Error::Capacity(_) => {
            let bytes = limits.bytes;
            return ServerError::Answer(format!(
                "an answer of more than {bytes} bytes; raise env.max_message_bytes if it is sound"
            ));
        }
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            "the server closed the connection".into()
        }
        Error::Protocol(error) => format!("no WebSocket ({error})"),
        Error::Utf8(_) => "it sent text that is not UTF-8".into(),
        _ => "no WebSocket there".into(),
    })
}
