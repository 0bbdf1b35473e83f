//! JSON in the format of Python's `json.dumps`.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};
use turnwise_core::python::json_character;

use crate::python;

pub(super) fn dumps<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Python))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write_escaped(to: &mut (impl Write + ?Sized), text: &str) -> io::Result<()> {
    let mut escaped = String::with_capacity(text.len());
    text.chars().for_each(|character| json_character(&mut escaped, character, true));
    to.write_all(escaped.as_bytes())
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
        write_escaped(to, text)
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, to: &mut W, escape: CharEscape) -> io::Result<()> {
        let character = match escape {
            CharEscape::Quote => '"',
            CharEscape::ReverseSolidus => '\\',
            CharEscape::Solidus => '/',
            CharEscape::Backspace => '\u{8}',
            CharEscape::FormFeed => '\u{c}',
            CharEscape::LineFeed => '\n',
            CharEscape::CarriageReturn => '\r',
            CharEscape::Tab => '\t',
            CharEscape::AsciiControl(byte) => char::from(byte),
        };
        write_escaped(to, character.encode_utf8(&mut [0; 4]))
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
