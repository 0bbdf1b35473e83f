//! Generated tasks: a built-in library with a defect that its checks detect.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Purpose, Seed};
use turnwise_sandbox::Limits;

use super::language::Language;
use super::library::{LIBRARIES, Library};
use super::mutation::{Mutant, mutants};
use super::rust;
use super::task::{Check, CodingTask};
use super::workshop::{Job, Workshop};

/// Limit in CPU seconds for all calls of a library; only endless loops exceed it.
const SECONDS: f64 = 0.25;
/// The tests that the agent sees contain every `SEEN`-th check, and the first check that fails
/// because of the defect.
pub(super) const SEEN: usize = 3;

/// Settings of the generated tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodingGenerator {
    /// Seed for choosing defects.
    pub seed: u64,
    /// Maximum number of defects (tasks) per library.
    #[schemars(range(min = 1, max = 1000))]
    pub per_library: usize,
    /// Library names; empty means all libraries of the chosen languages.
    pub libraries: Vec<String>,
    /// Languages of the libraries; `rust` needs `rustc` in `PATH`.
    #[schemars(length(min = 1))]
    pub languages: Vec<Language>,
}

impl Default for CodingGenerator {
    fn default() -> Self {
        Self { seed: 0, per_library: 40, libraries: Vec::new(), languages: vec![Language::Python] }
    }
}

impl CodingGenerator {
    pub(super) fn names(&self) -> Vec<&'static str> {
        let python = LIBRARIES.iter().map(|library| library.name);
        let rust = rust::libraries::LIBRARIES.iter().map(|library| library.name);
        let python = python.filter(|_| self.languages.contains(&Language::Python));
        python.chain(rust.filter(|_| self.languages.contains(&Language::Rust))).collect()
    }

    pub(super) fn unknown(&self) -> Vec<String> {
        let names = self.names();
        self.libraries.iter().filter(|name| !names.contains(&name.as_str())).cloned().collect()
    }

    pub(super) fn wants(&self, library: &str) -> bool {
        self.libraries.is_empty() || self.libraries.iter().any(|name| name == library)
    }

    pub(super) fn shuffle<T>(&self, library: &str, candidates: &mut [T]) {
        let name = turnwise_core::digest([library.as_bytes()]);
        let name = u64::from_str_radix(name.get(..15).unwrap_or_default(), 16).unwrap_or_default();
        Seed::derive(self.seed, Purpose::Environment, &[name]).rng().shuffle(candidates);
    }

    /// Creates tasks, each with a defect that fails at least one check.
    pub(super) fn tasks(&self, workshop: &Workshop) -> Result<Vec<CodingTask>, EnvError> {
        let python = self.languages.contains(&Language::Python);
        let libraries = LIBRARIES.iter().filter(|library| python && self.wants(library.name));
        let libraries: Vec<&Library> = libraries.collect();
        let mut tasks: Vec<Vec<CodingTask>> = libraries
            .par_iter()
            .map(|library| self.tasks_of(library, workshop))
            .collect::<Result<_, EnvError>>()?;
        if self.languages.contains(&Language::Rust) {
            tasks.push(rust::generator::tasks(self));
        }
        Ok(tasks.concat())
    }

    fn tasks_of(&self, library: &Library, workshop: &Workshop) -> Result<Vec<CodingTask>, EnvError> {
        let calls = library.calls();
        let job = |text: &str| Job {
            files: BTreeMap::from([(format!("{}.py", library.name), text.to_owned())]),
            module: library.name.to_owned(),
            calls: calls.clone(),
            seconds: SECONDS,
        };
        let mut candidates = mutants(library.source);
        self.shuffle(library.name, &mut candidates);
        let jobs: Vec<Job> = [library.source]
            .into_iter()
            .chain(candidates.iter().map(|mutant| mutant.text.as_str()))
            .map(job)
            .collect();
        let limits = Limits {
            wall: Duration::from_mins(5),
            cpu: Duration::from_secs(100),
            files: 8192,
            disk: 64 << 20,
            ..Limits::default()
        };
        let mut values = workshop.values(&jobs, &limits)?.into_iter();
        let right = values.next().unwrap_or_default();
        if right.len() != calls.len() {
            return Err(EnvError::Other(format!(
                "the library {} ended at call {} of its checks",
                library.name,
                right.len() + 1
            )));
        }
        let checks: Vec<Check> = calls
            .iter()
            .zip(&right)
            .map(|(call, value)| Check { call: call.clone(), value: value.clone() })
            .collect();
        let tasks = candidates
            .iter()
            .zip(values)
            .filter_map(|(mutant, wrong)| task(library, &checks, mutant, &wrong));
        Ok(tasks.take(self.per_library).collect())
    }
}

/// Creates the task of a defect from the values that the changed library computes (`wrong`), or
/// returns `None` if all checks pass.
fn task(library: &Library, checks: &[Check], mutant: &Mutant, wrong: &[String]) -> Option<CodingTask> {
    let failing = checks.iter().enumerate().find(|(place, check)| wrong.get(*place) != Some(&check.value));
    let (failing, check) = failing?;
    let name = library.name;
    let path = format!("{name}.py");
    let says = |value: &str| match value.strip_prefix('!') {
        Some(error) => format!("raise {error}"),
        None => format!("be {value}"),
    };
    let mut statement = format!("{path} has a defect: {} should {}", check.call, says(&check.value));
    let _ = match wrong.get(failing).map(|value| (value, value.strip_prefix('!'))) {
        Some((_, Some(error))) => write!(statement, " but raises {error}."),
        Some((value, None)) => write!(statement, " but is {value}."),
        None => write!(statement, " but does not end."),
    };
    let _ = write!(statement, " Find and fix it, then submit. Tests: python3 test_{name}.py");
    let seen = checks.iter().enumerate().filter(|(place, _)| place % SEEN == 0 || *place == failing);
    let tests = tests(name, &seen.map(|(_, check)| check).collect::<Vec<_>>());
    let digest = turnwise_core::digest([mutant.text.as_bytes()]);
    Some(CodingTask {
        id: format!("{name}-{}-{}", mutant.line, digest.get(..8).unwrap_or_default()),
        kind: name.to_owned(),
        statement,
        files: BTreeMap::from([(path, mutant.text.clone()), (format!("test_{name}.py"), tests)]),
        module: name.to_owned(),
        checks: checks.to_vec(),
        fix: Some(library.source.to_owned()),
        tests: Some(format!("python3 test_{name}.py")),
        language: Language::Python,
        file: None,
    })
}

fn tests(name: &str, checks: &[&Check]) -> String {
    let mut text = format!("from {name} import *\n\nCHECKS = [\n");
    for Check { call, value } in checks {
        // For these characters, JSON strings are Python strings.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let _ = writeln!(text, "    ({}, {}),", quoted(call), quoted(value));
    }
    text.push_str(
        "]\n\nfailed = 0\nfor call, value in CHECKS:\n    try:\n        found = eval(call)\n        right = \
         not value.startswith(\"!\") and found == eval(value)\n    except Exception as error:\n        found = \
         type(error).__name__\n        right = value == \"!\" + found\n    if not right:\n        failed += 1\n        \
         print(\"FAILED\", call, \"is\", found, \"and should be\", value)\nprint(len(CHECKS) - failed, \"passed,\", \
         failed, \"failed\")\n",
    );
    text
}
