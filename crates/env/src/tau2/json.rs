//! JSON as Python's `json.dumps` writes it: results of tools are such texts.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

use crate::python;

/// Returns a value as `json.dumps` writes it: `, ` and `: ` between parts, floats with a point, ASCII only.
///
/// # Errors
/// Fails if the value has no JSON form.
pub(super) fn dumps<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Python))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Python;

impl Formatter for Python {
    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        to.write_all(python::float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, text: &str) -> io::Result<()> {
        if text.is_ascii() && !text.contains('\u{7f}') {
            return to.write_all(text.as_bytes());
        }
        for character in text.chars() {
            if (' '..='~').contains(&character) {
                write!(to, "{character}")?;
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(to, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, to: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::Quote => to.write_all(b"\\\""),
            CharEscape::ReverseSolidus => to.write_all(b"\\\\"),
            CharEscape::Solidus => to.write_all(b"/"),
            CharEscape::Backspace => to.write_all(b"\\b"),
            CharEscape::FormFeed => to.write_all(b"\\f"),
            CharEscape::LineFeed => to.write_all(b"\\n"),
            CharEscape::CarriageReturn => to.write_all(b"\\r"),
            CharEscape::Tab => to.write_all(b"\\t"),
            CharEscape::AsciiControl(byte) => write!(to, "\\u{byte:04x}"),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_json_dumps() {
        let value =
            serde_json::json!({"a": [1, 2.0, 1e22, null, true], "b": "caf\u{e9} \"x\"\n\u{1f600}\u{7f}"});
        let expected = r#"{"a": [1, 2.0, 1e+22, null, true], "b": "caf\u00e9 \"x\"\n\ud83d\ude00\u007f"}"#;
        assert_eq!(dumps(&value).unwrap(), expected);
        assert_eq!(dumps(&Vec::<u8>::new()).unwrap(), "[]");
    }
}
