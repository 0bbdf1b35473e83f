//! Tests of `turnwise benchmark`: true advantages of a small policy, resumption, and scores of
//! methods.
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

    // Two methods are compared task by task; the difference is that of their scores.
    let csv =
        scored(&["--preset", "gigpo", "--preset", "so-grpo", "--baseline", "so-grpo", "--format", "csv"]);
    let line = csv.lines().find(|line| line.starts_with("gigpo,pearson_difference,so-grpo,")).unwrap();
    let difference: f64 = line.split(',').nth(3).unwrap().parse().unwrap();
    let of = |method: &str| -> f64 {
        let start = format!("{method},pearson,,");
        csv.lines().find(|line| line.starts_with(&start)).unwrap().split(',').nth(3).unwrap().parse().unwrap()
    };
    assert!((difference - (of("gigpo") - of("so-grpo"))).abs() < 1e-12, "{csv}");
    assert!(!csv.contains("so-grpo,pearson_difference"), "{csv}");
    let plot = at("credit.svg");
    let table = scored(&["--preset", "gigpo", "--baseline", "grpo", "--plot", &plot]);
    assert!(table.contains("less grpo") && table.contains("Differences to grpo"), "{table}");
    let plot = fs::read_to_string(plot).unwrap();
    for words in ["perfect credit", ">gigpo<", ">grpo<", "one per trajectory", ">a-star K=4<"] {
        assert!(plot.contains(words), "{words}: {plot}");
    }
    let refused = turnwise(&["benchmark", "score", &truth, "--all", "--plot", &at("plot.png")]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("ends in .svg"));

    // The viewer shows the truth beside two methods.
    let page = at("page.html");
    stdout(&turnwise(&["view", &truth, "--step", "1", "--output", &page]));
    let page = fs::read_to_string(page).unwrap();
    for words in ["<b>grpo</b>, <b>gigpo</b>, <b>A*</b>", ">difference<", "badge decisive", "<small>± "] {
        assert!(page.contains(words), "{words}");
    }
    let page = at("one.html");
    stdout(&turnwise(&["view", &truth, "--preset", "rloo", "--group", "0", "--output", &page]));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<b>rloo</b>, <b>A*</b>") && !page.contains(">difference<"), "{page}");
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

/// A world in Python that saves its states has a truth, too.
#[test]
fn a_world_in_python_is_measured() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: python3 not found");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let run_it = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
        command.args(arguments).current_dir(root).output().unwrap()
    };
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    stdout(&run_it(&[
        "train",
        "examples/python_environment/guess.toml",
        "--runs",
        &at("runs"),
        "sft.steps=30",
        "train.steps=0",
        "eval.tasks=2",
    ]));
    let measure = |output: &str, more: &[&str]| {
        let run = at("runs/guess");
        let common =
            ["benchmark", "credit", &run, "--tasks", "3", "--samples", "4", "-k", "24", "-o", output];
        run_it(&[&common[..], more].concat())
    };
    let truth = at("truth.jsonl");
    let said = stdout(&measure(&truth, &[]));
    assert!(said.contains("3 tasks, 12 trajectories"), "{said}");
    // Two processes of the world deal the same episodes out otherwise, and the truth is the same.
    let other = at("other.jsonl");
    stdout(&measure(&other, &["env.programs=2"]));
    let numbers = |path: &str| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["truth"].clone())
            .collect()
    };
    assert_eq!(numbers(&truth), numbers(&other));
    let values: Vec<f64> = numbers(&truth)
        .iter()
        .flat_map(|line| line.as_array().unwrap().iter().map(|turn| turn["v"].as_f64().unwrap()))
        .collect();
    assert!(values.iter().any(|v| *v > 0.0 && *v < 1.0), "{values:?}");
    stdout(&run_it(&["benchmark", "score", &truth, "--preset", "gigpo", "--baseline", "grpo"]));

    // Without `save` the world is refused with what to do.
    let text = fs::read_to_string(Path::new(root).join("examples/python_environment/guess.py")).unwrap();
    let helper = Path::new(root).join("examples/python_environment/turnwise_env.py");
    fs::copy(helper, folder.path().join("turnwise_env.py")).unwrap();
    fs::write(folder.path().join("guess.py"), text.replace("def save(", "def not_save(")).unwrap();
    let command = format!("env.command=[\"python3\", \"{}\"]", at("guess.py"));
    let refused = measure(&at("none.jsonl"), &[&command]);
    assert!(
        refused.status.code() == Some(2)
            && stderr(&refused).contains("give your program `save` and `restore`"),
        "{}",
        stderr(&refused)
    );
}

/// A critic and the policy's own numbers come from a run.
#[test]
fn the_models_of_a_run_give_what_methods_need() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/ezpoints/small.toml");
    let train = |name: &str, preset: &str| {
        let name = format!("name={name}");
        let settings = [&name, "sft.steps=60", "sft.demonstrations=500", "train.steps=1", "eval.tasks=2"];
        stdout(&turnwise(
            &[&["train", config, "--preset", preset, "--runs", &at("runs")][..], &settings[..]].concat(),
        ));
    };
    train("critic", "ppo");
    let run = at("runs/critic");
    let truth = at("truth.jsonl.zst");
    stdout(&turnwise(&[
        "benchmark",
        "credit",
        &run,
        "--tasks",
        "3",
        "--samples",
        "4",
        "-k",
        "8",
        "-o",
        &truth,
    ]));
    let score = |preset: &str, models: &[&str]| {
        let common = ["benchmark", "score", &truth, "--format", "csv", "--preset", preset];
        turnwise(&[&common[..], models].concat())
    };
    let refused = score("ppo", &[]);
    assert!(
        refused.status.code() == Some(2) && stderr(&refused).contains("--models"),
        "{}",
        stderr(&refused)
    );
    let of = |preset: &str| stdout(&score(preset, &["--models", &run]));
    assert!(of("ppo").contains("ppo,pearson,,"));
    // Whatever needs the policy has it, and the same models give the same numbers.
    assert_eq!(of("ppo"), of("ppo"));
    let refused = score("has-turnrd", &["--models", &run]);
    assert!(stderr(&refused).contains("has no trained TurnRD"), "{}", stderr(&refused));
    train("plain", "grpo");
    let refused = score("ppo", &["--models", &at("runs/plain")]);
    assert!(stderr(&refused).contains("has no critic"), "{}", stderr(&refused));
    let refused = score("ppo", &["--models", &folder.path().join("none").to_string_lossy()]);
    assert!(
        refused.status.code() == Some(2) && stderr(&refused).contains("--models"),
        "{}",
        stderr(&refused)
    );
}
