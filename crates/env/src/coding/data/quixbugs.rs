//! QuixBugs: small programs with a one-line defect, and test cases.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use turnwise_core::EnvError;

use super::super::language::Language;
use super::super::task::CodingTask;
use super::{Draft, wrong};

/// Skips programs without `json_testcases`.
pub(super) fn read(folder: &Path) -> Result<Vec<Draft>, EnvError> {
    let cases = folder.join("json_testcases");
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |source| EnvError::Io { path, source }
    };
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(&cases).map_err(io(&cases))? {
        let name = entry.map_err(io(&cases))?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_owned));
    }
    names.sort();
    names.into_iter().map(|name| draft(folder, &name)).collect()
}

fn draft(folder: &Path, name: &str) -> Result<Draft, EnvError> {
    let text = |part: &str, end: &str| {
        let path = folder.join(part).join(format!("{name}.{end}"));
        fs::read_to_string(&path).map_err(|source| EnvError::io(&path, source))
    };
    let with_defect = text("python_programs", "py")?;
    let right = text("correct_python_programs", "py")?;
    let path = folder.join("json_testcases").join(format!("{name}.json"));
    let mut checks = Vec::new();
    for (number, line) in text("json_testcases", "json")?.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let case: Vec<Value> = serde_json::from_str(line)
            .map_err(|error| wrong(&path, format!("line {}: {error}", number + 1)))?;
        let [input, output] = case.as_slice() else {
            return Err(wrong(&path, format!("line {}: not a list of input and output", number + 1)));
        };
        let given = if input.is_array() { input.clone() } else { Value::Array(vec![input.clone()]) };
        checks.push((format!("as_json({name}(*{}))", literal(&given)), literal(output)));
    }
    let task = CodingTask {
        id: format!("quixbugs/{name}"),
        kind: "quixbugs".to_owned(),
        statement: format!(
            "{name}.py has a defect in one line; its text says what {name} should do. Find and fix it, then submit."
        ),
        files: BTreeMap::from([(format!("{name}.py"), with_defect)]),
        module: name.to_owned(),
        checks: Vec::new(),
        fix: Some(right),
        tests: None,
        language: Language::Python,
        file: None,
    };
    Ok(Draft { task, checks })
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        // A JSON string is a valid Python string because surrogates are not escaped here.
        Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(entries) => format!("[{}]", entries.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), literal(value))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}
