//! Reads tool descriptions from tau2-bench's docstrings.

use serde_json::Value;
use turnwise_core::{Tool, ToolError};

const TITLES: [&str; 5] = ["Args", "Arguments", "Returns", "Raises", "Logic for"];

#[derive(Debug)]
struct Function<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str, Option<&'a str>)>,
    docstring: &'a str,
}

/// Returns a Python file's `is_tool` methods in order.
pub(super) fn tools(python: &str) -> Result<Vec<Tool>, ToolError> {
    functions(python).iter().map(|function| Tool::from_json(&function.json())).collect()
}

fn functions(python: &str) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    let mut rest = python;
    while let Some(place) = rest.find("\n    @is_tool(") {
        rest = &rest[place + 1..];
        let Some(definition) = rest.find("def ") else { break };
        let body = &rest[definition + 4..];
        let Some((name, after)) = body.split_once('(') else { break };
        let Some(close) = closing(after) else { break };
        let mut quoted = after[close..].splitn(3, "\"\"\"");
        let docstring = quoted.nth(1).unwrap_or_default();
        let parameters = parameters(&after[..close]);
        found.push(Function { name, parameters, docstring });
        rest = after;
    }
    found
}

/// Returns the position of the closing bracket whose opening bracket is just before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    for (place, character) in text.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

fn parameters(text: &str) -> Vec<(&str, &str, Option<&str>)> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (place, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    let read = |part: &&'_ str| part.split_once(':').is_some();
    parts
        .into_iter()
        .filter(read)
        .filter_map(|part| {
            let (name, kind) = part.split_once(':')?;
            let (kind, default) = match kind.split_once('=') {
                Some((kind, default)) => (kind, Some(default.trim())),
                None => (kind, None),
            };
            Some((name.trim(), kind.trim(), default))
        })
        .collect()
}

/// `inspect.cleandoc`
fn clean(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let margin = lines.iter().skip(1).filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let mut clean: Vec<&str> = lines
        .iter()
        .enumerate()
        .map(|(place, line)| match place {
            0 => line.trim_start(),
            _ => line.get(margin..).unwrap_or_default(),
        })
        .collect();
    while clean.last().is_some_and(|line| line.is_empty()) {
        clean.pop();
    }
    let first = clean.iter().position(|line| !line.is_empty()).unwrap_or(0);
    clean[first.min(clean.len())..].join("\n")
}

/// Returns the positions at which a docstring section and its text start. The section is the one
/// with this title, or the first section if `title` is `None`.
fn section(text: &str, title: Option<&str>) -> Option<(usize, usize)> {
    let mut place = 0;
    for line in text.split_inclusive('\n') {
        let head = line.trim_end();
        let is_title = head.strip_suffix(':').is_some_and(|head| match title {
            Some(title) => head == title,
            None => TITLES.contains(&head),
        });
        if is_title {
            return Some((place, place + line.len()));
        }
        place += line.len();
    }
    None
}

