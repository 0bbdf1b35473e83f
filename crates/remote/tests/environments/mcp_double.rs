//! A double of an MCP server over streamable HTTP: a counter for every session, and tools that
//! fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::serving::Server;

/// State of a double.
#[derive(Default)]
pub(crate) struct Double {
    /// Counters by session.
    sessions: Mutex<HashMap<String, i64>>,
    begun: Mutex<usize>,
    /// Calls as they came: tool and arguments.
    pub(crate) calls: Mutex<Vec<(String, Value)>>,
    /// Keys that came with requests.
    pub(crate) keys: Mutex<Vec<Option<String>>>,
}

type Shared = Arc<Double>;

impl Double {
    pub(crate) fn start() -> (Server, Shared) {
        let double = Shared::default();
        let router = Router::new()
            .route("/mcp", post(answer).delete(end).get(|| async { StatusCode::METHOD_NOT_ALLOWED }))
            .with_state(Arc::clone(&double));
        let mut server = Server::start(router);
        server.url.push_str("/mcp");
        (server, double)
    }

    /// Number of sessions under way.
    pub(crate) fn open(&self) -> usize {
        self.sessions.lock().unwrap().len()
    }
}

fn session(headers: &HeaderMap) -> String {
    headers.get("mcp-session-id").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn end(State(double): State<Shared>, headers: HeaderMap) -> StatusCode {
    double.sessions.lock().unwrap().remove(&session(&headers));
    StatusCode::OK
}

fn result(id: &Value, result: &Value) -> Response {
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn error(id: &Value, code: i64, message: &str) -> Response {
    Json(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})).into_response()
}

fn text(id: &Value, text: &str) -> Response {
    result(id, &json!({"content": [{"type": "text", "text": text}], "isError": false}))
}

async fn answer(State(double): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    double.keys.lock().unwrap().push(key);
    let message: Value = serde_json::from_slice(&body).unwrap();
    let (id, params) = (&message["id"], &message["params"]);
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let mut begun = double.begun.lock().unwrap();
            *begun += 1;
            let name = format!("s{begun}");
            double.sessions.lock().unwrap().insert(name.clone(), 0);
            let about = json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "counter", "version": "1"},
            });
            ([("mcp-session-id", name)], result(id, &about)).into_response()
        }
        "tools/list" => {
            let integer =
                json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
            let any = json!({"type": "object"});
            let mut tools =
                vec![json!({"name": "add", "description": "adds to the counter", "inputSchema": integer})];
            tools.push(json!({"name": "is", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}));
            for name in ["total", "fail", "refuse", "break", "garble", "huge", "slow", "gone", "words"] {
                tools.push(json!({"name": name, "inputSchema": any}));
            }
            result(id, &json!({"tools": tools}))
        }
        "tools/call" => {
            let (tool, arguments) = (params["name"].as_str().unwrap(), &params["arguments"]);
            double.calls.lock().unwrap().push((tool.to_owned(), arguments.clone()));
            call(&double, &session(&headers), id, tool, arguments).await
        }
        _ if id.is_null() => StatusCode::ACCEPTED.into_response(),
        other => error(id, -32601, &format!("no method {other}")),
    }
}

async fn call(double: &Double, session: &str, id: &Value, tool: &str, arguments: &Value) -> Response {
    let number = arguments["n"].as_i64().unwrap_or_default();
    match tool {
        "add" => {
            let mut sessions = double.sessions.lock().unwrap();
            let total = sessions.get_mut(session).unwrap();
            *total += number;
            text(id, &total.to_string())
        }
        "total" => text(id, &double.sessions.lock().unwrap()[session].to_string()),
        "is" => {
            let right = double.sessions.lock().unwrap()[session] == number;
            result(
                id,
                &json!({"content": [], "structuredContent": {"result": if right { 1.0 } else { 0.0 }}}),
            )
        }
        "fail" => result(id, &json!({"content": [{"type": "text", "text": "it is empty"}], "isError": true})),
        "refuse" => error(id, -32602, "n must be even"),
        "break" => error(id, -32603, "out of memory"),
        "garble" => ([(header::CONTENT_TYPE, "application/json")], "{\"jsonrpc\": \"2.0\", ").into_response(),
        "huge" => text(id, &"x".repeat(200_000)),
        "words" => text(id, "very good"),
        "slow" => {
            tokio::time::sleep(Duration::from_secs(3)).await;
            text(id, "late")
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
