//! Python's formats of numbers and strings.

use std::fmt::Write as _;

/// Smallest magnitude at which two shortest decimal forms can be equally near to a float.
const LEAST_TIE: f64 = 562_949_953_421_312.0;

/// Formats a float like `repr`: `100.0`, `1e+16`, `1e-05`.
pub fn float(value: f64) -> String {
    let mut scientific = format!("{value:e}");
    if value.abs() >= LEAST_TIE {
        // Of two equally near forms, Python takes the even digit, like exact formatting.
        let digits =
            scientific.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit).count();
        let even = format!("{value:.*e}", digits.saturating_sub(1));
        if even.parse() == Ok(value) {
            scientific = even;
        }
    }
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return python_word(value) };
    let Ok(exponent) = exponent.parse::<i32>() else { return python_word(value) };
    if (-4..16).contains(&exponent) {
        let plain =
            if value.abs() >= LEAST_TIE { positional(mantissa, exponent) } else { format!("{value}") };
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

fn positional(mantissa: &str, exponent: i32) -> String {
    let (sign, digits) = mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
    let mut digits = digits.replace('.', "");
    let whole = usize::try_from(exponent).unwrap_or(0) + 1;
    while digits.len() < whole {
        digits.push('0');
    }
    if digits.len() > whole {
        digits.insert(whole, '.');
    }
    format!("{sign}{digits}")
}

fn python_word(value: f64) -> String {
    let word = if value.is_nan() {
        "nan"
    } else if value > 0.0 {
        "inf"
    } else {
        "-inf"
    };
    word.to_owned()
}

/// Appends a string as Python's `repr` formats it: in double quotes if it contains single quotes
/// and no double quotes, otherwise in single quotes. Unlike Python's `repr`, leaves format,
/// private-use and other special non-ASCII characters unescaped.
pub fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            '\0'..='\u{1f}' | '\u{7f}'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}

/// Appends a character as Python's `json.dumps` escapes it; `ascii` corresponds to Python's
/// `ensure_ascii`.
pub fn json_character(out: &mut String, character: char, ascii: bool) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        other if (other as u32) < 0x20 || (ascii && !(' '..='~').contains(&other)) => {
            for unit in other.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
        other => out.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        let cases = [
            (100.0, "100.0"),
            (24.35, "24.35"),
            (0.1 + 0.2, "0.30000000000000004"),
            (2.0 / 7.0, "0.2857142857142857"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1_234_567_891e6 + 0.25, "1234567891000000.2"),
            (-1_234_567_891e6 - 0.75, "-1234567891000000.8"),
            (9_007_199_254_740_992.0, "9007199254740992.0"),
            (1e16, "1e+16"),
            (-2.5e22, "-2.5e+22"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_does() {
        for (text, expected) in [
            ("plain", "'plain'"),
            ("it's", "\"it's\""),
            ("it's \"so\"", "'it\\'s \"so\"'"),
            ("a\nb\\\u{7f}é", "'a\\nb\\\\\\x7fé'"),
            ("\0\t\r\u{1b}", "'\\x00\\t\\r\\x1b'"),
            ("\u{9f}\u{a0}¡¬\u{ad}®", "'\\x9f\\xa0¡¬\\xad®'"),
        ] {
            let mut out = String::new();
            quoted(&mut out, text);
            assert_eq!(out, expected);
        }
    }
}
