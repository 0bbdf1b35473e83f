//! Instances, parsed from SWE-bench and R2E-Gym records.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::logs::{LogFormat, r2e_name};
use super::patch;

/// A repository's issue and the tests that decide whether it is solved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweInstance {
    /// Instance id.
    pub id: String,
    /// Repository name.
    pub repo: String,
    /// Issue text.
    pub statement: String,
    /// Container image.
    pub image: String,
    /// Tests that decide whether the issue is solved.
    pub tests: SweTests,
    /// Known fix, for the expert.
    pub fix: SweFix,
}

/// Tests of an instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum SweTests {
    /// SWE-bench: tests added by a patch and run by a command.
    SweBench {
        /// Commit to which the test files are reset before the tests run.
        base: String,
        /// Patch of the test files.
        patch: String,
        /// Tests that fail before the fix and must pass after it.
        fail_to_pass: Vec<String>,
        /// Tests that pass before the fix and must still pass after it.
        pass_to_pass: Vec<String>,
        /// Command that runs the tests.
        command: String,
        /// Output format.
        format: LogFormat,
    },
    /// R2E-Gym: tests run by a script in the image.
    R2eGym {
        /// Expected status of each test.
        expected: BTreeMap<String, String>,
    },
}

/// An instance's known fix.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub enum SweFix {
    /// Unknown.
    #[default]
    None,
    /// A unified diff.
    Patch(String),
    /// New file contents by path; `None` deletes a file.
    Files(Vec<(String, Option<String>)>),
}

/// Name of the official images; `{id}` is the instance id with `__` replaced by `_1776_`.
pub(super) const IMAGE: &str = "swebench/sweb.eval.x86_64.{id}:latest";

const PYTEST: &str = "pytest -rA";

/// Returns the test command of a repository and its log format. Repositories that are not in
/// SWE-bench use pytest.
fn test_command(repo: &str, version: &str) -> (&'static str, LogFormat) {
    match repo {
        "astropy/astropy" => {
            ("pytest -rA -vv -o console_output_style=classic --tb=no", LogFormat::PytestWhole)
        }
        "django/django" if version == "1.9" => ("./tests/runtests.py --verbosity 2", LogFormat::Django),
        "django/django" => {
            ("./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1", LogFormat::Django)
        }
        "matplotlib/matplotlib" => (PYTEST, LogFormat::Matplotlib),
        "mwaskom/seaborn" => ("pytest --no-header -rA", LogFormat::Seaborn),
        "psf/requests" | "pydicom/pydicom" | "pylint-dev/pylint" => (PYTEST, LogFormat::PytestOptions),
        "scikit-learn/scikit-learn" => (PYTEST, LogFormat::PytestWhole),
        "sphinx-doc/sphinx" => ("tox --current-env -epy39 -v --", LogFormat::PytestWhole),
        "sympy/sympy" => (
            "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose",
            LogFormat::Sympy,
        ),
        _ => (PYTEST, LogFormat::Pytest),
    }
}

fn text<'a>(keys: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    keys.get(name).and_then(Value::as_str).ok_or_else(|| format!("`{name}` is missing or not a text"))
}

/// Reads a list of texts, which may also be a string that contains the list as JSON.
fn texts(keys: &Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    let parsed;
    let list = match keys.get(name) {
        Some(Value::String(text)) => {
            parsed = serde_json::from_str::<Value>(text).map_err(|error| format!("`{name}`: {error}"))?;
            &parsed
        }
        Some(other) => other,
        None => return Err(format!("`{name}` is missing")),
    };
    let list = list.as_array().ok_or_else(|| format!("`{name}` is not a list"))?;
    let text = |entry: &Value| entry.as_str().map(str::to_owned);
    list.iter().map(text).collect::<Option<_>>().ok_or_else(|| format!("`{name}` is not a list of texts"))
}

