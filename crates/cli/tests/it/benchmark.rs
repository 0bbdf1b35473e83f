//! `turnwise benchmark`: the truth of a small policy, its resumption, and the scores of methods.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::turnwise;

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A policy that solves some deals and not others.
fn trained(folder: &Path) -> String {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/ezpoints/small.toml");
    let settings =
        ["name=cards", "sft.steps=240", "sft.demonstrations=2500", "train.steps=0", "eval.tasks=4"];
    let runs = folder.join("runs");
    stdout(&turnwise(&[&["train", config, "--runs", runs.to_str().unwrap()], &settings[..]].concat()));
    runs.join("cards").to_str().unwrap().to_owned()
}

#[test]
fn the_truth_is_measured_resumed_and_scored() {
    let folder = tempfile::tempdir().unwrap();
    let run = trained(folder.path());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let measure = |output: &str, more: &[&str]| {
        let common =
            ["benchmark", "credit", &run, "--tasks", "6", "--samples", "4", "-k", "32", "-o", output];
        [&common[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let run_it = |output: &str, more: &[&str]| {
        let arguments = measure(output, more);
        turnwise(&arguments.iter().map(String::as_str).collect::<Vec<&str>>())
    };
    let truth = at("truth.jsonl.zst");
    let said = stdout(&run_it(&truth, &[]));
    assert!(
        said.contains("6 tasks, 24 trajectories") && said.contains("reliability by split halves"),
        "{said}"
    );

    // Killed once a task is finished, and run again, it ends with the same bytes.
    let killed = at("killed.jsonl.zst");
    let parts = folder.path().join("killed.jsonl.zst.parts");
    let mut child = Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .args(measure(&killed, &[]))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !parts.join("task-000000.jsonl.zst").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if parts.exists() {
        // Other settings do not go on with what these measured.
        let refused = run_it(&killed, &["--seed", "9"]);
        assert!(
            refused.status.code() == Some(2) && stderr(&refused).contains("seed was"),
            "{}",
            stderr(&refused)
        );
        let resumed = run_it(&killed, &[]);
        stdout(&resumed);
        assert!(stderr(&resumed).contains("of 6 tasks are measured already"), "{}", stderr(&resumed));
    }
    assert_eq!(fs::read(&truth).unwrap(), fs::read(&killed).unwrap());
    assert!(!parts.exists());
    let refused = run_it(&truth, &[]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("is there already"));

    // Whatever reads trajectories reads these.
    let credit = stdout(&turnwise(&["credit", &truth, "--preset", "gigpo"]));
    assert!(credit.contains("24 trajectories in 6 groups"), "{credit}");

    let scored = |more: &[&str]| stdout(&turnwise(&[&["benchmark", "score", &truth], more].concat()));
    let table = scored(&["--all", "--parts"]);
    for words in
        ["grpo ", "gigpo ", "aem-grpo ", "a-star K=1 ", "a-star K=16 ", "turn 1 (", "within trajectories"]
    {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(table.contains("ppo is left out: it needs a critic"), "{table}");
    let csv = scored(&["--preset", "gigpo", "--preset", "so-grpo", "--format", "csv"]);
    let value = |method: &str, measure: &str| -> f64 {
        let start = format!("{method},{measure},,");
        let line =
            csv.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{start}: {csv}"));
        line.split(',').nth(3).unwrap().parse().unwrap()
    };
    // More continuations are a better estimate, and the outcome says nothing within trajectories.
    assert!(value("a-star K=16", "within") > value("a-star K=1", "within"), "{csv}");
    assert!(
        value("a-star K=16", "pearson") > value("so-grpo", "pearson") && value("so-grpo", "pearson") > 0.0,
        "{csv}"
    );
    assert!(!csv.contains("so-grpo,within,") && csv.contains("gigpo,within,"), "{csv}");
    assert_eq!(scored(&["--preset", "gigpo", "--preset", "so-grpo", "--format", "csv"]), csv);
    let markdown = scored(&["--preset", "gigpo", "--set", "estimator.omega=0", "--format", "markdown"]);
    assert!(markdown.contains("| gigpo estimator.omega=0 |"), "{markdown}");
    let refused = turnwise(&["benchmark", "score", &truth, "--preset", "ppo"]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("it needs a critic"));

    for (more, words) in [
        (&["--gamma", "1.5"][..], "must be from 0 to 1"),
        (&["--method", "tree", "--budget", "9"], "leave --budget out"),
    ] {
        let refused = run_it(&at("none.jsonl"), more);
        assert!(refused.status.code() == Some(2) && stderr(&refused).contains(words), "{}", stderr(&refused));
    }

    // Counting in samples of each task needs no saved states, and finds about the same values.
    let tree = at("tree.jsonl.zst");
    let said = stdout(&turnwise(&[
        "benchmark",
        "credit",
        &run,
        "--tasks",
        "6",
        "--samples",
        "4",
        "-k",
        "256",
        "--method",
        "tree",
        "-o",
        &tree,
    ]));
    assert!(said.contains("6 tasks, 192 trajectories"), "{said}");
    stdout(&turnwise(&["benchmark", "score", &tree, "--preset", "so-grpo"]));
}
