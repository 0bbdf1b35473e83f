//! Tests of OpenEnv environments on doubles of its server.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use turnwise_core::{Action, EnvError, Environment, Step, Task, TaskSet as _, ToolCall};
use turnwise_env::demonstration::DemonstrationRequest;
use turnwise_env::world::World as _;
use turnwise_remote::environments::openenv::{ExecutionErrors, OpenEnvConfig, OpenEnvSet};

use crate::openenv_double::Double;
use crate::serving::nowhere;
use crate::{seed, until};

fn config(url: &str) -> OpenEnvConfig {
    OpenEnvConfig {
        urls: vec![url.to_owned()],
        observation: vec!["echoed".to_owned()],
        timeout_s: 1.0,
        full_timeout_s: 0.4,
        max_message_bytes: 20_000,
        ..OpenEnvConfig::default()
    }
}

fn task() -> Task {
    Task::new("t", "openenv", "win")
}

fn begin(set: &OpenEnvSet) -> Box<dyn Environment> {
    let mut environment = set.environment().unwrap();
    assert_eq!(environment.reset(&task(), seed()).unwrap().text(), "ready");
    environment
}

fn step(environment: &mut Box<dyn Environment>, action: &str) -> Result<Step, EnvError> {
    environment.step(&Action::from(action))
}

#[test]
fn an_episode_is_a_session() {
    let (server, double) = Double::start(1);
    let settings = OpenEnvConfig {
        admissible: "legal".to_owned(),
        reset: BTreeMap::from([("level".to_owned(), json!(3))]),
        ..config(&server.url)
    };
    let set = OpenEnvSet::open(&settings, 0).unwrap();
    assert_eq!((set.name(), set.splits()), ("echo", vec!["train".to_owned(), "test".to_owned()]));
    let tasks = set.tasks("train").unwrap();
    assert_eq!(
        (tasks.len(), tasks[5].id.as_str(), tasks[5].goal.as_str()),
        (256, "seed/5", "repeat what is asked for")
    );
    let mut environment = set.environment().unwrap();
    let first = environment.reset(&tasks[5], seed()).unwrap();
    assert_eq!(
        (first.text().as_ref(), first.admissible.as_slice()),
        ("ready", &["a".to_owned(), "b".to_owned()][..])
    );
    assert_eq!(set.free_episodes(), Some(0));
    let said = step(&mut environment, "hello").unwrap();
    assert_eq!(
        (said.observation.text().as_ref(), said.reward, said.terminated, said.understood),
        ("hello", 0.25, false, true)
    );
    let won = step(&mut environment, "win").unwrap();
    assert_eq!((won.reward, won.terminated, won.success), (1.0, true, true));
    environment.close();
    assert_eq!(set.free_episodes(), Some(1));
    until(|| double.goodbyes.load(Ordering::SeqCst) == 1 && double.open.load(Ordering::SeqCst) == 0);
    assert_eq!(
        double.resets.lock().unwrap().as_slice(),
        [json!({"seed": 5, "episode_id": "seed/5", "level": 3})]
    );
    assert!(matches!(step(&mut environment, "hello"), Err(EnvError::NotReset)));
}

#[test]
fn success_needs_the_return_and_the_end() {
    let (server, _double) = Double::start(4);
    let set = OpenEnvSet::open(&config(&server.url), 3).unwrap();
    let mut environment = begin(&set);
    let lost = step(&mut environment, "lose").unwrap();
    assert_eq!((lost.reward, lost.terminated, lost.success), (0.5, true, false));
    drop(environment);
    let mut environment = begin(&set);
    step(&mut environment, "a").unwrap();
    step(&mut environment, "a").unwrap();
    // The sum of 0.25, 0.25 and 0.5.
    let last = step(&mut environment, "lose").unwrap();
    assert!(last.success && last.terminated && !last.truncated);
    drop(environment);
    let mut environment = begin(&set);
    for turn in 1..=3 {
        let step = step(&mut environment, "a").unwrap();
        assert_eq!((step.truncated, step.success), (turn == 3, false));
    }
}

