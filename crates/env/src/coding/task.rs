//! Coding tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::language::Language;

/// A call and its expected value, both hidden from the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Expression that uses the task's module or crate.
    pub call: String,
    /// Expected value as `driver.py` or Rust's `{:?}` prints it, or `!` and the name of the
    /// expected exception.
    pub value: String,
}

/// A coding task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodingTask {
    /// Task id.
    pub id: String,
    /// Name of the library or data set from which the task comes.
    pub kind: String,
    /// Task statement that the agent sees.
    pub statement: String,
    /// Initial files by path.
    pub files: BTreeMap<String, String>,
    /// Module (without `.py`) or crate that the checks call.
    pub module: String,
    /// Hidden checks.
    pub checks: Vec<Check>,
    /// Corrected text of the file at [`Self::path`], for the expert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Command that runs the tests that the agent can see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
    /// Language of the checks.
    #[serde(default, skip_serializing_if = "Language::is_python")]
    pub language: Language,
    /// Path of the file that the fix replaces; by default the module's file, `MODULE.py`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl CodingTask {
    /// Returns the path of the file to fix.
    pub fn path(&self) -> String {
        self.file.clone().unwrap_or_else(|| format!("{}.py", self.module))
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.checks.iter().map(|check| check.call.clone()).collect()
    }

    pub(super) fn passed(&self, values: &[String]) -> usize {
        self.checks.iter().zip(values).filter(|(check, value)| check.value == **value).count()
    }

    /// Returns the first and last line to replace, and the new text.
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
