//! All terminal output of the program.
//!
//! Text from files, environments, servers and models is untrusted: terminal escapes may rename the
//! window, hide lines or answer prompts, and bidirectional marks reorder text. [`visible`] escapes
//! all these characters; `crates/cli/clippy.toml` forbids functions that bypass it.

#![expect(clippy::disallowed_methods, reason = "the only file that may print")]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, StdoutLock, Write};

use indicatif::{MultiProgress, ProgressBar};
use turnwise_settings::is_hidden;

/// Escapes control characters (except newline and tab) and bidirectional marks, like `\u001b`. JSON
/// and TOML use the same escapes, so text in these formats stays valid.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let ends_line = character == '\r' && rest.peek() == Some(&'\n');
        if is_hidden(character) && !ends_line {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[derive(Debug)]
pub(crate) struct Visible<W>(W);

impl<W: Write> Visible<W> {
    /// Writes trusted escape sequences, e.g. a style.
    pub(crate) fn codes(&mut self, codes: &str) -> io::Result<()> {
        self.0.write_all(codes.as_bytes())
    }
}

impl<W: Write> Write for Visible<W> {
    /// Escapes hidden characters; `write!` passes whole strings, so multi-byte characters are not
    /// split.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(visible(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

pub(crate) fn stdout() -> Visible<StdoutLock<'static>> {
    Visible(io::stdout().lock())
}

pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", visible(line));
}

pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

pub(crate) fn set_message(bar: &ProgressBar, text: &str) {
    bar.set_message(visible(text).into_owned());
}

pub(crate) fn set_prefix(bar: &ProgressBar, text: &str) {
    bar.set_prefix(visible(text).into_owned());
}

pub(crate) fn say_above(bar: &ProgressBar, line: &str) {
    bar.println(visible(line));
}

pub(crate) fn say_above_all(bars: &MultiProgress, line: &str) {
    let _ = bars.println(visible(line));
}

pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let mut column = 0;
        for (index, word) in line.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && column + 1 + length > width {
                out.push('\n');
                column = 0;
            } else if index > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_visible_and_words_stay() {
        for plain in ["", "a\n\tb", "naïve 漢字 🏠 👩‍🚀 ❯ ▀", "a\\u001b"] {
            assert!(matches!(visible(plain), Cow::Borrowed(same) if same == plain), "{plain:?}");
        }
        for (text, expected) in [
            ("\x1b]0;title\x07", r"\u001b]0;title\u0007"),
            ("a\rb\r\n", "a\\u000db\r\n"),
            ("\0\x08\x7f", r"\u0000\u0008\u007f"),
            // C1 forms of CSI and OSC.
            ("\u{9b}31m\u{9d}", r"\u009b31m\u009d"),
            ("\u{202e}\u{2066}\u{61c}\u{200f}", r"\u202e\u2066\u061c\u200f"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn printed_json_and_toml_keep_their_meaning() {
        let text = "\u{9b}31m \u{202e} \x1b";
        let json = serde_json::to_string(text).unwrap();
        assert_ne!(visible(&json), json);
        assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), text);
        let toml = toml::Table::from_iter([("name".to_owned(), toml::Value::from(text))]).to_string();
        assert_ne!(visible(&toml), toml);
        assert_eq!(visible(&toml).parse::<toml::Table>().unwrap()["name"].as_str(), Some(text));
    }

    #[test]
    fn only_codes_of_this_program_reach_the_terminal() {
        let mut out = Visible(Vec::new());
        out.codes("\x1b[1m").unwrap();
        write!(out, "\x1b[2J\u{9b}é\u{202e}").unwrap();
        assert_eq!(String::from_utf8(out.0).unwrap(), "\x1b[1m\\u001b[2J\\u009bé\\u202e");
    }
}
