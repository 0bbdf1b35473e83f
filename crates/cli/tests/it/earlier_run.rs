//! Tests that later versions open a run directory of version 0.1.0 (`tests/golden/run-0.1.0`).

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::turnwise;

/// A copy of the run, since commands write to it.
fn copy(folder: &Path) -> PathBuf {
    fn copy_folder(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy_folder(&entry.path(), &to);
            } else {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    let run = folder.join("run-0.1.0");
    copy_folder(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/run-0.1.0")), &run);
    run
}

fn succeed(arguments: &[&str]) -> String {
    let output = turnwise(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_run_of_version_0_1_0_is_evaluated_exported_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy(folder.path());
    let path = run.to_str().unwrap();
    let out = folder.path().join("eval.json");
    succeed(&["eval", path, "--output", out.to_str().unwrap()]);
    let (found, recorded) = (&json(&out)[0], &json(&run.join("eval/step-000002.json"))[0]);
    for key in ["panel", "success", "mean_turns"] {
        assert!(!recorded[key].is_null(), "{key}");
        assert_eq!(found[key], recorded[key], "{key}");
    }
    let credit = folder.path().join("credit.jsonl");
    let trajectories = run.join("trajectories/step-000002.jsonl.zst");
    let credit = credit.to_str().unwrap();
    succeed(&["credit", trajectories.to_str().unwrap(), "--preset", "gigpo", "--output", credit]);
    let exported = folder.path().join("exported");
    succeed(&["export", path, exported.to_str().unwrap()]);
    assert!(exported.join("model.safetensors").is_file());
    succeed(&["train", "--resume", path, "train.steps=3"]);
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().filter(|line| line.contains("loss/total")).count(), 3);
}

#[test]
fn a_changed_weight_of_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy(folder.path());
    let weights = run.join("checkpoints/step-000002/policy/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let output = turnwise(&["eval", run.to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("model.safetensors"));
}
