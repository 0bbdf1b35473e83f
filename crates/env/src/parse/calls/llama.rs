//! Tool calls as bare JSON objects (Llama 3).

use serde_json::Value;
use turnwise_core::ToolCall;

use super::json;

/// Text that Llama 3 writes before calls of built-in tools.
const PYTHON_TAG: &str = "<|python_tag|>";

/// Parses JSON objects, optionally separated by semicolons, or a JSON list of objects. A response
/// that starts with other text has no calls.
pub(super) fn read(answer: &str) -> Result<Vec<ToolCall>, &'static str> {
    let text = answer.trim();
    let tagged = text.strip_prefix(PYTHON_TAG);
    let text = tagged.unwrap_or(text).trim_start();
    let list = text.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'));
    if tagged.is_none() && !list && !text.starts_with('{') {
        return Ok(Vec::new());
    }
    let mut calls = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(Value::Array(several))) => {
                for value in several {
                    calls.push(json::call(value)?);
                }
            }
            Some(Ok(value)) => calls.push(json::call(value)?),
            Some(Err(_)) if calls.is_empty() => return Err("the call is not JSON"),
            Some(Err(_)) => return Err("there is something other than a call after a call"),
            None => break,
        }
        rest = rest.get(values.byte_offset()..).unwrap_or_default().trim_start();
        rest = rest.strip_prefix(';').unwrap_or(rest).trim_start();
    }
    if calls.is_empty() { Err("the call is not JSON") } else { Ok(calls) }
}

pub(super) fn write(calls: &[ToolCall]) -> String {
    calls.iter().map(|call| json::object(call, "parameters")).collect::<Vec<_>>().join("; ")
}
