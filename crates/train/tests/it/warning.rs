//! A run that may not fit the machine says so when it starts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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
