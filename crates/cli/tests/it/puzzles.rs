//! Tests of Sokoban and EZPoints: replayed recordings, and games played by following the expert's
//! hints.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail loudly and says what it skips"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::turnwise;

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = turnwise(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stdout(&output));
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn recorded(world: &str, file: &str) -> Option<PathBuf> {
    let data = std::env::var("TURNWISE_DATA").ok();
    if data.is_none() {
        println!("skipped: TURNWISE_DATA not set");
    }
    Some(Path::new(&data?).join(world).join(file))
}

/// Replays the originals' recordings, as they are and with one thing changed.
fn replays(world: &str, file: &Path, counts: &str, changes: &[(&str, &str, &str)]) {
    let output = turnwise(&["env", "replay", world, text(file)]);
    assert_eq!(stdout(&output), format!("{counts}, 0 differences\n"));
    assert!(output.status.success());
    let recording = zstd::decode_all(fs::File::open(file).unwrap()).unwrap();
    let recording = String::from_utf8(recording).unwrap();
    let folder = TempDir::new().unwrap();
    for (from, to, field) in changes {
        assert!(recording.contains(from), "{from}");
        let doctored = folder.path().join("doctored.jsonl");
        fs::write(&doctored, recording.replacen(from, to, 1)).unwrap();
        let output = turnwise(&["env", "replay", world, text(&doctored)]);
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("{counts}, 1 differences\n")) && said.contains(field), "{said}");
    }
}

#[test]
fn sokobans_recordings_replay_to_the_byte() {
    let Some(file) = recorded("sokoban", "levels_and_rollouts.jsonl.zst") else { return };
    let changes = [
        ("\"reward\": 10.9", "\"reward\": 10.8", ", reward ("),
        ("\"moved\": false", "\"moved\": true", ", moved ("),
        (" P \\t _ \\t", " _ \\t P \\t", ", text ("),
    ];
    replays("sokoban", &file, "120 episodes, 1709 steps", &changes);
    // The recorded levels as a panel.
    let data = format!("data={}", text(&file));
    let output = turnwise(&["play", "sokoban", &data, "--task", "test/000120"]);
    assert!(stdout(&output).contains("test/000120-"), "{}", stdout(&output));
}

#[test]
fn ezpoints_recordings_replay_without_a_difference() {
    let Some(file) = recorded("ezpoints", "episodes.jsonl.zst") else { return };
    let changes = [
        ("\"reward\": 10", "\"reward\": 9", ", reward ("),
        ("\"formula\": \"10+\"", "\"formula\": \"10\"", ", formula ("),
    ];
    replays("ezpoints", &file, "60 episodes, 281 steps", &changes);
    let data = format!("data={}", text(&file));
    let output = turnwise(&["play", "ezpoints", &data, "--task", "test/00060"]);
    assert!(stdout(&output).contains("test/00060-"), "{}", stdout(&output));
}

#[test]
fn bad_levels_are_named_with_their_line() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("levels.txt");
    let data = format!("data={}", text(&file));
    let good = "#####\n#PXO#\n#####\n\n";
    for (bad, expected) in [
        ("#####\n#_XO#\n#####", "levels.txt, line 5: there are 0 players"),
        ("#####\n#PXO#\n######", "line 5: row 3 has 6 cells"),
        ("######\n#X_PO#\n######", "line 5: this level cannot be solved"),
        ("#####\n#PXO_\n#####", "line 5: the player can leave"),
    ] {
        fs::write(&file, format!("{good}{bad}\n")).unwrap();
        let message = refused(&["play", "sokoban", &data]);
        assert!(message.contains(expected), "{message}");
    }
    let huge = format!("{0}\n#PXO{1}#\n{0}\n", "#".repeat(50), "_".repeat(45));
    fs::write(&file, huge).unwrap();
    assert!(refused(&["play", "sokoban", &data]).contains("line 1: 50 x 3 cells are more than 32 x 32"));
    fs::write(&file, "\n").unwrap();
    assert!(refused(&["play", "sokoban", &data]).contains("there are no levels"));
    assert!(refused(&["play", "sokoban", "data=no/such/file"]).contains("no/such/file"));
    let message = refused(&["play", "sokoban", "generator.min_moves=9", "generator.max_moves=3"]);
    assert!(
        message.contains("generator.min_moves") && message.contains("more than generator.max_moves"),
        "{message}"
    );
    assert!(refused(&["play", "ezpoints", "generator.train=0"]).contains("generator.train"));
    fs::write(&file, "{\"cards\": [\"H4\"]}\n").unwrap();
    assert!(refused(&["play", "ezpoints", &data]).contains("levels.txt, line 1"));
}

