//! The agent's five tools and the parser of their calls.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use turnwise_core::{Action, Observation, Step, Tool, ToolCall};

use super::repository::Place;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    List,
    View { path: String, first: usize, last: Option<usize> },
    Search { text: String },
    Edit { path: String, place: Place, new: String },
    Run { command: String },
    Submit,
}

const TOOLS: [&str; 5] = [
    r#"{"type": "function", "function": {"name": "view", "description": "Shows a file with line numbers; without a path the list of files.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "first": {"type": "integer", "description": "first line"}, "last": {"type": "integer", "description": "last line"}}}}}"#,
    r#"{"type": "function", "function": {"name": "search", "description": "Shows the lines of all files that contain a text.", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}"#,
    r#"{"type": "function", "function": {"name": "edit", "description": "Replaces a text that occurs once (old), or lines (first to last), by new; with path and new alone writes the whole file.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "old": {"type": "string"}, "first": {"type": "integer"}, "last": {"type": "integer"}, "new": {"type": "string"}}, "required": ["path", "new"]}}}"#,
    r#"{"type": "function", "function": {"name": "run", "description": "Runs a command of the shell in the repository and shows its output.", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}"#,
    r#"{"type": "function", "function": {"name": "submit", "description": "Ends the task; hidden tests then check the files.", "parameters": {"type": "object", "properties": {}}}}"#,
];

pub(crate) fn tools() -> Vec<Tool> {
    TOOLS.iter().filter_map(|text| Tool::from_json(text).ok()).collect()
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ViewArguments {
    path: Option<String>,
    first: Option<usize>,
    last: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    path: String,
    old: Option<String>,
    first: Option<usize>,
    last: Option<usize>,
    new: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunArguments {
    command: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// Parses a tool call, or a text such as `view({"path": "a.py"})`. The error is a message for the
/// agent.
pub(crate) fn read(action: &Action) -> Result<Call, String> {
    match action {
        Action::Malformed { error, .. } => Err(error.clone()),
        Action::Call(call) => of_call(call),
        Action::Text { text } => of_words(text),
        Action::Reply(reply) => of_words(&reply.content),
    }
}

fn of_words(text: &str) -> Result<Call, String> {
    let call = ToolCall::from_text(text.trim());
    of_call(&call.ok_or("call view, search, edit, run or submit, such as view({\"path\": \"a.py\"})")?)
}

fn of_call(call: &ToolCall) -> Result<Call, String> {
    let name = call.name.as_str();
    let given = &call.arguments;
    Ok(match name {
        "view" => {
            let ViewArguments { path, first, last } = arguments(name, given)?;
            match path {
                None => Call::List,
                Some(path) => Call::View { path, first: first.unwrap_or(1), last },
            }
        }
        "search" => Call::Search { text: arguments::<SearchArguments>(name, given)?.text },
        "edit" => {
            let EditArguments { path, old, first, last, new } = arguments(name, given)?;
            let place = match (old, first, last) {
                (Some(old), None, None) => Place::Text(old),
                (None, Some(first), last) => Place::Lines(first, last.unwrap_or(first)),
                (None, None, None) => Place::Whole,
                _ => return Err("edit takes either `old`, or `first` and `last`, or neither".to_owned()),
            };
            Call::Edit { path, place, new }
        }
        "run" => Call::Run { command: arguments::<RunArguments>(name, given)?.command },
        "submit" => {
            arguments::<NoArguments>(name, given)?;
            Call::Submit
        }
        _ => {
            let name: String = name.chars().take(60).collect();
            return Err(format!("there is no function {name}; there are view, search, edit, run, submit"));
        }
    })
}

fn arguments<T: DeserializeOwned>(name: &str, given: &Value) -> Result<T, String> {
    let empty = Value::Object(serde_json::Map::new());
    let given = if given.is_null() { &empty } else { given };
    T::deserialize(given).map_err(|error| format!("{name}: {error}"))
}

pub(crate) fn answered(answer: Result<String, String>) -> Step {
    let understood = answer.is_ok();
    let text = answer.unwrap_or_else(|reason| format!("error: {reason}"));
    Step { observation: Observation::new(text), understood, ..Step::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_words_and_json() {
        assert_eq!(tools().len(), 5);
        let words = |text: &str| read(&Action::from(text));
        assert_eq!(words("view({})"), Ok(Call::List));
        assert_eq!(words("submit(null)"), Ok(Call::Submit));
        let edit = words(r#"edit({"path":"a","first":2,"new":"x"})"#).unwrap();
        assert_eq!(edit, Call::Edit { path: "a".into(), place: Place::Lines(2, 2), new: "x".into() });
        for (text, said) in [
            ("hello", "call view"),
            ("submit({\"x\":1})", "unknown field"),
            ("view([1])", "view: "),
            ("view({\"path\":1})", "invalid type"),
            ("view({\"first\":-1})", "invalid value"),
            ("edit({\"path\":\"a\",\"old\":\"x\",\"first\":1,\"new\":\"\"})", "either `old`"),
            ("edit({\"path\":\"a\"})", "missing field `new`"),
            ("format({})", "no function format"),
        ] {
            let error = words(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let malformed = Action::Malformed { text: "{".into(), error: "That is no call.".into() };
        assert_eq!(read(&malformed), Err("That is no call.".into()));
    }
}
