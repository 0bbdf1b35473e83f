//! AppWorld client.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::environments::address::{addresses, below};
use crate::environments::error::ServerError;
use crate::http::{Http, HttpError, Reply, seconds};
use crate::thread::RequestThread;

use super::settings::AppWorldConfig;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Described {
    pub(super) instruction: String,
    pub(super) supervisor: Map<String, Value>,
    #[serde(default)]
    pub(super) datetime: Value,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Judged {
    pub(super) success: bool,
    #[serde(default)]
    pub(super) num_tests: usize,
    #[serde(default)]
    pub(super) passes: Vec<Value>,
}

#[derive(Deserialize)]
struct Output<T> {
    output: T,
}

#[derive(Debug)]
pub(super) struct Client {
    thread: RequestThread,
    http: Http,
    urls: Vec<Url>,
    timeout: Duration,
    limit: usize,
}

impl Client {
    pub(super) fn new(config: &AppWorldConfig) -> Result<Arc<Self>, ServerError> {
        Ok(Arc::new(Self {
            urls: addresses(&config.urls)?,
            http: Http::new(None)?,
            thread: RequestThread::start().map_err(|error| ServerError::no_thread(&error))?,
            timeout: seconds(config.timeout_s),
            limit: config.max_message_bytes,
        }))
    }

    pub(super) fn servers(&self) -> usize {
        self.urls.len()
    }

    pub(super) fn task(&self, server: usize, id: &str) -> Result<Described, ServerError> {
        let (http, limits) = (self.http.clone(), (self.timeout, self.limit));
        let url = below(&self.urls[server], &format!("tasks/{id}"));
        self.answer(server, "tasks", async move { http.get(&url, limits.0, limits.1).await })
    }

    pub(super) fn initialize(
        &self,
        server: usize,
        id: &str,
        config: &AppWorldConfig,
    ) -> Result<Described, ServerError> {
        let mut arguments: Map<String, Value> = config.initialize.clone().into_iter().collect();
        arguments.insert("task_id".into(), id.into());
        arguments.insert("experiment_name".into(), config.experiment.clone().into());
        self.post(server, "initialize", &Value::Object(arguments))
    }

    pub(super) fn execute(&self, server: usize, id: &str, code: &str) -> Result<String, ServerError> {
        self.post(server, "execute", &json!({"task_id": id, "code": code}))
    }

    pub(super) fn is_completed(&self, server: usize, id: &str) -> Result<bool, ServerError> {
        self.post(server, "task_completed", &json!({"task_id": id}))
    }

    pub(super) fn evaluate(&self, server: usize, id: &str) -> Result<Judged, ServerError> {
        self.post(server, "evaluate", &json!({"task_id": id, "suppress_errors": true, "report": false}))
    }

    /// Ends a task. Errors are ignored, because starting the next task on the server also ends the
    /// current one.
    pub(super) fn close(&self, server: usize, id: &str) {
        let _: Result<Value, ServerError> = self.post(server, "close", &json!({"task_id": id}));
    }

    fn post<T: DeserializeOwned>(
        &self,
        server: usize,
        path: &'static str,
        body: &Value,
    ) -> Result<T, ServerError> {
        let (http, limits) = (self.http.clone(), (self.timeout, self.limit));
        let (url, body) = (below(&self.urls[server], path), body.to_string().into_bytes());
        self.answer(server, path, async move { http.post(&url, None, body, limits).await })
    }

    fn answer<T: DeserializeOwned>(
        &self,
        server: usize,
        path: &'static str,
        reply: impl Future<Output = Result<Reply, HttpError>> + Send + 'static,
    ) -> Result<T, ServerError> {
        let read = || read(&self.thread.wait(reply)??, path);
        read().map_err(|error: ServerError| error.of_server(server))
    }
}

fn read<T: DeserializeOwned>(reply: &Reply, path: &str) -> Result<T, ServerError> {
    match reply.status {
        200 => {}
        // AppWorld also returns this for another client's task.
        500.. => return Err(ServerError::Lost(format!("it answers HTTP {} to /{path}", reply.status))),
        status => {
            return Err(ServerError::Answer(format!(
                "it answers HTTP {status} to /{path}; is it AppWorld's?"
            )));
        }
    }
    let wrong =
        |error: serde_json::Error| ServerError::Answer(format!("its answer to /{path} is none: {error}"));
    serde_json::from_slice::<Output<T>>(&reply.body).map(|answer| answer.output).map_err(wrong)
}