#[test]
fn what_the_policy_does_wrong_is_an_observation() {
    let (server, _double) = Double::start(4);
    let set = OpenEnvSet::open(&config(&server.url), 0).unwrap();
    let mut environment = begin(&set);
    let refused = step(&mut environment, "invalid").unwrap();
    assert_eq!(refused.observation.text(), "Invalid message; message: Too short");
    assert_eq!((refused.reward, refused.understood, refused.terminated), (0.0, false, false));
    let call = ToolCall { id: "c".into(), name: "step".into(), arguments: json!({"word": "x"}) };
    let refused = environment.step(&Action::Call(call)).unwrap();
    assert!(refused.observation.text().contains("no field `word`") && !refused.understood);
    // The session goes on after both.
    assert_eq!(step(&mut environment, "hello").unwrap().observation.text(), "hello");
}

#[test]
fn a_server_that_fails_is_an_error_of_the_environment() {
    let (server, double) = Double::start(16);
    let set = OpenEnvSet::open(&config(&server.url), 0).unwrap();
    for (action, expected) in [
        ("close", "closed the connection"),
        ("huge", "more than 20000 bytes"),
        ("words", "no answer of OpenEnv"),
        ("bytes", "bytes instead of text"),
        ("nan", "no answer of OpenEnv"),
        ("slow", "no answer within 1 s"),
        ("raise", "EXECUTION_ERROR): division by zero"),
    ] {
        let mut environment = begin(&set);
        let error = step(&mut environment, action).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected) && text.starts_with("env.urls[0]: "), "{action}: {text}");
        assert!(!text.contains(&server.url[7..]), "{text}");
        // The episode is gone: the same step cannot be made again.
        assert!(!error.is_transient(), "{action}");
    }
    // A second answer is nobody's: whatever comes next could be taken for the answer to something else.
    let mut environment = begin(&set);
    assert_eq!(step(&mut environment, "twice").unwrap().observation.text(), "first");
    until(|| {
        // Time for an answer that is held back until the one before it was acknowledged.
        std::thread::sleep(Duration::from_millis(100));
        step(&mut environment, "hello").is_err()
    });
    drop(environment);
    until(|| double.open.load(Ordering::SeqCst) == 0);
    assert_eq!(set.free_episodes(), Some(1));
}

#[test]
fn an_exception_may_be_an_observation() {
    let (server, _double) = Double::start(4);
    let settings = OpenEnvConfig { execution_errors: ExecutionErrors::Observation, ..config(&server.url) };
    let set = OpenEnvSet::open(&settings, 0).unwrap();
    let mut environment = begin(&set);
    let raised = step(&mut environment, "raise").unwrap();
    assert_eq!((raised.observation.text().as_ref(), raised.understood), ("division by zero", false));
    assert!(step(&mut environment, "close").is_err());
}

#[test]
fn resets_that_fail_say_whether_another_may_succeed() {
    let (server, _double) = Double::start(4);
    let set = OpenEnvSet::open(&config(&server.url), 0).unwrap();
    for (fault, expected, transient) in [
        ("close", "closed the connection", true),
        ("raise", "refused a reset (EXECUTION_ERROR): no such level", false),
        ("done", "done at its reset", false),
    ] {
        let mut broken = task();
        broken.metadata.insert("reset".into(), json!({"fault": fault}));
        let error = set.environment().unwrap().reset(&broken, seed()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.is_transient(), transient, "{fault}");
    }
    assert_eq!(set.free_episodes(), Some(1));
}

