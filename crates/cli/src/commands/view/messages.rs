use std::fmt::Write as _;

use serde_json::Value;
use turnwise_core::{Part, Tool, ToolCall, Turn};

use super::pictures::with_parts;
use crate::commands::pages::html::escape;

/// Returns an observation as HTML. Tool results are matched to calls of the previous turn.
pub(super) fn observed(turn: &Turn, before: Option<&Turn>) -> String {
    let has_roles =
        turn.parts.iter().any(|part| matches!(part, Part::ToolResult { .. } | Part::Message { .. }));
    if !has_roles {
        return format!("<p class=\"label\">observation</p>{}", with_parts(&turn.observation));
    }
    let mut body = String::new();
    for part in &turn.parts {
        let label = match part {
            Part::Text { .. } => "user".to_owned(),
            Part::Message { role, .. } => escape(role),
            Part::ToolResult { call_id, .. } => {
                let call = before.and_then(|turn| turn.calls.iter().find(|call| call.id == *call_id));
                result_label(call_id, call)
            }
            Part::Image(_) => continue,
        };
        let text = part.text().unwrap_or_default();
        let _ = write!(body, "<p class=\"label\">{label}</p>{}", with_parts(text));
    }
    body
}

fn result_label(id: &str, call: Option<&ToolCall>) -> String {
    match call {
        Some(call) => format!("result of {} <code>{}</code>", escape(&call.name), escape(id)),
        None => format!("result of <code>{}</code> <span class=\"badge\">no such call</span>", escape(id)),
    }
}

pub(super) fn calls(turn: &Turn) -> String {
    let mut body = String::new();
    for call in &turn.calls {
        let _ = write!(body, "<p class=\"label\">call of {}", escape(&call.name));
        if !call.id.is_empty() {
            let _ = write!(body, " <code>{}</code>", escape(&call.id));
        }
        let _ = write!(body, "</p><pre>{}</pre>", escape(&arguments(&call.arguments)));
    }
    body
}

fn arguments(value: &Value) -> String {
    match value {
        Value::Object(map) if map.is_empty() => "no arguments".into(),
        Value::Object(map) => {
            let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            map.iter().map(|(name, value)| format!("{name}: {}", shown(value))).collect::<Vec<_>>().join("\n")
        }
        Value::Null => "no arguments".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(super) fn tools(tools: &[Tool]) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let names = tools.iter().map(Tool::name).collect::<Vec<_>>().join(", ");
    let mut body = format!(
        "<details><summary class=\"label\">tools that may be called: {}</summary><ul>",
        escape(&names)
    );
    for tool in tools {
        let _ = write!(body, "<li><code>{}</code></li>", escape(tool.json()));
    }
    body + "</ul></details>"
}
