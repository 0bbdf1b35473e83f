//! Tasks from the user's files.
//!
//! | file | subject |
//! |---|---|
//! | `quixbugs.rs` | QuixBugs: a folder with `python_programs`, `correct_python_programs`, `json_testcases` |
//! | `functions.rs` | HumanEval and MBPP: JSON lines of functions with assertions |
//!
//! JSON lines with `checks` come from `turnwise env generate coding`.

mod functions;
mod quixbugs;

use std::io::BufRead as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};
use turnwise_core::EnvError;
use turnwise_sandbox::Limits;

use super::language::Language;
use super::task::{Check, CodingTask};
use super::workshop::{Job, Workshop};

/// CPU seconds for the checks of a known fix.
const SECONDS: f64 = 5.0;

struct Draft {
    task: CodingTask,
    /// Pairs of Python expressions: a call and its expected value.
    checks: Vec<(String, String)>,
}

/// Reads tasks; `note` receives a line about skipped tasks.
pub(super) fn read(
    path: &Path,
    workshop: &Workshop,
    note: &mut dyn FnMut(String),
) -> Result<Vec<CodingTask>, EnvError> {
    let tasks = if path.is_dir() {
        evaluate(quixbugs::read(path)?, workshop, note)?
    } else {
        read_lines(path, workshop, note)?
    };
    if tasks.is_empty() {
        return Err(wrong(path, "there are no tasks in it that can be checked"));
    }
    Ok(tasks)
}

/// Returns the languages that the tasks of a file or folder need. Python evaluates all data sets.
pub(super) fn languages(path: &Path) -> Result<Vec<Language>, EnvError> {
    let mut needed = vec![Language::Python];
    if path.is_dir() {
        return Ok(needed);
    }
    let io = |source| EnvError::io(path, source);
    for line in turnwise_files::open(path).map_err(io)?.lines() {
        // Wrong lines are errors when the tasks are read.
        let language = serde_json::from_str::<LanguageOnly>(&line.map_err(io)?).unwrap_or_default().language;
        if !needed.contains(&language) {
            needed.push(language);
        }
    }
    Ok(needed)
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct LanguageOnly {
    language: Language,
}

fn wrong(path: &Path, reason: impl Into<String>) -> EnvError {
    EnvError::File { path: path.display().to_string(), reason: reason.into() }
}

fn read_lines(
    path: &Path,
    workshop: &Workshop,
    note: &mut dyn FnMut(String),
) -> Result<Vec<CodingTask>, EnvError> {
    let io = |source| EnvError::io(path, source);
    let file = turnwise_files::open(path).map_err(io)?;
    let mut own = Vec::new();
    let mut drafts = Vec::new();
    let mut left_out = 0;
    for (number, line) in file.lines().enumerate() {
        let line = line.map_err(io)?;
        if line.trim().is_empty() {
            continue;
        }
        let at = |reason: &dyn ToString| wrong(path, format!("line {}: {}", number + 1, reason.to_string()));
        let keys: Map<String, Value> = serde_json::from_str(&line).map_err(|error| at(&error))?;
        if keys.contains_key("checks") {
            own.push(serde_json::from_str::<CodingTask>(&line).map_err(|error| at(&error))?);
        } else if keys.contains_key("entry_point") || keys.contains_key("test_list") {
            match functions::read(&keys).map_err(|error| at(&error))? {
                Some(draft) => drafts.push(draft),
                None => left_out += 1,
            }
        } else {
            let reason = "has neither `checks` (tasks of `turnwise env generate coding`), nor `entry_point` \
                          (HumanEval), nor `test_list` (MBPP)";
            return Err(at(&reason));
        }
    }
    if left_out > 0 {
        let reason = "their assertions are not all of the form `assert call == value` on one line";
        note(format!("{}: {left_out} tasks are left out: {reason}", path.display()));
    }
    own.extend(evaluate(drafts, workshop, note)?);
    let mut ids: Vec<&str> = own.iter().map(|task| task.id.as_str()).collect();
    ids.sort_unstable();
    if let Some(&[id, ..]) = ids.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(wrong(path, format!("the task {id} is there twice")));
    }
    Ok(own)
}

/// Drops tasks whose known fix fails its checks.
fn evaluate(
    drafts: Vec<Draft>,
    workshop: &Workshop,
    note: &mut dyn FnMut(String),
) -> Result<Vec<CodingTask>, EnvError> {
    let limits = Limits {
        wall: Duration::from_mins(10),
        cpu: Duration::from_secs(500),
        files: 16_384,
        disk: 64 << 20,
        output: 1 << 22,
        ..Limits::default()
    };
    let job = |files, module: &str, calls| Job { files, module: module.to_owned(), calls, seconds: SECONDS };
    let expected = |draft: &Draft| draft.checks.iter().map(|(_, value)| value.clone()).collect();
    let expected: Vec<Job> =
        drafts.iter().map(|draft| job(std::collections::BTreeMap::default(), "", expected(draft))).collect();
    let expected = workshop.values(&expected, &limits)?;
    let mut tasks = Vec::new();
    let mut left_out = Vec::new();
    for (Draft { mut task, checks }, values) in drafts.into_iter().zip(expected) {
        let whole = values.len() == checks.len() && !values.iter().any(|value| value.starts_with('!'));
        task.checks =
            checks.into_iter().zip(values).map(|((call, _), value)| Check { call, value }).collect();
        if whole { tasks.push(task) } else { left_out.push(task.id) }
    }
    let fixed = |task: &CodingTask| {
        let mut files = task.files.clone();
        files.extend(task.fix.clone().map(|fix| (task.path(), fix)));
        job(files, &task.module, task.calls())
    };
    let fixed: Vec<Job> = tasks.iter().map(fixed).collect();
    let values = workshop.values(&fixed, &limits)?;
    let mut values = values.iter();
    tasks.retain(|task| {
        let passed = values.next().map_or(0, |values| task.passed(values));
        let kept = task.fix.is_none() || passed == task.checks.len();
        if !kept {
            left_out.push(task.id.clone());
        }
        kept
    });
    if !left_out.is_empty() {
        note(format!(
            "left out, since their checks do not hold for their known fix: {}",
            left_out.join(", ")
        ));
    }
    Ok(tasks)
}
