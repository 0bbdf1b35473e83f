//! Loads several adapters, or weights that replace the server's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use turnwise_policy::Policy;

use super::{Asked, Inner, Model, error};

pub(super) async fn load(State(state): State<Arc<Inner>>, Json(body): Json<Value>) -> Response {
    if state.switches.no_adapters.load(Ordering::Relaxed) {
        return error(404, "Not Found");
    }
    if state.switches.loads_nothing.load(Ordering::Relaxed) {
        return error(503, "the engine is starting");
    }
    let name = body["lora_name"].as_str().unwrap().to_owned();
    if state.adapters.lock().unwrap().contains_key(&name) {
        return error(400, &format!("The lora adapter '{name}' has already been loaded."));
    }
    let Ok(policy) = Policy::load(&PathBuf::from(body["lora_path"].as_str().unwrap())) else {
        return error(404, &format!("Loading lora {name} failed: No adapter found"));
    };
    // A policy's own tokenizer is not among an adapter's files: it is its base's.
    let tokenizer = policy.tokenizer;
    state.loads.lock().unwrap().push(name.clone());
    state.adapters.lock().unwrap().insert(name.clone(), (policy.weights, tokenizer));
    format!("Success: LoRA adapter '{name}' added successfully.").into_response()
}

pub(super) async fn unload(State(state): State<Arc<Inner>>, Json(body): Json<Value>) -> Response {
    let name = body["lora_name"].as_str().unwrap();
    match state.adapters.lock().unwrap().remove(name) {
        Some(_) => format!("Success: LoRA adapter '{name}' removed successfully.").into_response(),
        None => error(404, &format!("The lora adapter '{name}' cannot be found.")),
    }
}

/// The server after a new start: its first weights again, and no adapters.
pub(super) fn restart(state: &Inner) {
    state.adapters.lock().unwrap().clear();
    let own = &mut *state.own.lock().unwrap();
    own.now = own.first.clone();
    own.version = "default".into();
}

/// The weights that a prompt's keys and values are of, where the server goes on from those: those given, or earlier ones.
pub(super) fn cached(state: &Inner, request: &Value, asked: &Asked, model: Model) -> Model {
    let never_forgets = state.switches.never_forgets.load(Ordering::Relaxed);
    if !never_forgets && !state.switches.keeps_prefixes.load(Ordering::Relaxed) {
        return model;
    }
    let salt = request["cache_salt"].as_str().filter(|_| !never_forgets).unwrap_or_default().to_owned();
    state.prefixes.lock().unwrap().entry((salt, asked.prompt.clone())).or_insert(model).clone()
}

fn empty_cache(state: &Inner) {
    if !state.switches.never_forgets.load(Ordering::Relaxed) {
        state.prefixes.lock().unwrap().clear();
    }
}

/// Loads the folder of a model; the switch that forbids it makes it a lie.
fn replace(state: &Inner, path: &str) -> bool {
    let folder = Path::new(path);
    let beside = folder.parent().and_then(|parent| std::fs::read_dir(parent).ok());
    state.folders.fetch_max(beside.map_or(0, Iterator::count), Ordering::Relaxed);
    let Ok(mut policy) = Policy::load(folder) else { return false };
    assert!(policy.weights.adapter.is_none(), "all weights in one");
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    state.loads.lock().unwrap().push(name);
    let mut own = state.own.lock().unwrap();
    if let Some((before, _)) = &own.now
        && state.switches.keeps_embeddings.load(Ordering::Relaxed)
    {
        let mut mixed = (*policy.weights.base).clone();
        let embeddings =
            mixed.layout.tensors.iter().find(|tensor| tensor.name.contains("embed_tokens")).unwrap();
        let range = embeddings.range.clone();
        mixed.data[range.clone()].copy_from_slice(&before.base.data[range]);
        policy.weights.base = Arc::new(mixed);
    }
    if !state.switches.keeps_weights.load(Ordering::Relaxed) {
        own.now = Some((policy.weights, policy.tokenizer));
    }
    if let Some(now) = own.now.clone() {
        own.first.get_or_insert(now);
    }
    true
}

fn no_dev_mode(state: &Inner) -> bool {
    state.switches.no_dev_mode.load(Ordering::Relaxed)
}

pub(super) async fn pause(State(state): State<Arc<Inner>>) -> Response {
    if no_dev_mode(&state) {
        return error(404, "Not Found");
    }
    state.own.lock().unwrap().paused = true;
    Json(json!({ "status": "paused" })).into_response()
}

pub(super) async fn resume(State(state): State<Arc<Inner>>) -> Json<Value> {
    state.own.lock().unwrap().paused = false;
    Json(json!({ "status": "resumed" }))
}

pub(super) async fn collective_rpc(State(state): State<Arc<Inner>>, Json(body): Json<Value>) -> Response {
    assert_eq!(body["method"], "reload_weights");
    assert!(state.own.lock().unwrap().paused, "weights are replaced under requests");
    if replace(&state, body["kwargs"]["weights_path"].as_str().unwrap()) {
        Json(json!({ "results": [null] })).into_response()
    } else {
        error(500, "Internal Server Error")
    }
}

/// Fails while requests hold blocks.
pub(super) async fn reset_prefix_cache(State(state): State<Arc<Inner>>) -> Json<Value> {
    let success = state.at_once.load(Ordering::Relaxed) == 0 || state.own.lock().unwrap().paused;
    if success {
        empty_cache(&state);
    }
    Json(json!({ "success": success }))
}

pub(super) async fn update_weight_version(
    State(state): State<Arc<Inner>>,
    Json(body): Json<Value>,
) -> Json<Value> {
    let version = body["new_version"].as_str().unwrap().to_owned();
    state.own.lock().unwrap().version = version;
    Json(json!({ "success": true, "new_version": body["new_version"] }))
}

pub(super) async fn weight_info(State(state): State<Arc<Inner>>) -> Response {
    if no_dev_mode(&state) {
        return error(404, "Not Found");
    }
    let version = state.own.lock().unwrap().version.clone();
    Json(json!({ "weight_version": version })).into_response()
}

pub(super) async fn update_weights_from_disk(
    State(state): State<Arc<Inner>>,
    Json(body): Json<Value>,
) -> Response {
    if !replace(&state, body["model_path"].as_str().unwrap()) {
        let said = json!({ "success": false, "message": "Failed to get weights iterator.", "num_paused_requests": 0 });
        return (axum::http::StatusCode::BAD_REQUEST, Json(said)).into_response();
    }
    let version = body["weight_version"].as_str().unwrap().to_owned();
    state.own.lock().unwrap().version = version;
    Json(
        json!({ "success": true, "message": "Succeeded to update model weights.", "num_paused_requests": 0 }),
    )
    .into_response()
}

/// Refuses while requests are under way, as SGLang does.
pub(super) async fn flush_cache(State(state): State<Arc<Inner>>) -> Response {
    if state.at_once.load(Ordering::Relaxed) > 0 {
        return error(400, "Flush cache failed, since there are running requests.");
    }
    empty_cache(&state);
    "Cache flushed.".into_response()
}
