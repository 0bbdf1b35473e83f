//! A run that is killed without warning, again and again, ends with the bits of one that was not.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const OVERRIDES: &[&str] = &[
    concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml"),
    "name=run",
    "sft.steps=30",
    "sft.checkpoint_every=3",
    "train.steps=20",
    "train.num_minibatches=2",
    "train.checkpoint_every=1",
];

fn turnwise(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn start(folder: &Path) -> Command {
    let mut command = turnwise(folder);
    command.args(["train", "--preset", "quickstart"]).args(OVERRIDES);
    command
}

fn final_weights(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("runs/run/checkpoints/step-000020/policy/model.safetensors")).unwrap()
}

#[test]
fn a_killed_run_ends_with_the_same_bits() {
    let straight = tempfile::tempdir().unwrap();
    assert!(start(straight.path()).status().unwrap().success());

    let killed = tempfile::tempdir().unwrap();
    let mut kills = 0;
    let mut delay = 40;
    for round in 0.. {
        assert!(round < 400, "the run never finished");
        let begun = killed.path().join("runs/run/config.toml").exists();
        let mut command = if begun {
            let mut command = turnwise(killed.path());
            command.args(["train", "--resume", "runs/run"]);
            command
        } else {
            // Killed before it was a run: what is left is not one, and is started over.
            let _ = std::fs::remove_dir_all(killed.path().join("runs"));
            start(killed.path())
        };
        let mut child = command.spawn().unwrap();
        // Moments spread over the run; longer ones as it goes on, so that it gets anywhere at all.
        std::thread::sleep(Duration::from_millis(delay));
        delay = delay * 5 / 4 % 1500 + 20;
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "round {round}: {status}");
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 3, "only {kills} kills: the run is too short for this test");
    assert!(
        final_weights(straight.path()) == final_weights(killed.path()),
        "the weights differ after {kills} kills"
    );

    // The metrics of the killed run are those of the other, line by line, but for time and speed.
    let lines = |folder: &Path| -> Vec<serde_json::Value> {
        std::fs::read_to_string(folder.join("runs/run/metrics.jsonl"))
            .unwrap()
            .lines()
            .map(|line| {
                let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
                value.as_object_mut().unwrap().retain(|tag, _| tag != "time" && !tag.starts_with("perf/"));
                value
            })
            .collect()
    };
    assert_eq!(lines(straight.path()), lines(killed.path()));
    assert_eq!(lines(straight.path()).len(), 50);
}
