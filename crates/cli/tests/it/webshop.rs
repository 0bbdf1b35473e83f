//! Tests of the shop's commands, on the official files if `TURNWISE_DATA` names them.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail loudly")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_DATA");
    if folder.is_none() {
        println!("skipped: TURNWISE_DATA not set");
    }
    folder.map(|folder| PathBuf::from(folder).join("webshop"))
}

fn turnwise(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = turnwise(args).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn recorded_sessions_replay_from_the_command_line() {
    let Some(data) = data() else { return };
    let (file, data) = (data.join("sessions.jsonl.zst"), data.to_str().unwrap().to_owned());
    let replay = ["env", "replay", "webshop", file.to_str().unwrap(), "--data", &data];
    let unanswered = ["--unanswered", "this has no search bar"];
    let (code, said) = run(&[&replay[..], &unanswered].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("25 sessions, 274 steps, 0 differences (12 scores not compared"), "{said}");
    let (code, said) = run(&[&replay[..], &["--show", "1"]].concat());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("36 differences") && said.contains("and 35 more"), "{said}");
}

/// Plays with the expert's hints until the episode ends.
fn hinted(args: &[&str]) -> String {
    let mut child = turnwise(&[&["play", "webshop"], args].concat()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut text = String::new();
    input.write_all(b"hint\n").unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((_, action)) = line.split_once("the expert would: ") {
            // After the last action nobody reads the next question any more.
            let _ = input.write_all(format!("{action}\nhint\n").as_bytes());
        }
        text.push_str(&line);
        text.push('\n');
    }
    assert!(child.wait().unwrap().success());
    text
}

#[test]
fn a_person_buys_by_taking_hints() {
    let text = hinted(&["--seed", "1"]);
    assert!(
        text.contains("WebShop [SEP] Instruction: [SEP] Find me ") && text.contains("  task_score "),
        "{text}"
    );
    let Some(data) = data() else { return };
    let text = hinted(&["--data", data.to_str().unwrap(), "--seed", "1"]);
    assert!(
        text.contains("WebShop [SEP] Instruction: [SEP] Find me ") && text.contains("  task_score "),
        "{text}"
    );
}

#[test]
fn what_the_shop_cannot_do_is_refused() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump.jsonl");
    for (args, expected) in [
        (vec!["play", "webshop", "--task", "nothing"], "no task has this in its id"),
        (vec!["env", "generate", "webshop", "--output", "x"], "to be written as files"),
        (
            vec!["env", "replay", "alfworld", file, "--data", "x", "--unanswered", "y"],
            "alfworld has no search",
        ),
        (
            vec!["env", "replay", "webshop", file, "--data", "x", "--output", dump.to_str().unwrap()],
            "cannot be written",
        ),
    ] {
        let (code, said) = run(&args);
        assert!(code == Some(2) && said.contains(expected), "{args:?}: {said}");
    }
    // What was refused leaves nothing behind, in the folder that it named or in this one.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
