//! The judge, and a model that continues a conversation, with a local HTTP server that is sometimes faulty.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod chat;
mod double;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};
use turnwise_core::{Batch, Group, SCHEMA_VERSION, Trajectory};
use turnwise_decompose::{Judge, JudgeConfig, JudgeMetrics};

use double::{Reply, Server, answer};

fn config(server: &Server) -> JudgeConfig {
    JudgeConfig {
        endpoint: server.endpoint.clone(),
        model: "small".into(),
        timeout_s: 20.0,
        backoff_s: 0.0,
        concurrency: 1,
        ..JudgeConfig::default()
    }
}

fn nobody() -> JudgeConfig {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::start(vec![], answer(""));
    JudgeConfig { endpoint: format!("http://{address}/v1"), ..config(&server) }
}

fn trajectory(name: &str, rewards: &[f64]) -> Trajectory {
    let turns: Vec<Value> = rewards
        .iter()
        .enumerate()
        .map(|(index, reward)| {
            let (observation, action) = (format!("{name} sees {index}"), format!("go {index}"));
            json!({"observation": observation, "action": action, "valid": true, "reward": reward})
        })
        .collect();
    serde_json::from_value(json!({
        "schema_version": SCHEMA_VERSION,
        "task": {"id": "t", "kind": "k", "goal": "find the cup"},
        "group": 0,
        "sample": 0,
        "turns": turns,
        "stop": {"kind": "terminated"},
        "success": true,
    }))
    .unwrap()
}

fn batch(trajectories: Vec<Trajectory>) -> Batch {
    Batch { groups: vec![Group { trajectories }] }
}

fn credits(judge: &Judge) -> Vec<f64> {
    judge.credits(&batch(vec![trajectory("ann", &[0.0, 0.0, 6.0])]), &mut |_| ()).unwrap()[0][0].clone()
}

#[test]
fn scores_split_the_return_and_are_asked_for_once() {
    let server = Server::start(vec![], answer(" [1, 0, 2]\n"));
    let folder = tempfile::tempdir().unwrap();
    let config = JudgeConfig { cache: folder.path().join("cache"), concurrency: 3, ..config(&server) };
    let judge = Judge::new(config.clone(), 0).unwrap();
    let all = batch(vec![
        trajectory("ann", &[0.0, 0.0, 6.0]),
        trajectory("bob", &[-3.0, 0.0, 0.0]),
        trajectory("ann", &[0.0, 0.0, 6.0]),
        trajectory("eve", &[0.0, 0.0, 0.0]),
    ]);
    // The loss of three is shared by what the scores lack of 10: 9, 10 and 8.
    let blame = [9.0, 10.0, 8.0].map(|missing| missing / 27.0 * -3.0).to_vec();
    let expected = vec![vec![vec![2.0, 0.0, 4.0], blame, vec![2.0, 0.0, 4.0], vec![0.0; 3]]];
    assert_eq!(judge.credits(&all, &mut |_| ()).unwrap(), expected);
    let once = JudgeMetrics { trajectories: 4, zero_returns: 1, calls: 2, ..JudgeMetrics::default() };
    assert_eq!(judge.metrics(), once);
    let request = server.requests()[0].clone();
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", request.head);
    assert!(!request.head.to_lowercase().contains("authorization"));
    assert_eq!(request.body["model"], "small");
    let asked = request.body["messages"][1]["content"].as_str().unwrap();
    assert!(asked.contains("find the cup") && asked.contains("Turn 3\n") && asked.contains("go 2"));
    // A second judge, even without a budget, needs no server.
    let again = Judge::new(JudgeConfig { call_budget: 0, ..config.clone() }, 1).unwrap();
    assert_eq!(again.credits(&all, &mut |_| ()).unwrap(), expected);
    assert_eq!((again.metrics().cache_hits, again.metrics().calls), (2, 0));
    let other = Judge::new(JudgeConfig { model: "large".into(), ..config.clone() }, 0).unwrap();
    other.credits(&all, &mut |_| ()).unwrap();
    assert_eq!(other.metrics().calls, 2);
    let template = folder.path().join("own.toml");
    fs::write(&template, "system = 'Be brief.'\nuser = '{turns}'\nturn = '{action};'").unwrap();
    let own = Judge::new(JudgeConfig { template, ..config.clone() }, 0).unwrap();
    credits(&own);
    assert_eq!(own.metrics().calls, 1);
    assert_eq!(server.requests().last().unwrap().body["messages"][1]["content"], "go 0;go 1;go 2;");
    for file in files(&config.cache) {
        fs::write(file, "{\"model\":\"small\",\"sco").unwrap();
    }
    let repaired = Judge::new(config, 0).unwrap();
    assert_eq!(repaired.credits(&all, &mut |_| ()).unwrap(), expected);
    assert_eq!((repaired.metrics().cache_errors, repaired.metrics().calls), (2, 2));
    assert_eq!(repaired.credits(&all, &mut |_| ()).unwrap(), expected);
    assert_eq!(repaired.metrics().cache_hits, 2);
}

