//! Task file lines.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use turnwise_core::{Task, TaskLimits};

use crate::environments::demonstrations::keep;

const RULES: &str = "rules";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer_argument: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Match {
    #[default]
    Exact,
    /// Expected answers are regular expressions, which must match the policy's whole answer.
    Regex,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) answers: Vec<String>,
    #[serde(default, rename = "match")]
    pub(super) comparison: Match,
    /// Judging tool, used instead of answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) verify: Option<Call>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) setup: Vec<Call>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    id: String,
    instruction: String,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    answer: Option<Value>,
    #[serde(default, rename = "match")]
    comparison: Match,
    #[serde(default)]
    verify: Option<Call>,
    #[serde(default)]
    setup: Vec<Call>,
    #[serde(default)]
    demonstration: Vec<Value>,
    #[serde(default)]
    limits: TaskLimits,
}

/// Creates a task.
pub(super) fn task(line: Line) -> Result<Task, String> {
    let text = |value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => Err("`answer` is a text, a number, true or false, or a list of them".to_owned()),
    };
    let answers: Vec<String> = match line.answer {
        None => Vec::new(),
        Some(Value::Array(several)) => several.into_iter().map(text).collect::<Result<_, _>>()?,
        Some(one) => vec![text(one)?],
    };
    if answers.is_empty() == line.verify.is_none() {
        return Err("a task has either `answer` or `verify`, which say when it is solved".to_owned());
    }
    if line.comparison == Match::Regex {
        for answer in &answers {
            pattern(answer).map_err(|error| format!("`answer` is no regular expression: {error}"))?;
        }
    }
    let Line { comparison, verify, setup, .. } = line;
    let rules = Rules { answers, comparison, verify, setup };
    let mut task = Task {
        limits: line.limits,
        ..Task::new(line.id, line.kind.unwrap_or_else(|| "mcp".into()), line.instruction)
    };
    task.metadata.insert(RULES.into(), serde_json::to_value(rules).map_err(|error| error.to_string())?);
    keep(&mut task, line.demonstration);
    Ok(task)
}

/// Compiles an expression that must match the whole answer.
pub(super) fn pattern(answer: &str) -> Result<regex::Regex, regex::Error> {
    regex::Regex::new(&format!("^(?:{answer})$"))
}

pub(super) fn rules(task: &Task) -> Result<Rules, String> {
    let rules = task.metadata.get(RULES).ok_or("it has no rules")?;
    Rules::deserialize(rules).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Task, String> {
        serde_json::from_str(line).map_err(|error| error.to_string()).and_then(task)
    }

    #[test]
    fn a_line_says_when_its_task_is_solved() {
        let task =
            read(r#"{"id":"a","instruction":"add","answer":[7,"seven"],"demonstration":["x"]}"#).unwrap();
        assert_eq!((task.goal.as_str(), task.kind.as_str()), ("add", "mcp"));
        assert_eq!(rules(&task).unwrap().answers, ["7", "seven"]);
        let judged = read(
            r#"{"id":"a","instruction":"i","verify":{"tool":"check"},"setup":[{"tool":"put","arguments":{"n":1}}]}"#,
        );
        let rules = rules(&judged.unwrap()).unwrap();
        assert_eq!(
            (rules.verify.unwrap().tool.as_str(), rules.setup[0].arguments["n"].clone()),
            ("check", 1.into())
        );
        for (line, expected) in [
            (r#"{"id":"a","instruction":"i"}"#, "either `answer` or `verify`"),
            (
                r#"{"id":"a","instruction":"i","answer":"x","verify":{"tool":"c"}}"#,
                "either `answer` or `verify`",
            ),
            (r#"{"id":"a","instruction":"i","answer":{}}"#, "`answer` is a text"),
            (r#"{"id":"a","instruction":"i","answer":"(","match":"regex"}"#, "no regular expression"),
            (r#"{"id":"a","answer":"x"}"#, "missing field `instruction`"),
            (r#"{"id":"a","instruction":"i","answer":"x","reward":1}"#, "unknown field `reward`"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
