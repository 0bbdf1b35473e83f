//! Tests that the crate written by `turnwise init method` knows its own method in every command.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use turnwise_train::record::metrics::read_metrics;

/// The template as a program (`[[example]]` of this crate). Its name is `NAME` there.
fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_turnwise")).with_file_name("examples").join("method")
}

fn run(program: &Path, folder: &Path, args: &[&str]) -> Output {
    Command::new(program).current_dir(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; what it prints.
fn printed(program: &Path, folder: &Path, args: &[&str]) -> String {
    let output = run(program, folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_crate_with_a_method_is_the_whole_program() {
    let own = program();
    if !own.is_file() {
        println!("skipped: {} is not built (cargo build --release --example method)", own.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));

    assert!(printed(&own, folder, &["config", "presets"]).lines().any(|line| line.starts_with("NAME ")));
    let dump = root.join("../../examples/credit/two-trajectories.jsonl");
    let dump = dump.to_str().unwrap();
    let grpo = printed(&own, folder, &["credit", dump, "--preset", "grpo"]);
    let same = printed(&own, folder, &["credit", dump, "--preset", "NAME", "--set", "NAME.kappa=0.0"]);
    assert_eq!(same.replace("NAME", "grpo"), grpo);
    let explained = printed(&own, folder, &["credit", dump, "--preset", "NAME", "--explain"]);
    assert!(explained.contains("weight") && explained != same, "{explained}");

    let config = root.join("templates/method/method.toml");
    let config = config.to_str().unwrap();
    printed(&own, folder, &["train", config]);
    let written = std::fs::read_to_string(folder.join("runs/NAME/config.toml")).unwrap();
    assert!(written.contains("kind = \"NAME\"") && written.contains("kappa = 0.5"), "{written}");
    printed(&own, folder, &["train", "--resume", "runs/NAME", "train.steps=3"]);
    let steps = read_metrics(&folder.join("runs/NAME/metrics.jsonl")).unwrap();
    assert_eq!(steps.last().unwrap().step, 3);

    // A sweep starts this program, not the one that it was made of.
    let sweep = format!(
        "name = \"s\"\nbase = [{config:?}]\nseeds = [0]\n\n[[run]]\nname = \"mine\"\npreset = \"NAME\"\n"
    );
    std::fs::write(folder.join("sweep.toml"), sweep).unwrap();
    let swept = printed(&own, folder, &["sweep", "sweep.toml", "train.steps=1"]);
    assert!(swept.contains("1 of 1 runs are finished"), "{swept}");

    // The program without the method rejects its run by name.
    let plain = run(Path::new(env!("CARGO_BIN_EXE_turnwise")), folder, &["train", "--resume", "runs/NAME"]);
    assert!(!plain.status.success() && text(&plain.stderr).contains("NAME"), "{}", text(&plain.stderr));
}

#[test]
fn init_method_writes_the_crate() {
    let program = Path::new(env!("CARGO_BIN_EXE_turnwise"));
    let folder = tempfile::tempdir().unwrap();
    let init = |args: &[&str]| run(program, folder.path(), &[&["init", "method"], args].concat());
    let made = init(&["later-turns", "--git", "https://example.com/turnwise"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for file in ["Cargo.toml", "src/main.rs", "src/method.rs", "method.toml"] {
        let written = std::fs::read_to_string(folder.path().join("later-turns").join(file)).unwrap();
        assert!(written.contains("later-turns") && !written.contains("NAME"), "{file}: {written}");
        if file == "Cargo.toml" {
            assert!(
                written.contains("turnwise-cli = { git = \"https://example.com/turnwise\" }"),
                "{written}"
            );
        }
    }
    let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    assert!(init(&["mine", "--path", checkout]).status.success());
    let manifest = std::fs::read_to_string(folder.path().join("mine/Cargo.toml")).unwrap();
    assert!(manifest.contains("crates/cli\" }"), "{manifest}");
    for (args, reason) in [
        (&["later-turns"][..], "is there already"),
        (&["gigpo"], "has a method called gigpo"),
        (&["Upper"], "lower-case letter"),
        (&["other", "--path", "."], "has no crates/cli/Cargo.toml"),
    ] {
        let rejected = init(args);
        assert!(text(&rejected.stderr).contains(reason), "{args:?}: {}", text(&rejected.stderr));
        assert!(!folder.path().join("other").exists());
    }
}
