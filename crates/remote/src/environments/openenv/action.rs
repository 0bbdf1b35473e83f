//! Converts the policy's text to the server's actions.

use serde_json::{Map, Value, json};
use turnwise_core::{Action, ToolCall};

use crate::environments::error::ServerError;
use crate::environments::schema::{Field, Fields};

const METADATA: &str = "metadata";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ActionSchema {
    fields: Fields,
    text: Option<usize>,
    pub(super) calls_tools: bool,
}

impl ActionSchema {
    /// Parses a schema. `text` names the field that gets plain text. If `text` is empty, plain text
    /// goes to the schema's only required field, or else to its only field.
    pub(super) fn read(schema: &Value, text: &str) -> Result<Self, ServerError> {
        let Some(fields) = Fields::read(schema, METADATA).map(Fields::closed) else {
            return Err(ServerError::Answer("its schema of actions has no `properties`".into()));
        };
        let has = |name: &str| fields.position(name).is_some();
        // The generic action class also accepts tool calls.
        let calls_tools = (has("tool_name") && has("arguments")) || fields.known.is_empty();
        let only = |chosen: &dyn Fn(&Field) -> bool| {
            let mut found =
                fields.known.iter().enumerate().filter(|(_, field)| chosen(field)).map(|(index, _)| index);
            found.next().filter(|_| found.next().is_none())
        };
        let text = if text.is_empty() {
            only(&|field| field.required).or_else(|| only(&|_| true)).filter(|_| !calls_tools)
        } else {
            Some(fields.position(text).ok_or_else(|| {
                let known = fields.names();
                ServerError::setting(
                    "action_field",
                    format!("actions have no field `{text}`; they have {known}"),
                )
            })?)
        };
        Ok(Self { fields, text, calls_tools })
    }

    /// Converts an action. Text is put into the plain-text field, unless it is a JSON object that
    /// matches the schema. A tool call is sent as a call if the server has tools; otherwise its
    /// arguments are the action.
    ///
    /// # Errors
    /// Fails if the action does not match the schema, with a message for the policy.
    pub(super) fn action(&self, action: &Action) -> Result<Map<String, Value>, String> {
        match action {
            Action::Call(call) if self.calls_tools => tool_call(call),
            Action::Call(call) => match &call.arguments {
                Value::Object(arguments) => self.object(arguments.clone()),
                _ => Err("the arguments are not a JSON object".to_owned()),
            },
            Action::Malformed { error, .. } if self.calls_tools => Err(error.clone()),
            Action::Text { text } | Action::Malformed { text, .. } => self.written(text.trim()),
            Action::Reply(reply) => self.written(reply.content.trim()),
        }
    }

    fn written(&self, text: &str) -> Result<Map<String, Value>, String> {
        if self.calls_tools {
            return Err("there is no call of a tool in it".to_owned());
        }
        let object = match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Some(self.object(object)),
            _ => None,
        };
        match (object, self.text) {
            (Some(Ok(object)), _) => Ok(object),
            (_, Some(index)) => {
                let field = &self.fields.known[index];
                Ok(Map::from_iter([(field.name.clone(), field.value(text)?)]))
            }
            (Some(Err(reason)), None) => Err(reason),
            (None, None) => Err(format!("an action is a JSON object with {}", self.fields.names())),
        }
    }

    fn object(&self, object: Map<String, Value>) -> Result<Map<String, Value>, String> {
        self.fields.check(&object).map(|()| object)
    }
}

fn tool_call(call: &ToolCall) -> Result<Map<String, Value>, String> {
    let Value::Object(arguments) = &call.arguments else {
        return Err("the arguments are not a JSON object".to_owned());
    };
    let action = json!({"type": "call_tool", "tool_name": call.name, "arguments": arguments});
    match action {
        Value::Object(action) => Ok(action),
        _ => Err("it is no call".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(properties: &Value, required: &[&str]) -> Value {
        json!({"type": "object", "properties": properties, "required": required})
    }

    fn read(properties: &Value, required: &[&str], text: &str) -> ActionSchema {
        ActionSchema::read(&schema(properties, required), text).unwrap()
    }

    fn act(schema: &ActionSchema, text: &str) -> Result<Value, String> {
        schema.action(&Action::from(text)).map(Value::Object)
    }

    fn call(name: &str, arguments: Value) -> Action {
        Action::Call(ToolCall { id: "c".into(), name: name.into(), arguments })
    }

    #[test]
    fn text_goes_to_the_only_required_field_in_its_type() {
        let metadata = json!({"type": "object"});
        let echo = read(
            &json!({"message": {"type": "string"}, "metadata": metadata, "loud": {"type": "boolean"}}),
            &["message"],
            "",
        );
        assert_eq!(act(&echo, " hi ").unwrap(), json!({"message": "hi"}));
        assert_eq!(
            act(&echo, r#"{"message":"hi","loud":true}"#).unwrap(),
            json!({"message": "hi", "loud": true})
        );
        assert_eq!(act(&echo, r#"{"a":1}"#).unwrap(), json!({"message": "{\"a\":1}"}));
        let grid = read(&json!({"action_id": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}), &[], "");
        assert_eq!(act(&grid, "3").unwrap(), json!({"action_id": 3}));
        assert!(act(&grid, "left").unwrap_err().contains("`action_id` must be of type integer or null"));
        assert!(act(&grid, "3.5").unwrap_err().contains("integer"));
        let word = read(&json!({"way": {"enum": ["up", "down"], "type": "string"}}), &["way"], "");
        assert!(act(&word, "left").unwrap_err().contains("`way` must be one of \"up\", \"down\""));
    }

    #[test]
    fn several_fields_need_an_object_or_a_named_field() {
        let fields = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
        let two = read(&fields, &["a", "b"], "");
        assert_eq!(act(&two, r#"{"a":1,"b":2}"#).unwrap(), json!({"a": 1, "b": 2}));
        for (text, expected) in [
            ("1", "a JSON object with `a`, `b`"),
            (r#"{"a":1}"#, "`b` is missing"),
            (r#"{"a":1,"b":"x"}"#, "`b` must be of type integer"),
            (r#"{"a":1,"b":2,"c":3}"#, "no field `c`"),
        ] {
            let error = act(&two, text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(act(&read(&fields, &["a"], "b"), "7").unwrap(), json!({"b": 7}));
        let error = ActionSchema::read(&schema(&fields, &[]), "c").unwrap_err().to_string();
        assert!(error.contains("env.action_field: actions have no field `c`; they have `a`, `b`"), "{error}");
        assert!(ActionSchema::read(&json!({}), "").is_err());
    }

    #[test]
    fn calls_are_tools_or_fields() {
        let tools = read(
            &json!({"tool_name": {"type": "string"}, "arguments": {"type": "object"}}),
            &["tool_name"],
            "",
        );
        let action = tools.action(&call("add", json!({"a": 1}))).unwrap();
        assert_eq!(
            Value::Object(action),
            json!({"type": "call_tool", "tool_name": "add", "arguments": {"a": 1}})
        );
        assert!(tools.action(&call("add", json!("x"))).is_err());
        assert!(act(&tools, "add 1").unwrap_err().contains("no call of a tool"));
        let fields = read(&json!({"message": {"type": "string"}}), &["message"], "");
        assert_eq!(
            Value::Object(fields.action(&call("step", json!({"message": "hi"}))).unwrap()),
            json!({"message": "hi"})
        );
        assert!(fields.action(&call("step", json!({"text": "hi"}))).unwrap_err().contains("no field `text`"));
    }
}
