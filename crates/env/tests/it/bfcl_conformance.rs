//! Compares the APIs with recorded episodes of the original.
//!
//! Reads `bfcl/plays.jsonl.zst` in the folder in `TURNWISE_DATA`, and the package `bfcl-eval` in
//! the folder in `TURNWISE_BFCL`. Without them, the tests print that they are skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::io::Read as _;
use std::path::PathBuf;

use turnwise_core::{Action, Environment as _, Purpose, Seed, TaskSet as _};
use turnwise_env::bfcl::package::{BfclSet, Package};
use turnwise_env::bfcl::replay::replay;
use turnwise_env::bfcl::reply::write_calls;
use turnwise_env::bfcl::{BfclOptions, BfclTasks};

fn data() -> Option<(String, PathBuf)> {
    let folder = |name: &str| {
        let folder = std::env::var_os(name);
        if folder.is_none() {
            println!("skipped: {name} not set");
        }
        folder.map(PathBuf::from)
    };
    let (data, package) = (folder("TURNWISE_DATA")?, folder("TURNWISE_BFCL")?);
    let path = data.join("bfcl/plays.jsonl.zst");
    let Ok(file) = std::fs::File::open(&path) else {
        println!("skipped: there is no {}", path.display());
        return None;
    };
    let mut text = String::new();
    zstd::stream::read::Decoder::new(file).unwrap().read_to_string(&mut text).unwrap();
    Some((text, package))
}

#[test]
fn every_recorded_play_has_the_same_texts_and_states() {
    let Some((text, package)) = data() else { return };
    let report = replay("plays", text.as_bytes(), &package).unwrap();
    for difference in report.differences.iter().take(20) {
        println!("{difference}");
    }
    assert_eq!(report.counts, "2400 plays, 14407 calls, 0 differences");
}

#[test]
fn a_changed_recording_is_reported() {
    let Some((text, package)) = data() else { return };
    let first = text.lines().next().unwrap();
    for (from, to, field) in [
        ("\"results\": [[\"", "\"results\": [[\"x", "result"),
        ("\"long_context\": false", "\"long_context\": 0", "state"),
    ] {
        assert!(first.contains(from), "{from}");
        let report = replay("plays", first.replacen(from, to, 1).as_bytes(), &package).unwrap();
        let fields: Vec<&str> = report.differences.iter().map(|difference| difference.field).collect();
        assert_eq!(fields, [field]);
    }
}

#[test]
fn the_gold_calls_solve_every_task_and_nothing_else_does() {
    let Some((_, folder)) = data() else { return };
    let package = Package::read(&folder, &BfclSet::ALL).unwrap();
    let set = BfclTasks::new(package, BfclOptions::default());
    let mut environment = set.bfcl();
    let tasks = set.tasks("all").unwrap();
    assert_eq!(tasks.len(), 800);
    for task in &tasks {
        let gold = &set.task(&task.id).unwrap().gold;
        for solves in [true, false] {
            environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
            let mut last = None;
            for calls in gold {
                // Without the last call of each turn a state or a result is missing.
                let calls = if solves { calls.as_slice() } else { &calls[..calls.len().saturating_sub(1)] };
                if !calls.is_empty() {
                    environment.step(&Action::from(write_calls(calls))).unwrap();
                }
                last = Some(environment.step(&Action::from("Done.")).unwrap());
            }
            let last = last.unwrap();
            assert!(last.terminated && last.success == solves, "{}: {solves}", task.id);
        }
    }
    // The splits contain every task once, with all variants of a number in one split.
    let mut numbers: Vec<Vec<String>> = Vec::new();
    for split in ["train", "valid", "test"] {
        let tasks = set.tasks(split).unwrap();
        let mut found: Vec<String> =
            tasks.iter().map(|task| task.id.rsplit('_').next().unwrap().to_owned()).collect();
        found.sort();
        assert!(found.chunks(4).all(|four| four.len() == 4 && four.iter().all(|number| *number == four[0])));
        found.dedup();
        numbers.push(found);
    }
    let counts: Vec<usize> = numbers.iter().map(Vec::len).collect();
    assert_eq!(counts.iter().sum::<usize>(), 200);
    println!("{counts:?}");
}
