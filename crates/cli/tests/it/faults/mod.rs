//! Injects disk faults at every write, flush and rename of a run: an operation fails, the disk is
//! full, the program is killed, or the power fails. Afterwards the error names the file, nothing is
//! lost, and the resumed run equals an uninterrupted one bit for bit.
//!
//! By default one operation of each kind on each kind of file is tried, with each fault or one of
//! them. `TURNWISE_FAULTS=all cargo test --release -p turnwise-cli --test it faults -- --nocapture`
//! tries every operation; `scenarios.rs` has the commands.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and says what it skips and counts"
)]

mod disk;
mod scenarios;
mod supervisor;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::scenarios::Scenario;
use self::supervisor::{Ended, Fault, Kind, Operation};

const FAULTS: [Fault; 4] = [Fault::Fails, Fault::Fills, Fault::Kill, Fault::PowerCut];

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

/// Copies all below a folder into another.
fn copy(from: &Path, to: &Path) {
    for path in walk(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&path, target).unwrap();
    }
}

fn run(folder: &Path, arguments: &[&str], fault: Option<(Fault, usize)>) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).args(arguments);
    supervisor::run(&mut command, folder, fault).unwrap()
}

/// Returns true for a write to a file that records are appended to.
fn grows(operation: &Operation) -> bool {
    let path = operation.path.to_string_lossy();
    operation.kind == Kind::Write && (is_of_kind(&path, "bin") || is_of_kind(&path, "jsonl"))
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

/// Returns the newest checkpoint of each folder that was in its place, with its folder flushed, at the end of these operations.
fn flushed_checkpoints(operations: &[Operation]) -> BTreeMap<&Path, String> {
    let mut newest = BTreeMap::new();
    for (at, operation) in operations.iter().enumerate() {
        let (Some(name), Some(folder)) = (operation.path.file_name(), operation.path.parent()) else {
            continue;
        };
        let name = name.to_str().unwrap().to_owned();
        let is_checkpoint = folder.ends_with("checkpoints") && name.contains("-0") && !name.starts_with('.');
        let mut later = operations[at + 1..].iter();
        let flushed = later.any(|later| later.kind == Kind::Flush && later.path == folder);
        if operation.kind == Kind::Rename && is_checkpoint && flushed {
            newest
                .entry(folder)
                .and_modify(|old: &mut String| *old = name.clone().max(old.clone()))
                .or_insert(name);
        }
    }
    newest
}

/// Returns what was lost of runs by a kill or a power cut, if anything was. A run is one from its config on, which is written
/// last: a sweep removes the remains of a start.
fn lost(folder: &Path, operations: &[Operation]) -> Option<String> {
    flushed_checkpoints(operations).into_iter().find_map(|(checkpoints, newest)| {
        let config = checkpoints.with_file_name("config.toml");
        if !operations.iter().any(|done| done.kind == Kind::Rename && done.path == config) {
            return None;
        }
        let found = std::fs::read_dir(folder.join(checkpoints)).ok().into_iter().flatten().flatten();
        let whole = |entry: &std::fs::DirEntry| entry.path().join("COMPLETE").is_file();
        let names = found.filter(whole).map(|entry| entry.file_name().into_string().unwrap());
        (!names.into_iter().any(|name| !name.starts_with('.') && name >= newest))
            .then(|| format!("the checkpoint {} is gone", checkpoints.join(newest).display()))
    })
}

/// Returns true if an error names the file or folder of an operation. A file is first written under a temporary name, a flush
/// of a folder belongs to the file that was put there, and a folder that is made aside is flushed as a whole.
fn names(errors: &str, operation: &Operation) -> bool {
    let path = operation.path.to_string_lossy();
    if operation.kind == Kind::Flush
        && let Some(at) = path.find(".part-")
        && let Some(folder) = path[at..].split('/').next()
        && errors.contains(folder)
    {
        return true;
    }
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", &path));
    // The name under which a checkpoint is removed.
    let file = file.strip_prefix(".broken-").unwrap_or(file);
    // Random names, of a file that is in this folder in the end.
    let file = if file.starts_with(".tmp") { "" } else { file };
    let file = file.strip_suffix(".part").map_or(file, |name| match name.strip_prefix('.') {
        // `.NAME.RANDOM`
        Some(hidden) => hidden.rsplit_once('.').map_or(hidden, |(name, _)| name),
        None => name,
    });
    errors.contains(&format!("{folder}/{file}")) || folder.is_empty() && errors.contains(file)
}

/// Returns what is wrong with the errors of a program that reports a fault, if anything is.
fn unclear(errors: &str, fault: Fault, at: usize, operations: &[Operation]) -> Option<String> {
    // A full disk is noticed at some later write.
    let (number, failed) = match fault {
        Fault::Fails => (libc::EIO, &operations[at..=at]),
        _ => (libc::ENOSPC, &operations[at..]),
    };
    if !errors.contains(&format!("os error {number}")) {
        return Some(format!("the error does not give the reason (os error {number}): {errors}"));
    }
    (!failed.iter().any(|operation| names(errors, operation)))
        .then(|| format!("the error does not name the file: {errors}"))
}

/// Returns what is wrong after a fault at an operation, if anything is.
fn wrong(
    scenario: &Scenario,
    prepared: &Path,
    expected: &BTreeMap<String, Vec<u8>>,
    fault: Fault,
    at: usize,
) -> Option<String> {
    let folder = folder();
    copy(prepared, folder.path());
    let ended = run(folder.path(), &scenario.start.concat(), Some((fault, at)));
    let dies = matches!(fault, Fault::Kill | Fault::PowerCut);
    let errors = ended.errors;
    if errors.contains("panicked") || !dies && ended.status.code().is_none() {
        return Some(format!("{}: {errors}", ended.status));
    }
    if !dies
        && !ended.status.success()
        && let Some(unclear) = unclear(&errors, fault, at, &ended.operations)
    {
        return Some(unclear);
    }
    // The last operation was not done.
    let done = &ended.operations[..ended.operations.len().saturating_sub(1)];
    if let Some(lost) = lost(folder.path(), done) {
        return Some(lost);
    }
    let arguments = (scenario.again)(folder.path(), scenario.start);
    if !ended.status.success() && !arguments.is_empty() {
        let again = run(folder.path(), &arguments, None);
        if !again.status.success() {
            return Some(format!("it does not go on with {arguments:?}: {}", again.errors));
        }
    }
    let said = ["going on from the checkpoint before it", "are missing", "the line is dropped"];
    for path in walk(folder.path()).iter().filter(|path| path.ends_with("log.jsonl")) {
        let log = std::fs::read_to_string(path).unwrap();
        if let Some(line) = log.lines().find(|line| said.iter().any(|said| line.contains(said))) {
            return Some(format!("something was lost: {line}"));
        }
    }
    // Errors of the processes of a sweep.
    for path in walk(folder.path()).iter().filter(|path| is_of_kind(&path.to_string_lossy(), "log")) {
        let log = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        if log.contains("panicked") {
            return Some(format!("{}: {log}", path.display()));
        }
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
    let (prepared, straight) = (folder(), folder());
    (scenario.prepare)(prepared.path());
    copy(prepared.path(), straight.path());
    let ended = run(straight.path(), &scenario.start.concat(), None);
    assert!(ended.status.success(), "{}", ended.errors);
    let expected = (scenario.outcome)(straight.path());
    let all = std::env::var("TURNWISE_FAULTS").is_ok_and(|value| value == "all");
    let mut seen = BTreeMap::new();
    let mut tries = Vec::new();
    for (at, operation) in ended.operations.iter().enumerate() {
        let before: usize = *seen.entry(kind_of(operation)).and_modify(|count| *count += 1).or_default();
        // The first write to a file that grows may be its header, and the second its first record.
        if all || before == 0 || before == 1 && grows(operation) {
            let fits = |fault: &Fault| *fault != Fault::Fills || operation.kind == Kind::Write;
            let fitting = FAULTS.into_iter().filter(fits);
            // The faults take turns.
            let (first, most) =
                if all || !scenario.one_each { (0, FAULTS.len()) } else { (seen.len() % 3, 1) };
            tries.extend(fitting.skip(first).take(most).map(|fault| (fault, at)));
        }
    }
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((fault, at)) = tries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(reason) = wrong(scenario, prepared.path(), &expected, *fault, *at) {
                        let text = format!("{fault:?} at {at} ({:?}): {reason}", ended.operations[*at]);
                        failures.lock().unwrap().push(text);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let name = scenario.start.concat()[..2].join(" ");
    eprintln!(
        "{name}: {} operations, {} faults, {} failures",
        ended.operations.len(),
        tries.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
