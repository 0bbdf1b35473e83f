//! One run on several processes, as `torchrun --no-python turnwise train ...` starts them.
#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const OVERRIDES: &[&str] = &[
    concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml"),
    "name=run",
    "sft.steps=4",
    "train.minibatches=2",
    "train.skip_zero_advantage=false",
    "objective.kl.coef=0.01",
];

/// The environment of one of several processes.
struct Ranks {
    port: u16,
    count: usize,
}

impl Ranks {
    fn new(count: usize) -> Self {
        Self { port: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(), count }
    }

    fn spawn(&self, rank: usize, folder: &Path, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
        command.current_dir(folder).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in [
            ("WORLD_SIZE", self.count.to_string()),
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("MASTER_ADDR", "127.0.0.1".into()),
            ("MASTER_PORT", self.port.to_string()),
        ] {
            command.env(name, value);
        }
        command.spawn().unwrap()
    }

    /// All of them, to their ends.
    fn run(&self, folder: &Path, arguments: &[&str]) -> Vec<Output> {
        let children: Vec<Child> = (0..self.count).map(|rank| self.spawn(rank, folder, arguments)).collect();
        children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn train(steps: &str) -> Vec<&str> {
    [&["train", "--preset", "quickstart", steps], OVERRIDES].concat()
}

fn weights(folder: &Path, step: usize) -> Vec<u8> {
    let path = format!("runs/run/checkpoints/step-{step:06}/policy/model.safetensors");
    std::fs::read(folder.join(path)).unwrap()
}

#[test]
fn two_processes_end_with_the_bits_of_one() {
    let one = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .current_dir(one.path())
        .args(train("train.steps=2"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let two = tempfile::tempdir().unwrap();
    let outputs = Ranks::new(2).run(two.path(), &train("train.steps=2"));
    for output in &outputs {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert!(text(&outputs[0].stdout).contains("Done."));
    assert!(outputs[1].stdout.is_empty(), "only rank 0 speaks");
    assert!(weights(one.path(), 2) == weights(two.path(), 2));
    // The comparison can fail.
    assert!(weights(one.path(), 2) != weights(one.path(), 0));
    let evaluation = |folder: &Path| {
        let path = folder.join("runs/run/eval/step-000002.json");
        let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        value[0].as_object_mut().unwrap().remove("seconds");
        value
    };
    assert_eq!(evaluation(one.path()), evaluation(two.path()));
}

#[test]
fn a_killed_process_ends_the_run_and_it_goes_on_from_its_checkpoint() {
    let straight = tempfile::tempdir().unwrap();
    let outputs = Ranks::new(2).run(straight.path(), &train("train.steps=30"));
    assert!(outputs.iter().all(|output| output.status.success()), "{}", text(&outputs[0].stderr));

    for killed in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let ranks = Ranks::new(2);
        let arguments = [&train("train.steps=30")[..], &["train.checkpoint_every=1"]].concat();
        let mut children: Vec<Child> =
            (0..2).map(|rank| ranks.spawn(rank, folder.path(), &arguments)).collect();
        // In the middle of reinforcement learning.
        while !folder.path().join("runs/run/checkpoints/step-000002").exists() {
            assert!(children[0].try_wait().unwrap().is_none(), "the run is over before it was killed");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        children[killed].kill().unwrap();
        let other = children.remove(1 - killed).wait_with_output().unwrap();
        let error = text(&other.stderr);
        assert_eq!(other.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("lost rank {killed}: it closed the connection")), "{error}");
        children.remove(0).wait().unwrap();

        let outputs = Ranks::new(2).run(folder.path(), &["train", "--resume", "runs/run"]);
        assert!(outputs.iter().all(|output| output.status.success()), "{}", text(&outputs[0].stderr));
        assert!(weights(folder.path(), 30) == weights(straight.path(), 30));
    }
}

#[test]
fn a_world_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .current_dir(folder.path())
        .args(train("train.steps=2"))
        .envs([("WORLD_SIZE", "2"), ("RANK", "2")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("RANK: is 2, and ranks go from 0 to 1"),
        "{}",
        text(&output.stderr)
    );
    assert!(!folder.path().join("runs").exists());
}
