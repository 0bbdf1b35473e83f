//! Warnings at a run's start, such as missing memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;

use turnwise_train::plan::memory::machine_memory;
use turnwise_train::{Registries, Run, TrainError};

use crate::common::{self, Notes};

fn notes(ignore_memory: bool, more: &[&str]) -> Result<Vec<String>, TrainError> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let mut notes = Notes::default();
    let run = Run::builder(common::config(Some("grpo"), more).unwrap()).directory(&root);
    let started = run.ignore_memory(ignore_memory).start(&mut notes);
    assert_eq!(started.is_ok(), root.exists(), "what is refused leaves nothing");
    started.map(|_| notes.0)
}

#[test]
fn a_plan_beyond_the_machine_s_memory_is_refused_or_warned_of() {
    if machine_memory().is_none() {
        eprintln!("skipped: this machine does not say how much memory it has");
        return;
    }
    let warns = |notes: &[String]| notes.iter().any(|note| note.starts_with("warning: this run may need"));
    assert!(!warns(&notes(false, &[]).unwrap()));
    // The maximum tokens per pass, in the maximum number of lanes.
    let large = ["train.micro_batch_tokens=100000000", "train.num_workers=256"];
    let hint = "; train.micro_batch_tokens = 512 would bring it to ";
    let error = notes(false, &large).unwrap_err().to_string();
    assert!(error.starts_with("this run may need") && error.contains(hint), "{error}");
    let notes = notes(true, &large).unwrap();
    assert!(warns(&notes) && notes.iter().any(|note| note.contains(hint)), "{notes:?}");
}

#[test]
fn masked_prompts_that_a_concatenated_policy_never_sees_are_warned_of() {
    let warns = |preset: &str, layout: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Notes::default();
        let layout = format!("prompt.layout={layout}");
        let config = common::config(Some(preset), &[&layout]).unwrap();
        let warned = config
            .warnings(&Registries::builtin())
            .iter()
            .any(|text| text.contains("prompt.layout = \"windowed\""));
        Run::builder(config).directory(folder.path().join("run")).start(&mut notes).unwrap();
        let said = notes.0.iter().any(|note| note.contains("masked prompt has the windowed form"));
        assert_eq!(warned, said, "{preset}, {layout}: {:?}", notes.0);
        said
    };
    assert!(warns("stapo", "concatenated") && warns("stapo-dynamic", "concatenated"));
    assert!(!warns("stapo", "windowed"));
    assert!(!warns("gigpo", "concatenated"));
}

fn trained(more: &[&str]) -> (Vec<String>, Result<(), String>) {
    let folder = tempfile::tempdir().unwrap();
    let settings: Vec<&str> = more.iter().copied().chain(["train.steps=1"]).collect();
    let config = common::config(Some("grpo"), &settings).unwrap();
    let mut run =
        Run::builder(config).directory(folder.path().join("run")).start(&mut Notes::default()).unwrap();
    let mut notes = Notes::default();
    let end = run.train(&mut notes, &AtomicBool::new(false));
    (notes.0, end.map(|_| ()).map_err(|error| error.to_string()))
}

#[test]
fn prompts_that_do_not_fit_are_warned_of_and_refused_where_none_does() {
    let warns =
        |notes: &[String]| notes.iter().any(|note| note.contains("did not fit rollout.max_model_len"));
    let (notes, end) = trained(&[]);
    assert!(end.is_ok() && !warns(&notes), "{end:?} {notes:?}");
    let (notes, end) = trained(&["rollout.max_model_len=80"]);
    assert!(end.is_ok() && warns(&notes), "{end:?} {notes:?}");
    let refused = |context: &str| {
        let folder = tempfile::tempdir().unwrap();
        let settings = [context, "rollout.max_response_tokens=16", "train.steps=1", "sft.steps=1"];
        let config = common::config(Some("grpo"), &settings).unwrap();
        Run::builder(config)
            .directory(folder.path().join("run"))
            .start(&mut Notes::default())
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let error = refused("rollout.max_model_len=20").unwrap_err();
    assert!(error.contains("rollout.max_model_len: is 20, and no first prompt fits"), "{error}");
    let shortest: usize =
        error.split("has ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!(refused(&format!("rollout.max_model_len={shortest}")).is_err());
    assert!(refused(&format!("rollout.max_model_len={}", shortest + 1)).is_ok());
}

#[test]
fn a_run_that_trains_nothing_says_so_with_the_causes() {
    use turnwise_train::RunDirectory;
    use turnwise_train::record::directory::Status;

    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    // Random weights without SFT: no response is a valid action, and no game is solved.
    let settings = ["train.steps=6", "rollout.max_response_tokens=4", "train.skip_zero_advantage=true"];
    let config = common::config(Some("grpo"), &settings).unwrap();
    let mut run = Run::builder(config).directory(&root).start(&mut Notes::default()).unwrap();
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