#[test]
fn a_full_server_is_left_for_another_or_waited_for() {
    let (full, crowded) = Double::start(0);
    let (other, double) = Double::start(1);
    let set =
        OpenEnvSet::open(&OpenEnvConfig { urls: vec![full.url.clone(), other.url.clone()], ..config("") }, 0)
            .unwrap();
    assert_eq!(set.free_episodes(), Some(2));
    let first = begin(&set);
    assert_eq!((double.open.load(Ordering::SeqCst), crowded.refused.load(Ordering::SeqCst) > 0), (1, true));
    // Both are full now.
    let error = set.environment().unwrap().reset(&task(), seed()).unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("max_concurrent_envs"), "{error}");
    // Whoever waits long enough gets the session that ends.
    let patient = OpenEnvConfig { full_timeout_s: 30.0, ..config(&other.url) };
    let patient = OpenEnvSet::open(&patient, 0).unwrap();
    let waiting = std::thread::spawn(move || {
        begin(&patient).reset(&task(), seed()).map(turnwise_core::Observation::into_text)
    });
    let refused = double.refused.load(Ordering::SeqCst);
    until(|| double.refused.load(Ordering::SeqCst) > refused);
    drop(first);
    assert_eq!(waiting.join().unwrap().unwrap(), "ready");
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    let refusal = |config: &OpenEnvConfig| OpenEnvSet::open(config, 0).unwrap_err().to_string();
    assert!(refusal(&OpenEnvConfig::default()).contains("env.urls: is empty"));
    let (server, _double) = Double::start(1);
    let gone = nowhere();
    let error = refusal(&OpenEnvConfig { urls: vec![server.url.clone(), gone.clone()], ..config("") });
    assert!(error.contains("env.urls[1]: no connection") && !error.contains(&gone[7..]), "{error}");
    let error = refusal(&OpenEnvConfig { action_field: "word".into(), ..config(&server.url) });
    assert!(error.contains("env.action_field: actions have no field `word`; they have `message`"), "{error}");
    let error = refusal(&config(&format!("{}/elsewhere", server.url)));
    assert!(error.contains("env.urls[0]: it answers HTTP 404 to GET /schema"), "{error}");
    let number = json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let (unlike, _) = Double::with_schema(1, number);
    let error = refusal(&OpenEnvConfig { urls: vec![server.url.clone(), unlike.url.clone()], ..config("") });
    assert!(error.contains("number 1 takes other actions"), "{error}");
    let absent = OpenEnvConfig { api_key_env: "TURNWISE_NO_SUCH_KEY".into(), ..config(&server.url) };
    let error = refusal(&absent);
    assert!(
        error.contains("env.api_key_env: the environment variable TURNWISE_NO_SUCH_KEY is not set"),
        "{error}"
    );
}

#[test]
fn a_key_goes_with_every_request_and_into_no_text() {
    let (server, double) = Double::start(1);
    // Any variable of the environment does for a key.
    let key = std::env::var("CARGO_PKG_NAME").unwrap();
    let set =
        OpenEnvSet::open(&OpenEnvConfig { api_key_env: "CARGO_PKG_NAME".into(), ..config(&server.url) }, 0)
            .unwrap();
    let mut environment = begin(&set);
    assert!(double.keys.lock().unwrap().iter().all(|sent| *sent == Some(format!("Bearer {key}"))));
    assert_eq!(double.keys.lock().unwrap().len(), 2);
    let error = step(&mut environment, "close").unwrap_err().to_string();
    assert!(!error.contains(&key), "{error}");
}

