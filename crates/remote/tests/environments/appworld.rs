//! Tests of AppWorld on doubles of its server.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use turnwise_core::{Action, EnvError, Environment, Step, TaskSet as _};
use turnwise_remote::environments::appworld::{AppWorldConfig, AppWorldSet};

use crate::appworld_double::Double;
use crate::seed;
use crate::serving::{Server, nowhere};

fn datasets(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.txt"), text).unwrap();
    std::fs::write(folder.path().join("dev.txt"), "d_1\n").unwrap();
    folder
}

fn config(servers: &[&Server], folder: &Path) -> AppWorldConfig {
    AppWorldConfig {
        urls: servers.iter().map(|server| server.url.clone()).collect(),
        datasets: folder.to_owned(),
        timeout_s: 1.0,
        observation_chars: 1000,
        max_message_bytes: 100_000,
        ..AppWorldConfig::default()
    }
}

fn begin(set: &AppWorldSet) -> Box<dyn Environment> {
    let mut environment = set.environment().unwrap();
    environment.reset(&set.tasks("train").unwrap()[0], seed()).unwrap();
    environment
}

fn step(environment: &mut Box<dyn Environment>, code: &str) -> Result<Step, EnvError> {
    environment.step(&Action::from(code))
}

#[test]
fn an_episode_runs_code_until_the_task_is_done() {
    let (server, double) = Double::start();
    let folder = datasets("a_1\n\nb_2\n");
    let settings = AppWorldConfig {
        initialize: [("max_interactions".to_owned(), json!(9))].into(),
        success_reward: 10.0,
        ..config(&[&server], folder.path())
    };
    let set = AppWorldSet::open(&settings, &[], 0).unwrap();
    assert_eq!(set.splits(), ["train", "dev"]);
    let tasks = set.tasks("train").unwrap();
    assert_eq!((tasks[1].id.as_str(), tasks[1].goal.as_str()), ("b_2", "do b_2"));
    let mut environment = set.environment().unwrap();
    let first = environment.reset(&tasks[0], seed()).unwrap().into_text();
    assert_eq!(
        first,
        "My name is Ada Byron, my e-mail address is ada@example.org and my phone number is 123. It is 2023-05-18T12:00:00."
    );
    let ran = step(&mut environment, "```python\nprint(1)\n```").unwrap();
    assert_eq!(
        (ran.observation.text().as_ref(), ran.terminated, ran.understood),
        ("ran print(1)", false, true)
    );
    let raised = step(&mut environment, "raise").unwrap();
    assert!(raised.observation.text().contains("NameError") && !raised.understood && !raised.terminated);
    assert_eq!(step(&mut environment, "long").unwrap().observation.text().chars().count(), 1000);
    let sent = double.log.lock().unwrap().len();
    assert!(!step(&mut environment, "").unwrap().understood);
    assert_eq!(double.log.lock().unwrap().len(), sent, "nothing is sent where there is no code");
    let done = step(&mut environment, "right").unwrap();
    assert_eq!((done.reward, done.success, done.terminated, done.progress), (10.0, true, true, Some(1.0)));
    environment.close();
    assert_eq!(*double.world.lock().unwrap(), None);
    let log = double.log.lock().unwrap();
    assert_eq!(log[0].1, json!({"task_id": "a_1", "experiment_name": "turnwise", "max_interactions": 9}));
    assert_eq!(log.last().unwrap(), &("close".to_owned(), json!({"task_id": "a_1"})));
}

#[test]
fn what_is_wrong_or_not_done_gets_nothing() {
    let (server, double) = Double::start();
    let folder = datasets("a_1\n");
    let set = AppWorldSet::open(&config(&[&server], folder.path()), &["train"], 2).unwrap();
    assert_eq!(set.splits(), ["train"]);
    let mut environment = begin(&set);
    let wrong = step(&mut environment, "wrong").unwrap();
    assert_eq!(
        (wrong.reward, wrong.success, wrong.terminated, wrong.progress),
        (0.0, false, true, Some(0.25))
    );
    environment.close();
    let mut environment = begin(&set);
    assert!(!step(&mut environment, "x = 1").unwrap().truncated);
    let last = step(&mut environment, "x = 2").unwrap();
    assert_eq!((last.reward, last.success, last.truncated, last.terminated), (0.0, false, true, false));
    let routes = double.routes();
    assert_eq!(routes[routes.len() - 3..], ["execute", "task_completed", "evaluate"]);
}

#[test]
fn a_server_has_one_world_at_a_time() {
    let ((first, _), (second, double)) = (Double::start(), Double::start());
    let folder = datasets("a_1\n");
    let set = AppWorldSet::open(&config(&[&first, &second], folder.path()), &["train"], 0).unwrap();
    assert_eq!(set.free_episodes(), Some(2));
    let one = begin(&set);
    let two = begin(&set);
    assert_eq!((set.free_episodes(), double.routes()), (Some(0), vec!["initialize".to_owned()]));
    drop((one, two));
    assert_eq!(set.free_episodes(), Some(2));
}

#[test]
fn a_server_that_fails_is_an_error_of_the_environment() {
    let (server, _double) = Double::start();
    let folder = datasets("a_1\n");
    let set = AppWorldSet::open(&config(&[&server], folder.path()), &["train"], 0).unwrap();
    for (code, expected) in [
        ("huge", "more than 100000 bytes"),
        ("stolen", "HTTP 500 to /task_completed"),
        ("words", "its answer to /execute is none"),
        ("number", "its answer to /execute is none"),
        ("slow", "no answer in time"),
    ] {
        let mut environment = begin(&set);
        let error = step(&mut environment, code).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.starts_with("env.urls[0]: ") && !error.is_transient(),
            "{code}: {text}"
        );
        assert!(!text.contains("127.0.0.1"), "{text}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    let (server, _double) = Double::start();
    let refusal = |config: &AppWorldConfig| AppWorldSet::open(config, &["train"], 0).unwrap_err().to_string();
    assert!(refusal(&AppWorldConfig::default()).contains("env.urls: is empty"));
    let empty = tempfile::tempdir().unwrap();
    let error = refusal(&config(&[&server], empty.path()));
    assert!(error.contains("env.datasets: ") && error.contains("train.txt"), "{error}");
    let odd = datasets("a_1\n../secrets\n");
    assert!(
        refusal(&config(&[&server], odd.path())).contains("train.txt, line 2: is not the name of a task")
    );
    let folder = datasets("unknown\n");
    assert!(refusal(&config(&[&server], folder.path())).contains("HTTP 500 to /tasks"));
    let gone = AppWorldConfig { urls: vec![nowhere()], ..config(&[&server], folder.path()) };
    assert!(refusal(&gone).contains("env.urls[0]: no connection"));
}
