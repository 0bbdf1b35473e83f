//! JSON tool calls, formatted like Python's `json.dumps`.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::ser::Formatter;
use serde_json::{Map, Value};
use turnwise_core::ToolCall;

/// Converts a JSON object to a tool call. `arguments` (or `parameters`) may be any JSON value, or a
/// string that contains JSON, as in OpenAI's API; the default is `{}`.
pub(super) fn call(value: Value) -> Result<ToolCall, &'static str> {
    let Value::Object(mut fields) = value else { return Err("the call is not a JSON object") };
    let Some(Value::String(name)) = fields.remove("name") else { return Err("the call has no `name`") };
    let name = name.trim().to_owned();
    if name.is_empty() {
        return Err("the call has an empty `name`");
    }
    let arguments = match fields.remove("arguments").or_else(|| fields.remove("parameters")) {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(object @ Value::Object(_)) => object,
            _ => Value::String(text),
        },
        Some(arguments) => arguments,
    };
    Ok(ToolCall { id: String::new(), name, arguments })
}

pub(super) fn object(call: &ToolCall, key: &str) -> String {
    format!(
        "{{\"name\": {}, \"{key}\": {}}}",
        spaced(&Value::from(call.name.as_str())),
        spaced(&call.arguments)
    )
}

/// Formats JSON like Python's `json.dumps(value, ensure_ascii=False)`, as chat templates do.
pub(super) fn spaced(value: &Value) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Spaced);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(_) => value.to_string(),
    }
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}
