//! Tool calls as JSON objects in tags (Hermes, Qwen).

use serde_json::Value;
use turnwise_core::ToolCall;

use super::json;

pub(super) fn read([open, close]: &[String; 2], answer: &str) -> Result<Vec<ToolCall>, &'static str> {
    let mut calls = Vec::new();
    let mut rest = answer;
    while let Some((before, after)) = rest.split_once(open.as_str()) {
        if before.contains(close.as_str()) {
            return Err(CLOSED);
        }
        if !after.contains(close.as_str()) {
            return Err("the call is not closed");
        }
        if after.trim_start().starts_with(close.as_str()) {
            return Err("the block of the call is empty");
        }
        // A JSON string may contain the closing tag, so the parser finds the end.
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        let value = values.next().and_then(Result::ok).ok_or(NO_JSON)?;
        let after = after.get(values.byte_offset()..).unwrap_or_default().trim_start();
        rest = after.strip_prefix(close.as_str()).ok_or(NO_JSON)?;
        calls.push(json::call(value)?);
    }
    if rest.contains(close.as_str()) { Err(CLOSED) } else { Ok(calls) }
}

const CLOSED: &str = "a call is closed that was not opened";
const NO_JSON: &str = "the block of the call is not JSON";

/// Writes the calls without the first opening tag and the last closing tag, because prompt
/// templates already contain them.
pub(super) fn write([open, close]: &[String; 2], calls: &[ToolCall]) -> String {
    let blocks: Vec<String> = calls.iter().map(|call| json::object(call, "arguments")).collect();
    blocks.join(&format!("\n{close}\n{open}\n"))
}
