//! Texts of servers as a policy sees them.

use serde_json::{Value, json};

/// Mark where a text was cut off.
const CUT: &str = " [...]";

/// Returns a value as words: a text as it is, anything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a text of at most `limit` characters (Unicode scalar values); a longer one is truncated
/// and marked.
pub(crate) fn cut(mut text: String, limit: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(limit) else { return text };
    let keep = limit.saturating_sub(CUT.chars().count());
    let kept = text.char_indices().nth(keep).map_or(end, |(at, _)| at);
    text.truncate(kept);
    text.push_str(CUT);
    text
}

/// Returns the tools of an MCP server, one JSON object a line in the form of OpenAI's interface, as
/// Qwen's chat format lists them.
pub(crate) fn tool_list(tools: &[Value]) -> String {
    let line = |tool: &Value| {
        let field = |key: &str| tool.get(key).cloned().unwrap_or(Value::Null);
        json!({
            "type": "function",
            "function": {
                "name": field("name"),
                "description": field("description"),
                "parameters": tool.get("inputSchema").or_else(|| tool.get("input_schema")).cloned().unwrap_or(Value::Null),
            },
        })
        .to_string()
    };
    let lines: Vec<String> = tools.iter().map(line).collect();
    format!("<tools>\n{}\n</tools>", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_with_a_mark() {
        assert_eq!(cut("abcdefghij".into(), 10), "abcdefghij");
        assert_eq!(cut("äbcdefghijk".into(), 10), "äbcd [...]");
        assert_eq!(cut("äbcdefghijk".into(), 10).chars().count(), 10);
    }

    #[test]
    fn tools_are_listed_a_line_each() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let tools = [
            json!({"name": "add", "description": "adds", "inputSchema": schema}),
            json!({"name": "sub", "input_schema": {}}),
        ];
        let list = tool_list(&tools);
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[3]), (4, "<tools>", "</tools>"));
        let first: Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(first["function"]["parameters"], schema);
        assert!(lines[2].contains("\"sub\"") && lines[2].contains("\"parameters\":{}"));
    }
}
