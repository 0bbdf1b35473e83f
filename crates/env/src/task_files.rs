//! Task files: one JSON Lines file per split.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use turnwise_core::{EnvError, Task};

/// Tasks by split; the training split comes first.
#[derive(Debug)]
pub struct Splits(Vec<(String, Vec<Task>)>);

impl Splits {
    /// Creates splits and moves `train` to the front.
    ///
    /// # Errors
    /// Fails if a split is empty, or if two tasks, even in different splits, have the same id.
    pub fn new(mut splits: Vec<(String, Vec<Task>)>) -> Result<Self, EnvError> {
        splits.sort_by_key(|(name, _)| name != "train");
        let mut seen = HashSet::new();
        for (split, tasks) in &splits {
            if tasks.is_empty() {
                return Err(EnvError::Other(format!("the split `{split}` has no tasks")));
            }
            if let Some(task) = tasks.iter().find(|task| !seen.insert(task.id.as_str())) {
                return Err(EnvError::Other(format!(
                    "the split `{split}` has a second task `{}`; ids are unique in all splits together",
                    task.id
                )));
            }
        }
        Ok(Self(splits))
    }

    /// Returns the split names.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns a split's tasks.
    ///
    /// # Errors
    /// Fails on an unknown split.
    pub fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let found = self.0.iter().find(|(name, _)| name == split);
        found
            .map(|(_, tasks)| tasks.clone())
            .ok_or_else(|| EnvError::UnknownSplit { split: split.to_owned(), known: self.names().join(", ") })
    }
}

/// Reads one file per split. `read` converts a JSON object to a task, or returns an error message.
///
/// # Errors
/// Fails if a file cannot be read or a line is invalid; the error names the file or the line.
pub fn read_splits<T: DeserializeOwned>(
    files: &BTreeMap<String, PathBuf>,
    read: impl Fn(T) -> Result<Task, String>,
) -> Result<Splits, EnvError> {
    let of_file = |(split, path): (&String, &PathBuf)| {
        let tasks: Result<Vec<Task>, EnvError> = lines(path)?
            .into_iter()
            .map(|(number, line)| {
                let parsed: Result<T, String> =
                    serde_json::from_str(&line).map_err(|error| error.to_string());
                parsed.and_then(&read).map_err(|reason| EnvError::File {
                    path: format!("{}, line {number}", path.display()),
                    reason,
                })
            })
            .collect();
        Ok((split.clone(), tasks?))
    };
    Splits::new(files.iter().map(of_file).collect::<Result<_, EnvError>>()?)
}

/// Returns a file's non-blank lines with 1-based numbers.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn lines(path: &Path) -> Result<Vec<(usize, String)>, EnvError> {
    let failed = |source| EnvError::io(path, source);
    let file = turnwise_files::open(path).map_err(failed)?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(turnwise_files::lines(file)) {
        let line = line.map_err(failed)?;
        if !line.trim().is_empty() {
            lines.push((number, line));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        id: String,
    }

    fn read(train: &str, test: &str) -> Result<Splits, EnvError> {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::new();
        for (split, text) in [("test", test), ("train", train)] {
            let path = folder.path().join(format!("{split}.jsonl"));
            std::fs::write(&path, text).unwrap();
            files.insert(split.to_owned(), path);
        }
        read_splits(&files, |line: Line| {
            if line.id == "bad" { Err("it is bad".into()) } else { Ok(Task::new(line.id, "", "")) }
        })
    }

    #[test]
    fn training_is_first_and_blank_lines_are_none() {
        let splits = read("{\"id\":\"a\"}\n\n{\"id\":\"b\"}\n", "{\"id\":\"c\"}").unwrap();
        assert_eq!(splits.names(), ["train", "test"]);
        let ids: Vec<String> = splits.tasks("train").unwrap().into_iter().map(|task| task.id).collect();
        assert_eq!(ids, ["a", "b"]);
        assert!(splits.tasks("dev").unwrap_err().to_string().contains("this environment has train, test"));
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        for (train, expected) in [
            ("{\"id\":\"a\"}\nno JSON", "train.jsonl, line 2: "),
            ("{\"id\":\"a\",\"x\":1}", "line 1: unknown field `x`"),
            ("\n{\"id\":\"bad\"}", "line 2: it is bad"),
            ("", "the split `train` has no tasks"),
            ("{\"id\":\"c\"}", "second task `c`"),
        ] {
            let error = read(train, "{\"id\":\"c\"}").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let files = BTreeMap::from([("train".to_owned(), PathBuf::from("no/such.jsonl"))]);
        let error = read_splits(&files, |_: Line| Err(String::new())).unwrap_err().to_string();
        assert!(error.contains("no/such.jsonl"), "{error}");
    }
}
