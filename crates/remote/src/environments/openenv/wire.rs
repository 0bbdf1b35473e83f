//! Messages of OpenEnv 0.10.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::environments::error::ServerError;
use crate::environments::text::plain;

pub(super) const CLOSE: &str = r#"{"type":"close"}"#;

pub(super) fn reset(arguments: &Map<String, Value>) -> String {
    json!({"type": "reset", "data": arguments}).to_string()
}

pub(super) fn step(action: &Map<String, Value>) -> String {
    json!({"type": "step", "data": action}).to_string()
}

pub(super) fn list_tools() -> String {
    json!({"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}})
        .to_string()
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) fields: Map<String, Value>,
    /// 0 if missing.
    pub(super) reward: f64,
    pub(super) done: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Seen(Seen),
    Mcp(Value),
    Error {
        code: String,
        /// Error text, with the names of the invalid fields if they are known.
        message: String,
    },
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: Map<String, Value>,
}

pub(super) fn read(text: &str) -> Result<Answer, ServerError> {
    let wrong = |reason: &str| ServerError::Answer(format!("no answer of OpenEnv: {reason}"));
    let Envelope { kind, mut data } =
        serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    match kind.as_str() {
        "observation" => {
            let Some(Value::Object(fields)) = data.remove("observation") else {
                return Err(wrong("the observation is not an object"));
            };
            let reward = match data.remove("reward") {
                None | Some(Value::Null) => 0.0,
                Some(Value::Bool(yes)) => f64::from(u8::from(yes)),
                Some(value) => value.as_f64().ok_or_else(|| wrong("the reward is not a number"))?,
            };
            if !reward.is_finite() {
                return Err(wrong("the reward is not finite"));
            }
            let done = match data.remove("done") {
                None | Some(Value::Null) => false,
                Some(Value::Bool(done)) => done,
                Some(_) => return Err(wrong("`done` is neither true nor false")),
            };
            Ok(Answer::Seen(Seen { fields, reward, done }))
        }
        "mcp" => match (data.remove("result"), data.remove("error")) {
            (_, Some(Value::Object(error))) => {
                let message = error.get("message").and_then(Value::as_str).unwrap_or("an error");
                Err(ServerError::Answer(format!("its tools cannot be listed: {message}")))
            }
            (Some(result), _) => Ok(Answer::Mcp(result)),
            _ => Err(wrong("neither result nor error in the answer of MCP")),
        },
        "error" => {
            let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let mut message = text("message");
            for error in data.get("errors").and_then(Value::as_array).into_iter().flatten() {
                message.push_str(&fault(error));
            }
            Ok(Answer::Error { code: text("code"), message })
        }
        _ => Err(wrong("a type that is not known")),
    }
}

/// Formats a pydantic error as field and problem.
fn fault(error: &Value) -> String {
    let parts = error.get("loc").and_then(Value::as_array);
    let places: Vec<String> = parts.into_iter().flatten().map(plain).collect();
    format!("; {}: {}", places.join("."), error.get("msg").and_then(Value::as_str).unwrap_or("is wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Seen {
        match read(text).unwrap() {
            Answer::Seen(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rewards_are_numbers_truths_or_nothing() {
        for (reward, expected) in [("null", 0.0), ("true", 1.0), ("false", 0.0), ("2", 2.0), ("-0.5", -0.5)] {
            let text = format!(
                r#"{{"type":"observation","data":{{"observation":{{"x":1}},"reward":{reward},"done":true}}}}"#
            );
            let seen = seen(&text);
            assert_eq!((seen.reward, seen.done, &seen.fields["x"]), (expected, true, &json!(1)), "{reward}");
        }
        let bare = seen(r#"{"type":"observation","data":{"observation":{}}}"#);
        assert_eq!((bare.reward, bare.done), (0.0, false));
    }

    #[test]
    fn other_messages_are_refused() {
        for (text, expected) in [
            ("no JSON", "no answer of OpenEnv"),
            (r#"{"type":"observation","data":{"observation":{},"reward":NaN}}"#, "no answer of OpenEnv"),
            (r#"{"type":"observation","data":{"observation":"x"}}"#, "not an object"),
            (r#"{"type":"observation","data":{"observation":{},"reward":"1"}}"#, "reward is not a number"),
            (r#"{"type":"observation","data":{"observation":{},"done":1}}"#, "`done` is neither"),
            (r#"{"type":"state","data":{}}"#, "a type that is not known"),
            (r#"{"type":"mcp","data":{"error":{"message":"none here"}}}"#, "cannot be listed: none here"),
            (r#"{"type":"mcp","data":{}}"#, "neither result nor error"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_error_says_which_field_is_wrong() {
        let text = r#"{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_ERROR",
            "errors":[{"loc":["message"],"msg":"Field required"},{"loc":["a",0],"msg":"Too long"}]}}"#;
        let Answer::Error { code, message } = read(text).unwrap() else { panic!("an error was sent") };
        assert_eq!(code, "VALIDATION_ERROR");
        assert_eq!(message, "Invalid message; message: Field required; a.0: Too long");
    }
}
