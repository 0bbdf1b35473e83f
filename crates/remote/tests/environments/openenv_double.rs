//! A double of OpenEnv's server: an environment that echoes messages and obeys some of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::serving::Server;

/// State of a double.
pub(crate) struct Double {
    /// Sessions that it has room for.
    most: usize,
    /// Sessions under way.
    pub(crate) open: AtomicUsize,
    /// Resets as they came.
    pub(crate) resets: Mutex<Vec<Value>>,
    /// Keys that came with connections and requests.
    pub(crate) keys: Mutex<Vec<Option<String>>>,
    /// Sessions that it refused.
    pub(crate) refused: AtomicUsize,
    /// Sessions that ended with a goodbye.
    pub(crate) goodbyes: AtomicUsize,
}

impl Double {
    /// A double with room for so many sessions, and its server.
    pub(crate) fn start(most: usize) -> (Server, Arc<Self>) {
        Self::with_schema(most, echo_schema())
    }

    pub(crate) fn with_schema(most: usize, schema: Value) -> (Server, Arc<Self>) {
        let double = Arc::new(Self {
            most,
            open: AtomicUsize::new(0),
            resets: Mutex::default(),
            keys: Mutex::default(),
            refused: AtomicUsize::new(0),
            goodbyes: AtomicUsize::new(0),
        });
        let described = json!({"name": "echo", "description": "repeat what is asked for"});
        let router = Router::new()
            .route(
                "/schema",
                get(move |State(double): State<Arc<Self>>, headers: HeaderMap| async move {
                    double.note(&headers);
                    Json(json!({"action": schema, "observation": {}, "state": {}}))
                }),
            )
            .route("/metadata", get(move || async move { Json(described) }))
            .route("/ws", get(connect))
            .with_state(Arc::clone(&double));
        (Server::start(router), double)
    }

    fn note(&self, headers: &HeaderMap) {
        let key = headers.get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.keys.lock().unwrap().push(key);
    }
}

fn echo_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"message": {"type": "string"}, "metadata": {"type": "object"}},
        "required": ["message"],
        "additionalProperties": false,
    })
}

async fn connect(
    State(double): State<Arc<Double>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    double.note(&headers);
    upgrade.on_upgrade(move |socket| session(double, socket))
}

async fn say(socket: &mut WebSocket, message: &Value) {
    let _ = socket.send(Message::text(message.to_string())).await;
}

fn error(code: &str, message: &str) -> Value {
    json!({"type": "error", "data": {"code": code, "message": message}})
}

fn observation(text: &str, reward: &Value, done: bool) -> Value {
    let seen = json!({"echoed": text, "legal": ["a", "b"], "metadata": {}});
    json!({"type": "observation", "data": {"observation": seen, "reward": reward, "done": done}})
}

async fn session(double: Arc<Double>, mut socket: WebSocket) {
    if double.open.fetch_add(1, Ordering::SeqCst) >= double.most {
        double.open.fetch_sub(1, Ordering::SeqCst);
        double.refused.fetch_add(1, Ordering::SeqCst);
        say(&mut socket, &error("CAPACITY_REACHED", "no room")).await;
        return;
    }
    play(&double, &mut socket).await;
    double.open.fetch_sub(1, Ordering::SeqCst);
}

async fn play(double: &Double, socket: &mut WebSocket) {
    while let Some(Ok(Message::Text(text))) = socket.recv().await {
        let message: Value = serde_json::from_str(&text).unwrap();
        match message["type"].as_str().unwrap() {
            "reset" => {
                double.resets.lock().unwrap().push(message["data"].clone());
                match message["data"]["fault"].as_str() {
                    Some("done") => say(socket, &observation("over", &json!(0), true)).await,
                    Some("raise") => say(socket, &error("EXECUTION_ERROR", "no such level")).await,
                    Some("close") => return,
                    _ => say(socket, &observation("ready", &Value::Null, false)).await,
                }
            }
            "step" if message["data"]["type"] == "call_tool" => {
                let words = message["data"]["arguments"].to_string();
                say(socket, &observation(&words, &json!(1.0), true)).await;
            }
            "step" => {
                if !act(socket, message["data"]["message"].as_str().unwrap()).await {
                    return;
                }
            }
            "mcp" => {
                let tools =
                    json!([{"name": "add", "description": "adds", "inputSchema": {"type": "object"}}]);
                let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}, "error": null});
                say(socket, &json!({"type": "mcp", "data": answer})).await;
            }
            "close" => {
                double.goodbyes.fetch_add(1, Ordering::SeqCst);
                return;
            }
            other => say(socket, &error("UNKNOWN_TYPE", other)).await,
        }
    }
}

/// Does what a message says; false where the connection ends.
async fn act(socket: &mut WebSocket, message: &str) -> bool {
    match message {
        "close" => return false,
        "huge" => say(socket, &observation(&"x".repeat(100_000), &json!(1.0), true)).await,
        "words" => {
            let _ = socket.send(Message::text("this is no JSON")).await;
        }
        "bytes" => {
            let _ = socket.send(Message::binary(vec![1, 2, 3])).await;
        }
        "nan" => {
            let text =
                observation("x", &json!(0), true).to_string().replace("\"reward\":0", "\"reward\":NaN");
            let _ = socket.send(Message::text(text)).await;
        }
        "slow" => {
            tokio::time::sleep(Duration::from_secs(3)).await;
            say(socket, &observation("late", &json!(1.0), true)).await;
        }
        "twice" => {
            say(socket, &observation("first", &json!(0.25), false)).await;
            say(socket, &observation("second", &json!(0.25), false)).await;
        }
        "invalid" => {
            let wrong = json!([{"loc": ["message"], "msg": "Too short"}]);
            let data = json!({"code": "VALIDATION_ERROR", "message": "Invalid message", "errors": wrong});
            say(socket, &json!({"type": "error", "data": data})).await;
        }
        "raise" => say(socket, &error("EXECUTION_ERROR", "division by zero")).await,
        "win" => say(socket, &observation("won", &json!(true), true)).await,
        "lose" => say(socket, &observation("lost", &json!(0.5), true)).await,
        other => say(socket, &observation(other, &json!(0.25), false)).await,
    }
    true
}
