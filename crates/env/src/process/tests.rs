//! Shell programs answer requests in order: 0 is `hello`, 1 lists the tasks, 2 is a test's first.

use std::time::{Duration, Instant};

use turnwise_core::{Action, EnvError, Environment, PendingStep, Purpose, Seed, Task, TaskSet as _};

use super::protocol::Request;
use super::{ProcessConfig, ProcessSet};
use crate::world::WorldTasks;

const HELLO: &str = r#"read l; echo '{"id":0,"ok":{"protocol":1,"name":"shell","splits":["train"]}}';"#;
pub(super) const TASKS: &str =
    r#"read l; echo '{"id":1,"ok":{"tasks":[{"id":"a","goal":"win","metadata":{"n":1}}]}}';"#;
pub(super) const RESET: &str = r#"read l; echo '{"id":2,"ok":{"observation":"start"}}';"#;

pub(super) fn has_python() -> bool {
    let python = std::process::Command::new("python3").arg("--version").output();
    let found = python.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: python3 not found");
    }
    found
}

pub(super) fn config(script: &str) -> ProcessConfig {
    ProcessConfig {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        timeout_s: 5.0,
        start_timeout_s: 5.0,
        ..ProcessConfig::default()
    }
}

fn open(script: &str) -> ProcessSet {
    ProcessSet::open(&config(&format!("{HELLO}{TASKS}{script}")), 0).unwrap()
}

fn refusal(script: &str) -> String {
    ProcessSet::open(&config(script), 0).unwrap_err().to_string()
}

fn task() -> Task {
    Task::new("a", "task", "win")
}

pub(super) fn seed() -> Seed {
    Seed::derive(0, Purpose::Environment, &[])
}

pub(super) fn begin(set: &ProcessSet) -> Box<dyn Environment> {
    let mut environment = set.environment().unwrap();
    assert_eq!(environment.reset(&task(), seed()).unwrap().text(), "start");
    environment
}

fn step(environment: &mut Box<dyn Environment>, action: &str) -> Result<turnwise_core::Step, EnvError> {
    environment.step(&Action::from(action))
}

#[test]
fn a_world_is_played_over_lines() {
    let set = open(&format!(
        r#"{RESET} read l; case "$l" in *'"action":"go"'*) ;; *) exit 3;; esac
        echo '{{"id":3,"ok":{{"observation":{{"text":"end","admissible":["x"],"state_key":"k"}},"reward":1.5,"terminated":true,
        "success":true,"progress":1.0,"metrics":{{"score":2}}}}}}' | tr -d '\n'; echo; read l; read l"#
    ));
    let tasks = set.tasks("train").unwrap();
    assert_eq!((tasks.len(), tasks[0].kind.as_str(), &tasks[0].metadata["n"]), (1, "task", &1.into()));
    assert!(set.tasks("test").unwrap_err().to_string().contains("this environment has train"));
    let mut environment = begin(&set);
    let step = step(&mut environment, "go").unwrap();
    assert_eq!((step.reward, step.progress, step.terminated, step.success), (1.5, Some(1.0), true, true));
    assert_eq!((step.observation.text(), step.observation.state_key.as_deref()), ("end".into(), Some("k")));
    assert_eq!((step.metrics[0].name.as_str(), step.metrics[0].value), ("score", 2.0));
    assert!(step.understood && !step.truncated && step.observation.admissible == ["x"]);
}

