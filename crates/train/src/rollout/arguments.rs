//! Arguments of demonstrated tool calls, in the order of the tool's schema.

use serde_json::Value;
use turnwise_core::{Tool, ToolCall};

/// Returns a call's arguments as JSON, in the order in which its tool declares them.
///
/// A [`Value`] sorts its keys. A model writes arguments from left to right, so a later argument can
/// depend on an earlier one: in an edit, the new text on the text that it replaces. Undeclared
/// arguments come last. Arguments of unknown tools stay sorted.
pub(super) fn in_declared_order(call: &ToolCall, tools: &[Tool]) -> String {
    let tool = tools.iter().find(|tool| tool.name() == call.name);
    let (Some(tool), Value::Object(arguments)) = (tool, &call.arguments) else {
        return call.arguments.to_string();
    };
    let declared = tool.parameter_names();
    let place = |name: &String| declared.iter().position(|known| known == name).unwrap_or(declared.len());
    let mut fields: Vec<(&String, &Value)> = arguments.iter().collect();
    fields.sort_by_key(|(name, _)| place(name));
    let fields: Vec<String> =
        fields.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_follow_the_tools_schema() {
        let schema = r#"{"name": "edit", "parameters": {"type": "object", "properties":
            {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}}}}"#;
        let tools = [Tool::from_json(schema).unwrap(), Tool::from_json(r#"{"name": "submit"}"#).unwrap()];
        let written = |name: &str, arguments: Value| {
            in_declared_order(&ToolCall { name: name.into(), arguments, ..ToolCall::default() }, &tools)
        };
        let edit = json!({"new": "b \"c\"", "old": "a", "more": [1], "path": "p"});
        assert_eq!(edit.to_string(), r#"{"more":[1],"new":"b \"c\"","old":"a","path":"p"}"#);
        assert_eq!(written("edit", edit), r#"{"path":"p","old":"a","new":"b \"c\"","more":[1]}"#);
        assert_eq!(written("other", json!({"b": 1, "a": 2})), r#"{"a":2,"b":1}"#);
        assert_eq!(written("submit", json!({})), "{}");
        assert_eq!(written("submit", json!({"b": 1, "a": 2})), r#"{"a":2,"b":1}"#);
        assert_eq!(written("edit", Value::Null), "null");
    }
}