#[test]
fn trajectories_that_read_alike_get_as_many_scores_as_turns() {
    let server = Server::start(vec![answer("[1, 2, 3]")], answer("[1]"));
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("own.toml");
    fs::write(&template, "system = 'Be brief.'\nuser = '{turns}'\nturn = '{action}'").unwrap();
    let config =
        JudgeConfig { template, concurrency: 1, cache: folder.path().join("cache"), ..config(&server) };
    let judge = Judge::new(config, 0).unwrap();
    let three = trajectory("ann", &[0.0, 0.0, 6.0]);
    let mut one = trajectory("ann", &[6.0]);
    one.turns[0].action = three.turns.iter().map(|turn| turn.action.as_str()).collect();
    let both = batch(vec![three, one]);
    for _ in 0..2 {
        let credits = judge.credits(&both, &mut |_| ()).unwrap();
        assert_eq!(credits, vec![vec![vec![1.0, 2.0, 3.0], vec![6.0]]]);
    }
    let metrics = judge.metrics();
    assert_eq!((metrics.calls, metrics.cache_hits, metrics.cache_errors), (2, 2, 0));
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn every_misbehaviour_is_survived_by_trying_again() {
    let script = vec![
        Reply::Status(500, "oops".into()),
        Reply::Status(429, "later".into()),
        Reply::CutOff,
        Reply::Silence,
        Reply::Status(200, "<html>".into()),
        Reply::Status(200, "{\"choices\": []}".into()),
        answer("[1, 2]"),
        answer("[1, 2, 30]"),
        answer("I think [1, 2, 3]"),
    ];
    let server = Server::start(script, answer("[1, 2, 3]"));
    let judge = Judge::new(JudgeConfig { retries: 9, ..config(&server) }, 0).unwrap();
    assert_eq!(credits(&judge), [1.0, 2.0, 3.0]);
    let expected = JudgeMetrics {
        trajectories: 1,
        calls: 10,
        retries: 9,
        status_errors: 2,
        transport_errors: 2,
        malformed: 5,
        ..JudgeMetrics::default()
    };
    assert_eq!(judge.metrics(), expected);
    assert_eq!(server.requests().len(), 10);
}

#[test]
fn a_server_that_does_not_answer_costs_the_timeout_and_no_more() {
    let server = Server::start(vec![Reply::Slow], answer("[1, 2, 3]"));
    let judge = Judge::new(JudgeConfig { timeout_s: 0.5, retries: 40, ..config(&server) }, 0).unwrap();
    assert_eq!(credits(&judge), [1.0, 2.0, 3.0]);
    assert!(judge.metrics().timeouts >= 1, "{:?}", judge.metrics());
}

#[test]
fn what_has_no_answer_is_shared_out_evenly_and_counted() {
    let server = Server::start(vec![], Reply::Status(503, "down".into()));
    let folder = tempfile::tempdir().unwrap();
    let judge =
        Judge::new(JudgeConfig { cache: folder.path().into(), retries: 2, ..config(&server) }, 0).unwrap();
    assert_eq!(credits(&judge), [2.0, 2.0, 2.0]);
    let metrics = judge.metrics();
    assert_eq!((metrics.fallbacks, metrics.calls, metrics.retries), (1, 3, 2));
    assert_eq!(judge.last_failure().unwrap(), "status 503: down");
    assert!(files(folder.path()).is_empty(), "a fallback is not an answer");
    assert!(metrics.entries().contains(&("judge/fallbacks", 1.0)));

    let server = Server::start(vec![], Reply::Status(404, "no such model".into()));
    let judge = Judge::new(config(&server), 0).unwrap();
    assert_eq!(credits(&judge), [2.0, 2.0, 2.0]);
    assert_eq!(server.requests().len(), 1);

    let server = Server::start(vec![], Reply::Status(307, String::new()));
    let judge = Judge::new(JudgeConfig { retries: 0, ..config(&server) }, 0).unwrap();
    assert_eq!(credits(&judge), [2.0, 2.0, 2.0]);
    assert_eq!((server.requests().len(), judge.metrics().status_errors), (1, 1));

    let judge = Judge::new(JudgeConfig { retries: 0, ..nobody() }, 0).unwrap();
    assert_eq!(credits(&judge), [2.0, 2.0, 2.0]);
    assert_eq!(judge.metrics().transport_errors, 1);

    let server = Server::start(vec![], answer("[0, 0, 0]"));
    let judge = Judge::new(config(&server), 0).unwrap();
    assert_eq!(credits(&judge), [2.0, 2.0, 2.0]);
    assert_eq!((judge.metrics().zero_scores, judge.metrics().fallbacks), (1, 0));
}

#[test]
fn the_budget_counts_every_request() {
    let server = Server::start(vec![Reply::Status(500, String::new())], answer("[1, 1, 4]"));
    let judge = Judge::new(JudgeConfig { call_budget: 2, ..config(&server) }, 0).unwrap();
    let all = batch(["ann", "bob", "eve"].map(|name| trajectory(name, &[0.0, 0.0, 6.0])).into());
    assert_eq!(
        judge.credits(&all, &mut |_| ()).unwrap()[0],
        [vec![1.0, 1.0, 4.0], vec![2.0; 3], vec![2.0; 3]]
    );
    let metrics = judge.metrics();
    assert_eq!((metrics.calls, metrics.over_budget, metrics.fallbacks), (2, 2, 2));
    assert_eq!(server.requests().len(), 2);
    assert!(judge.last_failure().unwrap().contains("call_budget"));
    // The budget covers the run: a judge that continues these counts has one request left of three.
    let mut resumed = Judge::new(JudgeConfig { call_budget: 3, ..config(&server) }, 0).unwrap();
    resumed.resume_counts(metrics);
    let more = batch(["kim", "lee"].map(|name| trajectory(name, &[0.0, 0.0, 6.0])).into());
    resumed.credits(&more, &mut |_| ()).unwrap();
    assert_eq!((resumed.metrics().calls, resumed.metrics().over_budget), (3, 3));
    assert_eq!(server.requests().len(), 3);
}

fn questions(count: usize) -> Batch {
    batch((0..count).map(|index| trajectory(&format!("agent {index}"), &[0.0, 0.0, 6.0])).collect())
}

#[test]
fn a_dead_judge_is_told_at_once_and_stops_the_run() {
    let dead = JudgeConfig { retries: 1, ..nobody() };
    let judge = Judge::new(dead.clone(), 0).unwrap();
    let mut warnings = Vec::new();
    let error = judge.credits(&questions(40), &mut |text| warnings.push(text)).unwrap_err().to_string();
    for expected in [&dead.endpoint[..], "8 of the last 8 questions", "decomposer.max_failed_share"] {
        assert!(error.contains(expected), "{error}");
    }
    assert!(warnings[0].starts_with("warning: the judge at") && warnings.len() == 1, "{warnings:?}");
    // It stopped long before the last question.
    assert_eq!((judge.metrics().transport_errors, judge.metrics().fallbacks), (16, 0));
    // With a share of 1, it continues.
    let judge = Judge::new(JudgeConfig { max_failed_share: 1.0, ..dead }, 0).unwrap();
    let credits = judge.credits(&questions(12), &mut |text| warnings.push(text)).unwrap();
    assert_eq!((credits[0].len(), &credits[0][11]), (12, &vec![2.0; 3]));
    assert!(warnings.last().unwrap().contains("12 of 12 trajectories"), "{warnings:?}");
}

#[test]
fn what_failed_before_makes_no_good_judge_a_dead_one() {
    // Nine in thirty answers are invalid. Only these are repeated; the others are in the cache.
    let folder = tempfile::tempdir().unwrap();
    let all = questions(30);
    let replies = |index: usize| if index % 10 < 3 { answer("no scores") } else { answer("[1, 2, 3]") };
    let server = Server::start((0..30).map(replies).collect(), answer("no scores"));
    let cache = folder.path().join("cache");
    let config = JudgeConfig { cache, concurrency: 1, retries: 0, ..config(&server) };
    let first = Judge::new(config.clone(), 0).unwrap();
    let credits = first.credits(&all, &mut |_| ()).unwrap();
    assert_eq!((first.metrics().fallbacks, first.metrics().cache_hits), (9, 0));
    for call_budget in [10_000, 0] {
        let again = Judge::new(JudgeConfig { call_budget, ..config.clone() }, 0).unwrap();
        for _ in 0..3 {
            assert_eq!(again.credits(&all, &mut |_| ()).unwrap(), credits);
        }
        assert_eq!((again.metrics().fallbacks, again.metrics().cache_hits), (27, 63));
    }
    let none = JudgeConfig { cache: std::path::PathBuf::new(), ..config };
    assert!(Judge::new(none, 0).unwrap().credits(&all, &mut |_| ()).is_err());
}

#[test]
fn a_few_failures_are_told_while_the_others_are_asked() {
    // Only the first request, which fails, is answered before the warning.
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let down = Reply::Status(503, "down".into());
    let server = Server::start(vec![down.clone()], Reply::Gated("[1, 2, 3]".into(), Arc::clone(&gate)));
    let judge = Judge::new(JudgeConfig { retries: 0, ..config(&server) }, 0).unwrap();
    let mut warnings = Vec::new();
    judge
        .credits(&questions(10), &mut |text| {
            warnings.push(text);
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
        })
        .unwrap();
    assert_eq!((judge.metrics().timeouts, judge.metrics().fallbacks), (0, 1));
    assert!(warnings[0].contains("status 503: down") && warnings[1].contains("1 of 10"), "{warnings:?}");
    let repeated = |replies: &[Reply]| replies.iter().cycle().take(30).cloned().collect();
    let scores = answer("[1, 2, 3]");
    let server = Server::start(repeated(&[scores.clone(), down.clone()]), scores.clone());
    let half = Judge::new(JudgeConfig { retries: 0, ..config(&server) }, 0).unwrap();
    half.credits(&questions(20), &mut |_| ()).unwrap();
    assert_eq!(half.metrics().fallbacks, 10);
    let server = Server::start(repeated(&[down.clone(), down, scores.clone()]), scores);
    let more = Judge::new(JudgeConfig { retries: 0, ..config(&server) }, 0).unwrap();
    assert!(more.credits(&questions(20), &mut |_| ()).is_err());
}

#[test]
fn a_service_that_does_not_answer_is_found_before_a_run() {
    // Nothing ever listens: every retry is counted.
    let dead = JudgeConfig { retries: 2, ..nobody() };
    let judge = Judge::new(dead.clone(), 0).unwrap();
    let error = judge.check_service().unwrap_err().to_string();
    for expected in [&dead.endpoint[..], "\"small\"", "no connection", "decomposer.endpoint"] {
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!((judge.metrics().calls, judge.metrics().retries, judge.metrics().transport_errors), (3, 2, 3));
    // A judge that uses the cache only needs no service.
    Judge::new(JudgeConfig { call_budget: 0, ..dead }, 0).unwrap().check_service().unwrap();

    let refused = "{\"detail\":\"Server is pinned to 'large'; requested 'small'.\"}";
    let server = Server::start(vec![], Reply::Status(400, refused.into()));
    let error = Judge::new(config(&server), 0).unwrap().check_service().unwrap_err().to_string();
    assert!(error.contains("status 400") && error.contains("pinned to 'large'"), "{error}");
    assert_eq!(server.requests().len(), 1);

    // Another kind of server, which answers everything.
    let server = Server::start(vec![], Reply::Status(200, "<html>".into()));
    let judge = Judge::new(JudgeConfig { retries: 1, ..config(&server) }, 0).unwrap();
    assert!(judge.check_service().unwrap_err().to_string().contains("not a chat completion"));

    // The judge waits for a service that is loading its model, and accepts any answer.
    let loading = Reply::Status(503, "loading".into());
    for said in [answer("hello"), Reply::Status(200, NO_TEXT.into())] {
        let server = Server::start(vec![loading.clone()], said);
        let judge = Judge::new(config(&server), 0).unwrap();
        judge.check_service().unwrap();
        assert_eq!(server.requests().len(), 2);
        assert_eq!((judge.metrics().calls, judge.metrics().fallbacks), (2, 0));
        let asked = server.requests()[1].body.clone();
        assert_eq!((asked["model"].as_str(), asked["max_tokens"].as_u64()), (Some("small"), Some(16)));
    }
}

/// A chat completion of a model that used all its tokens for reasoning.
const NO_TEXT: &str =
    r#"{"choices": [{"message": {"role": "assistant", "content": null, "reasoning": "Well"}}]}"#;

#[test]
fn an_answer_without_text_names_the_setting_that_gives_it_room() {
    let server = Server::start(vec![], Reply::Status(200, NO_TEXT.into()));
    let judge = Judge::new(JudgeConfig { retries: 0, ..config(&server) }, 0).unwrap();
    assert_eq!(credits(&judge), [2.0, 2.0, 2.0]);
    assert_eq!(judge.metrics().malformed, 1);
    assert!(judge.last_failure().unwrap().contains("decomposer.max_tokens"));
}

/// `transformers serve` answers 422 if a request has an unknown field.
#[test]
fn a_request_has_no_field_that_a_strict_service_refuses() {
    const KNOWN: [&str; 5] = ["max_tokens", "messages", "model", "stream", "temperature"];
    let server = Server::start(vec![], answer("[1, 2, 3]"));
    let judge = Judge::new(config(&server), 0).unwrap();
    judge.check_service().unwrap();
    credits(&judge);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        let mut fields: Vec<&str> = request.body.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, KNOWN);
    }
}

