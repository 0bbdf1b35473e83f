//! Documents of functions as the model reads them.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::package::{BfclTask, Package};

/// How much the first observation says of the functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BfclDocuments {
    /// The package's JSON documents, one a line.
    Full,
    /// One line a function: parameters with their types, and what it does.
    #[default]
    Short,
    /// Nothing; `prompt.system` or a trained policy's weights have to say it.
    None,
}

/// Lines about the functions of a task that a turn adds; for turn 0 all that are there from the start.
pub(super) fn lines(package: &Package, task: &BfclTask, turn: usize, form: BfclDocuments) -> Vec<String> {
    let is_added = |name: &str| task.added.values().flatten().any(|added| added == name);
    let added = task.added.get(&turn).map(Vec::as_slice).unwrap_or_default();
    let is_shown = |name: &str| {
        if turn == 0 { !is_added(name) } else { added.iter().any(|added| added == name) }
    };
    let documents = task.apis.iter().filter_map(|api| package.documents.get(api)).flatten();
    let documents = documents.filter(|(name, _)| is_shown(name));
    match form {
        BfclDocuments::Full => documents.map(|(_, text)| text.clone()).collect(),
        BfclDocuments::Short => documents.map(|(name, text)| short(name, text)).collect(),
        BfclDocuments::None => Vec::new(),
    }
}

#[derive(Deserialize)]
struct Document {
    description: String,
    parameters: Parameters,
}

#[derive(Deserialize)]
struct Parameters {
    properties: Json,
    #[serde(default)]
    required: Vec<String>,
}

fn short(name: &str, text: &str) -> String {
    let Ok(document) = serde_json::from_str::<Document>(text) else { return name.to_owned() };
    let properties = document.parameters.properties.as_object();
    let parameters = properties.into_iter().flatten().map(|(parameter, about)| {
        let kind = about.get("type").and_then(Json::as_str).unwrap_or("any");
        let optional = if document.parameters.required.contains(parameter) { "" } else { " = optional" };
        format!("{parameter}: {kind}{optional}")
    });
    let parameters: Vec<String> = parameters.collect();
    // What stands before it describes the API, the same for each of its functions.
    let does = document
        .description
        .rsplit_once("Tool description: ")
        .map_or(document.description.as_str(), |(_, does)| does);
    format!("{name}({}): {}", parameters.join(", "), does.trim().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_parameters_and_what_it_does() {
        let text = r#"{"name": "f", "description": "This tool belongs to X. Tool description: Does it.",
            "parameters": {"type": "dict", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "required": ["a"]}}"#;
        assert_eq!(short("f", text), "f(a: string, b: integer = optional): Does it.");
        assert_eq!(short("g", "{}"), "g");
    }
}
