//! Loads weight versions into servers, as adapters or by replacing full weights.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::dialect::{self, Dialect, GenerateResponse, Loading, message};
use super::error::EngineError;
use super::server_pool::{Fault, SHORT, SMALL, Server, ServerPool};
use super::versions::Published;
use crate::http::{Http, Reply};

const LOADING: Duration = Duration::from_mins(2);

/// Maximum attempts to empty a cache.
const FLUSHES: usize = 10;

/// Maximum attempts to resume a server.
const RESUMES: usize = 5;

/// A paused server. Dropping this value resumes the server, even if the task that paused it is
/// cancelled.
struct Paused<'a> {
    http: &'a Http,
    url: String,
    resumed: bool,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.resumed {
            let (http, url) = (self.http.clone(), std::mem::take(&mut self.url));
            runtime.spawn(async move {
                let _ = http.post(&url, None, Vec::new(), (SHORT, SMALL)).await;
            });
        }
    }
}

fn failed(reply: &Reply, call: &str) -> Loading {
    let (status, said) = (reply.status, message(&reply.body));
    match status {
        408 | 429 | 503 => Loading::Failed(format!("status {status} on {call}: {said}")),
        _ => Loading::Refused(format!("refused {call} (status {status}): {said}")),
    }
}

impl ServerPool {
    /// Installs a version on a server, if necessary. `seen` is the server's replacement count when
    /// a request found the version missing. If the count has changed since, another request has
    /// already replaced the weights, and nothing is done.
    pub(crate) async fn load(&self, index: usize, version: &Published, seen: Option<u64>) -> Loading {
        let server = &self.servers[index];
        let _alone = server.loading.lock().await;
        if version.adapter {
            return self.load_adapter(server, version).await;
        }
        if seen.is_some_and(|seen| server.replacements.load(Ordering::Acquire) != seen) {
            return Loading::Done;
        }
        if *self.current() != version.name {
            let reason = "has the weights of a later version, and those asked for are gone".to_owned();
            return Loading::Refused(reason);
        }
        // Odd during a replacement, to detect responses requested before or during it.
        server.replacements.fetch_add(1, Ordering::AcqRel);
        let done = match self.dialect {
            Dialect::Generate | Dialect::Completions => self.replace_vllm(server, version).await,
            Dialect::Sglang => self.replace_sglang(server, version, seen.is_none()).await,
        };
        server.replacements.fetch_add(1, Ordering::AcqRel);
        done.err().unwrap_or(Loading::Done)
    }

    async fn load_adapter(&self, server: &Server, version: &Published) -> Loading {
        let body = json!({ "lora_name": version.name, "lora_path": version.server_path });
        match self.call(server, dialect::adapter_paths(self.dialect).0, Some(&body), LOADING).await {
            Ok(reply) => dialect::loaded(self.dialect, reply.status, &reply.body),
            Err(unanswered) => unanswered,
        }
    }

