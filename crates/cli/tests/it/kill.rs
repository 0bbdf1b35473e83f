//! Tests that a run that is killed repeatedly at random moments, by SIGKILL and Ctrl-C, ends with
//! the weights, metrics, trajectories and evaluations of an uninterrupted one.
//!
//! `TURNWISE_KILLS=100 cargo test -p turnwise-cli --test it kill` kills a hundred times.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use turnwise_core::{Purpose, Seed};

const OVERRIDES: &[&str] = &[
    concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml"),
    "name=run",
    "sft.steps=30",
    "sft.checkpoint_every=3",
    "train.steps=20",
    "train.num_minibatches=2",
    "train.checkpoint_every=1",
    "eval.every=2",
];

fn turnwise(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn start(folder: &Path) -> Command {
    let mut command = turnwise(folder);
    command.args(["train", "--preset", "quickstart"]).args(OVERRIDES);
    command
}

/// Removes what no two runs have in common: times and speeds.
pub(crate) fn without_time(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.retain(|tag, _| tag != "time" && tag != "seconds" && !tag.starts_with("perf/"));
            map.values_mut().for_each(|inner| *inner = without_time(inner.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| *inner = without_time(inner.take())),
        _ => {}
    }
    value
}

/// Everything of a run that must be the same, by file.
fn outcome(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let weights = "checkpoints/step-000020/policy/model.safetensors";
    found.insert(weights.to_owned(), std::fs::read(run.join(weights)).unwrap());
    let moments = "checkpoints/step-000020/optimizer.safetensors";
    found.insert(moments.to_owned(), std::fs::read(run.join(moments)).unwrap());
    let metrics: Vec<Value> = std::fs::read_to_string(run.join("metrics.jsonl"))
        .unwrap()
        .lines()
        .map(|line| without_time(serde_json::from_str(line).unwrap()))
        .collect();
    assert_eq!(metrics.len(), 50);
    found.insert("metrics".into(), serde_json::to_vec(&metrics).unwrap());
    for folder in ["trajectories", "eval"] {
        let mut files = 0;
        for entry in std::fs::read_dir(run.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap());
            let bytes = std::fs::read(&path).unwrap();
            let same = if folder == "eval" {
                serde_json::to_vec(&without_time(serde_json::from_slice(&bytes).unwrap())).unwrap()
            } else {
                bytes
            };
            found.insert(name, same);
            files += 1;
        }
        assert_eq!(files, if folder == "eval" { 11 } else { 20 }, "{folder}");
    }
    let status: Value = serde_json::from_slice(&std::fs::read(run.join("status.json")).unwrap()).unwrap();
    assert_eq!(status["state"], "finished");
    found
}

/// Ends a process as Ctrl-C does, or without warning.
fn end(child: &mut Child, politely: bool) {
    if politely {
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    } else {
        child.kill().unwrap();
    }
    child.wait().unwrap();
}

#[test]
fn killed_runs_end_with_everything_that_an_uninterrupted_one_has() {
    let wanted: u64 = std::env::var("TURNWISE_KILLS").map_or(12, |text| text.parse().unwrap());
    let straight = tempfile::tempdir().unwrap();
    let begun = std::time::Instant::now();
    assert!(start(straight.path()).status().unwrap().success());
    let length = begun.elapsed().as_millis() as u64;
    let expected = outcome(&straight.path().join("runs/run"));

    let (mut kills, mut run) = (0, 0);
    while kills < wanted {
        let folder = tempfile::tempdir().unwrap();
        for round in 0.. {
            assert!(round < 1000, "the run never finished");
            let mut draws = Seed::derive(7, Purpose::Tasks, &[run, round]).rng();
            let mut command = if folder.path().join("runs/run/config.toml").exists() {
                let mut command = turnwise(folder.path());
                command.args(["train", "--resume", "runs/run"]);
                command
            } else {
                // Killed before it was a run: what is left is not one, and is started over.
                let _ = std::fs::remove_dir_all(folder.path().join("runs"));
                start(folder.path())
            };
            let mut child = command.spawn().unwrap();
            // About eight kills a run; later rounds wait longer, so that it gets to its end at all.
            let delay = 20 + (draws.uniform() * (length * (4 + round) / 12) as f64) as u64;
            std::thread::sleep(Duration::from_millis(delay));
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "run {run}, round {round}: {status}");
                break;
            }
            end(&mut child, draws.uniform() < 0.5);
            kills += 1;
        }
        let found = outcome(&folder.path().join("runs/run"));
        for (name, bytes) in &expected {
            assert!(found.get(name) == Some(bytes), "run {run}: {name} differs after {kills} kills");
        }
        assert_eq!(found.len(), expected.len());
        run += 1;
    }
    eprintln!("{kills} kills in {run} runs");
}
