//! Python's `str`, `repr`, `json.dumps` and slicing.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use turnwise_core::python::{self, float, quoted};

/// Returns `str(value)`; undefined values are empty.
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

fn repr(value: &Value) -> String {
    let items = |open: char, close: char, items: Vec<String>| format!("{open}{}{close}", items.join(", "));
    match value.kind() {
        ValueKind::Undefined => "Undefined".into(),
        ValueKind::None => "None".into(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.into(),
        ValueKind::Number => number(value),
        ValueKind::String => {
            let mut out = String::new();
            quoted(&mut out, value.as_str().unwrap_or_default());
            out
        }
        ValueKind::Seq | ValueKind::Iterable => {
            items('[', ']', value.try_iter().into_iter().flatten().map(|item| repr(&item)).collect())
        }
        ValueKind::Map => {
            let entry = |key: Value| {
                let item = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", repr(&key), repr(&item))
            };
            items('{', '}', value.try_iter().into_iter().flatten().map(entry).collect())
        }
        _ => value.to_string(),
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

pub(super) struct JsonStyle {
    pub(super) ascii: bool,
    pub(super) indent: Option<String>,
    pub(super) separators: Option<(String, String)>,
    pub(super) sorted: bool,
}

pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let comma = if style.indent.is_some() { "," } else { ", " };
    let (item, key) = style.separators.clone().unwrap_or_else(|| (comma.into(), ": ".into()));
    let mut writer = JsonWriter { out: String::new(), style, item, key };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct JsonWriter<'a> {
    out: String,
    style: &'a JsonStyle,
    item: String,
    key: String,
}

impl JsonWriter<'_> {
    fn line(&mut self, level: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..level {
                self.out.push_str(indent);
            }
        }
    }

    fn value(&mut self, value: &Value, level: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                let text = match number(value).as_str() {
                    "nan" => "NaN".into(),
                    "inf" => "Infinity".into(),
                    "-inf" => "-Infinity".into(),
                    other => other.to_owned(),
                };
                self.out.push_str(&text);
            }
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.many('[', ']', &items, level, |writer, item| writer.value(item, level + 1))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.style.sorted {
                    keys.sort();
                }
                self.many('{', '}', &keys, level, |writer, key| {
                    let name = match key.kind() {
                        ValueKind::None => "null".to_owned(),
                        ValueKind::Bool => key.is_true().to_string(),
                        _ => text(key),
                    };
                    writer.string(&name);
                    let separator = writer.key.clone();
                    writer.out.push_str(&separator);
                    writer.value(&value.get_item(key)?, level + 1)
                })?;
            }
            kind => {
                let reason = format!("a value of type {kind} has no JSON form");
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
        }
        Ok(())
    }

    fn many(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        level: usize,
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                let separator = self.item.clone();
                self.out.push_str(&separator);
            }
            self.line(level + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.line(level);
        }
        self.out.push(close);
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            python::json_character(&mut self.out, character, self.style.ascii);
        }
        self.out.push('"');
    }
}

/// Returns `value[start:stop:step]` of a string or list. Fails for undefined values. For values of
/// other types, returns Jinja's undefined value, as Jinja does.
pub(super) fn slice(value: &Value, bounds: &[Value]) -> Result<Value, Error> {
    let text: Option<Vec<char>> = value.as_str().map(|text| text.chars().collect());
    let items: Vec<Value> = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.collect(),
        ValueKind::Undefined => return Err(ErrorKind::UndefinedError.into()),
        _ if text.is_some() => Vec::new(),
        _ => return Ok(Value::UNDEFINED),
    };
    let [start, stop, step] = bounds else { return Err(ErrorKind::MissingArgument.into()) };
    let number =
        |value: &Value| if value.is_none() { Ok(None) } else { i64::try_from(value.clone()).map(Some) };
    let step = number(step)?.unwrap_or(1);
    let length = text.as_ref().map_or(items.len(), Vec::len) as i64;
    let (least, most) = if step < 0 { (-1, length - 1) } else { (0, length) };
    let (first, last) = if step < 0 { (most, least) } else { (least, most) };
    let place = |bound: Option<i64>, without: i64| match bound {
        None => without,
        Some(bound) if bound < 0 => bound.saturating_add(length).max(least),
        Some(bound) => bound.min(most),
    };
    let (mut at, end) = (place(number(start)?, first), place(number(stop)?, last));
    let mut places = Vec::new();
    match step {
        0 => return Err(Error::new(ErrorKind::InvalidOperation, "the step of a slice is 0")),
        1.. => {
            while at < end {
                places.push(at as usize);
                at = at.saturating_add(step);
            }
        }
        _ => {
            while at > end {
                places.push(at as usize);
                at = at.saturating_add(step);
            }
        }
    }
    Ok(match text {
        Some(text) => places.into_iter().map(|at| text[at]).collect::<String>().into(),
        None => places.into_iter().map(|at| items[at].clone()).collect::<Vec<Value>>().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_of_python() {
        let letters = |length: usize| "abcde".chars().take(length).collect::<String>();
        let list = |text: &str| Value::from(text.chars().map(Value::from).collect::<Vec<_>>());
        // Recorded from Python 3: `"abcde"[:length][start:stop:step]`.
        for (length, start, stop, step, expected) in [
            (5, None, None, Some(-1), "edcba"),
            (5, None, None, Some(-2), "eca"),
            (5, Some(3), Some(0), Some(-1), "dcb"),
            (5, Some(-2), Some(-5), Some(-2), "db"),
            (5, Some(9), Some(-9), Some(-3), "eb"),
            (5, Some(1), None, Some(2), "bd"),
            (5, Some(-9), Some(9), None, "abcde"),
            (5, Some(0), Some(3), Some(-1), ""),
            (1, Some(2), Some(0), Some(-1), ""),
            (0, Some(2), Some(0), Some(-1), ""),
            (0, None, None, Some(-1), ""),
            (5, Some(i64::MIN), Some(i64::MAX), Some(i64::MAX), "a"),
            (5, Some(i64::MAX), Some(i64::MIN), Some(i64::MIN), "e"),
        ] {
            let bounds =
                [start, stop, step].map(|bound: Option<i64>| bound.map_or(Value::from(()), Value::from));
            let text = letters(length);
            assert_eq!(slice(&Value::from(text.as_str()), &bounds).unwrap().as_str(), Some(expected));
            assert_eq!(slice(&list(&text), &bounds).unwrap(), list(expected), "{text} {bounds:?}");
        }
        assert!(slice(&Value::from("a"), &[0, 0, 0].map(Value::from)).is_err());
    }
}
