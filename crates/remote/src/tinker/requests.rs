//! Submission, polling and retries of requests.
//!
//! | reply | to a submission | to a poll |
//! |---|---|---|
//! | 408, 5xx | retry, if harmless | retry |
//! | 425, 429, no connection | retry | retry |
//! | connection lost | retry, if harmless | retry |
//! | 400 | rejected | retry up to three times, then fail |
//! | 402 | retry after the longest pause | retry after the longest pause |
//! | 410 | rejected | submit again, if harmless |
//! | other 4xx | rejected | rejected |
//!
//! There is a pause before each retry, except after a poll with status 408; pauses double from
//! [`Timing::pause`] up to 30 s. [`Timing::timeout`] limits the whole request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwise_core::backoff;

use super::error::{TinkerError, shortened};
use super::transport::{Payload, Transport, is_protobuf};
use crate::http::{HttpError, Reply};

const LONGEST_PAUSE_S: f64 = 30.0;
/// Maximum number of retries after polls with status 400.
const BAD_POLLS: u32 = 3;

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Timeout of a poll.
    pub poll: Duration,
    /// Pause before the first retry.
    pub pause: Duration,
    /// Timeout of a whole request.
    pub timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(10),
            poll: Duration::from_secs(45),
            pause: Duration::from_secs(1),
            timeout: Duration::from_mins(30),
        }
    }
}

/// Whether to resend a request that may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The request may be resent: the service recognizes its number, or its result is not used.
    Harmless,
    /// The request must not be resent, because the service could apply it twice.
    Never,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Json(Value),
    Protobuf(Vec<u8>),
}

pub(crate) struct Requests {
    pub(crate) transport: Transport,
    pub(crate) timing: Timing,
    /// The service dropped the session.
    expired: AtomicBool,
}

pub(crate) struct Tries {
    what: &'static str,
    began: Instant,
    timing: Timing,
    made: u32,
    last: String,
}

impl Tries {
    fn new(what: &'static str, timing: Timing) -> Self {
        Self { what, began: Instant::now(), timing, made: 0, last: "it is still at work".into() }
    }

    fn left(&self) -> Result<Duration, TinkerError> {
        let left = self.timing.timeout.saturating_sub(self.began.elapsed());
        if left.is_zero() {
            let (what, reason) = (self.what, self.last.clone());
            return Err(TinkerError::NoAnswer { what, seconds: self.timing.timeout.as_secs_f64(), reason });
        }
        Ok(left)
    }

    async fn pause(&mut self, reason: String, longest: bool) -> Result<(), TinkerError> {
        self.made += 1;
        self.last = reason;
        let seconds = if longest {
            LONGEST_PAUSE_S
        } else {
            backoff(self.timing.pause.as_secs_f64(), LONGEST_PAUSE_S, self.made, 0.0).as_secs_f64()
        };
        let left = self.left()?;
        tokio::time::sleep(Duration::from_secs_f64(seconds).min(left)).await;
        Ok(())
    }
}

impl Requests {
    pub(crate) fn new(transport: Transport, timing: Timing) -> Self {
        Self { transport, timing, expired: AtomicBool::new(false) }
    }

