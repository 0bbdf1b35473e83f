//! `str`, `repr` and `json.dumps`.

use std::fmt::{self, Write as _};

use super::value::{Dict, Value};
use crate::python;

const MOST_DIGITS: usize = 4300;

/// Error for a value that cannot be written as valid JSON.
#[derive(Debug, PartialEq, Eq)]
pub struct NotJson;

/// Returns true for characters that `repr` escapes but [`python::quoted`] does not: format,
/// separator and private-use characters.
fn is_escaped(character: char) -> bool {
    matches!(u32::from(character),
        0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x1680 | 0x180e | 0x2000..=0x200f | 0x2028..=0x202f
        | 0x205f..=0x206f | 0x3000 | 0xe000..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xe0000..=0x10ffff)
}

fn quoted(out: &mut String, text: &str) {
    if text.is_ascii() || !text.contains(is_escaped) {
        return python::quoted(out, text);
    }
    let mut plain = String::with_capacity(text.len() + 2);
    python::quoted(&mut plain, text);
    for character in plain.chars() {
        let code = u32::from(character);
        let _ = match character {
            _ if !is_escaped(character) => out.write_char(character),
            _ if code > 0xffff => write!(out, "\\U{code:08x}"),
            _ => write!(out, "\\u{code:04x}"),
        };
    }
}

fn items(out: &mut String, items: &[Value]) {
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        item.write_repr(out);
    }
}

impl Value {
    /// `repr(value)`
    pub fn repr(&self) -> String {
        let mut out = String::new();
        self.write_repr(&mut out);
        out
    }

    /// Appends `repr(value)`.
    pub(crate) fn write_repr(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("None"),
            Self::Bool(true) => out.push_str("True"),
            Self::Bool(false) => out.push_str("False"),
            Self::Int(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Big(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Float(value) => out.push_str(&python::float(*value)),
            Self::Str(text) => quoted(out, text),
            Self::List(list) => {
                out.push('[');
                items(out, list);
                out.push(']');
            }
            Self::Tuple(list) => {
                out.push('(');
                items(out, list);
                out.push_str(if list.len() == 1 { ",)" } else { ")" });
            }
            Self::Set(list) if list.is_empty() => out.push_str("set()"),
            Self::Set(list) => {
                out.push('{');
                items(out, list);
                out.push('}');
            }
            Self::Dict(dict) => {
                out.push('{');
                for (place, (key, value)) in dict.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    key.write_repr(out);
                    out.push_str(": ");
                    value.write_repr(out);
                }
                out.push('}');
            }
            Self::Opaque { repr, .. } => out.push_str(repr),
        }
    }

    /// Appends `json.dumps(value)`.
    ///
    /// # Errors
    /// Fails if the value is not valid JSON.
    pub fn write_json(&self, out: &mut String) -> Result<(), NotJson> {
        match self {
            Self::None => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Int(_) | Self::Big(_) => self.write_repr(out),
            Self::Float(value) => out.push_str(&json_float(*value)),
            Self::Str(text) => python::json_string(out, text),
            Self::List(list) | Self::Tuple(list) => {
                out.push('[');
                for (place, item) in list.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    item.write_json(out)?;
                }
                out.push(']');
            }
            Self::Dict(dict) => json_dict(out, dict)?,
            Self::Set(_) | Self::Opaque { .. } => return Err(NotJson),
        }
        Ok(())
    }

    /// Returns true for an integer with more digits than Python prints.
    pub(crate) fn is_too_long(&self) -> bool {
        match self {
            // 3.32 bits per digit: counts digits only near the limit.
            Self::Big(value) if value.bits() < 14_000 => false,
            Self::Big(value) => value.magnitude().to_string().len() > MOST_DIGITS,
            Self::List(items) | Self::Tuple(items) | Self::Set(items) => items.iter().any(Self::is_too_long),
            Self::Dict(dict) => dict.iter().any(|(key, value)| key.is_too_long() || value.is_too_long()),
            _ => false,
        }
    }
}

fn json_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        python::float(value)
    }
}

fn json_dict(out: &mut String, dict: &Dict) -> Result<(), NotJson> {
    out.push('{');
    for (place, (key, value)) in dict.iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        match key {
            Value::Str(text) => python::json_string(out, text),
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_) => {
                out.push('"');
                key.write_json(out)?;
                out.push('"');
            }
            _ => return Err(NotJson),
        }
        out.push_str(": ");
        value.write_json(out)?;
    }
    out.push('}');
    Ok(())
}

impl fmt::Display for Value {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => to.write_str(text),
            Self::Opaque { repr, .. } => to.write_str(repr),
            _ => to.write_str(&self.repr()),
        }
    }
}

/// Formats like `.2f`.
pub fn two_decimals(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::super::value::dict;
    use super::*;

    #[test]
    fn texts_are_those_of_python() {
        let value = dict([
            ("a", Value::None),
            ("b", Value::Tuple(vec![Value::Bool(true)])),
            ("c", Value::List(vec![Value::Float(1e22), Value::Int(-3), "it's".into()])),
        ]);
        assert_eq!(value.to_string(), "{'a': None, 'b': (True,), 'c': [1e+22, -3, \"it's\"]}");
        let mut json = String::new();
        value.write_json(&mut json).unwrap();
        assert_eq!(json, r#"{"a": null, "b": [true], "c": [1e+22, -3, "it's"]}"#);
        assert_eq!(Value::from("it's").to_string(), "it's");
        assert_eq!(Value::from("a\u{200b}\u{2019}\u{3000}").repr(), "'a\\u200b\u{2019}\\u3000'");
        assert_eq!(Value::Set(Vec::new()).repr(), "set()");
    }

    #[test]
    fn keys_and_floats_of_json_are_those_of_python() {
        let keys = [Value::Int(1), Value::Float(2.0), Value::Bool(false), Value::None];
        let value = Value::Dict(keys.into_iter().map(|key| (key, Value::Float(f64::INFINITY))).collect());
        let mut json = String::new();
        value.write_json(&mut json).unwrap();
        assert_eq!(json, r#"{"1": Infinity, "2.0": Infinity, "false": Infinity, "null": Infinity}"#);
        assert_eq!(Value::Set(Vec::new()).write_json(&mut json), Err(NotJson));
        let pair = Value::Tuple(Vec::new());
        let odd = Value::Dict([(pair, Value::None)].into_iter().collect());
        assert_eq!(odd.write_json(&mut json), Err(NotJson));
    }
}
