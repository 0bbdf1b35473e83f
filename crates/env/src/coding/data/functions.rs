//! HumanEval and MBPP: functions to write, checked by assertions.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::language::Language;
use super::super::task::CodingTask;
use super::Draft;

const MODULE: &str = "solution";

pub(super) fn read(keys: &Map<String, Value>) -> Result<Option<Draft>, String> {
    if keys.contains_key("test_list") { mbpp(keys) } else { human_eval(keys) }
}

fn text<'a>(keys: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    keys.get(name).and_then(Value::as_str).ok_or_else(|| format!("`{name}` is missing or not a text"))
}

fn draft(kind: &str, id: String, statement: String, begin: String, fix: Option<String>) -> CodingTask {
    CodingTask {
        id,
        kind: kind.to_owned(),
        statement,
        files: BTreeMap::from([(format!("{MODULE}.py"), begin)]),
        module: MODULE.to_owned(),
        checks: Vec::new(),
        fix,
        tests: None,
        language: Language::Python,
        file: None,
    }
}

fn unwritten(head: &str) -> String {
    format!("{}\n    raise NotImplementedError\n", head.trim_end())
}

/// Parses a record in OpenAI's format, or in MultiPL-E's, which lacks `canonical_solution`.
fn human_eval(keys: &Map<String, Value>) -> Result<Option<Draft>, String> {
    let id = text(keys, "task_id").or_else(|_| text(keys, "name"))?.to_owned();
    let (prompt, name) = (text(keys, "prompt")?, text(keys, "entry_point")?);
    let fix = match keys.get("canonical_solution") {
        None => None,
        Some(_) => Some(format!("{prompt}{}", text(keys, "canonical_solution")?)),
    };
    let checks = assertions(text(keys, "test")?);
    let checks = checks.map(|checks| {
        let call = |(call, value): (String, String)| {
            call.strip_prefix("candidate(").map(|rest| (format!("{name}({rest}"), value))
        };
        checks.into_iter().map(call).collect::<Option<Vec<_>>>()
    });
    let statement = format!("Write the function {name} in {MODULE}.py as its text says, then submit.");
    let task = draft("humaneval", id, statement, unwritten(prompt), fix);
    Ok(checks.flatten().map(|checks| Draft { task, checks }))
}

fn mbpp(keys: &Map<String, Value>) -> Result<Option<Draft>, String> {
    let id = match keys.get("task_id") {
        Some(Value::Number(number)) => format!("mbpp/{number}"),
        Some(Value::String(text)) => text.clone(),
        _ => return Err("`task_id` is missing".to_owned()),
    };
    let code = text(keys, "code")?.replace("\r\n", "\n");
    let wish = text(keys, "text").or_else(|_| text(keys, "prompt"))?;
    let list = keys.get("test_list").and_then(Value::as_array).ok_or("`test_list` is not a list")?;
    let list: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
    let Some(checks) = assertions(&list.ok_or("`test_list` is not of texts")?.join("\n")) else {
        return Ok(None);
    };
    let Some((name, _)) = checks[0].0.split_once('(') else { return Ok(None) };
    let head = code.lines().find(|line| line.starts_with(&format!("def {name}(")));
    let Some(head) = head else { return Ok(None) };
    let statement = format!("{wish} Write it as {name} in {MODULE}.py, then submit.");
    let task = draft("mbpp", id, statement, unwritten(head), Some(code));
    Ok(Some(Draft { task, checks }))
}

/// Returns the calls and their expected values, or `None` if any assertion has a form other than
/// `assert call == value`.
fn assertions(text: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| line.starts_with("assert")) {
        let (call, value) = line.strip_prefix("assert ")?.split_once(" == ")?;
        let (call, value) = (call.trim(), value.trim());
        // Chained comparisons, messages and multi-line assertions need a Python parser.
        let whole = call.ends_with(')') && balanced(call) && balanced(value) && !value.contains(" == ");
        if !whole {
            return None;
        }
        found.push((call.to_owned(), value.to_owned()));
    }
    (!found.is_empty()).then_some(found)
}

fn balanced(text: &str) -> bool {
    let mut depth = 0i32;
    let mut quote = None;
    let mut escaped = false;
    for letter in text.chars() {
        match (quote, letter) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',' | '#') if depth == 0 => return false,
            (Some(_) | None, _) => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0 && quote.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_assertions_of_one_form_are_read() {
        let read = |text: &str| assertions(text).map(|checks| checks.len());
        assert_eq!(
            read(
                "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate('==') == [1, 2]\n"
            ),
            Some(2)
        );
        for text in [
            "",
            "assert f(1)",
            "assert f(1) == 2, 'message'",
            "assert abs(f(1) - 2) < 1e-6",
            "assert f(1) == [\n1]",
            "assert f(1) == 2\nassert not f(2)",
            "assert f(1) == g(2) == 3",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
