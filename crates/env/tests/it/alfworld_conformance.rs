//! Compares the engine with the official games and recordings of the original.
//!
//! Reads the folder in `TURNWISE_DATA`; without it, the tests print that they are skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use turnwise_core::{Purpose, Seed, TaskSet as _};
use turnwise_env::alfworld::{AlfworldSet, Episode, TaskType, replay};

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_DATA");
    if folder.is_none() {
        println!("skipped: TURNWISE_DATA not set");
    }
    folder.map(|folder| PathBuf::from(folder).join("alfworld"))
}

fn games(folder: &Path) -> &'static AlfworldSet {
    static SET: OnceLock<AlfworldSet> = OnceLock::new();
    SET.get_or_init(|| {
        let (set, errors) = AlfworldSet::load(folder).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        set
    })
}

fn transcripts(folder: &Path) -> String {
    let file = std::fs::File::open(folder.join("transcripts.jsonl.zst")).unwrap();
    let mut text = String::new();
    zstd::stream::read::Decoder::new(file).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_official_games_are_counted_as_published() {
    let Some(folder) = data() else { return };
    let set = games(&folder);
    assert_eq!(set.splits(), ["train", "valid_seen", "valid_unseen", "valid_train"]);
    let count = |split: &str| {
        let mut counts: BTreeMap<TaskType, usize> = BTreeMap::new();
        set.split(split).unwrap().iter().for_each(|game| *counts.entry(game.task_type()).or_default() += 1);
        TaskType::ALL.map(|kind| counts.get(&kind).copied().unwrap_or(0))
    };
    assert_eq!(count("train"), [790, 308, 650, 459, 533, 813]);
    assert_eq!(count("valid_seen"), [35, 13, 27, 16, 25, 24]);
    assert_eq!(count("valid_unseen"), [24, 18, 31, 23, 21, 17]);
    assert_eq!(set.split("valid_train").unwrap().len(), 200);
    assert_eq!(set.len(), 4027);
    assert!(set.iter().all(|game| game.floor_plan().is_some() && game.walkthrough().is_some()));
}

#[test]
fn every_recorded_episode_replays_to_the_byte() {
    let Some(folder) = data() else { return };
    let set = games(&folder);
    let text = transcripts(&folder);
    let mut dump = Vec::new();
    let report = replay::replay("transcripts", text.as_bytes(), set, Some(&mut dump)).unwrap();
    for difference in report.differences.iter().take(5) {
        println!("{difference}");
    }
    assert_eq!((report.episodes, report.steps, report.differences.len()), (100, 2163, 0));

    let again = replay::replay("dump", dump.as_slice(), set, None).unwrap();
    assert_eq!(again, report, "what the engine wrote does not replay");
}

#[test]
fn one_changed_byte_is_reported_as_exactly_that() {
    let Some(folder) = data() else { return };
    let set = games(&folder);
    let text = transcripts(&folder);
    let first = text.lines().next().unwrap();
    let change = |from: &str, to: &str| {
        let changed = first.replacen(from, to, 1);
        assert_ne!(changed, first);
        let report = replay::replay("changed", changed.as_bytes(), set, None).unwrap();
        assert_eq!(report.differences.len(), 1, "{:?}", report.differences);
        report.differences.into_iter().next().unwrap()
    };
    let seen = change("On the stoveburner 3, you see a pan 2.", "On the stoveburner 3, you see a pan 1.");
    assert_eq!((seen.episode, seen.step, seen.field), (1, 1, "observation"));
    assert!(seen.expected.ends_with("pan 1.") && seen.found.ends_with("pan 2."), "{seen}");

    let listed = change("\"go to toaster 1\"", "\"go to toaster 2\"");
    assert_eq!((listed.step, listed.field), (0, "admissible_commands"));
    let reward = change("\"reward\": 1", "\"reward\": 2");
    assert_eq!((reward.field, reward.expected.as_str(), reward.found.as_str()), ("reward", "2", "1"));
    assert_eq!(change("\"done\": true", "\"done\": false").field, "done");
    assert_eq!(change("\"won\": true", "\"won\": false").field, "won");
}

#[test]
fn every_walkthrough_wins_with_its_last_step() {
    let Some(folder) = data() else { return };
    for game in games(&folder).iter() {
        let mut episode = Episode::new(Arc::clone(game));
        assert!(!episode.won() && episode.progress() < 1.0, "{} is won before it starts", game.id());
        let plan = game.walkthrough().unwrap();
        let last = plan.len() - 1;
        for (step, action) in plan.enumerate() {
            assert!(episode.admissible().iter().any(|listed| listed == action), "{}: {action}", game.id());
            let outcome = episode.step(action);
            assert!(outcome.understood);
            assert_eq!(outcome.won, step == last, "{}, step {step}", game.id());
            assert_eq!(outcome.won, outcome.progress == 1.0, "{}", game.id());
        }
    }
}

#[test]
fn random_episodes_keep_the_list_and_the_parser_in_agreement() {
    let Some(folder) = data() else { return };
    for (index, game) in games(&folder).split("valid_seen").unwrap().iter().enumerate() {
        let mut rng = Seed::derive(1, Purpose::Rollout, &[index as u64]).rng();
        let mut episode = Episode::new(Arc::clone(game));
        for _ in 0..100 {
            let listed = episode.admissible();
            let mut sorted = listed.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(listed, sorted, "{}", game.id());
            let action = rng.choose(&listed).unwrap();
            let outcome = episode.step(action);
            assert!(outcome.understood, "{action}");
            assert_eq!(outcome.won, outcome.progress == 1.0);
        }
    }
}

#[test]
fn a_folder_tree_gives_the_same_games_as_the_archive() {
    let Some(folder) = data() else { return };
    let set = games(&folder);
    let (tree, errors) = AlfworldSet::load(&folder.join("samples")).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(tree.len(), 24);
    for game in tree.iter() {
        assert_eq!(set.game(game.id()).unwrap(), game);
    }
    let (some, _) = AlfworldSet::load_splits(&folder, &["valid_unseen"]).unwrap();
    assert_eq!(some.splits(), ["valid_unseen"]);
    assert_eq!(some.tasks("valid_unseen").unwrap(), set.tasks("valid_unseen").unwrap());
    let error = AlfworldSet::load_splits(&folder.join("samples"), &["test"]).unwrap_err().to_string();
    assert!(error.contains("samples"), "{error}");
}

#[test]
fn a_recording_that_is_none_is_named_by_line_and_key() {
    let Some(folder) = data() else { return };
    let text = transcripts(&folder);
    let two: Vec<&str> = text.lines().take(2).collect();
    let broken = format!("{}\n\n{}", two[0], two[1].replacen("\"won\": false", "\"won\": 0", 1));
    let error = replay::replay("bad.jsonl", broken.as_bytes(), games(&folder), None).unwrap_err().to_string();
    assert!(error.contains("bad.jsonl, line 3") && error.contains("key `won`"), "{error}");
}
