//! A double of AppWorld's server with one task. Its code is a single word that selects what
//! happens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::serving::Server;

/// State of a double.
#[derive(Default)]
pub(crate) struct Double {
    /// The task of the world there is, and whether it is done and right.
    pub(crate) world: Mutex<Option<(String, bool, bool)>>,
    /// Requests as they came: route and body.
    pub(crate) log: Mutex<Vec<(String, Value)>>,
}

type Shared = Arc<Double>;

impl Double {
    pub(crate) fn start() -> (Server, Shared) {
        let double = Shared::default();
        let router = Router::new()
            .route("/tasks/{id}", get(|Path(id): Path<String>| async move { described(&id) }))
            .route("/{route}", post(answer))
            .with_state(Arc::clone(&double));
        (Server::start(router), double)
    }

    /// Names of the routes in the order in which they were asked for.
    pub(crate) fn routes(&self) -> Vec<String> {
        self.log.lock().unwrap().iter().map(|(route, _)| route.clone()).collect()
    }
}

fn output(output: &Value) -> Response {
    Json(json!({"output": output})).into_response()
}

fn described(id: &str) -> Response {
    if id == "unknown" {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let supervisor =
        json!({"first_name": "Ada", "last_name": "Byron", "email": "ada@example.org", "phone_number": "123"});
    output(&json!({
        "task_id": id,
        "instruction": format!("do {id}"),
        "supervisor": supervisor,
        "datetime": "2023-05-18T12:00:00",
    }))
}

async fn answer(
    State(double): State<Shared>,
    Path(route): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    double.log.lock().unwrap().push((route.clone(), body.clone()));
    let id = body["task_id"].as_str().unwrap().to_owned();
    if route == "initialize" {
        *double.world.lock().unwrap() = Some((id.clone(), false, false));
        return described(&id);
    }
    // Another task than the world's is an error of the server, as AppWorld has it.
    if double.world.lock().unwrap().as_ref().is_none_or(|(known, ..)| *known != id) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    match route.as_str() {
        "execute" => execute(&double, body["code"].as_str().unwrap()).await,
        "task_completed" => output(&json!(double.world.lock().unwrap().as_ref().unwrap().1)),
        "evaluate" => {
            let right = double.world.lock().unwrap().as_ref().unwrap().2;
            let passes = if right { json!(["a", "b", "c", "d"]) } else { json!(["a"]) };
            output(
                &json!({"success": right, "difficulty": 1, "num_tests": 4, "passes": passes, "failures": []}),
            )
        }
        "close" => {
            *double.world.lock().unwrap() = None;
            output(&Value::Null)
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn execute(double: &Double, code: &str) -> Response {
    let finish = |right: bool| {
        let mut world = double.world.lock().unwrap();
        let world = world.as_mut().unwrap();
        (world.1, world.2) = (true, right);
        output(&json!("Execution successful."))
    };
    match code {
        "right" => finish(true),
        "wrong" => finish(false),
        "raise" => output(&json!("Execution failed. Traceback:\nNameError: x")),
        "long" => output(&json!("x".repeat(30_000))),
        "huge" => output(&json!("x".repeat(200_000))),
        "stolen" => {
            *double.world.lock().unwrap() = Some(("another".to_owned(), false, false));
            output(&json!("Execution successful."))
        }
        "words" => "no JSON".into_response(),
        "number" => output(&json!(7)),
        "slow" => {
            tokio::time::sleep(Duration::from_secs(3)).await;
            output(&json!("late"))
        }
        other => output(&json!(format!("ran {other}"))),
    }
}
