//! Parses number and string literals.

use num_bigint::BigInt;

use super::numbers::integer;
use super::raise::Raise;
use super::syntax::{Expression, Parser};
use super::value::Value;

impl Parser<'_> {
    pub(super) fn number(&mut self) -> Result<Expression, Raise> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            let exponent =
                matches!(bytes[end], b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            if !(bytes[end].is_ascii_alphanumeric() || matches!(bytes[end], b'.' | b'_') || exponent) {
                break;
            }
            end += 1;
        }
        let written = &rest[..end];
        let digits = written.replace('_', "").to_ascii_lowercase();
        let radix = match digits.get(..2) {
            Some("0x") => 16,
            Some("0o") => 8,
            Some("0b") => 2,
            _ => 10,
        };
        let value = if radix != 10 {
            BigInt::parse_bytes(&digits.as_bytes()[2..], radix).map(integer)
        } else if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            if digits.len() > 1 && digits.starts_with('0') && digits.bytes().any(|byte| byte != b'0') {
                return Err(self.error(
                    "leading zeros in decimal integer literals are not permitted; use an 0o prefix for octal integers",
                ));
            }
            digits.parse().ok().map(Value::Int).or_else(|| digits.parse().ok().map(Value::Big))
        } else if digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'+' | b'-')) {
            digits.parse().ok().map(Value::Float)
        } else {
            None
        };
        let value = value.ok_or_else(|| self.error("invalid decimal literal"))?;
        self.place += end;
        self.blank();
        Ok(Expression::Constant(value))
    }

    pub(super) fn strings(&mut self) -> Result<Expression, Raise> {
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let prefix = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let after = &rest[prefix..];
            if !after.starts_with(['\'', '"']) || prefix > 2 {
                return Ok(Expression::Constant(Value::Str(text)));
            }
            let marks = rest[..prefix].to_ascii_lowercase();
            let has = |mark| marks.contains(mark);
            if marks.chars().any(|mark| !"rfu".contains(mark)) {
                return Err(self.invalid());
            }
            self.place += prefix;
            self.string(&mut text, has('r'), has('f'))?;
            self.blank();
        }
    }

    fn string(&mut self, text: &mut String, raw: bool, formatted: bool) -> Result<(), Raise> {
        let rest = self.rest();
        let single = &rest[..1];
        let quote = if rest.starts_with(&single.repeat(3)) { &rest[..3] } else { single };
        let mut place = quote.len();
        loop {
            let left = &rest[place..];
            // Copies plain text in one piece.
            let special = |c: char| matches!(c, '\\' | '\n' | '\'' | '"' | '{' | '}');
            let plain = left.find(special).unwrap_or(left.len());
            text.push_str(&left[..plain]);
            place += plain;
            let left = &rest[place..];
            let Some(character) = left.chars().next() else { return Err(self.unterminated(quote)) };
            if left.starts_with(quote) {
                self.place += place + quote.len();
                return Ok(());
            }
            match character {
                '\n' if quote.len() == 1 => return Err(self.unterminated(quote)),
                '\\' if raw => {
                    let escaped = left[1..].chars().next().map_or(1, |next| 1 + next.len_utf8());
                    text.push_str(&left[..escaped]);
                    place += escaped;
                }
                '\\' => place += self.escape(left, text)?,
                '{' | '}' if formatted => {
                    if !left[1..].starts_with(character) {
                        return Err(self.invalid());
                    }
                    text.push(character);
                    place += 2;
                }
                _ => {
                    text.push(character);
                    place += character.len_utf8();
                }
            }
        }
    }

    fn unterminated(&self, quote: &str) -> Raise {
        let kind = if quote.len() == 3 { "triple-quoted string" } else { "string" };
        let line = self.lines();
        self.error(&format!("unterminated {kind} literal (detected at line {line})"))
    }

    fn escape(&self, left: &str, text: &mut String) -> Result<usize, Raise> {
        let Some(letter) = left[1..].chars().next() else { return Ok(1) };
        let simple = match letter {
            '\n' => return Ok(2),
            '\\' | '\'' | '"' => letter,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '0'..='7' => {
                let digits =
                    left[1..].bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let code = u32::from_str_radix(&left[1..=digits], 8).unwrap_or_default();
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(1 + digits);
            }
            'x' | 'u' | 'U' => {
                let width = match letter {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let code = left.get(2..2 + width).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                let Some(code) = code else {
                    let reason = format!(
                        "(unicode error) 'unicodeescape' codec can't decode bytes in position 0-1: truncated \\{letter} escape"
                    );
                    return Err(self.error(&reason));
                };
                // Rust strings cannot contain surrogates.
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(2 + width);
            }
            _ => {
                text.push('\\');
                text.push(letter);
                return Ok(1 + letter.len_utf8());
            }
        };
        text.push(simple);
        Ok(2)
    }
}
