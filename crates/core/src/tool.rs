//! Tools that the policy may call.

use std::fmt::{self, Write as _};

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Invalid tool definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool: {0}")]
pub struct ToolError(String);

/// A tool in OpenAI's form:
/// `{"type": "function", "function": {"name": .., "description": .., "parameters": <JSON Schema>}}`.
/// Stored as text to preserve the order of the keys, because chat templates print them in this
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    name: String,
    json: String,
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    function: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Function<'a> {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default, borrow, alias = "inputSchema", alias = "input_schema")]
    parameters: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Parameters {
    properties: Names,
}

/// Keys of a JSON object in their order.
#[derive(Default)]
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Names;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Names, M::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        from.deserialize_map(Keys)
    }
}

impl Tool {
    /// Parses OpenAI's form, its `function` object alone, or MCP's form (`inputSchema`).
    ///
    /// # Errors
    /// Fails if the text is not an object, has no `name`, or has parameters that are not an object.
    pub fn from_json(text: &str) -> Result<Self, ToolError> {
        let fail = |reason: String| ToolError(format!("{reason} in {}", text.trim()));
        let read = |error: serde_json::Error| fail(error.to_string());
        let wrapped = serde_json::from_str::<Wrapped<'_>>(text).map_err(read)?.function;
        let function: Function<'_> =
            serde_json::from_str(wrapped.map_or(text, RawValue::get)).map_err(read)?;
        if function.name.trim().is_empty() {
            return Err(fail("`name` is empty".to_owned()));
        }
        let parameters = function.parameters.map_or(r#"{"type":"object","properties":{}}"#, RawValue::get);
        if !parameters.trim_start().starts_with('{') {
            return Err(fail("the parameters must be a JSON Schema, an object".to_owned()));
        }
        let json = if wrapped.is_some() {
            compact(text)
        } else {
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let mut json = format!(r#"{{"type":"function","function":{{"name":{}"#, quoted(&function.name));
            if let Some(description) = &function.description {
                let _ = write!(json, r#","description":{}"#, quoted(description));
            }
            let _ = write!(json, r#","parameters":{}}}}}"#, compact(parameters));
            json
        };
        Ok(Self { name: function.name, json })
    }

    /// Returns the function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the parameters' names in the order of the schema; empty if it has no `properties`.
    pub fn parameter_names(&self) -> Vec<String> {
        let names = || {
            let function = serde_json::from_str::<Wrapped<'_>>(&self.json).ok()?.function?;
            let parameters = serde_json::from_str::<Function<'_>>(function.get()).ok()?.parameters?;
            Some(serde_json::from_str::<Parameters>(parameters.get()).ok()?.properties.0)
        };
        names().unwrap_or_default()
    }

    /// Returns one line of JSON in the original key order.
    pub fn json(&self) -> &str {
        &self.json
    }
}

fn compact(json: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    json.chars()
        .filter(|&character| {
            let keep = quoted || !character.is_ascii_whitespace();
            match character {
                '"' if !escaped => quoted = !quoted,
                _ => {}
            }
            escaped = quoted && character == '\\' && !escaped;
            keep
        })
        .collect()
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.json.clone()).map_err(S::Error::custom)?.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(from)?;
        Self::from_json(json.get()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &str = r#"{"type":"function","function":{"name":"add","description":"a \"sum\" ","parameters":{"type":"object","properties":{"b":{"type":"integer"},"a":{}}}}}"#;

    #[test]
    fn tools_are_read_in_three_forms_and_keep_the_order_of_their_keys() {
        let inner = r#"{"name": "add", "description": "a \"sum\" ",
            "parameters": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}}"#;
        let forms = [
            ADD.to_owned(),
            format!("{{\"type\": \"function\",\n \"function\": {inner}}}"),
            inner.to_owned(),
            inner.replace("parameters", "inputSchema"),
        ];
        for form in &forms {
            let tool = Tool::from_json(form).unwrap();
            assert_eq!((tool.name(), tool.json()), ("add", ADD), "{form}");
            assert_eq!(tool.parameter_names(), ["b", "a"], "{form}");
        }
        let tools: Vec<Tool> = serde_json::from_str(&format!("[{}]", forms.join(","))).unwrap();
        assert_eq!(serde_json::to_string(&tools).unwrap(), format!("[{}]", [ADD; 4].join(",")));
        let bare = Tool::from_json(r#"{"name":"stop"}"#).unwrap();
        assert!(bare.json().ends_with(r#""parameters":{"type":"object","properties":{}}}}"#), "{bare:?}");
        let any = Tool::from_json(r#"{"name":"any","parameters":{"type":"object"}}"#).unwrap();
        assert_eq!((bare.parameter_names(), any.parameter_names()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_is_not_a_tool_is_refused_with_the_reason() {
        for (text, reason) in [
            ("add", "expected value"),
            ("[]", "invalid"),
            (r#"{"type": "function"}"#, "missing field `name`"),
            (r#"{"function": {"description": "x"}}"#, "missing field `name`"),
            (r#"{"name": " "}"#, "`name` is empty"),
            (r#"{"name": "f", "parameters": [1]}"#, "JSON Schema"),
        ] {
            let error = Tool::from_json(text).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }
}
