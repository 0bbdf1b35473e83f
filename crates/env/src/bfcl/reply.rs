//! The model's replies: calls, or text for the user.

use turnwise_core::ToolCall;

use super::apis::Api;
use crate::python::values::{Caller, Dict, Raise, Value, calls, evaluate, parse};

/// Returns a reply's calls. If the reply is not a list of calls, the result is empty, which ends
/// the user's turn.
///
/// As in the package, quotes and brackets around the list are optional. Unlike in the package,
/// positional arguments are kept.
pub fn read_calls(reply: &str) -> Vec<String> {
    let reply = reply.trim_matches(['`', '\n', ' ']);
    let open = if reply.starts_with('[') { "" } else { "[" };
    let close = if reply.ends_with(']') { "" } else { "]" };
    let list = format!("{open}{reply}{close}");
    let list = list.trim().trim_matches('\'');
    calls(list).map(|calls| calls.into_iter().map(str::to_owned).collect()).unwrap_or_default()
}

/// Formats calls as a Python list.
pub fn write_calls(calls: &[String]) -> String {
    format!("[{}]", calls.join(", "))
}

/// Converts a Python call to a tool call, or returns `None` if an argument contains a call or
/// cannot be written as JSON.
pub(super) fn tool_call(call: &str, apis: &[Api]) -> Option<ToolCall> {
    let mut recorder = Recorder { apis, made: Vec::new() };
    evaluate(parse(&format!("api.{call}")).ok()?, &mut recorder).ok()?;
    match recorder.made.as_slice() {
        [(name, arguments)] => {
            let mut json = String::new();
            Value::Dict(arguments.clone()).write_json(&mut json).ok()?;
            let arguments = serde_json::from_str(&json).ok()?;
            Some(ToolCall { id: String::new(), name: name.clone(), arguments })
        }
        _ => None,
    }
}

struct Recorder<'a> {
    apis: &'a [Api],
    made: Vec<(String, Dict)>,
}

impl Caller for Recorder<'_> {
    fn find(&self, _: &str, _: &str) -> Result<(), Raise> {
        Ok(())
    }

    fn call(
        &mut self,
        _: &str,
        method: &str,
        arguments: Vec<Value>,
        keywords: Vec<(String, Value)>,
    ) -> Result<Value, Raise> {
        let known = self.apis.iter().rev().find_map(|api| api.method(method));
        let names = known.map(|method| method.parameters).unwrap_or_default().iter().map(|one| one.name);
        let named = names.zip(arguments).map(|(name, value)| (Value::from(name), value));
        let given = keywords.into_iter().map(|(name, value)| (Value::from(name), value));
        self.made.push((method.to_owned(), named.chain(given).collect()));
        Ok(Value::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_calls_are_read_and_words_are_none() {
        for (reply, expected) in [
            ("[cd(folder='a'), ls()]", &["cd(folder='a')", "ls()"][..]),
            ("```\n[ls( ) ,]\n```", &["ls( )"]),
            ("cd(folder='a, b'), f(x=[1, (2)])", &["cd(folder='a, b')", "f(x=[1, (2)])"]),
            ("a.b(c=1)", &["a.b(c=1)"]),
            ("[]", &[]),
            ("", &[]),
            ("Done.", &[]),
            ("Done", &[]),
            ("I cannot do that [yet].", &[]),
            ("Sure: [ls()]", &[]),
            ("[ls(), 5]", &[]),
            ("[ls()", &["ls()"]),
            ("[ls(]", &[]),
        ] {
            assert_eq!(read_calls(reply), expected, "{reply}");
        }
        let calls = read_calls("[cd(folder='a'), ls()]");
        assert_eq!(write_calls(&calls), "[cd(folder='a'), ls()]");
    }

    #[test]
    fn a_call_becomes_a_tool_call() {
        let call = |text: &str| tool_call(text, &[Api::Files, Api::Tickets]);
        let made = call("echo('it\\'s', file_name=\"a\")").unwrap();
        assert_eq!(made.arguments, serde_json::json!({"content": "it's", "file_name": "a"}));
        let edit = call("edit_ticket(ticket_id=7, updates={'priority': 2})").unwrap();
        assert_eq!(edit.arguments, serde_json::json!({"ticket_id": 7, "updates": {"priority": 2}}));
        assert_eq!(call("echo(content=pwd())"), None);
        assert_eq!(call("echo("), None);
    }
}
