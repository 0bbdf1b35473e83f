//! Tasks: files, statement, checks, and the known fix.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A call and the text of the value that it must have. The agent sees neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// A Python expression with the names of the task's module.
    pub call: String,
    /// Its value as `driver.py` writes it, or `!` and the name of an exception.
    pub value: String,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodingTask {
    /// Its name.
    pub id: String,
    /// Where it is from: the library, or the name of the data.
    pub kind: String,
    /// What the agent is asked.
    pub statement: String,
    /// The files that it begins with.
    pub files: BTreeMap<String, String>,
    /// The module that the checks call, without `.py`.
    pub module: String,
    /// The checks.
    pub checks: Vec<Check>,
    /// The module's text with the known fix, for the expert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// A command that runs the tests that the agent sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
}

impl CodingTask {
    /// Returns the path of the file that the checks call.
    pub fn path(&self) -> String {
        format!("{}.py", self.module)
    }

    /// Returns the calls of the checks.
    pub(super) fn calls(&self) -> Vec<String> {
        self.checks.iter().map(|check| check.call.clone()).collect()
    }

    /// Counts the checks that `values` pass; a missing value fails its check.
    pub(super) fn passed(&self, values: &[String]) -> usize {
        self.checks.iter().zip(values).filter(|(check, value)| check.value == **value).count()
    }

    /// Returns the edit that is the fix: first and last line of the module to replace, counted from 1, and their new text.
    pub(super) fn known_edit(&self) -> Option<(usize, usize, String)> {
        let before: Vec<&str> = self.files.get(&self.path())?.split_inclusive('\n').collect();
        let after: Vec<&str> = self.fix.as_ref()?.split_inclusive('\n').collect();
        let shared = before.len().min(after.len());
        let head = before.iter().zip(&after).take_while(|(old, new)| old == new).count();
        let same = |(old, new): &(&&str, &&str)| old == new;
        let tail = before.iter().rev().zip(after.iter().rev()).take_while(same).count().min(shared - head);
        Some((head + 1, before.len() - tail, after[head..after.len() - tail].concat()))
    }
}