    async fn call(
        &self,
        server: &Server,
        path: &str,
        body: Option<&Value>,
        time: Duration,
    ) -> Result<Reply, Loading> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let reply = self.http.post(&format!("{}{path}", server.url), None, body, (time, SMALL)).await;
        reply.map_err(|error| Loading::Failed(error.reason(time)))
    }

    /// Pauses the server, loads the folder, clears the cache, then sets the version's name. The
    /// pause may abort running requests, because each of them needs other weights or has been
    /// cancelled.
    async fn replace_vllm(&self, server: &Server, version: &Published) -> Result<(), Loading> {
        let paused = self.call(server, "/pause?mode=abort", None, self.give_up).await?;
        if matches!(paused.status, 403..=405) {
            let reason = format!(
                "has no route to replace its weights (status {}); start vLLM with VLLM_SERVER_DEV_MODE=1 in its environment",
                paused.status
            );
            return Err(Loading::Refused(reason));
        }
        // A paused server would hold every request.
        let paused_server =
            Paused { http: &self.http, url: format!("{}/resume", server.url), resumed: false };
        let replaced = if paused.status == 200 {
            self.reload_vllm(server, version).await
        } else {
            Err(failed(&paused, "to stop for new weights"))
        };
        let resumed = self.resume(server, paused_server).await;
        replaced?;
        resumed
    }

    async fn resume(&self, server: &Server, mut paused: Paused<'_>) -> Result<(), Loading> {
        let until = Instant::now() + self.give_up;
        let mut tries = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let found = match self.call(server, "/resume", None, left).await {
                Ok(reply) if reply.status == 200 => Ok(()),
                Ok(reply) => Err(failed(&reply, "to go on with new weights")),
                Err(unanswered) => Err(unanswered),
            };
            tries += 1;
            if found.is_ok() || tries == RESUMES || Instant::now() >= until {
                paused.resumed = true;
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn reload_vllm(&self, server: &Server, version: &Published) -> Result<(), Loading> {
        let body = json!({ "method": "reload_weights", "kwargs": { "weights_path": version.server_path } });
        let reply = self.call(server, "/collective_rpc", Some(&body), self.give_up).await?;
        if reply.status != 200 {
            return Err(match not_loaded(&reply) {
                Loading::Refused(reason) => {
                    Loading::Refused(format!("{reason}; vLLM ends with that: start it again"))
                }
                other => other,
            });
        }
        for attempt in 1.. {
            let reply = self.call(server, "/reset_prefix_cache", None, self.give_up).await?;
            // Older versions only reply with status 200.
            let done = serde_json::from_slice(&reply.body)
                .map_or(true, |body: Value| body["success"] != json!(false));
            match reply.status {
                200 if done => break,
                200 if attempt < FLUSHES => tokio::time::sleep(Duration::from_millis(200)).await,
                200 => return Err(Loading::Failed("cannot empty its prefix cache".into())),
                _ => return Err(failed(&reply, "to empty its prefix cache")),
            }
        }
        let body = json!({ "new_version": version.name });
        let reply = self.call(server, "/update_weight_version", Some(&body), SHORT).await?;
        match reply.status {
            200 => Ok(()),
            404 | 405 => Err(Loading::Refused(
                "does not keep a version of its weights (/update_weight_version), so that a restart would go unnoticed; take \
                 vLLM 0.32 or newer"
                    .into(),
            )),
            _ => Err(failed(&reply, "a new version of its weights")),
        }
    }

    /// Loads the weights, sets the version's name and aborts running requests. Then flushes the
    /// cache, because older SGLang versions keep it when the weights change. The flush must succeed
    /// if the server is idle; on a busy server, a failed flush is ignored.
    async fn replace_sglang(&self, server: &Server, version: &Published, idle: bool) -> Result<(), Loading> {
        let body = json!({
            "model_path": version.server_path,
            "weight_version": version.name,
            "abort_all_requests": true,
        });
        let reply = self.call(server, "/update_weights_from_disk", Some(&body), self.give_up).await?;
        let success =
            serde_json::from_slice(&reply.body).is_ok_and(|body: Value| body["success"] == json!(true));
        match reply.status {
            200 if success => {}
            404 | 405 => return Err(failed(&reply, "to load weights; is it an SGLang server?")),
            _ => return Err(not_loaded(&reply)),
        }
        for attempt in 1.. {
            let reply = self.call(server, "/flush_cache", None, SHORT).await?;
            if reply.status == 200 || !idle {
                break;
            }
            if attempt == FLUSHES {
                return Err(failed(&reply, "to empty its cache"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Checks that a response was sampled from the requested full weights. `before` is the server's
    /// replacement count before the request was sent.
    pub(crate) async fn hold_to_version(
        &self,
        server: &Server,
        before: u64,
        version: &str,
        response: &GenerateResponse,
    ) -> Result<(), Fault> {
        let found = if response.weights.is_empty() {
            self.weight_version(server).await?
        } else {
            response.weights.clone()
        };
        let replaced = server.replacements.load(Ordering::Acquire) != before;
        if replaced || found.iter().any(|found| found != version) {
            return Err(Fault::OtherWeights(before));
        }
        Ok(())
    }

    async fn weight_version(&self, server: &Server) -> Result<Vec<String>, Fault> {
        let silent = |reason: String| {
            Fault::Setup(format!(
                "does not say by which weights it sampled ({reason}), so that a restart would go unnoticed; take a newer \
                 version of it, and for vLLM set VLLM_SERVER_DEV_MODE=1 in its environment"
            ))
        };
        if self.dialect == Dialect::Sglang {
            return Err(silent("no meta_info.weight_version".into()));
        }
        let reply = self.http.get(&format!("{}/weight_info", server.url), SHORT, SMALL).await;
        let reply = reply.map_err(|error| Fault::Failed(error.reason(SHORT)))?;
        match reply.status {
            200 => {
                let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
                let version = body["weight_version"].as_str().map(str::to_owned);
                version.map(|version| vec![version]).ok_or_else(|| silent("/weight_info has none".into()))
            }
            404 | 405 => Err(silent(format!("/weight_info has status {}", reply.status))),
            status => Err(Fault::Failed(format!("status {status} on its version of the weights"))),
        }
    }

    pub(crate) async fn drained(&self) -> Result<(), EngineError> {
        let since = Instant::now();
        while self.under_way() > 0 {
            if since.elapsed() >= self.give_up {
                let seconds = self.give_up.as_secs_f64();
                let reason = format!(
                    "requests to the version before are still under way after {seconds} s; its weights cannot be replaced"
                );
                return Err(EngineError::Backend(reason));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Installs a version on all servers; fails unless at least one loads it. Servers that cannot
    /// be reached load the version later, when a request needs it.
    pub(crate) async fn load_everywhere(self: Arc<Self>, version: Arc<Published>) -> Result<(), EngineError> {
        self.current().clone_from(&version.name);
        let since = Instant::now();
        let mut waiting: Vec<usize> = (0..self.servers.len()).collect();
        let mut loaded = 0;
        let mut wait = Duration::from_millis(200);
        loop {
            let mut all = JoinSet::new();
            for server in waiting {
                let (pool, version) = (Arc::clone(&self), Arc::clone(&version));
                all.spawn(async move { (server, pool.load(server, &version, None).await) });
            }
            let mut outcomes = all.join_all().await;
            outcomes.sort_by_key(|(server, _)| *server);
            let mut last = String::new();
            let mut left = Vec::new();
            for (server, outcome) in outcomes {
                match outcome {
                    Loading::Done => loaded += 1,
                    Loading::Refused(reason) => return Err(EngineError::Server { server, reason }),
                    Loading::Failed(reason) => {
                        self.trouble(server, &reason);
                        self.servers[server].limit.failed();
                        left.push(server);
                        last = format!("server {server}: {reason}");
                    }
                }
            }
            if left.is_empty() || loaded > 0 {
                return Ok(());
            }
            if since.elapsed() >= self.give_up {
                let seconds = self.give_up.as_secs_f64();
                let reason = format!("no server took the weights within {seconds} s; {last}");
                return Err(EngineError::Backend(reason));
            }
            waiting = left;
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(Duration::from_secs(10));
        }
    }

    /// Unloads an adapter from all servers that respond. Full weights are not unloaded, because the
    /// next version replaces them.
    pub(crate) async fn unload_everywhere(&self, version: &Published) {
        if !version.adapter {
            return;
        }
        let body = json!({ "lora_name": version.name });
        for server in &self.servers {
            let _ = self.call(server, dialect::adapter_paths(self.dialect).1, Some(&body), SHORT).await;
        }
    }
}

fn not_loaded(reply: &Reply) -> Loading {
    match failed(reply, "to load the weights") {
        Loading::Refused(reason) => Loading::Refused(format!(
            "{reason}; adapter_dir must be shared with it, server_adapter_dir be its path there, and the model that it was \
             started with be policy.model; its own log says more"
        )),
        other => other,
    }
}