#[test]
fn tasks_come_in_pages_to_the_last() {
    let page = |id: u64, tasks: &str, next: &str| {
        format!(r#"read l; echo '{{"id":{id},"ok":{{"tasks":[{tasks}],"next":{next}}}}}';"#)
    };
    let one = |id: &str| format!(r#"{{"id":"{id}","goal":"win","metadata":{{"of":"{id}"}}}}"#);
    let pages = [page(1, &one("a"), "500"), page(2, "", "1000"), page(3, &one("b"), "null")].concat();
    let set = ProcessSet::open(&config(&format!("{HELLO}{pages} read l; read l")), 0).unwrap();
    assert_eq!(
        set.tasks("train").unwrap().iter().map(|task| task.id.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    let again = [page(1, &one("a"), "500"), page(2, &one("b"), "500")].concat();
    let error = refusal(&format!("{HELLO}{again} read l"));
    assert!(error.contains("next = 500 at offset 500"), "{error}");
}

#[test]
fn a_program_that_is_no_world_is_refused_with_the_reason() {
    let absent = ProcessConfig { command: vec!["no-such-program".into()], ..ProcessConfig::default() };
    let error = ProcessSet::open(&absent, 0).unwrap_err().to_string();
    assert!(error.contains("cannot start `no-such-program`"), "{error}");
    let error = ProcessSet::open(&ProcessConfig::default(), 0).unwrap_err().to_string();
    assert!(error.contains("the command is empty"), "{error}");
    let error =
        refusal(r#"read l; echo '{"id":0,"ok":{"protocol":2,"name":"w","splits":["train"]}}'; read l"#);
    assert!(error.contains("speaks version 2 of the protocol"), "{error}");
    let error = refusal(r#"read l; echo '{"id":0,"ok":{"protocol":1,"name":"w","splits":[]}}'; read l"#);
    assert!(error.contains("has no splits"), "{error}");
    let error = refusal("read l; echo hello world; read l");
    assert!(error.contains("no answer") && error.contains("\"hello world\""), "{error}");
    let error = refusal("read l; echo 'no module named x' >&2; exit 7");
    assert!(error.contains("exit status: 7") && error.contains("no module named x"), "{error}");
    let tasks = r#"read l; echo '{"id":1,"ok":{"tasks":[{"id":"a"}]}}'; read l"#;
    let error = refusal(&format!("{HELLO}{tasks}"));
    assert!(error.contains("task number 0 of the split `train`: missing field `goal`"), "{error}");
    let tasks = r#"read l; echo '{"id":1,"ok":{"tasks":[{"id":"a","goal":"g","secret":3}]}}'; read l"#;
    let error = refusal(&format!("{HELLO}{tasks}"));
    assert!(error.contains("unknown key `secret`"), "{error}");
}

fn assert_gone(file: &std::path::Path) {
    let pid = std::fs::read_to_string(file).unwrap();
    let path = std::path::Path::new("/proc").join(pid.trim()).join("stat");
    let gone = || std::fs::read_to_string(&path).map_or(true, |stat| stat.contains(") Z "));
    let until = Instant::now() + Duration::from_secs(5);
    while !gone() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(gone(), "{pid} outlived the program that started it");
}

#[test]
fn what_a_program_started_does_not_outlive_its_own_end() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("child");
    let start = format!("sleep 60 > /dev/null 2>&1 & echo $! > {};", child.display());
    let set = open(&format!("{RESET} {start} read l; exit 3"));
    let error = step(&mut begin(&set), "go").unwrap_err().to_string();
    assert!(error.contains("exit status: 3"), "{error}");
    assert_gone(&child);
    let start = format!("sleep 60 & echo $! > {};", child.display());
    let set = open(&format!("{RESET} {start} while read l; do :; done"));
    drop(begin(&set));
    let started = Instant::now();
    drop(set);
    assert!(started.elapsed() < Duration::from_secs(2), "it ended by itself");
    assert_gone(&child);
}

#[test]
fn silence_kills_the_program_and_the_next_reset_starts_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("child");
    let config = ProcessConfig {
        timeout_s: 2.0,
        ..config(&format!("{HELLO}{TASKS}{RESET} sleep 60 & echo $! > {}; wait", child.display()))
    };
    let set = ProcessSet::open(&config, 0).unwrap();
    let mut environment = begin(&set);
    let started = Instant::now();
    let error = step(&mut environment, "go").unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(error.to_string().contains("did not answer `step` within 2s and was killed"), "{error}");
    // The episode is lost, so a retry is useless.
    assert!(!error.is_transient());
    assert!(!step(&mut environment, "go").unwrap_err().is_transient());
    assert_gone(&child);
    assert_eq!(set.starts(), 1);
    let error = environment.reset(&task(), seed()).unwrap_err().to_string();
    assert!(set.starts() == 2 && error.contains("answered `reset` with something else"), "{error}");
}

#[test]
fn lines_have_a_greatest_length_and_lost_programs_are_said_with_their_stderr() {
    let long = format!("{HELLO}{TASKS}{RESET} read l; head -c 5000 /dev/zero | tr '\\0' x; echo; read l");
    let set = ProcessSet::open(&ProcessConfig { max_line_bytes: 4000, ..config(&long) }, 0).unwrap();
    let error = step(&mut begin(&set), "go").unwrap_err().to_string();
    assert!(error.contains("a line of more than 4000 bytes"), "{error}");

    let set = open(&format!("{RESET} read l; echo 'out of memory' >&2; exit 9"));
    let error = step(&mut begin(&set), "go").unwrap_err().to_string();
    assert!(error.contains("exit status: 9") && error.contains("out of memory"), "{error}");
}

#[test]
fn errors_say_whether_trying_again_may_help() {
    let set = open(&format!(
        r#"{RESET} read l; echo '{{"id":3,"error":{{"kind":"transient","message":"busy"}}}}'
        read l; echo '{{"id":4,"ok":{{"observation":"on"}}}}'
        read l; echo '{{"id":5,"error":{{"message":"broken"}}}}'
        read l; echo '{{"id":6,"ok":{{"reward":1}}}}'; read l"#
    ));
    let mut environment = begin(&set);
    let error = step(&mut environment, "go").unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("busy"), "{error}");
    assert_eq!(step(&mut environment, "go").unwrap().observation.text(), "on");
    let error = step(&mut environment, "go").unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("broken"), "{error}");
    let error = step(&mut environment, "go").unwrap_err().to_string();
    assert!(error.contains("answered `step` with something else: missing field `observation`"), "{error}");
}

#[test]
fn many_episodes_share_a_program_whose_answers_come_in_any_order() {
    let hello = r#"read l; echo '{"id":0,"ok":{"protocol":1,"name":"w","splits":["train"],"concurrency":2,"capabilities":{"step_many":true}}}';"#;
    let script = format!(
        r#"{hello}{TASKS} read l; read l
        echo '{{"id":3,"ok":{{"observation":"second"}}}}'; echo '{{"id":2,"ok":{{"observation":"first"}}}}'
        read l; echo '{{"id":4,"ok":{{"steps":[{{"ok":{{"observation":"x"}}}},{{"error":{{"message":"no"}}}}]}}}}'; read l; read l"#
    );
    let set = ProcessSet::open(&config(&script), 1).unwrap();
    let begin = || {
        let mut environment = set.environment().unwrap();
        let seen = environment.reset(&task(), seed()).unwrap().into_text();
        (environment, seen)
    };
    let mut both: Vec<_> = std::thread::scope(|scope| {
        let threads = [scope.spawn(begin), scope.spawn(begin)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut seen: Vec<&str> = both.iter().map(|(_, seen)| seen.as_str()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["first", "second"]);
    let action = Action::from("go");
    let mut pending: Vec<PendingStep<'_>> = both
        .iter_mut()
        .map(|(environment, _)| PendingStep { environment: &mut **environment, action: &action })
        .collect();
    assert_eq!(set.batch_limit(), 64);
    let steps = set.step_many(&mut pending);
    assert!(steps[0].as_ref().unwrap().truncated);
    assert!(steps[1].as_ref().unwrap_err().to_string().contains("no"));
}

#[test]
fn the_program_is_asked_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let set = open(&format!("{RESET} while read l; do echo \"$l\" > {}; done", path.display()));
    drop(begin(&set));
    let started = Instant::now();
    drop(set);
    assert!(started.elapsed() < Duration::from_secs(2), "it ended by itself");
    assert!(std::fs::read_to_string(&path).unwrap().contains(r#""op":"shutdown""#));
}

#[test]
fn the_python_helper_serves_a_class() {
    if !has_python() {
        return;
    }
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python_environment");
    let config = ProcessConfig {
        command: ["python3", "guess.py"].map(str::to_owned).to_vec(),
        directory: Some(example),
        settings: [("broken".to_owned(), serde_json::json!([4]))].into(),
        ..ProcessConfig::default()
    };
    let set = ProcessSet::open(&config, 4).unwrap();
    assert_eq!((set.name(), set.splits()), ("guess", vec!["train".to_owned(), "test".to_owned()]));
    let tasks = set.tasks("train").unwrap();
    let seven = tasks.iter().find(|task| task.id == "guess/7-of-9").unwrap();
    let mut environment = set.environment().unwrap();
    let first = environment.reset(seven, seed()).unwrap();
    assert_eq!((first.text(), first.admissible.len()), ("between 1 and 9".into(), 9));
    let next = step(&mut environment, "5").unwrap();
    assert_eq!(
        (next.observation.text(), next.reward, next.terminated),
        ("between 6 and 9".into(), 0.0, false)
    );
    let next = step(&mut environment, "9 or so").unwrap();
    assert!(!next.understood && next.observation.text() == "between 6 and 9");
    let last = step(&mut environment, "7").unwrap();
    assert!(last.terminated && last.success && last.reward == 1.0 && last.progress == Some(1.0));
    let four = tasks.iter().find(|task| task.id == "guess/4-of-9").unwrap();
    let error = environment.reset(four, seed()).unwrap_err();
    assert!(
        error.to_string().contains("RuntimeError: the world of 4 is broken") && !error.is_transient(),
        "{error}"
    );
    assert!(environment.reset(seven, seed()).is_ok());
    let shown = set.demonstrate(seven, seed()).unwrap();
    let actions: Vec<&str> = shown.turns.iter().map(|(_, action)| action.as_str()).collect();
    assert!(shown.success && actions == ["5", "7"], "{actions:?}");
    assert_eq!(set.starts(), 1);
}

/// Actions are Python expressions for the reward; `log` gets a line per reset and close. The
/// argument is the number of workers.
const ODD: &str = r#"
import math, sys
sys.path.insert(0, sys.argv[2])
from turnwise_env import serve

class Numpyish:
    pass

class Odd:
    def __init__(self, log):
        self.log = log
    def say(self, word):
        with open(self.log, "a") as log:
            print(word, file=log)
    def reset(self, *, seed=None, options=None):
        self.say("reset")
        goal = options["task"]["goal"]
        if goal == "fail":
            raise RuntimeError("no luck")
        return "start", {"state_key": Numpyish() if goal == "odd start" else None}
    def step(self, action):
        if action == "odd":
            return "on", 0.0, False, False, {"state_key": Numpyish()}
        return "on", math.nan if action == "nan" else 1.0, False, False, {}
    def close(self):
        self.say("close")

def expert(environment, observation, info):
    raise RuntimeError("no idea")

tasks = [{"id": goal, "goal": goal} for goal in ["plain", "fail", "odd start"]]
serve(Odd, tasks={"train": tasks}, expert=expert, workers=int(sys.argv[1]))
"#;

#[test]
fn the_python_helper_answers_whatever_the_class_does_and_closes_what_it_began() {
    if !has_python() {
        return;
    }
    let helper = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python_environment");
    for workers in ["1", "2"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let config = ProcessConfig {
            command: ["python3", "-c", ODD, workers, helper.to_str().unwrap()].map(str::to_owned).to_vec(),
            settings: [("log".to_owned(), log.to_str().unwrap().into())].into(),
            timeout_s: 20.0,
            ..ProcessConfig::default()
        };
        let set = ProcessSet::open(&config, 4).unwrap();
        let tasks = set.tasks("train").unwrap();
        let mut environments: Vec<_> = (0..2).map(|_| set.environment().unwrap()).collect();
        for environment in &mut environments {
            environment.reset(&tasks[0], seed()).unwrap();
        }
        for action in ["nan", "odd"] {
            let error = step(&mut environments[0], action).unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains("finite numbers"), "{error}");
        }
        assert_eq!(step(&mut environments[0], "go").unwrap().reward, 1.0);
        if set.batch_limit() > 1 {
            let actions = [Action::from("nan"), Action::from("go")];
            let mut pending: Vec<PendingStep<'_>> = environments
                .iter_mut()
                .zip(&actions)
                .map(|(environment, action)| PendingStep { environment: &mut **environment, action })
                .collect();
            let steps = set.step_many(&mut pending);
            assert!(steps[0].as_ref().unwrap_err().to_string().contains("finite numbers"));
            assert_eq!(steps[1].as_ref().unwrap().reward, 1.0, "the other step's answer is kept");
        }
        // Every started episode is closed, whatever failed.
        drop(environments);
        let error = set.environment().unwrap().reset(&tasks[1], seed()).unwrap_err().to_string();
        assert!(error.contains("RuntimeError: no luck"), "{error}");
        let error = set.environment().unwrap().reset(&tasks[2], seed()).unwrap_err().to_string();
        assert!(error.contains("finite numbers"), "{error}");
        let error = set.demonstrate(&tasks[0], seed()).unwrap_err().to_string();
        assert!(error.contains("RuntimeError: no idea"), "{error}");
        assert_eq!(set.starts(), 1);
        drop(set);
        let said = std::fs::read_to_string(&log).unwrap();
        let count = |word: &str| said.lines().filter(|line| *line == word).count();
        assert_eq!((count("reset"), count("close")), (5, 5), "{workers} workers");
    }
}

#[test]
fn steps_that_are_asked_for_together_have_the_time_of_all() {
    let hello = r#"read l; echo '{"id":0,"ok":{"protocol":1,"name":"w","splits":["train"],"capabilities":{"step_many":true}}}';"#;
    let reset = |id: u64| format!(r#"read l; echo '{{"id":{id},"ok":{{"observation":"start"}}}}';"#);
    let resets = [2, 3, 4, 5].map(reset).concat();
    let stepped = [r#"{"ok":{"observation":"on"}}"#; 4].join(",");
    let script = format!(
        r#"{hello}{TASKS}{resets} read l; sleep 1.5; echo '{{"id":6,"ok":{{"steps":[{stepped}]}}}}'; while read l; do :; done"#
    );
    let set = ProcessSet::open(&ProcessConfig { timeout_s: 1.0, ..config(&script) }, 0).unwrap();
    let mut environments: Vec<_> = (0..4).map(|_| begin(&set)).collect();
    let action = Action::from("go");
    let mut pending: Vec<PendingStep<'_>> = environments
        .iter_mut()
        .map(|environment| PendingStep { environment: &mut **environment, action: &action })
        .collect();
    for step in set.step_many(&mut pending) {
        assert_eq!(step.unwrap().observation.text(), "on");
    }
    // A step keeps its timeout, which the set enforces itself.
    drop(pending);
    let error = step(&mut environments[0], "go").unwrap_err().to_string();
    assert!(error.contains("did not answer `step` within 1s"), "{error}");
    drop(environments);
    assert!(WorldTasks(std::sync::Arc::new(set)).limits_calls());
}

#[test]
fn those_who_wait_for_a_start_that_fails_do_not_wait_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let (first, starts) = (folder.path().join("first"), folder.path().join("starts"));
    let script = format!(
        "if [ -e {first} ]; then echo x >> {starts}; sleep 60; fi; touch {first}; {HELLO}{TASKS} read l; exit 3",
        first = first.display(),
        starts = starts.display()
    );
    let set = ProcessSet::open(&ProcessConfig { start_timeout_s: 2.0, ..config(&script) }, 0).unwrap();
    let error = set.environment().unwrap().reset(&task(), seed()).unwrap_err().to_string();
    assert!(error.contains("exit status: 3"), "{error}");
    let together = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                let error = set.environment().unwrap().reset(&task(), seed()).unwrap_err().to_string();
                assert!(error.contains("did not answer `hello` within 2s"), "{error}");
            });
        }
    });
    assert_eq!(std::fs::read_to_string(&starts).unwrap().lines().count(), 1);
}

#[test]
fn a_structured_call_is_sent_beside_its_words() {
    let call = turnwise_core::ToolCall {
        id: "call_0".into(),
        name: "f".into(),
        arguments: serde_json::json!({"n": 1}),
    };
    let step =
        |call| serde_json::to_value(Request::Step { episode: 3, action: "f({\"n\":1})", call }).unwrap();
    assert_eq!(
        step(Some(&call)),
        serde_json::json!({
            "op": "step",
            "episode": 3,
            "action": "f({\"n\":1})",
            "call": {"id": "call_0", "name": "f", "arguments": {"n": 1}}
        })
    );
    assert!(step(None).get("call").is_none());
}