    /// Sends heartbeats until the session is gone, ignoring failures.
    pub(crate) async fn beat(self: Arc<Self>, session: String) {
        loop {
            tokio::time::sleep(self.timing.heartbeat).await;
            let body = Payload::json(&json!({ "session_id": session }));
            let reply = self.transport.post("api/v1/session_heartbeat", body, self.timing.poll).await;
            if reply.is_ok_and(|reply| reply.status == 404) {
                self.expired.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    pub(crate) fn tries(&self, what: &'static str) -> Tries {
        Tries::new(what, self.timing)
    }

    /// Sends a request until the service accepts it; `make` builds the request for an attempt
    /// number.
    pub(crate) async fn submit(
        &self,
        path: &str,
        make: &(impl Fn(u32) -> Payload + Sync),
        repeat: Repeat,
        tries: &mut Tries,
    ) -> Result<Value, TinkerError> {
        let what = tries.what;
        loop {
            let left = tries.left()?;
            let reply =
                match self.transport.post(path, make(tries.made), left.min(self.timing.poll * 4)).await {
                    Ok(reply) => reply,
                    Err(HttpError::Unreachable(reason)) => {
                        tries.pause(reason, false).await?;
                        continue;
                    }
                    Err(error) if repeat == Repeat::Harmless => {
                        tries.pause(error.cause(), false).await?;
                        continue;
                    }
                    Err(error) => return Err(TinkerError::Interrupted { what, reason: error.cause() }),
                };
            match reply.status {
                200..300 => return json_of(what, &reply),
                402 | 425 | 429 => tries.pause(detail(&reply), reply.status == 402).await?,
                408 | 500.. if repeat == Repeat::Harmless => tries.pause(detail(&reply), false).await?,
                _ => return Err(self.refusal(what, &reply)),
            }
        }
    }

    pub(crate) async fn carry_out(
        &self,
        path: &str,
        make: &(impl Fn(u32) -> Payload + Sync),
        repeat: Repeat,
        tries: &mut Tries,
    ) -> Result<Outcome, TinkerError> {
        loop {
            let taken = self.submit(path, make, repeat, tries).await?;
            if let Some(outcome) = self.result(&request_id(tries.what, &taken)?, repeat, tries).await? {
                return Ok(outcome);
            }
        }
    }

    /// Waits for a result. Returns `None` if the service dropped the result and the request may be
    /// submitted again.
    pub(crate) async fn result(
        &self,
        request_id: &str,
        repeat: Repeat,
        tries: &mut Tries,
    ) -> Result<Option<Outcome>, TinkerError> {
        let what = tries.what;
        let mut bad = 0;
        let body = Payload::json(&json!({ "request_id": request_id }));
        loop {
            let left = tries.left()?;
            let sent =
                self.transport.post("api/v1/retrieve_future", body.clone(), left.min(self.timing.poll));
            let reply = match sent.await {
                Ok(reply) => reply,
                Err(HttpError::TooLarge(limit)) => {
                    let reason = format!("it is longer than {limit} bytes; use smaller minibatches");
                    return Err(TinkerError::Protocol { what, reason });
                }
                // After a timeout, the service may still be working.
                Err(HttpError::Timeout) => continue,
                Err(error) => {
                    tries.pause(error.cause(), false).await?;
                    continue;
                }
            };
            match reply.status {
                200 if is_protobuf(&reply) => return Ok(Some(Outcome::Protobuf(reply.body))),
                200 => {
                    let value = json_of(what, &reply)?;
                    if value["type"] == "try_again" {
                        tries.pause("the service has paused its queue".into(), false).await?;
                    } else if let Some(error) = value.get("error").and_then(Value::as_str) {
                        let detail = shortened(error);
                        return Err(TinkerError::Refused { what, status: 200, detail });
                    } else {
                        return Ok(Some(Outcome::Json(value)));
                    }
                }
                408 => {}
                410 => {
                    let reason = "the service has dropped the result".to_owned();
                    // The request was accepted, and may have counted.
                    if repeat == Repeat::Never {
                        return Err(TinkerError::Interrupted { what, reason });
                    }
                    tries.pause(reason, false).await?;
                    return Ok(None);
                }
                400 if bad < BAD_POLLS => {
                    bad += 1;
                    tries.pause(detail(&reply), false).await?;
                }
                402 | 425 | 429 | 500.. => tries.pause(detail(&reply), reply.status == 402).await?,
                _ => return Err(self.refusal(what, &reply)),
            }
        }
    }

    fn refusal(&self, what: &'static str, reply: &Reply) -> TinkerError {
        let detail = detail(reply);
        let gone = ["Session not found", "Model not found", "Future not found"];
        if self.expired.load(Ordering::Relaxed)
            || reply.status == 404 && gone.iter().any(|text| detail.contains(text))
        {
            return TinkerError::SessionExpired;
        }
        TinkerError::Refused { what, status: reply.status, detail }
    }
}

fn detail(reply: &Reply) -> String {
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let value: Option<Value> = serde_json::from_str(&text).ok();
    match value.as_ref().and_then(|value| value.get("detail")) {
        Some(Value::String(detail)) => shortened(detail),
        Some(other) => shortened(&other.to_string()),
        None => shortened(&format!("status {}: {text}", reply.status)),
    }
}

fn json_of(what: &'static str, reply: &Reply) -> Result<Value, TinkerError> {
    serde_json::from_slice(&reply.body)
        .map_err(|error| TinkerError::Protocol { what, reason: format!("it is no JSON: {error}") })
}

fn request_id(what: &'static str, taken: &Value) -> Result<String, TinkerError> {
    let id = taken["request_id"].as_str().or_else(|| taken["future_id"].as_str());
    id.map(str::to_owned).ok_or_else(|| TinkerError::Protocol { what, reason: "it has no request_id".into() })
}
