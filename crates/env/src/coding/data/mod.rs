//! Tasks from the user's files: QuixBugs, HumanEval, MBPP, or JSON lines with `checks`, as
//! `turnwise env generate coding` writes them.

mod functions;
mod quixbugs;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Map, Value};
use turnwise_core::EnvError;
use turnwise_sandbox::Limits;

use super::language::Language;
use super::task::{Check, CodingTask};
use super::workshop::{Job, Workshop};

/// Limit in CPU seconds for evaluating a task's expected values, and for running its checks on the
/// known fix.
const SECONDS: f64 = 5.0;

struct Draft {
    task: CodingTask,
    /// Pairs of Python expressions: a call and its expected value.
    checks: Vec<(String, String)>,
}

/// Tasks read from files. The expected values of tasks from public data sets (`drafts`) are not
/// evaluated yet.
#[derive(Default)]
pub(super) struct Read {
    own: Vec<CodingTask>,
    drafts: Vec<Draft>,
}

/// Reads tasks from a file or folder, and reports skipped tasks to `note`.
pub(super) fn read(path: &Path, note: &mut dyn FnMut(String)) -> Result<Read, EnvError> {
    if path.is_dir() {
        Ok(Read { drafts: quixbugs::read(path)?, own: Vec::new() })
    } else {
        read_lines(path, note)
    }
}

impl Read {
    /// Returns the languages of the tasks. The public data sets contain only Python tasks.
    pub(super) fn languages(&self) -> Vec<Language> {
        let own = self.own.iter().map(|task| task.language);
        let mut needed: Vec<Language> = Vec::new();
        for language in self.drafts.iter().map(|_| Language::Python).chain(own) {
            if !needed.contains(&language) {
                needed.push(language);
            }
        }
        needed
    }

    pub(super) fn tasks(
        self,
        path: &Path,
        workshop: &Workshop,
        note: &mut dyn FnMut(String),
    ) -> Result<Vec<CodingTask>, EnvError> {
        let mut tasks = self.own;
        tasks.extend(evaluate(self.drafts, workshop, note)?);
        let mut ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        ids.sort_unstable();
        if let Some(&[id, ..]) = ids.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(wrong(path, format!("the task {id} is there twice")));
        }
        if tasks.is_empty() {
            return Err(wrong(path, "there are no tasks in it that can be checked"));
        }
        Ok(tasks)
    }
}

fn wrong(path: &Path, reason: impl Into<String>) -> EnvError {
    EnvError::File { path: path.display().to_string(), reason: reason.into() }
}

fn read_lines(path: &Path, note: &mut dyn FnMut(String)) -> Result<Read, EnvError> {
    let io = |source| EnvError::io(path, source);
    let file = turnwise_files::open(path).map_err(io)?;
    let mut read = Read::default();
    let mut left_out = 0;
    for (number, line) in turnwise_files::lines(file).enumerate() {
        let line = line.map_err(io)?;
        if line.trim().is_empty() {
            continue;
        }
        let at = |reason: &dyn ToString| wrong(path, format!("line {}: {}", number + 1, reason.to_string()));
        let keys: Map<String, Value> = serde_json::from_str(&line).map_err(|error| at(&error))?;
        if keys.contains_key("checks") {
            let task = CodingTask::deserialize(Value::Object(keys));
            read.own.push(task.map_err(|error| at(&error))?);
        } else if keys.contains_key("entry_point") || keys.contains_key("test_list") {
            match functions::read(&keys).map_err(|error| at(&error))? {
                Some(draft) => read.drafts.push(draft),
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
    Ok(read)
}

fn evaluate(
    drafts: Vec<Draft>,
    workshop: &Workshop,
    note: &mut dyn FnMut(String),
) -> Result<Vec<CodingTask>, EnvError> {
    if drafts.is_empty() {
        return Ok(Vec::new());
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_the_languages_of_the_tasks_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        let task = CodingTask {
            id: "a".to_owned(),
            kind: "a".to_owned(),
            statement: String::new(),
            files: BTreeMap::new(),
            module: "a".to_owned(),
            checks: Vec::new(),
            fix: None,
            tests: None,
            language: Language::Rust,
            file: None,
        };
        let rust = serde_json::to_string(&task).unwrap();
        let mbpp = r#"{"task_id": 1, "text": "Add.", "code": "def f(a):\n    return a", "test_list": ["assert f(1) == 1"]}"#;
        for (lines, expected) in [
            (rust.clone(), vec![Language::Rust]),
            (mbpp.to_owned(), vec![Language::Python]),
            (format!("{rust}\n{mbpp}"), vec![Language::Python, Language::Rust]),
        ] {
            std::fs::write(&path, &lines).unwrap();
            assert_eq!(read(&path, &mut |_| ()).unwrap().languages(), expected, "{lines}");
        }
    }
}
