//! Tests of a user's first commands: help, configs, and errors that name the fix.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Output;

use super::docs::subcommands;

use crate::turnwise;

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
    let commands = subcommands(&overview);
    assert_eq!(commands.len(), 21, "{overview}");
    for command in commands {
        let help = turnwise(&[command.as_str(), "--help"]);
        assert!(help.status.success(), "{command}");
        let text = stdout(&help);
        assert!(text.contains(&format!("Usage: turnwise {command}")), "{text}");
        // What it is for comes first, in the words of the list or more.
        assert!(!text.starts_with("Usage:"), "{command} does not say what it does");
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

/// Folders of sweeps, every run of which other tests resolve: `sweep.rs` and `src/commands/sweep/paper_tests.rs`.
const SWEEPS: [&str; 3] = ["sweeps", "evidence", "paper/sweeps"];

/// Configs of worlds that only a program with the feature `remote` knows; `src/worlds.rs` checks them there.
const REMOTE: [&str; 5] = [
    "remote/appworld.toml",
    "remote/appworld-salt-grpo.toml",
    "remote/appworld-salt-rloo.toml",
    "remote/mcp.toml",
    "remote/openenv.toml",
];

/// A config whose model has to be named, as its first line does.
const WITHOUT_MODEL: &str = "remote/skyrl-ezpoints.toml";

/// All configs in a folder and below, by their paths from `root`.
fn configs(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            configs(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn configs_that_come_with_the_project_are_sound() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs"));
    let mut files = Vec::new();
    configs(&root, &root, &mut files);
    assert!(REMOTE.iter().all(|file| files.iter().any(|there| there == file)), "{files:?}");
    files.retain(|file| !REMOTE.contains(&file.as_str()));
    files.retain(|file| !SWEEPS.iter().any(|folder| Path::new(file).starts_with(folder)));
    let (mut runs, mut sweeps) = (0, 0);
    for file in &files {
        let path = root.join(file);
        let table: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let path = path.to_str().unwrap();
        let empty = tempfile::tempdir().unwrap();
        let output = if table.contains_key("seeds") || table.contains_key("run") {
            sweeps += 1;
            turnwise(&["sweep", path, "--list", "--runs", empty.path().to_str().unwrap()])
        } else {
            runs += 1;
            let model: &[&str] = if file == WITHOUT_MODEL { &["policy.model=org/name"] } else { &[] };
            turnwise(&[&["config", "check", path][..], model].concat())
        };
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!((runs, sweeps), (79, 3), "{files:?}");
}
