//! Tests of `turnwise env`: task counts, generated worlds as files, replays of recordings.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

fn env(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwise")).arg("env").args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Success, and what was said.
fn done(args: &[&str]) -> String {
    let output = env(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    stdout(&output)
}

fn refused(args: &[&str]) -> String {
    let output = env(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stdout(&output));
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn generate(folder: &Path, seed: &str) {
    let numbers = ["--train", "6", "--valid-seen", "3", "--valid-unseen", "2", "--seed", seed];
    done(&[&["generate", "alfworld", "--output", text(folder)][..], &numbers].concat());
}

/// The path of some game of a folder, as recordings name it.
fn some_game(folder: &Path) -> String {
    let mut path = folder.join("valid_unseen");
    while path.is_dir() {
        let mut entries: Vec<_> =
            std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        path = entries.remove(0);
    }
    text(path.strip_prefix(folder).unwrap()).to_owned()
}

#[test]
fn list_tells_what_there_is() {
    let text = done(&["list"]);
    assert!(text.contains("alfworld") && text.contains("valid_unseen"), "{text}");
}

#[test]
fn a_generated_world_is_listed_and_repeats() {
    let folder = TempDir::new().unwrap();
    let [first, again, other] = ["first", "again", "other"].map(|name| folder.path().join(name));
    generate(&first, "7");
    generate(&again, "7");
    generate(&other, "8");
    let listed = done(&["list", "--data", text(&first)]);
    assert!(listed.contains("pick_and_place_simple"), "{listed}");
    let totals: Vec<&str> = listed.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(totals, ["all", "6", "3", "2"], "{listed}");
    let read = |folder: &Path| std::fs::read(folder.join(some_game(folder))).unwrap();
    assert_eq!(read(&first), read(&again));
    assert_ne!(read(&first), read(&other));
}

#[test]
fn two_worlds_never_share_a_folder() {
    let folder = TempDir::new().unwrap();
    generate(folder.path(), "1");
    let message = refused(&["generate", "alfworld", "--output", text(folder.path())]);
    assert!(message.contains("the folder is not empty"), "{message}");
}

#[test]
fn options_of_another_generator_are_refused() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("world");
    // Also where it is the default that is given.
    for (option, value) in
        [("--valid-seen", "256"), ("--size", "tiny"), ("--task-type", "look_at_obj_in_light")]
    {
        let message = refused(&["generate", "search", "--output", text(&out), option, value]);
        assert!(message.contains(option) && message.contains("search has no `"), "{message}");
    }
    done(&["generate", "search", "--output", text(&out), "--train", "7"]);
    assert_eq!(std::fs::read_to_string(out.join("train.jsonl")).unwrap().lines().count(), 7);
}

#[test]
fn only_known_kinds_of_tasks_are_generated() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("world");
    let message = refused(&["generate", "alfworld", "--output", text(&out), "--task-type", "pick_three"]);
    assert!(message.contains("pick_three") && message.contains("pick_two_obj_and_place"), "{message}");
}

#[test]
fn a_recording_replays_and_every_change_in_it_is_found() {
    let folder = TempDir::new().unwrap();
    let world = folder.path().join("world");
    generate(&world, "3");
    let path = |name: &str| folder.path().join(name);
    let empty = |action: &str| {
        format!(
            r#"{{"action":"{action}","observation":"","reward":0,"done":false,"won":false,"admissible_commands":[]}}"#
        )
    };
    // A recording that says nothing right: two differences a step, and two for the start.
    let asked = format!(
        r#"{{"gamefile":"{}","initial":{{"observation":"","admissible_commands":[]}},"steps":[{},{}]}}"#,
        some_game(&world),
        empty("look"),
        empty("fly")
    );
    std::fs::write(path("asked.jsonl"), asked).unwrap();
    let replay = |file: &str, more: &[&str]| {
        let file = path(file);
        env(&[&["replay", "alfworld", text(&file), "--data", text(&world)][..], more].concat())
    };
    for dump in ["produced.jsonl", "produced.jsonl.zst"] {
        let produced = path(dump);
        let output = replay("asked.jsonl", &["--output", text(&produced), "--show", "1"]);
        assert_eq!(output.status.code(), Some(1));
        let said = stdout(&output);
        assert!(said.starts_with("1 episodes, 2 steps, 6 differences\n"), "{said}");
        assert!(said.contains("and 5 more"), "{said}");

        let output = replay(dump, &[]);
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(0), "1 episodes, 2 steps, 0 differences\n")
        );
    }

    let produced = std::fs::read_to_string(path("produced.jsonl")).unwrap();
    std::fs::write(path("doctored.jsonl"), produced.replace("Nothing happens.", "Nothing happens!")).unwrap();
    let output = replay("doctored.jsonl", &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = stdout(&output);
    assert!(said.starts_with("1 episodes, 2 steps, 1 differences\n"), "{said}");
    assert!(
        said.contains("step 2, observation") && said.contains(r#"expected "Nothing happens!""#),
        "{said}"
    );
    assert!(said.contains(r#"found    "Nothing happens.""#), "{said}");
}

#[test]
fn bad_input_is_named() {
    let folder = TempDir::new().unwrap();
    let world = folder.path().join("world");
    generate(&world, "3");
    let file = folder.path().join("bad.jsonl");
    std::fs::write(&file, "\n{\"gamefile\": 3}\n").unwrap();
    let message = refused(&["replay", "alfworld", text(&file), "--data", text(&world)]);
    assert!(message.contains("bad.jsonl, line 2"), "{message}");
    // The recording would be replaced by what is found.
    let message =
        refused(&["replay", "alfworld", text(&file), "--data", text(&world), "--output", text(&file)]);
    assert!(message.contains("is the file of the recording"), "{message}");
    let message = refused(&["replay", "alfworld", "no/such.jsonl", "--data", text(&world)]);
    assert!(message.contains("no/such.jsonl"), "{message}");
    let message = refused(&["replay", "alfworld", text(&file), "--data", "no/such/world"]);
    assert!(message.contains("no/such/world"), "{message}");
}

#[test]
fn the_originals_recordings_replay_to_the_byte() {
    let Ok(data) = std::env::var("TURNWISE_DATA") else {
        println!("skipped: TURNWISE_DATA not set");
        return;
    };
    let data = Path::new(&data).join("alfworld");
    let recording = data.join("transcripts.jsonl.zst");
    let said = done(&["replay", "alfworld", text(&recording), "--data", text(&data)]);
    assert_eq!(said, "100 episodes, 2163 steps, 0 differences\n");
}
