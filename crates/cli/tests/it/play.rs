//! Tests of `turnwise play` with scripted input.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

fn turnwise(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command
        .args(["play", "alfworld"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn play(args: &[&str], lines: &str) -> Output {
    let mut child = turnwise(args).spawn().unwrap();
    // A command that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = play(args, "");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
    String::from_utf8(output.stderr).unwrap()
}

/// Asks for advice and takes it until the game ends. The expert says nothing that the person could not know, so
/// it has to explore first.
#[test]
fn a_game_is_won_by_taking_hints() {
    let mut child = turnwise(&["--seed", "1"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut text = String::new();
    let mut taken = 0;
    input.write_all(b"hint\n").unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((_, action)) = line.split_once("the expert would: ") {
            taken += 1;
            // After the last action nobody reads the next question any more.
            let _ = input.write_all(format!("{action}\nhint\n").as_bytes());
        }
        text.push_str(&line);
        text.push('\n');
    }
    assert!(text.contains("Your task is to: "), "{text}");
    assert!(text.ends_with(&format!("\nSolved in {taken} steps.\n")), "{taken} steps\n{text}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn everything_a_person_may_type_is_answered() {
    let output = play(&["--seed", "1"], "help\nadmissible\nfly\n\ngo to cabinett 1\n!look\nlook\nquit\n");
    assert!(output.status.success());
    let text = said(&output);
    for expected in [
        "Your task is to: ",
        "lists every action",
        "  go to ",
        "1/50 > fly\nNothing happens.\n  not understood",
        "is `go to cab",
        "4/50 > look\nYou are in the middle of a room.",
        "Left after 4 steps; the task is not solved.",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no escape codes where there is no terminal\n{text}");
}

#[test]
fn the_end_of_the_input_and_of_the_steps_are_said() {
    assert!(said(&play(&[], "look\n")).ends_with("Left after 1 step; the task is not solved.\n"));
    let text = said(&play(&["--max-turns", "2"], "look\nlook\nlook\n"));
    assert!(text.ends_with("The episode ended after 2 steps; the task is not solved.\n"), "{text}");
}

#[test]
fn a_seed_names_a_game() {
    let start = |args: &[&str]| said(&play(args, ""));
    assert_eq!(start(&["--seed", "5"]), start(&["--seed", "5"]));
    assert_ne!(start(&["--seed", "5"]), start(&["--seed", "6"]));
    assert!(start(&["--split", "train", "--size", "small"]).starts_with("train/"));
}

#[test]
fn a_game_is_found_by_a_part_of_its_id() {
    let text = said(&play(&["--split", "valid_seen", "--task", "trial_G000003"], ""));
    assert!(text.starts_with("valid_seen/") && text.contains("trial_G000003, 50 steps"), "{text}");
    assert!(refused(&["--task", "trial_G000003"]).contains("tasks have this in their id, for example"));
}

#[test]
fn refusals_name_the_mend() {
    assert!(refused(&["--task", "no such game"]).contains("no task has this in its id"));
    assert!(refused(&["--split", "test"]).contains("unknown split `test`"));
    assert!(refused(&["--max-turns", "0"]).contains("at least one turn"));
    assert!(refused(&["--data", "no/such/folder"]).contains("no/such/folder"));
}

#[test]
fn arrow_keys_walk_in_sokoban() {
    let play = |lines: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_turnwise"))
            .args(["play", "sokoban", "--pictures", "off"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        said(&child.wait_with_output().unwrap())
    };
    // What a terminal sends for the keys up, down and left.
    let keys = play("\u{1b}[A\n\u{1b}[B\n\u{1b}OD\nquit\n");
    assert_eq!(keys, play("up\ndown\nleft\nquit\n"));
    assert!(keys.contains("Left after 3 steps") && !keys.contains("not understood"), "{keys}");
}
