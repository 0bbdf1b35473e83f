//! Descriptions of the functions, as the model sees them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use turnwise_core::Tool;

use super::apis::Api;
use super::package::{BfclTask, Package};
use crate::python::values::{Dict, Value, dict};

/// How the first observation documents the functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BfclDocuments {
    /// The JSON descriptions from the package `bfcl-eval`, one function per line.
    Full,
    /// One line per function: typed parameters and a short description.
    #[default]
    Short,
    /// Tool declarations in the prompt. A function added in a later turn is a JSON line in that
    /// turn's observation.
    Tools,
    /// No documentation; the model must know the functions from `prompt.system` or from training.
    None,
}

/// Returns the documents of the functions that a turn adds; turn 0 adds the initial functions.
pub(super) fn lines(package: &Package, task: &BfclTask, turn: usize, form: BfclDocuments) -> Vec<String> {
    let is_added = |name: &str| task.added.values().flatten().any(|added| added == name);
    let added = task.added.get(&turn).map(Vec::as_slice).unwrap_or_default();
    let is_shown = |name: &str| {
        let is_of_task = task.functions.as_ref().is_none_or(|known| known.iter().any(|known| known == name));
        if turn == 0 { !is_added(name) && is_of_task } else { added.iter().any(|added| added == name) }
    };
    let documents = task.apis.iter().filter_map(|api| package.documents.get(api)).flatten();
    let documents = documents.filter(|(name, _)| is_shown(name));
    match form {
        BfclDocuments::Full => documents.map(|(_, text)| text.clone()).collect(),
        BfclDocuments::Short => documents.map(|(name, text)| short(name, text)).collect(),
        // Turn 0's tools are declared, not listed.
        BfclDocuments::Tools if turn > 0 => {
            documents.filter_map(|(name, text)| Some(tool(name, text)?.json().to_owned())).collect()
        }
        BfclDocuments::Tools | BfclDocuments::None => Vec::new(),
    }
}

pub(super) fn tools(task: &BfclTask, documents: &HashMap<Api, Vec<(String, Tool)>>) -> Vec<Tool> {
    let is_added = |name: &str| task.added.values().flatten().any(|added| added == name);
    let is_of_task =
        |name: &str| task.functions.as_ref().is_none_or(|known| known.iter().any(|known| known == name));
    let documents = task.apis.iter().filter_map(|api| documents.get(api)).flatten();
    documents.filter(|(name, _)| !is_added(name) && is_of_task(name)).map(|(_, tool)| tool.clone()).collect()
}

pub(super) fn tool(name: &str, text: &str) -> Option<Tool> {
    let document: Value = serde_json::from_str(text).ok()?;
    let document = document.as_dict()?;
    let description = document.get_str("description").cloned().unwrap_or_default();
    let parameters = schema(document.get_str("parameters")?);
    let function = dict([("name", name.into()), ("description", description), ("parameters", parameters)]);
    let mut json = String::new();
    dict([("type", "function".into()), ("function", function)]).write_json(&mut json).ok()?;
    Tool::from_json(&json).ok()
}

fn schema(value: &Value) -> Value {
    match value {
        Value::List(items) => Value::List(items.iter().map(schema).collect()),
        Value::Dict(fields) => {
            let fields = fields.iter().filter_map(|(key, value)| {
                let value = match (key.as_str(), value.as_str()) {
                    (Some("type"), Some("dict")) => "object".into(),
                    (Some("type"), Some("float")) => "number".into(),
                    (Some("type"), Some("tuple")) => "array".into(),
                    (Some("type"), Some("any")) => return None,
                    _ => schema(value),
                };
                Some((key.clone(), value))
            });
            Value::Dict(fields.collect())
        }
        other => other.clone(),
    }
}

/// Describes a function in one line. Lists the parameters in their order of declaration, because
/// arguments may be positional.
fn short(name: &str, text: &str) -> String {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let field = |value: &Value, name: &str| value.as_dict().and_then(|value| value.get_str(name)).cloned();
    let (Some(description), Some(about)) = (field(&document, "description"), field(&document, "parameters"))
    else {
        return name.to_owned();
    };
    let required = field(&about, "required").unwrap_or_default();
    let required = required.as_list().unwrap_or_default();
    let properties = field(&about, "properties").unwrap_or_default();
    let parameters = properties.as_dict().into_iter().flat_map(Dict::iter).map(|(parameter, about)| {
        let kind = field(about, "type").unwrap_or_else(|| "any".into());
        let optional = if required.contains(parameter) { "" } else { " = optional" };
        format!("{parameter}: {kind}{optional}")
    });
    let parameters: Vec<String> = parameters.collect();
    let description = description.to_string();
    // The text before describes the API.
    let does = description.rsplit_once("Tool description: ").map_or(description.as_str(), |(_, does)| does);
    format!("{name}({}): {}", parameters.join(", "), does.trim().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_parameters_and_what_it_does() {
        let text = r#"{"name": "f", "description": "This tool belongs to X. Tool description: Does it.",
            "parameters": {"type": "dict", "properties": {"z": {"type": "string"}, "b": {"type": "integer"}},
            "required": ["z"]}}"#;
        assert_eq!(short("f", text), "f(z: string, b: integer = optional): Does it.");
        assert_eq!(short("g", "{}"), "g");
    }

    #[test]
    fn a_tool_has_types_of_json_schema() {
        let text = r#"{"name": "f", "description": "Does it.", "parameters": {"type": "dict", "properties":
            {"z": {"type": "float"}, "b": {"type": "array", "items": {"type": "tuple"}}, "type": {"type": "any"}}}}"#;
        let expected = r#"{"type":"function","function":{"name":"f","description":"Does it.","parameters":{"type":"object","properties":{"z":{"type":"number"},"b":{"type":"array","items":{"type":"array"}},"type":{}}}}}"#;
        assert_eq!(tool("f", text).unwrap().json(), expected);
        assert_eq!(tool("f", "{}"), None);
    }
}
