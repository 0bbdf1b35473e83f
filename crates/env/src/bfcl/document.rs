//! Documents of functions as the model reads them.

use serde::{Deserialize, Serialize};

use super::package::{BfclTask, Package};
use super::python::{Dict, Value};

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

/// One line about a function. Its parameters keep their order, because arguments may be written without their names.
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
    // What stands before it describes the API, the same for each of its functions.
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
}
