//! Tests that terminal escapes in files, worlds and arguments are escaped and never reach the
//! terminal.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output, Stdio};

use crate::turnwise;

/// Sets the window's title, in its 7-bit and 8-bit forms, clears the screen, and reverses the text's direction.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\u{8}";

/// The same as it is printed.
const SHOWN: &str = r"\u001b]0;owned\u0007\u009b2J\u202e\u0008";

/// Everything that a command printed, which must be harmless and show what was hostile.
fn printed(output: &Output) -> String {
    let text = harmless(output);
    assert!(text.contains(SHOWN), "{text}");
    text
}

/// Everything that a command printed, without a character that a terminal obeys.
fn harmless(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    let harmful = |character: char| {
        character != '\n' && (character.is_control() || ('\u{202a}'..='\u{202e}').contains(&character))
    };
    assert!(!text.contains(harmful), "{text:?}");
    text
}

#[test]
fn credit_shows_the_escapes_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.jsonl");
    let line = |group: &str, action: &str| serde_json::json!({"group": group, "turns": [{"observation": "", "action": action, "reward": 1.0}]});
    let lines = [line("g", HOSTILE), line("g", "look")].map(|line| line.to_string());
    std::fs::write(&path, lines.join("\n")).unwrap();
    let output = turnwise(&["credit", path.to_str().unwrap(), "--preset", "grpo"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    printed(&output);
}

#[test]
fn errors_show_the_escapes_of_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.toml");
    std::fs::write(&path, format!("[train]\n{} = 1\n", toml::Value::from(HOSTILE))).unwrap();
    let output = turnwise(&["config", "check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    printed(&output);
}

/// Plays a world whose answers are these, one a request.
fn play(answers: &[serde_json::Value], typed: &str) -> Output {
    use std::io::Write as _;
    let mut script = String::new();
    for answer in answers {
        script.push_str(&format!("read l; printf '%s\\n' '{answer}'; "));
    }
    let command = serde_json::json!(["sh", "-c", format!("{script} read l")]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .args(["play", "process", &format!("command={command}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn play_shows_the_escapes_of_a_world() {
    let hello = serde_json::json!({"id": 0, "ok": {"protocol": 1, "name": "w", "splits": ["train"]}});
    let tasks = |id: &str| serde_json::json!({"id": 1, "ok": {"tasks": [{"id": id, "goal": "win"}]}});
    let seen = |text: &str, action: &str| serde_json::json!({"id": 2, "ok": {"observation": {"text": text, "admissible": [action]}}});
    let plain = [hello.clone(), tasks("a"), seen("start", "go")];
    for (place, answer) in [(1, tasks(HOSTILE)), (2, seen(HOSTILE, "go")), (2, seen("start", HOSTILE))] {
        let mut answers = plain.clone();
        answers[place] = answer;
        let output = play(&answers, "admissible\nquit\n");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        printed(&output);
    }
    // What a server says of its failure.
    let failure = serde_json::json!({"id": 2, "error": {"message": HOSTILE}});
    let output = play(&[hello, tasks("a"), failure], "");
    assert_eq!(output.status.code(), Some(2));
    printed(&output);
}

#[test]
fn arguments_are_shown_with_their_escapes() {
    printed(&turnwise(&["eval", &format!("no-such-{HOSTILE}")]));
    // Before a command has begun; some of it clap leaves out.
    let text = harmless(&turnwise(&["config", "show", &format!("--no-such-{HOSTILE}")]));
    assert!(text.contains(r"'--no-such-") && text.contains(r"\u009b2J\u202e"), "{text}");
}
