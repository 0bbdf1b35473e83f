//! Faults of the disk at every write, flush and rename of a run: one fails, the disk is full, the program is killed in the
//! middle, the power fails. Afterwards the error names the file, nothing is lost, and the resumed run has the bits of an
//! uninterrupted one.
//!
//! By default one operation of each kind on each kind of file is tried with each fault.
//! `TURNWISE_FAULTS=all cargo test --release -p turnwise-cli --test it faults -- --nocapture` tries every operation.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and says what it skips and counts"
)]

mod disk;
mod supervisor;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use turnwise_cli::train::record::tensorboard::read_scalars;

use self::supervisor::{Ended, Fault, Kind, Operation};
use crate::kill::without_time;

const FAULTS: [Fault; 4] = [Fault::Fails, Fault::Fills, Fault::Kill, Fault::PowerCut];

/// A command and what it writes.
struct Scenario {
    /// The arguments, in parts.
    start: &'static [&'static [&'static str]],
    /// Returns what must be the same with and without faults, by name.
    outcome: fn(&Path) -> BTreeMap<String, Vec<u8>>,
}

/// The command after a fault, if the run has been created.
const RESUME: [&str; 3] = ["train", "--resume", "runs/run"];

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/tiny.toml");

/// A run with a warm start and evaluations, which keeps one checkpoint only.
const TRAIN: Scenario = Scenario {
    start: &[
        &["train", "--preset", "quickstart", TINY, "name=run"],
        &["sft.steps=4", "sft.checkpoint_every=2", "train.steps=3", "train.checkpoint_every=1"],
        &["train.keep_last=1", "train.keep_best=valid_unseen"],
        &["eval.every=1", "eval.splits=[\"valid_unseen\"]"],
    ],
    outcome: run_outcome,
};

/// A run with learned credit: replay, rounds and TurnRD's network.
const TURNRD: Scenario = Scenario {
    start: &[
        &["train"],
        crate::turnrd_run::TINY,
        &["name=run", "train.steps=2", "train.checkpoint_every=1", "train.keep_last=1"],
    ],
    outcome: run_outcome,
};

/// Dumps: advantages of given trajectories.
const DUMP: Scenario = Scenario {
    start: &[&[
        "credit",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/credit/two-trajectories.jsonl"),
        "--preset",
        "gigpo",
        "-o",
        "advantages.parquet",
    ]],
    outcome: |folder| {
        let name = "advantages.parquet";
        [(name.to_owned(), std::fs::read(folder.join(name)).unwrap())].into()
    },
};

/// Returns the files of a run that interruptions must not change.
fn run_outcome(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let run = folder.join("runs/run");
    let mut found = BTreeMap::new();
    for entry in walk(&run) {
        let name = entry.strip_prefix(&run).unwrap().to_str().unwrap().to_owned();
        // Logs, locks and dates; the parts of checkpoints that were left behind or given up.
        let own =
            |part: &str| part.starts_with('.') || part.starts_with("abandoned") || is_of_kind(part, "part");
        if name.split('/').any(own)
            || ["log.jsonl", "run.lock"].contains(&name.as_str())
            || name.starts_with("events.")
        {
            continue;
        }
        let bytes = std::fs::read(&entry).unwrap();
        let same = match name.as_str() {
            "metrics.jsonl" => {
                let lines: Vec<Value> = String::from_utf8(bytes)
                    .unwrap()
                    .lines()
                    .map(|line| without_time(serde_json::from_str(line).unwrap()))
                    .collect();
                serde_json::to_vec(&lines).unwrap()
            }
            // The rest of the file has times.
            "status.json" => {
                let status: Value = serde_json::from_slice(&bytes).unwrap();
                status["state"].to_string().into_bytes()
            }
            _ if is_of_kind(&name, "json") && name.starts_with("eval/") => {
                serde_json::to_vec(&without_time(serde_json::from_slice(&bytes).unwrap())).unwrap()
            }
            _ => bytes,
        };
        found.insert(name, same);
    }
    let mut scalars = BTreeMap::new();
    for step in read_scalars(&run).unwrap() {
        for (tag, value) in step.scalars.into_iter().filter(|(tag, _)| !tag.starts_with("perf/")) {
            scalars.insert((step.step, tag), value.to_bits());
        }
    }
    found.insert("TensorBoard".into(), format!("{scalars:?}").into_bytes());
    found
}

fn is_of_kind(name: &str, kind: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == kind)
}

/// Returns every file below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

fn run(folder: &Path, arguments: &[&str], fault: Option<(Fault, usize)>) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).args(arguments);
    supervisor::run(&mut command, folder, fault).unwrap()
}

/// Returns the kind of an operation and its path with every number replaced by 0.
fn kind_of(operation: &Operation) -> (Kind, String) {
    let path = operation.path.to_string_lossy();
    let mut name = String::new();
    for letter in path.chars() {
        let letter = if letter.is_ascii_digit() { '0' } else { letter };
        // Temporary files have random names.
        if !(letter == '0' && name.ends_with('0')) {
            name.push(letter);
        }
    }
    if let Some((folder, file)) = name.rsplit_once('/')
        && file.starts_with(".tmp")
    {
        name = format!("{folder}/.tmp");
    }
    (operation.kind, name)
}