#[test]
fn worlds_that_need_their_data_say_so() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("episodes.jsonl");
    fs::write(&file, "\n").unwrap();
    assert!(refused(&["env", "replay", "alfworld", text(&file)]).contains("--data"));
    assert!(refused(&["env", "replay", "webshop", text(&file)]).contains("--data"));
}

/// Asks for advice and takes it until the episode ends.
#[test]
fn games_are_won_by_taking_hints() {
    for world in ["sokoban", "ezpoints"] {
        for seed in ["1", "2", "3"] {
            let mut child = Command::new(env!("CARGO_BIN_EXE_turnwise"))
                .args(["play", world, "--seed", seed])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = child.stdin.take().unwrap();
            let mut said = String::new();
            input.write_all(b"help\nhint\n").unwrap();
            for line in BufReader::new(child.stdout.take().unwrap()).lines() {
                let line = line.unwrap();
                if let Some((_, action)) = line.split_once("the expert would: ") {
                    // After the last action nobody reads the next question any more.
                    let _ = input.write_all(format!("{action}\nhint\n").as_bytes());
                }
                said.push_str(&line);
                said.push('\n');
            }
            assert!(said.contains("\nSolved in "), "{world}, seed {seed}\n{said}");
            assert!(child.wait().unwrap().success());
        }
    }
}

#[test]
fn pictures_are_shown_in_the_terminal() {
    for (world, columns) in [("sokoban", 48), ("ezpoints", 60)] {
        let output = turnwise(&["play", world, "--pictures", "blocks"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = stdout(&output);
        let line = said.lines().find(|line| line.contains('▀')).unwrap();
        assert_eq!(line.matches('▀').count(), columns, "{world}");
        assert!(
            !stdout(&turnwise(&["play", world])).contains('\u{1b}'),
            "no escape codes without a terminal"
        );
    }
    assert!(refused(&["play", "alfworld", "--pictures", "blocks"]).contains("alfworld draws none"));
}

#[test]
fn broken_tiles_and_cards_are_named() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("wall.png"), b"no picture").unwrap();
    let tiles = format!("tiles={}", text(folder.path()));
    let message = refused(&["play", "sokoban", "--pictures", "blocks", &tiles]);
    assert!(message.contains("wall.png: this is no PNG picture"), "{message}");
    assert!(refused(&["play", "sokoban", &tiles]).contains("name a folder for them with pictures"));
    let cards = format!("cards={}", text(folder.path()));
    assert!(refused(&["play", "ezpoints", "--pictures", "blocks", &cards]).contains("H2.png"));
}

#[test]
fn pictures_of_the_originals_are_drawn_again() {
    let Some(folder) = recorded("ezpoints", "") else { return };
    let file = folder.join("episodes.jsonl.zst");
    let output = turnwise(&["env", "replay", "ezpoints", text(&file), "--data", text(&folder)]);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("0 differences (") && said.contains("pictures compared)"), "{said}");
    // Another card's picture is a difference.
    let other = TempDir::new().unwrap();
    let cards = other.path().join("cards_135x189");
    fs::create_dir(&cards).unwrap();
    for entry in fs::read_dir(folder.join("cards_135x189")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, cards.join(path.file_name().unwrap())).unwrap();
    }
    fs::copy(cards.join("S9.png"), cards.join("C8.png")).unwrap();
    fs::copy(folder.join("final_obs_seed0.png"), other.path().join("final_obs_seed0.png")).unwrap();
    let output = turnwise(&["env", "replay", "ezpoints", text(&file), "--data", text(other.path())]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 differences (1 pictures compared)") && said.contains(", picture ("), "{said}");
}

#[test]
fn worlds_are_listed_with_their_splits() {
    let said = stdout(&turnwise(&["env", "list", "sokoban"]));
    assert!(said.contains("1 box") && said.contains("2000"), "{said}");
    let said = stdout(&turnwise(&["env", "list", "ezpoints"]));
    assert!(said.contains("sum") && said.contains("product"), "{said}");
}
