//! Generated Rust tasks: a built-in library with a defect in one module.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::generator::{CodingGenerator, SEEN};
use super::super::language::Language;
use super::super::task::{Check, CodingTask};
use super::checks::{FLAGS, PANIC};
use super::libraries::{Defect, LIBRARIES, Library};

const TESTS: &str = "sh test.sh";

/// Creates the Rust tasks without a compiler, because the results of all calls are recorded.
pub(in super::super) fn tasks(generator: &CodingGenerator) -> Vec<CodingTask> {
    let libraries = LIBRARIES.iter().filter(|library| generator.wants(library.name));
    libraries.flat_map(|library| tasks_of(generator, library)).collect()
}

fn tasks_of(generator: &CodingGenerator, library: &Library) -> Vec<CodingTask> {
    let record = library.record();
    let checks: Vec<Check> = library
        .calls()
        .into_iter()
        .zip(&record.values)
        .map(|(call, value)| Check { call, value: value.clone() })
        .collect();
    let mut defects = library.defects();
    generator.shuffle(library.name, &mut defects);
    let task = |defect: &Defect| {
        let (failing, wrong) = record.failing.get(&defect.digest)?;
        Some(task(library, &checks, defect, *failing, wrong.as_deref()))
    };
    defects.iter().filter_map(task).take(generator.per_library).collect()
}

fn task(
    library: &Library,
    checks: &[Check],
    defect: &Defect,
    failing: usize,
    wrong: Option<&str>,
) -> CodingTask {
    let name = library.name;
    let (call, value) = checks.get(failing).map_or(("", ""), |check| (&check.call, &check.value));
    let mut statement = format!("The library {name} in src has a defect: {call} should be {value}");
    let _ = match wrong {
        Some(PANIC) => write!(statement, " but panics."),
        Some(wrong) => write!(statement, " but is {wrong}."),
        None => write!(statement, " but does not end."),
    };
    let _ = write!(statement, " Find and fix it, then submit. Tests: {TESTS}");
    let mut files: BTreeMap<String, String> =
        library.sources.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    files.insert(defect.path.to_owned(), defect.mutant.text.clone());
    files.insert("src/tests.rs".to_owned(), tests(checks, failing));
    // More threads than the sandbox's process limit would fail the tests.
    let script = format!("rustc {FLAGS} --test src/lib.rs -o /tmp/tests && /tmp/tests --test-threads=2\n");
    files.insert("test.sh".to_owned(), script);
    let module = defect.path.trim_start_matches("src/").trim_end_matches(".rs");
    CodingTask {
        id: format!("{name}_{module}-{}-{}", defect.mutant.line, defect.digest),
        kind: name.to_owned(),
        statement,
        files,
        module: name.to_owned(),
        checks: checks.to_vec(),
        fix: Some(library.source(defect.path).to_owned()),
        tests: Some(TESTS.to_owned()),
        language: Language::Rust,
        file: Some(defect.path.to_owned()),
    }
}

fn tests(checks: &[Check], failing: usize) -> String {
    let mut text = "use crate::*;\n".to_owned();
    let seen = checks.iter().enumerate().filter(|(place, _)| place % SEEN == 0 || *place == failing);
    for (place, Check { call, value }) in seen {
        let _ = write!(
            text,
            "\n#[test]\nfn check_{place}() {{\n    assert_eq!(format!(\"{{:?}}\", {call}), {value:?});\n}}\n"
        );
    }
    text
}
