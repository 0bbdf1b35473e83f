//! Tests that save and restore episodes.

use turnwise_core::{Action, Snapshot, TaskSet as _};

use super::tests::{RESET, TASKS, begin, config, has_python, seed};
use super::{ProcessConfig, ProcessSet};

fn shell(capabilities: &str, script: &str) -> ProcessSet {
    let hello = format!(
        r#"read l; echo '{{"id":0,"ok":{{"protocol":1,"name":"shell","splits":["train"],"capabilities":{capabilities}}}}}';"#
    );
    ProcessSet::open(&config(&format!("{hello}{TASKS}{RESET}{script}")), 3).unwrap()
}

#[test]
fn a_state_comes_back_as_the_program_wrote_it() {
    // State keys keep their order; `restore` sends task and state.
    let set = shell(
        r#"{"save":true}"#,
        r#"read l; case "$l" in *'"op":"save","episode":0'*) ;; *) exit 3;; esac
        echo '{"id":3,"ok":{"state":{"z":1,"a":[2.50]}}}';
        read l; read l; echo "$l" >&2
        case "$l" in *'"op":"restore","episode":1'*'"id":"a"'*'"state":{"z":1,"a":[2.50]}'*) ;; *) exit 4;; esac
        echo '{"id":5,"ok":{}}';
        read l; case "$l" in *'"op":"step","episode":1'*) ;; *) exit 5;; esac
        echo '{"id":6,"ok":{"observation":"end"}}'; read l; read l"#,
    );
    let mut environment = begin(&set);
    let snapshot = environment.snapshot().unwrap().unwrap();
    environment.restore(&snapshot).unwrap();
    let step = environment.step(&Action::from("go")).unwrap();
    assert_eq!((step.observation.text(), step.truncated), ("end".into(), false));
    let error = environment.restore(&Snapshot(b"{}".to_vec())).unwrap_err().to_string();
    assert!(error.contains("cannot restore the environment") && error.contains("task"), "{error}");
}

#[test]
fn a_program_without_the_capability_is_not_asked() {
    let set = shell(r#"{"step_many":true}"#, "read l; read l");
    assert_eq!(begin(&set).snapshot().unwrap(), None);
}

#[test]
fn an_episode_of_pythons_helper_goes_on_from_its_state() {
    if !has_python() {
        return;
    }
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python_environment");
    let config = ProcessConfig {
        command: ["python3", "guess.py"].map(str::to_owned).to_vec(),
        directory: Some(example),
        programs: 2,
        ..ProcessConfig::default()
    };
    let set = ProcessSet::open(&config, 3).unwrap();
    let tasks = set.tasks("train").unwrap();
    let seven = tasks.iter().find(|task| task.id == "guess/7-of-9").unwrap();
    let mut environment = set.environment().unwrap();
    environment.reset(seven, seed()).unwrap();
    environment.step(&Action::from("5")).unwrap();
    let snapshot = environment.snapshot().unwrap().unwrap();
    let mut other = set.environment().unwrap();
    for action in ["8", "6"] {
        other.restore(&snapshot).unwrap();
        let step = other.step(&Action::from(action)).unwrap();
        let seen = if action == "8" { "between 6 and 7" } else { "between 7 and 9" };
        assert_eq!((step.observation.text(), step.truncated), (seen.into(), false));
        assert!(other.step(&Action::from("9")).unwrap().truncated);
    }
    assert_eq!(environment.snapshot().unwrap().unwrap(), snapshot);
    let step = environment.step(&Action::from("7")).unwrap();
    assert!(step.terminated && step.success);
}
