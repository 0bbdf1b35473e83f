//! Lists the tools that the policy may call, and parses its calls.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use turnwise_core::{Action, Tool, ToolCall};

use super::settings::McpConfig;
use crate::environments::error::ServerError;
use crate::environments::schema::Fields;
use crate::environments::text::plain;

#[derive(Clone, Debug)]
pub(super) struct Tools {
    shown: Vec<Tool>,
    known: Vec<(String, Option<Fields>)>,
    answer: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asked {
    Tool(String, Map<String, Value>),
    Answer(String),
}

pub(super) fn name_of(tool: &Value) -> &str {
    tool.get("name").and_then(Value::as_str).unwrap_or_default()
}

impl Tools {
    /// Returns the tools that the policy may call, including the answer call. `judges` names the
    /// judging tools.
    ///
    /// # Errors
    /// Fails if a tool in `env.tools` does not exist or has the answer call's name.
    pub(super) fn new(
        listed: &[Value],
        config: &McpConfig,
        judges: &BTreeSet<&str>,
    ) -> Result<Self, ServerError> {
        let names: Vec<&str> = listed.iter().map(name_of).collect();
        if let Some(absent) = config.tools.iter().find(|tool| !names.contains(&tool.as_str())) {
            let known = names.join(", ");
            return Err(ServerError::setting(
                "tools",
                format!("the server has no tool `{absent}`; it has {known}"),
            ));
        }
        if names.contains(&config.answer_tool.as_str()) {
            let reason =
                format!("the server has a tool `{}` itself; choose another name", config.answer_tool);
            return Err(ServerError::setting("answer_tool", reason));
        }
        let seen = |name: &str| {
            if config.tools.is_empty() {
                !judges.contains(name)
            } else {
                config.tools.iter().any(|tool| tool == name)
            }
        };
        let mut shown: Vec<Value> = listed.iter().filter(|tool| seen(name_of(tool))).cloned().collect();
        shown.push(json!({
            "name": config.answer_tool,
            "description": "Ends the episode with the answer.",
            "inputSchema": {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
        }));
        let fields = |tool: &Value| Fields::read(tool.get("inputSchema")?, "");
        let known = shown.iter().map(|tool| (name_of(tool).to_owned(), fields(tool))).collect();
        let shown = shown.iter().map(|tool| Tool::from_json(&tool.to_string())).collect::<Result<_, _>>();
        let shown = shown.map_err(|error| ServerError::Answer(error.to_string()))?;
        Ok(Self { shown, known, answer: config.answer_tool.clone() })
    }

    pub(super) fn shown(&self) -> &[Tool] {
        &self.shown
    }

    /// Parses an action: a tool call, a text of the form `name({..})`, or a JSON object with `name`
    /// and `arguments`.
    ///
    /// # Errors
    /// Fails if the call is invalid, with a message for the policy.
    pub(super) fn read(&self, action: &Action) -> Result<Asked, String> {
        let ToolCall { name, arguments, .. } = match action {
            Action::Call(call) => call.clone(),
            Action::Text { .. } | Action::Malformed { .. } | Action::Reply(_) => {
                written(action.text().trim()).ok_or("it is no JSON object with `name` and `arguments`")?
            }
        };
        let Value::Object(arguments) = arguments else {
            return Err("the arguments are not a JSON object".to_owned());
        };
        let Some((_, fields)) = self.known.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = self.known.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("there is no tool `{name}`; there are {}", known.join(", ")));
        };
        if name == self.answer {
            let answer = arguments.get("answer").ok_or("the field `answer` is missing")?;
            return Ok(Asked::Answer(plain(answer)));
        }
        if let Some(fields) = fields {
            fields.check(&arguments)?;
        }
        Ok(Asked::Tool(name, arguments))
    }
}

fn written(text: &str) -> Option<ToolCall> {
    if let Some(call) = ToolCall::from_text(text) {
        return Some(call);
    }
    let object: Value = serde_json::from_str(text).ok()?;
    let name = object.get("name")?.as_str()?.to_owned();
    Some(ToolCall { id: String::new(), name, arguments: object.get("arguments")?.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Vec<Value> {
        let schema = json!({"properties": {"a": {"type": "integer"}}, "required": ["a"]});
        vec![json!({"name": "add", "inputSchema": schema}), json!({"name": "check"})]
    }

    fn tools(config: &McpConfig) -> Tools {
        Tools::new(&listed(), config, &BTreeSet::from(["check"])).unwrap()
    }

    #[test]
    fn calls_are_read_in_their_forms() {
        let tools = tools(&McpConfig::default());
        let add = |a: i64| Ok(Asked::Tool("add".into(), Map::from_iter([("a".into(), a.into())])));
        let call = ToolCall { id: String::new(), name: "add".into(), arguments: json!({"a": 1}) };
        assert_eq!(tools.read(&Action::Call(call)), add(1));
        assert_eq!(tools.read(&Action::from("add({\"a\":2})")), add(2));
        assert_eq!(tools.read(&Action::from(r#"{"name":"add","arguments":{"a":3}}"#)), add(3));
        for (text, answer) in [("answer({\"answer\":\"x\"})", "x"), ("answer({\"answer\":7})", "7")] {
            assert_eq!(tools.read(&Action::from(text)), Ok(Asked::Answer(answer.into())));
        }
    }

    #[test]
    fn what_is_no_call_says_why() {
        let tools = tools(&McpConfig::default());
        for (text, expected) in [
            ("add 1", "no JSON object with `name`"),
            ("add([1])", "not a JSON object"),
            ("add({})", "`a` is missing"),
            ("add({\"a\":\"x\"})", "`a` must be of type integer"),
            // The policy must not call judging tools.
            ("check({})", "no tool `check`; there are add, answer"),
            ("answer({})", "`answer` is missing"),
        ] {
            let error = tools.read(&Action::from(text)).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let names: Vec<&str> = tools.shown().iter().map(Tool::name).collect();
        assert_eq!(names, ["add", "answer"]);
        assert!(tools.shown()[0].json().contains(r#""parameters":{"properties":{"a":{"type":"integer"}}"#));
    }

    #[test]
    fn settings_choose_tools() {
        let chosen = McpConfig { tools: vec!["check".into()], ..McpConfig::default() };
        let tools = tools(&chosen);
        let names: Vec<&str> = tools.shown().iter().map(Tool::name).collect();
        assert_eq!(names, ["check", "answer"]);
        for (config, expected) in [
            (
                McpConfig { tools: vec!["sub".into()], ..McpConfig::default() },
                "env.tools: the server has no tool `sub`",
            ),
            (
                McpConfig { answer_tool: "add".into(), ..McpConfig::default() },
                "env.answer_tool: the server has a tool `add`",
            ),
        ] {
            let error = Tools::new(&listed(), &config, &BTreeSet::new()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
