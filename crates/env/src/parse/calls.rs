//! Structured calls in responses: one JSON object with the function's name and its arguments.

use serde_json::Value;
use turnwise_core::ToolCall;

/// Parses the call in a block. Arguments are any JSON value. A string that contains a JSON object
/// is parsed as that object (OpenAI's form), and missing arguments are an empty object.
///
/// # Errors
/// Returns the reason why the text is not a call.
pub(super) fn read(block: &str) -> Result<ToolCall, &'static str> {
    let value: Value = serde_json::from_str(block).map_err(|_| "the block of the call is not JSON")?;
    let Value::Object(mut fields) = value else { return Err("the block of the call is not a JSON object") };
    let Some(Value::String(name)) = fields.remove("name") else { return Err("the call has no `name`") };
    let name = name.trim().to_owned();
    if name.is_empty() {
        return Err("the call has an empty `name`");
    }
    let arguments = match fields.remove("arguments") {
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(object @ Value::Object(_)) => object,
            _ => Value::String(text),
        },
        Some(arguments) => arguments,
    };
    Ok(ToolCall { id: String::new(), name, arguments })
}

/// Converts a call as text (`name(arguments as JSON)`) to the JSON object that a model writes;
/// `None` if it is not a call.
pub fn call_json(words: &str) -> Option<String> {
    let ToolCall { name, arguments, .. } = ToolCall::from_text(words)?;
    Some(format!("{{\"name\": {}, \"arguments\": {arguments}}}", Value::String(name)))
}

#[cfg(test)]
mod tests {
    use super::super::{ActionParser, ReasoningDemand, ResponseRules, Style};
    use super::*;
    use turnwise_core::Action;

    fn rules() -> ResponseRules {
        ResponseRules {
            action_tags: ["<tool_call>", "</tool_call>"].map(String::from),
            ..ResponseRules::new(Style::Call)
        }
    }

    #[test]
    fn a_call_is_read_and_written() {
        let response = "<think>so</think>\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a [b] c\"}}\n</tool_call>";
        let parsed = ActionParser::new(rules(), false).parse(response, &[]);
        assert!(parsed.valid, "{parsed:?}");
        assert_eq!(parsed.action, r#"search({"query":"a [b] c"})"#);
        let again = call_json(&parsed.action).unwrap();
        assert_eq!(again, r#"{"name": "search", "arguments": {"query":"a [b] c"}}"#);
        let Action::Call(call) = parsed.into_action("call_3") else { panic!("a call was read") };
        assert_eq!((call.id.as_str(), call.name.as_str()), ("call_3", "search"));
        assert_eq!(read(&again).unwrap().arguments, call.arguments);
        assert_eq!(call_json("look around"), None);
    }

    #[test]
    fn arguments_have_several_forms() {
        let empty = serde_json::json!({});
        for block in
            [r#"{"name": "f"}"#, r#"{"name": "f", "arguments": null}"#, r#"{"name": "f", "arguments": "{}"}"#]
        {
            assert_eq!(read(block).unwrap().arguments, empty, "{block}");
        }
        assert_eq!(read(r#"{"name": "f", "arguments": "words"}"#).unwrap().arguments, "words");
        assert_eq!(read(r#"{"name": "f", "arguments": [1]}"#).unwrap().arguments, serde_json::json!([1]));
    }

    #[test]
    fn what_is_no_call_is_malformed_and_still_sent() {
        let cases = [
            ("<tool_call>look</tool_call>", "look", "not JSON"),
            ("<tool_call>[1]</tool_call>", "[1]", "not a JSON object"),
            ("<tool_call>{\"arguments\": {}}</tool_call>", "{\"arguments\": {}}", "no `name`"),
            ("<tool_call>{\"name\": \" \"}</tool_call>", "{\"name\": \" \"}", "empty `name`"),
            (
                "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>",
                "{\"name\": \"f\"}",
                "more than one",
            ),
            ("{\"name\": \"f\"}", "{\"name\": \"f\"}", "no block"),
        ];
        for (response, action, reason) in cases {
            let parsed = ActionParser::new(rules(), false).parse(response, &[]);
            assert!(!parsed.valid && parsed.call.is_none(), "{response}");
            assert_eq!(parsed.action, action);
            assert!(parsed.reason.unwrap().contains(reason), "{parsed:?}");
        }
    }

    #[test]
    fn reasoning_and_admissible_calls_are_asked_as_with_words() {
        let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>";
        let required = ResponseRules { reasoning: ReasoningDemand::Required, ..rules() };
        assert!(!ActionParser::new(required, false).parse(call, &[]).valid);
        let parser = ActionParser::new(rules(), true);
        let valid = |admissible: &str| parser.parse(call, &[admissible.to_owned()]).valid;
        assert!(valid("f(<n>)") && valid(r#"f({"n":1})"#));
        assert!(!valid("g(<n>)") && !valid(r#"f({"n":2})"#));
    }
}
