//! A run that may not fit the machine says so when it starts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;

use turnwise_train::Run;
use turnwise_train::plan::memory::machine_memory;

use crate::common::{self, Notes};

/// Notes of a run at its start.
fn notes(more: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut notes = Notes::default();
    Run::start(common::config(Some("grpo"), more).unwrap(), &folder.path().join("run"), &mut notes).unwrap();
    notes.0
}

#[test]
fn a_plan_beyond_the_machine_s_memory_is_warned_of() {
    if machine_memory().is_none() {
        eprintln!("skipped: this machine does not say how much memory it has");
        return;
    }
    let warns = |notes: &[String]| notes.iter().any(|note| note.starts_with("warning: this run may need"));
    assert!(!warns(&notes(&[])));
    // As many tokens at a time as may be set, in as many lanes.
    let notes = notes(&["train.micro_batch_tokens=100000000", "train.lanes=256"]);
    assert!(warns(&notes), "{notes:?}");
    let hint = "; train.micro_batch_tokens = 512 would bring it to ";
    assert!(notes.iter().any(|note| note.contains(hint)), "{notes:?}");
}

/// Notes and the end of a run of one step with these settings.
fn trained(more: &[&str]) -> (Vec<String>, Result<(), String>) {
    let folder = tempfile::tempdir().unwrap();
    let settings: Vec<&str> = more.iter().copied().chain(["train.steps=1"]).collect();
    let config = common::config(Some("grpo"), &settings).unwrap();
    let mut run = Run::start(config, &folder.path().join("run"), &mut Notes::default()).unwrap();
    let mut notes = Notes::default();
    let end = run.train(&mut notes, &AtomicBool::new(false));
    (notes.0, end.map(|_| ()).map_err(|error| error.to_string()))
}

#[test]
fn prompts_that_do_not_fit_are_warned_of_and_refused_where_none_does() {
    let warns = |notes: &[String]| notes.iter().any(|note| note.contains("did not fit rollout.max_context"));
    let (notes, end) = trained(&[]);
    assert!(end.is_ok() && !warns(&notes), "{end:?} {notes:?}");
    let (notes, end) = trained(&["rollout.max_context=80"]);
    assert!(end.is_ok() && warns(&notes), "{end:?} {notes:?}");
    let (_, end) = trained(&["rollout.max_context=20", "rollout.max_response_tokens=16"]);
    let error = end.unwrap_err();
    assert!(error.contains("rollout.max_context") && error.contains("no first prompt fits"), "{error}");
    // Groups that overflow fail whole, and a selection leaves them out.
    let dynamic = [
        "rollout.max_context=20",
        "rollout.max_response_tokens=16",
        "rollout.selection={kind=\"dynamic\", max_rounds=2}",
    ];
    assert!(trained(&dynamic).1.unwrap_err().contains("no first prompt fits"));
}

#[test]
fn a_run_that_trains_nothing_says_so_with_the_causes() {
    use turnwise_train::RunDirectory;
    use turnwise_train::record::directory::Status;

    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    // Random weights and no warm start: no response is an action, and no game is solved.
    let settings = ["train.steps=6", "rollout.max_response_tokens=4", "train.skip_zero_advantage=true"];
    let config = common::config(Some("grpo"), &settings).unwrap();
    let mut run = Run::start(config, &root, &mut Notes::default()).unwrap();
    let mut notes = Notes::default();
    run.train(&mut notes, &AtomicBool::new(false)).unwrap();
    let warned: Vec<&String> =
        notes.0.iter().filter(|note| note.starts_with("warning: the last 5 steps")).collect();
    assert!(warned.len() == 1 && warned[0].contains("random weights"), "{:?}", notes.0);
    let status: Status = RunDirectory::open(&root).unwrap().read_json("status.json").unwrap();
    assert!(status.warnings[0].starts_with("the last 5 steps had no update"), "{:?}", status.warnings);
    let reason = run.nothing_trained().unwrap();
    assert!(reason.starts_with("trained 0 updates in 6 steps"), "{reason}");
    assert_eq!(status.warnings.last(), Some(&reason));
    let (notes, _) = trained(&[]);
    assert!(notes.iter().all(|note| !note.contains("the last 5 steps")), "{notes:?}");
}