/// Creates an empty folder, in memory if the system has such a place: thousands of flushes of a real disk take minutes.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Returns the newest checkpoint that was in its place, with its folder flushed, at the end of these operations.
fn flushed_checkpoint(operations: &[Operation]) -> Option<String> {
    let placed = |(at, operation): (usize, &Operation)| {
        let name = operation.path.file_name()?.to_str()?.to_owned();
        let folder = operation.path.parent()?;
        let is_checkpoint = folder.ends_with("checkpoints") && name.contains("-0") && !name.starts_with('.');
        let mut later = operations[at + 1..].iter();
        let flushed = later.any(|later| later.kind == Kind::Flush && later.path == folder);
        (operation.kind == Kind::Rename && is_checkpoint && flushed).then_some(name)
    };
    operations.iter().enumerate().filter_map(placed).max()
}

/// Returns what was lost of a run by a kill or a power cut, if anything was.
fn lost(folder: &Path, operations: &[Operation]) -> Option<String> {
    let newest = flushed_checkpoint(operations)?;
    let found = std::fs::read_dir(folder.join("runs/run/checkpoints")).ok().into_iter().flatten().flatten();
    let whole = |entry: &std::fs::DirEntry| entry.path().join("COMPLETE").is_file();
    let names = found.filter(whole).map(|entry| entry.file_name().into_string().unwrap());
    (!names.into_iter().any(|name| !name.starts_with('.') && name >= newest))
        .then(|| format!("the checkpoint {newest} is gone"))
}

/// Returns what is wrong after a fault at an operation, if anything is.
fn wrong(
    scenario: &Scenario,
    expected: &BTreeMap<String, Vec<u8>>,
    fault: Fault,
    at: usize,
) -> Option<String> {
    let folder = folder();
    let ended = run(folder.path(), &scenario.start.concat(), Some((fault, at)));
    let dies = matches!(fault, Fault::Kill | Fault::PowerCut);
    let errors = ended.errors;
    if errors.contains("panicked") || !dies && ended.status.code().is_none() {
        return Some(format!("{}: {errors}", ended.status));
    }
    if !dies && !ended.status.success() {
        let clear = errors.contains("os error") && (errors.contains("run") || errors.contains("advantages"));
        if !clear {
            return Some(format!("the error does not name file and reason: {errors}"));
        }
    }
    // The last operation was not done.
    let done = &ended.operations[..ended.operations.len().saturating_sub(1)];
    if let Some(lost) = lost(folder.path(), done) {
        return Some(lost);
    }
    if !ended.status.success() {
        let (what, arguments) = if folder.path().join("runs/run/config.toml").exists() {
            ("resume", RESUME.to_vec())
        } else {
            ("start over in the same folder", scenario.start.concat())
        };
        let again = run(folder.path(), &arguments, None);
        if !again.status.success() {
            return Some(format!("it does not {what}: {}", again.errors));
        }
    }
    let log = std::fs::read_to_string(folder.path().join("runs/run/log.jsonl")).unwrap_or_default();
    let said = ["going on from the checkpoint before it", "are missing", "the line is dropped"];
    if let Some(line) = log.lines().find(|line| said.iter().any(|said| line.contains(said))) {
        return Some(format!("something was lost: {line}"));
    }
    let found = (scenario.outcome)(folder.path());
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differ: Vec<&String> =
        names.into_iter().filter(|name| found.get(*name) != expected.get(*name)).collect();
    (!differ.is_empty()).then(|| format!("after {}: these differ: {differ:?}", ended.status))
}

/// Tries faults at operations of a scenario; all of them if `TURNWISE_FAULTS=all` is set.
fn survives(scenario: &Scenario) {
    if !supervisor::is_possible() {
        println!("skipped: this system does not let a process supervise the system calls of another");
        return;
    }
    let straight = folder();
    let ended = run(straight.path(), &scenario.start.concat(), None);
    assert!(ended.status.success(), "{}", ended.errors);
    let expected = (scenario.outcome)(straight.path());
    let all = std::env::var("TURNWISE_FAULTS").is_ok_and(|value| value == "all");
    let mut seen = BTreeSet::new();
    let mut tries = Vec::new();
    for (at, operation) in ended.operations.iter().enumerate() {
        if all || seen.insert(kind_of(operation)) {
            let fits = |fault: &Fault| *fault != Fault::Fills || operation.kind == Kind::Write;
            tries.extend(FAULTS.into_iter().filter(fits).map(|fault| (fault, at)));
        }
    }
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((fault, at)) = tries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(reason) = wrong(scenario, &expected, *fault, *at) {
                        let text = format!("{fault:?} at {at} ({:?}): {reason}", ended.operations[*at]);
                        failures.lock().unwrap().push(text);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    eprintln!("{} operations, {} faults, {} failures", ended.operations.len(), tries.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_run_survives_faults_at_any_operation() {
    survives(&TRAIN);
}

#[test]
fn a_run_with_learned_credit_survives_faults_at_any_operation() {
    survives(&TURNRD);
}

#[test]
fn a_dump_survives_faults_at_any_operation() {
    survives(&DUMP);
}