#[test]
fn tasks_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.jsonl");
    std::fs::write(
        &path,
        "{\"id\":\"a\",\"goal\":\"go\",\"seed\":7,\"reset\":{\"level\":2}}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n",
    )
    .unwrap();
    let (server, double) = Double::start(1);
    let settings = OpenEnvConfig { tasks: BTreeMap::from([("train".into(), path)]), ..config(&server.url) };
    let set = OpenEnvSet::open(&settings, 0).unwrap();
    let tasks = set.tasks("train").unwrap();
    assert_eq!((tasks[0].goal.as_str(), tasks[1].goal.as_str()), ("go", "repeat what is asked for"));
    // The id alone may choose the task.
    assert_ne!(tasks[1].content_digest(), tasks[2].content_digest());
    for task in &tasks {
        set.environment().unwrap().reset(task, seed()).unwrap();
    }
    let resets = double.resets.lock().unwrap();
    assert_eq!(resets[0], json!({"seed": 7, "episode_id": "a", "level": 2}));
    // A task without a seed of its own gets the group's, in 31 bits.
    let drawn = resets[1]["seed"].as_u64().unwrap();
    assert_eq!(drawn, seed().rng().bits() >> 33);
    assert!(set.tasks("test").is_err());
}

#[test]
fn environments_with_tools_declare_them_and_take_calls() {
    let schema =
        json!({"properties": {"tool_name": {"type": "string"}, "arguments": {"type": "object"}, "type": {}}});
    let (server, _double) = Double::with_schema(1, schema);
    let set = OpenEnvSet::open(&config(&server.url), 0).unwrap();
    let mut environment = set.environment().unwrap();
    let first = environment.reset(&task(), seed()).unwrap().into_text();
    assert_eq!(first, "ready");
    let [tool] = environment.tools() else { panic!("{:?}", environment.tools()) };
    assert_eq!(
        tool.json(),
        r#"{"type":"function","function":{"name":"add","description":"adds","parameters":{"type":"object"}}}"#
    );
    let call = ToolCall { id: "c".into(), name: "add".into(), arguments: json!({"a": 1}) };
    let called = environment.step(&Action::Call(call)).unwrap();
    let arguments: Value = serde_json::from_str(&called.observation.text()).unwrap();
    assert_eq!((arguments, called.success), (json!({"a": 1}), true));
    let mut again = environment;
    again.close();
    again.reset(&task(), seed()).unwrap();
    assert!(again.step(&Action::from("add 1")).unwrap().observation.text().contains("no call of a tool"));
    let malformed = Action::Malformed { text: "{".into(), error: "it is not JSON".into() };
    assert!(again.step(&malformed).unwrap().observation.text().contains("it is not JSON"));
}

#[test]
fn actions_of_a_line_are_demonstrations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.jsonl");
    let line = |id: &str, actions: Value| format!("{}\n", json!({"id": id, "demonstration": actions}));
    let lines = [
        line("good", json!(["hello", "win", "never"])),
        line("bad", json!(["lose"])),
        line("none", json!([])),
    ];
    std::fs::write(&path, lines.concat()).unwrap();
    let (server, double) = Double::start(1);
    let settings = OpenEnvConfig { tasks: BTreeMap::from([("train".into(), path)]), ..config(&server.url) };
    let set = OpenEnvSet::open(&settings, 0).unwrap();
    let played = AtomicUsize::new(0);
    let request = DemonstrationRequest {
        count: 4,
        max_turns: 5,
        played: &|| {
            played.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        },
        ..Default::default()
    };
    let found = set.demonstrations(&request).unwrap().unwrap();
    assert_eq!((found.episodes.len(), found.dropped, double.resets.lock().unwrap().len()), (2, 2, 4));
    assert_eq!(played.load(Ordering::Relaxed), 4);
    let once = DemonstrationRequest { played: &|| ControlFlow::Break(()), ..request };
    set.demonstrations(&once).unwrap();
    assert_eq!(double.resets.lock().unwrap().len(), 5, "none after the caller has had enough");
    let turns: Vec<(&str, &str)> = found.episodes[0]
        .turns
        .iter()
        .map(|turn| (turn.observation.as_str(), turn.action.as_str()))
        .collect();
    assert_eq!(turns, [("ready", "hello"), ("hello", "win")]);
    let (plain, _) = Double::start(1);
    assert!(OpenEnvSet::open(&config(&plain.url), 0).unwrap().demonstrations(&request).unwrap().is_none());
}
