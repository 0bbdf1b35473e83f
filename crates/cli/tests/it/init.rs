//! Tests that an environment written by `turnwise init world` passes its tests and trains
//! unchanged.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::{Command, Output};

use turnwise_train::Phase;
use turnwise_train::record::metrics::read_metrics;

fn turnwise(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise")).current_dir(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_new_world_passes_its_tests_and_is_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let made = turnwise(folder.path(), &["init", "world", "my-world"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let again = turnwise(folder.path(), &["init", "world", "my-world"]);
    assert!(!again.status.success() && text(&again.stderr).contains("is there already"));
    let named = turnwise(folder.path(), &["init", "world", "my world"]);
    assert!(text(&named.stderr).contains("letters, digits"), "{}", text(&named.stderr));
    for file in ["world.py", "train.toml", "test_world.py"] {
        let written = std::fs::read_to_string(folder.path().join("my-world").join(file)).unwrap();
        assert!(written.contains("my-world") && !written.contains("NAME"), "{file}");
    }

    let python = Command::new("python3")
        .current_dir(folder.path())
        .args(["-m", "unittest", "discover", "my-world"])
        .output();
    let Ok(tested) = python else {
        println!("skipped: python3 not found");
        return;
    };
    assert!(
        tested.status.success() && text(&tested.stderr).contains("Ran 3 tests"),
        "{}",
        text(&tested.stderr)
    );

    let trained = turnwise(folder.path(), &["train", "my-world/train.toml"]);
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    assert!(text(&trained.stdout).contains("Done."), "{}", text(&trained.stdout));
    let metrics = read_metrics(&folder.path().join("runs/my-world/metrics.jsonl")).unwrap();
    let rates: Vec<f64> = metrics
        .iter()
        .filter(|line| line.phase == Phase::Rl)
        .filter_map(|line| line.metrics.get("train/success_rate"))
        .collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean(&rates[35..]) > mean(&rates[..5]) + 0.1, "{rates:?}");
    // An episode has its tools and its calls.
    let view = std::fs::read_dir(folder.path().join("runs/my-world/trajectories")).unwrap().count();
    assert_eq!(view, 40);
}

#[test]
fn a_run_without_an_update_does_not_say_that_it_is_done() {
    let folder = tempfile::tempdir().unwrap();
    turnwise(folder.path(), &["init", "world", "w"]);
    let without = ["train", "w/train.toml", "sft.steps=0", "train.steps=6", "rollout.tasks_per_step=4"];
    let trained = turnwise(folder.path(), &without);
    if !trained.status.success() && text(&trained.stderr).contains("python3") {
        println!("skipped: python3 not found");
        return;
    }
    let said = text(&trained.stdout);
    assert!(trained.status.success() && !said.contains("Done."), "{said}{}", text(&trained.stderr));
    assert!(
        said.contains("This run trained 0 updates in 6 steps") && said.contains("random weights"),
        "{said}"
    );
    assert!(said.contains("not valid actions, for example"), "{said}");
}