impl Function<'_> {
    /// Returns a tool's description: the docstring's first line, a blank line, and the rest of the
    /// text up to the first section.
    fn description(&self, docstring: &str) -> String {
        let before = section(docstring, None).map_or(docstring, |(start, _)| &docstring[..start]);
        let (short, long) = before.split_once('\n').unwrap_or((before, ""));
        let long = long.trim();
        if short.is_empty() {
            self.name.to_owned()
        } else if long.is_empty() {
            short.to_owned()
        } else {
            format!("{short}\n\n{long}")
        }
    }

    fn about(docstring: &str, parameter: &str) -> Option<String> {
        let (_, start) = section(docstring, Some("Args"))?;
        let body = &docstring[start..];
        let body = section(body, None).map_or(body, |(end, _)| &body[..end]);
        let indent = body
            .lines()
            .find(|line| !line.trim().is_empty())
            .map(|line| line.len() - line.trim_start().len())?;
        let is_head = |line: &str| line.len() > indent && !line[indent..].starts_with(char::is_whitespace);
        let mut lines = body.lines().skip_while(|line| {
            let head = line.trim_start().split_once(':').map(|(head, _)| head);
            !(is_head(line) && head == Some(parameter))
        });
        let first = lines.next()?.trim_start();
        let (_, first) = first.split_once(':')?;
        let rest: Vec<&str> = lines.take_while(|line| line.trim().is_empty() || !is_head(line)).collect();
        let rest = rest.join("\n");
        let rest = clean(&format!("\n{}", rest.trim_end()));
        let first = first.strip_prefix(' ').unwrap_or(first);
        Some(if rest.is_empty() {
            first.trim_end_matches('\n').to_owned()
        } else {
            format!("{first}\n{rest}")
        })
    }

    /// Returns the tool as JSON with keys in the order of tau2-bench.
    fn json(&self) -> String {
        let docstring = clean(self.docstring);
        let quoted = |text: &str| Value::from(text).to_string();
        let mut properties = Vec::new();
        let mut required = Vec::new();
        for (name, kind, default) in &self.parameters {
            let mut fields = Vec::new();
            match default {
                Some(default) => fields.push(format!("\"default\":{default}")),
                None => required.push(quoted(name)),
            }
            if let Some(about) = Self::about(&docstring, name) {
                fields.push(format!("\"description\":{}", quoted(&about)));
            }
            let (items, kind) = json_type(kind);
            if items {
                fields.push("\"items\":{\"type\":\"string\"}".to_owned());
            }
            fields.push(format!("\"title\":{}", quoted(&title(name))));
            fields.push(format!("\"type\":{}", quoted(kind)));
            properties.push(format!("{}:{{{}}}", quoted(name), fields.join(",")));
        }
        let needed = if required.is_empty() {
            String::new()
        } else {
            format!("\"required\":[{}],", required.join(","))
        };
        format!(
            "{{\"type\":\"function\",\"function\":{{\"name\":{},\"description\":{},\"parameters\":{{\"properties\":{{{}}},{needed}\"title\":\"parameters\",\"type\":\"object\"}}}}}}",
            quoted(self.name),
            quoted(&self.description(&docstring)),
            properties.join(",")
        )
    }
}

/// Returns whether the Python type is a list of strings, and the JSON type for it.
fn json_type(annotation: &str) -> (bool, &'static str) {
    match annotation {
        "int" => (false, "integer"),
        "float" => (false, "number"),
        "bool" => (false, "boolean"),
        "List[str]" | "list[str]" => (true, "array"),
        _ if annotation.contains("dict") => (false, "object"),
        _ => (false, "string"),
    }
}

/// `name.replace("_", " ").title()`
fn title(name: &str) -> String {
    let mut after_letter = false;
    name.chars()
        .map(|character| {
            let character = if character == '_' { ' ' } else { character };
            let shown = if after_letter { character } else { character.to_ascii_uppercase() };
            after_letter = character.is_alphabetic();
            shown
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
class Kit:
    @is_tool(ToolType.READ)
    def find(
        self, first_name: str, ids: List[str], limit: int = 12
    ) -> str:
        """
        Finds a "thing". More of the
        first paragraph.

        Second.

        Args:
            first_name: The name, such as 'A: b'.
            ids: Several,
                 on two lines.

        Returns:
            ids: none of them.
        """
        return ""

    # @is_tool(ToolType.READ)
    # def no(self) -> str:

    @is_tool(ToolType.WRITE)
    def stop(self) -> str:
        """Stops it."""
"#;

    #[test]
    fn tools_are_read_from_docstrings() {
        let found = tools(SOURCE).unwrap();
        assert_eq!(found.iter().map(Tool::name).collect::<Vec<_>>(), ["find", "stop"]);
        let expected = r#"{"type":"function","function":{"name":"find","description":"Finds a \"thing\". More of the\n\nfirst paragraph.\n\nSecond.","parameters":{"properties":{"first_name":{"description":"The name, such as 'A: b'.","title":"First Name","type":"string"},"ids":{"description":"Several,\non two lines.","items":{"type":"string"},"title":"Ids","type":"array"},"limit":{"default":12,"title":"Limit","type":"integer"}},"required":["first_name","ids"],"title":"parameters","type":"object"}}}"#;
        assert_eq!(found[0].json(), expected);
        assert!(found[1].json().contains(r#""parameters":{"properties":{},"title""#), "{}", found[1].json());
    }
}
