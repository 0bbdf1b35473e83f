//! The client against faulty servers.

use std::time::{Duration, Instant};

use turnwise_retrieval::{RetrievalError, Retriever as _};
use turnwise_retrieval_service::{
    HttpOptions, HttpRetriever, RequestKey, RetrievalConfig, RetrieverKind, open,
};

use super::doubles::{Act, Double, good, quick};

fn ask(servers: &[&Double], options: HttpOptions) -> Result<String, RetrievalError> {
    let urls: Vec<String> = servers.iter().map(|server| server.url.clone()).collect();
    let found = HttpRetriever::new(&urls, options).unwrap().search(&["who?"], 3)?;
    Ok(found[0][0].passage.id.clone())
}

/// Returns settings with a timeout that a busy machine does not exceed.
fn patient() -> HttpOptions {
    HttpOptions { timeout: Duration::from_secs(20), ..quick() }
}

#[test]
fn the_request_is_the_protocols() {
    for (key, name) in [(RequestKey::Queries, "queries"), (RequestKey::Query, "query")] {
        let server = Double::new(vec![good()]);
        assert_eq!(ask(&[&server], HttpOptions { request_key: key, ..quick() }).unwrap(), "1");
        let sent: serde_json::Value = serde_json::from_str(&server.requests.lock().unwrap()[0]).unwrap();
        assert_eq!(sent, serde_json::json!({name: ["who?"], "topk": 3, "return_scores": true}));
    }
}

#[test]
fn what_passes_is_tried_again_and_named_in_the_end() {
    let acts: [(Act, &str); 10] = [
        (Act::Stall, "no answer within 0.4 s"),
        (Act::Drip, "no answer within 0.4 s"),
        (Act::Die, "no connection"),
        (Act::Noise, "no connection"),
        (Act::Truncated("{\"result\":".into()), "no connection"),
        (Act::Answer(200, "{\"result\": [[".into()), "not one of the protocol"),
        (Act::Answer(200, "{\"result\": []}".into()), "0 lists for 1 queries"),
        (Act::Answer(429, "slow down".into()), "status 429: slow down"),
        (Act::Answer(503, "busy".into()), "status 503: busy"),
        (Act::Answer(500, "oops".into()), "status 500: oops"),
    ];
    for (act, expected) in acts {
        let server = Double::new(vec![act.clone(), good()]);
        assert_eq!(ask(&[&server], quick()).unwrap(), "1", "{act:?}");
        assert_eq!(server.count(), 2, "{act:?}");
        let server = Double::new(vec![act.clone()]);
        let error = ask(&[&server], quick()).unwrap_err();
        assert!(error.is_transient(), "{act:?}");
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains(&server.url), "{act:?}: {text}");
        assert_eq!(server.count(), 3, "{act:?}");
    }
}

#[test]
fn what_stays_is_not_tried_again() {
    for status in [301, 400, 404, 422] {
        let server = Double::new(vec![Act::Answer(status, "no".into()), good()]);
        let error = ask(&[&server], quick()).unwrap_err();
        assert!(!error.is_transient() && server.count() == 1, "{status}: {error}");
    }
}

#[test]
fn an_answer_has_a_bound() {
    let long = format!("{{\"result\":[[{{\"id\":\"1\",\"contents\":\"{}\"}}]]}}", "x".repeat(5000));
    let server = Double::new(vec![Act::Answer(200, long.clone())]);
    let error = ask(&[&server], HttpOptions { largest_answer: 4000, retries: 0, ..quick() }).unwrap_err();
    assert!(error.to_string().contains("more than 4000 bytes"), "{error}");
    assert_eq!(ask(&[&server], HttpOptions { largest_answer: 6000, ..quick() }).unwrap(), "1");
    let server = Double::new(vec![Act::Answer(400, long)]);
    let error = ask(&[&server], quick()).unwrap_err().to_string();
    assert!(error.len() < 400, "{error}");
}

#[test]
fn a_server_decides_how_long_to_wait_within_bounds() {
    let server = Double::new(vec![Act::Later(429, 60), good()]);
    let options = HttpOptions { backoff_max: Duration::from_millis(250), ..patient() };
    let start = Instant::now();
    assert_eq!(ask(&[&server], options).unwrap(), "1");
    let waited = start.elapsed();
    assert!((Duration::from_millis(250)..Duration::from_secs(30)).contains(&waited), "{waited:?}");
}

#[test]
fn the_next_server_is_asked_where_one_fails() {
    let (dead, stalled, alive) =
        (Double::new(vec![Act::Die]), Double::new(vec![Act::Stall]), Double::new(vec![good()]));
    let gone = Double { url: "http://127.0.0.1:9/retrieve".into(), requests: std::sync::Arc::default() };
    let wait = Duration::from_mins(2);
    let timeout = Duration::from_secs(2);
    let options = HttpOptions { retries: 3, timeout, backoff: wait, backoff_max: wait, ..quick() };
    let start = Instant::now();
    assert_eq!(ask(&[&gone, &dead, &stalled, &alive], options).unwrap(), "1");
    // There is no wait between servers, which would take at least a minute.
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!((dead.count(), stalled.count(), alive.count()), (1, 1, 1));
    let (left, right) = (Double::new(vec![good()]), Double::new(vec![good()]));
    let client = HttpRetriever::new(&[left.url.clone(), right.url.clone()], patient()).unwrap();
    for _ in 0..6 {
        client.search(&["who?"], 3).unwrap();
    }
    assert_eq!((left.count(), right.count()), (3, 3));
}

#[test]
fn settings_open_a_client_with_its_cache() {
    let server = Double::new(vec![good()]);
    let config = RetrievalConfig {
        kind: RetrieverKind::Http,
        servers: vec![server.url.clone()],
        batch_wait_ms: 0.0,
        ..RetrievalConfig::default()
    };
    let retriever = open(&config).unwrap();
    for _ in 0..3 {
        assert_eq!(retriever.search(&["who?"], 3).unwrap()[0].len(), 1);
    }
    assert_eq!(server.count(), 1);
    assert_eq!((retriever.counts().hits, retriever.counts().misses), (2, 1));

    let refused = |config: RetrievalConfig| open(&config).unwrap_err().to_string();
    let none = RetrievalConfig { servers: Vec::new(), ..config.clone() };
    assert!(refused(none).contains("servers: name at least one server"));
    let remote = RetrievalConfig { servers: vec!["http://example.org/retrieve".into()], ..config.clone() };
    assert!(refused(remote).contains("allow_remote"));
    assert!(refused(RetrievalConfig { timeout_s: 0.0, ..config }).contains("timeout_s"));
    assert!(refused(RetrievalConfig::default()).contains("turnwise index build"));
}