pub(super) fn read(keys: &Map<String, Value>, rule: &str) -> Result<SweInstance, String> {
    if keys.contains_key("FAIL_TO_PASS") {
        swe_bench(keys, rule)
    } else if keys.contains_key("expected_output_json") {
        r2e_gym(keys)
    } else {
        Err("has neither `FAIL_TO_PASS` (SWE-bench) nor `expected_output_json` (R2E-Gym)".to_owned())
    }
}

fn swe_bench(keys: &Map<String, Value>, rule: &str) -> Result<SweInstance, String> {
    let id = text(keys, "instance_id")?.to_owned();
    let repo = text(keys, "repo")?.to_owned();
    let (command, format) = test_command(&repo, text(keys, "version").unwrap_or_default());
    // SWE-Gym and SWE-rebench records have images and test commands.
    let image = ["image_name", "docker_image", "image"].iter().find_map(|key| text(keys, key).ok());
    let image =
        image.map_or_else(|| rule.replace("{id}", &id.to_lowercase().replace("__", "_1776_")), str::to_owned);
    let (fail_to_pass, pass_to_pass) = (texts(keys, "FAIL_TO_PASS")?, texts(keys, "PASS_TO_PASS")?);
    if fail_to_pass.is_empty() {
        return Err("`FAIL_TO_PASS` is empty".to_owned());
    }
    let tests = SweTests::SweBench {
        base: text(keys, "base_commit")?.to_owned(),
        patch: text(keys, "test_patch")?.to_owned(),
        fail_to_pass,
        pass_to_pass,
        command: text(keys, "test_cmd").unwrap_or(command).to_owned(),
        format,
    };
    let fix = text(keys, "patch").ok().filter(|patch| !patch.is_empty());
    let fix = fix.map_or(SweFix::None, |patch| SweFix::Patch(patch.to_owned()));
    Ok(SweInstance { id, repo, statement: text(keys, "problem_statement")?.to_owned(), image, tests, fix })
}

fn r2e_gym(keys: &Map<String, Value>) -> Result<SweInstance, String> {
    let image = text(keys, "docker_image")?.to_owned();
    let expected: BTreeMap<String, String> = match keys.get("expected_output_json") {
        Some(Value::String(text)) => serde_json::from_str(text),
        Some(other) => serde_json::from_value(other.clone()),
        None => Ok(BTreeMap::new()),
    }
    .map_err(|error| format!("`expected_output_json`: {error}"))?;
    let expected: BTreeMap<String, String> =
        expected.into_iter().map(|(name, word)| (r2e_name(&name), word)).collect();
    if expected.is_empty() {
        return Err("`expected_output_json` is empty".to_owned());
    }
    let repo = text(keys, "repo_name").or_else(|_| text(keys, "repo")).unwrap_or_default().to_owned();
    let id = match (text(keys, "instance_id"), text(keys, "commit_hash")) {
        (Ok(id), _) => id.to_owned(),
        (_, Ok(commit)) => format!("{repo}__{}", commit.chars().take(12).collect::<String>()),
        _ => image.clone(),
    };
    let fix = match text(keys, "patch") {
        Ok(patch) if !patch.is_empty() => SweFix::Patch(patch.to_owned()),
        _ => keys.get("parsed_commit_content").and_then(commit_files).map_or(SweFix::None, SweFix::Files),
    };
    let statement = text(keys, "problem_statement")?.to_owned();
    Ok(SweInstance { id, repo, statement, image, tests: SweTests::R2eGym { expected }, fix })
}

fn commit_files(content: &Value) -> Option<Vec<(String, Option<String>)>> {
    let parsed;
    let content = match content {
        Value::String(text) => {
            parsed = serde_json::from_str::<Value>(text).ok()?;
            &parsed
        }
        other => other,
    };
    let mut files = Vec::new();
    for file in content.get("file_diffs")?.as_array()? {
        let path = file.pointer("/header/file/path")?.as_str()?;
        let is_test =
            path.split('/').any(|part| part == "tests" || part == "test" || part.starts_with("test_"));
        if !is_test {
            let new = file.get("new_file_content").and_then(Value::as_str).filter(|text| !text.is_empty());
            files.push((path.to_owned(), new.map(str::to_owned)));
        }
    }
    (!files.is_empty()).then_some(files)
}