#[test]
fn settings_that_cannot_work_are_named() {
    let good = JudgeConfig { model: "m".into(), ..JudgeConfig::default() };
    for (bad, name) in [
        (JudgeConfig { endpoint: "localhost:8000".into(), ..good.clone() }, "decomposer.endpoint"),
        (JudgeConfig { endpoint: "http://me:secret@host".into(), ..good.clone() }, "api_key_env"),
        (JudgeConfig { model: String::new(), ..good.clone() }, "decomposer.model"),
        (JudgeConfig { timeout_s: 0.0, ..good.clone() }, "timeout_s = 0.0: must be"),
        (JudgeConfig { backoff_s: f64::NAN, ..good.clone() }, "backoff_s = nan: must be"),
        (JudgeConfig { concurrency: 0, ..good.clone() }, "concurrency = 0: must be"),
        (JudgeConfig { max_failed_share: 1.5, ..good.clone() }, "max_failed_share = 1.5: must be"),
        (JudgeConfig { api_key_env: "TURNWISE_NO_SUCH_KEY".into(), ..good.clone() }, "is not set"),
        (JudgeConfig { template: "no/such.toml".into(), ..good.clone() }, "no/such.toml"),
    ] {
        let error = Judge::new(bad, 0).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains("secret"), "{error}");
    }
    if !cfg!(feature = "tls") {
        let secure = JudgeConfig { endpoint: "https://host/v1".into(), ..good };
        assert!(Judge::new(secure, 0).unwrap_err().to_string().contains("--features tls"));
    }
}

