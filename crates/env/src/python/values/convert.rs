//! Python's conversions of strings, numbers and dates.

use num_bigint::BigInt;

use super::numbers::{float_of_big, integer};
use super::raise::{Class, Raise};
use super::value::Value;
use crate::python;

/// `float(value)`
///
/// # Errors
/// Returns Python's `TypeError` or `ValueError`.
pub fn float_of(value: &Value) -> Result<f64, Raise> {
    match value {
        Value::Float(value) => Ok(*value),
        Value::Int(value) => Ok(*value as f64),
        Value::Bool(value) => Ok(f64::from(u8::from(*value))),
        Value::Big(value) => float_of_big(value),
        Value::Str(text) => {
            let bad = || Raise::value_error(format!("could not convert string to float: {}", value.repr()));
            let trimmed = python::strip(text);
            let digits = without_underscores(trimmed).ok_or_else(bad)?;
            digits.parse().map_err(|_| bad())
        }
        _ => {
            let name = value.type_name();
            let text = format!("float() argument must be a string or a real number, not '{name}'");
            Err(Raise::type_error(text))
        }
    }
}

/// Removes underscores from a number, or returns `None` if an underscore is not between two digits.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |place: Option<usize>| place.and_then(|p| bytes.get(p)).is_some_and(u8::is_ascii_digit);
    let fine = bytes
        .iter()
        .enumerate()
        .all(|(place, byte)| *byte != b'_' || (digit(place.checked_sub(1)) && digit(Some(place + 1))));
    fine.then(|| text.replace('_', ""))
}

/// `int(value)`
///
/// # Errors
/// Returns Python's `TypeError`, `ValueError` or `OverflowError`.
pub fn int_of(value: &Value) -> Result<Value, Raise> {
    match value {
        Value::Int(_) | Value::Big(_) => Ok(value.clone()),
        Value::Bool(value) => Ok(Value::Int(i64::from(*value))),
        Value::Float(value) if value.is_nan() => {
            Err(Raise::value_error("cannot convert float NaN to integer"))
        }
        Value::Float(value) if value.is_infinite() => {
            Err(Raise::new(Class::Overflow, "cannot convert float infinity to integer"))
        }
        Value::Float(value) => Ok(integer(format!("{:.0}", value.trunc()).parse().unwrap_or_default())),
        Value::Str(text) => without_underscores(python::strip(text))
            .and_then(|digits| digits.parse::<BigInt>().ok())
            .map(integer)
            .ok_or_else(|| {
                let repr = value.repr();
                Raise::value_error(format!("invalid literal for int() with base 10: {repr}"))
            }),
        _ => {
            let name = value.type_name();
            let text = format!(
                "int() argument must be a string, a bytes-like object or a real number, not '{name}'"
            );
            Err(Raise::type_error(text))
        }
    }
}

/// `text.lower()`
pub fn lower(text: &str) -> String {
    text.to_lowercase()
}

/// `text.splitlines()`
pub fn split_lines(text: &str) -> Vec<&str> {
    let is_end = |character: char| {
        matches!(
            character,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(place) = rest.find(is_end) {
        lines.push(&rest[..place]);
        let end = &rest[place..];
        let width = if end.starts_with("\r\n") { 2 } else { end.chars().next().map_or(1, char::len_utf8) };
        rest = &end[width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// `text.split()`
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(python::is_space).filter(|word| !word.is_empty())
}

/// Parses a date like `datetime.strptime(value, "%Y-%m-%d")` and returns year, month and day.
///
/// # Errors
/// Returns Python's `TypeError` or `ValueError`.
pub fn date(value: &Value) -> Result<(i64, i64, i64), Raise> {
    let Value::Str(text) = value else {
        let name = if matches!(value, Value::None) { "None" } else { value.type_name() };
        return Err(Raise::type_error(format!("strptime() argument 1 must be str, not {name}")));
    };
    let mismatch = || {
        let repr = value.repr();
        Raise::value_error(format!("time data {repr} does not match format '%Y-%m-%d'"))
    };
    let (year, rest) = digits(text, 4, 4).ok_or_else(mismatch)?;
    let rest = rest.strip_prefix('-').ok_or_else(mismatch)?;
    let (month, rest) =
        digits(rest, 1, 2).filter(|(month, _)| (1..=12).contains(month)).ok_or_else(mismatch)?;
    let rest = rest.strip_prefix('-').ok_or_else(mismatch)?;
    // A blank may replace a day's first digit; a second digit is left over if the day is too large.
    let unpadded = rest.strip_prefix(' ').unwrap_or(rest);
    let most = if unpadded.len() == rest.len() { 2 } else { 1 };
    let (day, rest) = digits(unpadded, 1, most)
        .filter(|(day, _)| (1..=31).contains(day))
        .or_else(|| digits(unpadded, 1, 1).filter(|(day, _)| *day > 0))
        .ok_or_else(mismatch)?;
    if !rest.is_empty() {
        return Err(Raise::value_error(format!("unconverted data remains: {rest}")));
    }
    if year == 0 {
        return Err(Raise::value_error("year 0 is out of range"));
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if day > last {
        return Err(Raise::value_error("day is out of range for month"));
    }
    Ok((year, month, day))
}

fn digits(text: &str, fewest: usize, most: usize) -> Option<(i64, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if count < fewest {
        return None;
    }
    let (number, rest) = text.split_at(count);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_strptime_does() {
        let read = |text: &str| date(&Value::from(text)).map_err(|raise| raise.text);
        assert_eq!(read("2024-02-29"), Ok((2024, 2, 29)));
        assert_eq!(read("2024-2-9"), Ok((2024, 2, 9)));
        for (text, expected) in [
            ("2023-02-29", "day is out of range for month"),
            ("2024-01-015", "unconverted data remains: 5"),
            ("2024-01-45", "unconverted data remains: 5"),
            ("2024-13-01", "time data '2024-13-01' does not match format '%Y-%m-%d'"),
            ("24-01-01", "time data '24-01-01' does not match format '%Y-%m-%d'"),
            ("", "time data '' does not match format '%Y-%m-%d'"),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()));
        }
        assert_eq!(date(&Value::None).unwrap_err().text, "strptime() argument 1 must be str, not None");
    }

    #[test]
    fn numbers_are_read_as_python_does() {
        for (text, expected) in
            [(" 1_000.5 ", Some(1000.5)), ("1e3", Some(1000.0)), ("_1", None), ("", None), ("0x10", None)]
        {
            assert_eq!(float_of(&Value::from(text)).ok(), expected, "{text}");
        }
        assert_eq!(int_of(&Value::Float(-3.9)).unwrap(), Value::Int(-3));
        assert_eq!(int_of(&Value::from(" -12 ")).unwrap(), Value::Int(-12));
        let error = int_of(&Value::from("1.5")).unwrap_err().text;
        assert_eq!(error, "invalid literal for int() with base 10: '1.5'");
    }

    #[test]
    fn lines_end_as_in_python() {
        assert_eq!(split_lines("a\r\nb\n\nc\u{2028}"), ["a", "b", "", "c"]);
        assert!(split_lines("").is_empty());
        assert_eq!(words(" a\u{1c}b \n c").collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
