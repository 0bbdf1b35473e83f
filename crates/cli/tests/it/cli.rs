//! First contact of a user: help, configs, and errors that say how to fix them.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn turnwise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = turnwise(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?} was not refused");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn every_command_explains_itself() {
    let overview = stdout(&turnwise(&["--help"]));
    for command in [
        "quickstart",
        "train",
        "sft",
        "eval",
        "rollout",
        "export",
        "chat",
        "credit",
        "view",
        "turnrd",
        "play",
        "env",
        "config",
    ] {
        assert!(overview.contains(command), "{command} is missing:\n{overview}");
        let help = turnwise(&[command, "--help"]);
        assert!(help.status.success());
        assert!(stdout(&help).contains("Usage: turnwise"), "{command}");
    }
}

#[test]
fn a_resolved_config_resolves_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let first = turnwise(&["config", "show", "--preset", "quickstart", "train.steps=7"]);
    assert!(first.status.success());
    let path = folder.path().join("resolved.toml");
    std::fs::write(&path, &first.stdout).unwrap();
    let second = turnwise(&["config", "show", path.to_str().unwrap()]);
    assert_eq!(stdout(&first), stdout(&second));
    assert!(stdout(&first).contains("steps = 7"));
}

#[test]
fn errors_name_the_key_and_the_mend() {
    assert!(refused(&["config", "check", "train.stepz=7"]).contains("Did you mean `steps`"));
    assert!(refused(&["config", "check", "--preset", "grop"]).contains("Did you mean \"grpo\"?"));
    assert!(refused(&["config", "check", "no-such-file.toml"]).contains("no-such-file.toml"));
    assert!(refused(&["train"]).contains("--resume"));
    assert!(refused(&["train", "--resume", "no-such-run"]).contains("not a run directory"));
    // Nothing but a new run is only checked.
    assert!(refused(&["train", "--resume", "no-such-run", "--dry-run"]).contains("cannot be used with"));
    assert!(refused(&["eval", "no-such-model"]).contains("no-such-model"));
    assert!(refused(&["sft", "train.steps=1"]).contains("sft.steps"));
}

#[test]
fn configs_that_come_with_the_project_are_sound() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let mut checked = 0;
    for folder in ["", "alfworld"] {
        for entry in std::fs::read_dir(format!("{root}/{folder}")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let output = turnwise(&["config", "check", path.to_str().unwrap()]);
                assert!(
                    output.status.success(),
                    "{}: {}",
                    path.display(),
                    String::from_utf8_lossy(&output.stderr)
                );
                checked += 1;
            }
        }
    }
    assert!(checked >= 2);
}