/// Endings of file names in a test patch that mark files without tests.
const NO_TESTS: [&str; 11] =
    [".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml"];

/// Returns the test files in the test patch or, for Django, their module names.
pub(super) fn directives(repo: &str, test_patch: &str) -> Vec<String> {
    let files = patch::parse(test_patch).into_iter();
    // Deleted files have no new path and no tests.
    let files = files.filter_map(|file| file.new);
    let files = files.filter(|path| !NO_TESTS.iter().any(|end| path.ends_with(end)));
    if repo != "django/django" {
        return files.collect();
    }
    let module = |path: String| {
        let path = path.strip_suffix(".py").unwrap_or(&path);
        path.strip_prefix("tests/").unwrap_or(path).replace('/', ".")
    };
    files.map(module).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn records_of_both_kinds_are_read() {
        let record = json!({"instance_id": "django__django-1", "repo": "django/django", "base_commit": "abc", "version": "1.9",
            "problem_statement": "It fails.", "test_patch": "diff --git a/tests/x/test_y.py b/tests/x/test_y.py\n", "patch": "p",
            "FAIL_TO_PASS": "[\"a\"]", "PASS_TO_PASS": ["b", "c"]});
        let instance = read(&keys(record.clone()), IMAGE).unwrap();
        assert_eq!(instance.image, "swebench/sweb.eval.x86_64.django_1776_django-1:latest");
        let SweTests::SweBench { command, fail_to_pass, pass_to_pass, patch, .. } = &instance.tests else {
            panic!()
        };
        assert_eq!(command, "./tests/runtests.py --verbosity 2");
        assert_eq!((fail_to_pass.len(), pass_to_pass.len()), (1, 2));
        assert_eq!(directives(&instance.repo, patch), ["x.test_y"]);
        assert_eq!(directives("a/b", patch), ["tests/x/test_y.py"]);
        let record = json!({"docker_image": "a/b:c", "repo_name": "numpy", "commit_hash": "0123456789abcdef", "problem_statement": "p",
            "expected_output_json": "{\"T.t - x\": \"PASSED\"}",
            "parsed_commit_content": "{\"file_diffs\": [{\"header\": {\"file\": {\"path\": \"a.py\"}}, \"new_file_content\": \"x\"}, {\"header\": {\"file\": {\"path\": \"tests/t.py\"}}}]}"});
        let instance = read(&keys(record), IMAGE).unwrap();
        assert_eq!((instance.id.as_str(), instance.image.as_str()), ("numpy__0123456789ab", "a/b:c"));
        assert_eq!(instance.fix, SweFix::Files(vec![("a.py".into(), Some("x".into()))]));
        assert_eq!(instance.tests, SweTests::R2eGym { expected: [("T.t".into(), "PASSED".into())].into() });
    }

    #[test]
    fn wrong_records_name_the_key() {
        for (record, said) in [
            (json!({}), "neither `FAIL_TO_PASS`"),
            (json!({"FAIL_TO_PASS": []}), "`instance_id`"),
            (
                json!({"FAIL_TO_PASS": "[", "PASS_TO_PASS": [], "instance_id": "a", "repo": "b"}),
                "`FAIL_TO_PASS`: ",
            ),
            (
                json!({"FAIL_TO_PASS": [1], "PASS_TO_PASS": [], "instance_id": "a", "repo": "b"}),
                "list of texts",
            ),
            (json!({"FAIL_TO_PASS": [], "PASS_TO_PASS": [], "instance_id": "a", "repo": "b"}), "is empty"),
            (json!({"expected_output_json": "{}", "docker_image": "a"}), "is empty"),
            (json!({"expected_output_json": "[1]", "docker_image": "a"}), "`expected_output_json`"),
            (json!({"expected_output_json": "{}"}), "`docker_image`"),
        ] {
            let error = read(&keys(record.clone()), IMAGE).unwrap_err();
            assert!(error.contains(said), "{record}: {error}");
        }
    }
}
