//! Tests a run with TurnRD: training, analysis, and credit computed again from its trajectories.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs::File;
use std::path::Path;

use crate::turnwise;

/// Settings of a small run with TurnRD.
pub(crate) const TINY: &[&str] = &[
    concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml"),
    "preset=has-turnrd-film",
    "env.generator.size=tiny",
    "env.generator.train=12",
    "prompt.validity=admissible",
    "sft.demonstrations=12",
    "rollout.group_size=4",
    "decomposer.network.hidden=8",
    "decomposer.pool_tokens=1",
    "eval.splits=[\"valid_unseen\"]",
];

/// A copy of trajectories in which the first of every group is rewarded at its end: nothing is ever solved in a run so short, and HAS
/// leaves groups of equal returns as they are.
fn with_a_success(trajectories: &str, copy: &Path) -> String {
    let text = String::from_utf8(zstd::decode_all(File::open(trajectories).unwrap()).unwrap()).unwrap();
    let mut lines = String::new();
    for line in text.lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["sample"] == 0 {
            line["turns"].as_array_mut().unwrap().last_mut().unwrap()["reward"] = 1.0.into();
        }
        lines += &format!("{line}\n");
    }
    std::fs::write(copy, lines).unwrap();
    copy.to_str().unwrap().to_owned()
}

fn succeed(arguments: &[&str]) -> String {
    let output = turnwise(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_run_with_turnrd_is_analysed_and_credited_again() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let mut arguments = vec!["train", "--runs", runs, "name=tiny", "train.steps=3"];
    arguments.extend(TINY);
    succeed(&arguments);

    let run = folder.path().join("tiny");
    let path = |name: &str| run.join(name).to_str().unwrap().to_owned();
    let (root, json) = (run.to_str().unwrap(), path("analysis.json"));
    let table = succeed(&["analyze", "turnrd", root, "-o", &json]);
    assert!(table.contains("|gamma|"), "{table}");
    let rounds: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    // The network of round 0 was never trained; those of rounds 1 and 2 shaped a round each.
    let rounds = rounds.as_array().unwrap();
    assert_eq!(rounds.iter().map(|round| round["round"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    for round in rounds {
        assert_eq!(round["records"], 8);
        assert!(round["sum_drift"].as_f64().unwrap() < 1e-5);
    }

    // Round 1 was shaped by the network in round-0001 and the weights after step 1; the last checkpoint
    // gives other hidden states, so that only the form of the answer is checked here.
    let trajectories = path("trajectories/step-000003.jsonl.zst");
    let network = path("turnrd/round-0003");
    let credit = ["credit", &trajectories, "--preset", "has-turnrd-film", "--explain"];
    let output = succeed(&[&credit[..], &["--turnrd", &network, "--policy", root]].concat());
    assert!(output.contains("8 trajectories in 2 groups"), "{output}");
    // Turns are averaged over as many tokens as in the run, unless said otherwise; a network that lies in no run does
    // not say how many those are.
    let averaged = |over: &[&str]| {
        let of_step = |step| {
            let trajectories = path(&format!("trajectories/step-{step:06}.jsonl.zst"));
            let trajectories = with_a_success(&trajectories, &folder.path().join("rewarded.jsonl"));
            let credit = ["credit", &trajectories, "--preset", "has-turnrd-film", "--explain"];
            succeed(&[&credit[..], &["--turnrd", &network, "--policy", root], over].concat())
        };
        [1, 2, 3].map(of_step).concat()
    };
    assert_eq!(averaged(&[]), averaged(&["--pool-tokens", "1"]));
    assert_ne!(averaged(&[]), averaged(&["--pool-tokens", "512"]));
    let moved = folder.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    for file in std::fs::read_dir(&network).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), moved.join(file.file_name())).unwrap();
    }
    let refused = turnwise(&[&credit[..], &["--turnrd", moved.to_str().unwrap(), "--policy", root]].concat());
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--pool-tokens"));
    // The run's own newest network on its replay, and another one trained on it.
    let output = succeed(&["turnrd", "inspect", root]);
    assert!(
        output.contains("round-0003") && output.contains("24 records") && output.contains("FiLM norms"),
        "{output}"
    );
    let other = path("goal-blind");
    let output = succeed(&["turnrd", "train", root, "--no-film", "-o", &other]);
    assert!(output.contains("24 records"), "{output}");
    assert!(!succeed(&["turnrd", "inspect", &other]).contains("FiLM norms"));
    // Without a network there is nothing to credit with.
    let refused = turnwise(&credit);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--turnrd"));
    // A run without TurnRD has nothing to analyse.
    let refused = turnwise(&["analyze", "turnrd", runs]);
    assert!(!refused.status.success());
}