const KEY: &str = "sk-judge-test-0123456789";

/// Shows everything that a judge can show. [`the_key_is_in_the_request_and_nowhere_else`] runs it
/// in its own process with the key in its environment.
#[test]
#[ignore = "part of another test"]
fn show_everything() {
    let folder = std::env::var("JUDGE_TEST_FOLDER").unwrap();
    let echo = Reply::Status(401, format!("{{\"error\": \"bad key {KEY}\"}}"));
    let server = Server::start(vec![Reply::Status(500, KEY.into()), answer("[1, 2, 3]"), answer(KEY)], echo);
    let config = JudgeConfig {
        api_key_env: "JUDGE_TEST_KEY".into(),
        cache: Path::new(&folder).join("cache"),
        retries: 1,
        ..config(&server)
    };
    println!("{config:?} {}", serde_json::to_string(&config).unwrap());
    let judge = Judge::new(config, 0).unwrap();
    println!("{judge:?} {:?}", credits(&judge));
    for name in ["bob", "eve"] {
        judge.credits(&batch(vec![trajectory(name, &[1.0])]), &mut |_| ()).unwrap();
        println!("{judge:?} {:?} {:?}", judge.last_failure(), judge.metrics());
    }
    let sent = server.requests();
    assert!(sent.len() >= 4);
    assert!(sent.iter().all(|request| request.head.contains(&format!("Bearer {KEY}"))));
    println!("shown to the end");
}

#[test]
fn the_key_is_in_the_request_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "show_everything", "--ignored", "--nocapture"])
        .env("JUDGE_TEST_KEY", KEY)
        .env("JUDGE_TEST_FOLDER", folder.path())
        .output()
        .unwrap();
    let shown =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && shown.contains("shown to the end"), "{shown}");
    assert!(shown.contains("status 401") && shown.contains("[key]"), "{shown}");
    assert!(!shown.contains(KEY), "{shown}");
    let files = files(folder.path());
    assert!(!files.is_empty());
    for file in files {
        assert!(!fs::read_to_string(&file).unwrap().contains(KEY), "{}", file.display());
    }
    // The check itself can fail.
    let control = Command::new("env").env("JUDGE_TEST_KEY", KEY).output().unwrap();
    assert!(String::from_utf8_lossy(&control.stdout).contains(KEY));
}
