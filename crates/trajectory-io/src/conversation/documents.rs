//! Reads JSON objects from lines, a list, a single object or Parquet rows.

use std::borrow::Cow;
use std::path::Path;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::{DumpError, lines, not_finite, parquet_rows};

pub(crate) fn parsed<T>(
    path: &Path,
    used: impl Fn(&[&str]) -> bool + Copy,
    mut parse: impl FnMut(usize, &str) -> Result<T, String>,
) -> Result<Vec<T>, DumpError> {
    let mut read = Vec::new();
    each(path, used, |line, text| {
        read.push(parse(line, text).map_err(|reason| DumpError::line(path, line, reason))?);
        Ok(())
    })?;
    Ok(read)
}

/// Calls `take` with each object's text and the number of its first line or of its Parquet row.
///
/// NaN and infinities become null, but are errors if `used` returns true for their path of keys.
/// Empty Parquet columns are skipped.
fn each(
    path: &Path,
    used: impl Fn(&[&str]) -> bool + Copy,
    mut take: impl FnMut(usize, &str) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    if lines::is_file(path)? && lines::is_parquet(path)? {
        for (index, row) in parquet_rows::read(path)?.rows.into_iter().enumerate() {
            take(index + 1, &Value::Object(without_nulls(row)).to_string())?;
        }
        return Ok(());
    }
    // The rest of the text is one document from this line.
    let mut whole: Option<(usize, String)> = None;
    let mut budget = lines::each_text(path, |line, text, budget| {
        if let Some((_, whole)) = &mut whole {
            whole.push('\n');
            whole.push_str(text);
        } else if is_open(text) {
            whole = Some((line, text.to_owned()));
        } else {
            budget.take(path, line, text)?;
            take(line, &finite(path, line, text, used)?)?;
        }
        Ok(true)
    })?;
    let Some((first, whole)) = whole else { return Ok(()) };
    let text = finite(path, first, &whole, used)?;
    let Some(mut list) = text.trim_start().strip_prefix('[') else {
        budget.take(path, first, &text)?;
        return take(first, &text);
    };
    let (mut line, mut at) = (first, 0);
    while let Some((item, rest)) = split_item(list) {
        // `list` ends where the text ends.
        let start = text.len() - list.trim_start().len();
        line += text.get(at..start).unwrap_or_default().matches('\n').count();
        at = start;
        budget.take(path, line, item)?;
        take(line, item)?;
        list = rest;
    }
    Ok(())
}

/// Splits the first item off the rest of a list, which is valid JSON after a `[` or a comma.
/// Returns `None` at the list's end.
fn split_item(list: &str) -> Option<(&str, &str)> {
    let list = list.trim_start();
    let mut items = serde_json::Deserializer::from_str(list).into_iter::<&RawValue>();
    let item = items.next()?.ok()?;
    let rest = list.get(items.byte_offset()..)?.trim_start();
    Some((item.get(), rest.strip_prefix(',').unwrap_or(rest)))
}

/// Returns true if the text starts a list, or an object that spans several lines.
fn is_open(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('[')
        || text.starts_with('{')
            && serde_json::from_str::<IgnoredAny>(text).is_err_and(|error| error.is_eof())
}

/// Returns valid JSON, with null instead of NaN and infinities.
fn finite<'t>(
    path: &Path,
    line: usize,
    text: &'t str,
    used: impl Fn(&[&str]) -> bool,
) -> Result<Cow<'t, str>, DumpError> {
    let fail = |error: serde_json::Error| {
        DumpError::line(path, line + error.line().saturating_sub(1), lines::json_reason(&error))
    };
    let Err(error) = serde_json::from_str::<IgnoredAny>(text) else { return Ok(Cow::Borrowed(text)) };
    match not_finite::as_null(text, used) {
        Ok(None) => Err(fail(error)),
        Ok(Some(finite)) => {
            serde_json::from_str::<IgnoredAny>(&finite).map_err(fail)?;
            Ok(Cow::Owned(finite))
        }
        Err(reason) => Err(DumpError::line(path, line, reason)),
    }
}

/// Removes keys whose value is null. Parquet rows contain null values because all structs in a
/// column have the same keys.
fn without_nulls(row: Map<String, Value>) -> Map<String, Value> {
    fn cleared(value: Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(without_nulls(map)),
            Value::Array(values) => Value::Array(values.into_iter().map(cleared).collect()),
            other => other,
        }
    }
    row.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, cleared(value))).collect()
}

/// Returns the text of the first object, or of the first item if it is a list, and its line.
/// The text is valid JSON.
pub(crate) fn first(path: &Path) -> Result<Option<(usize, String)>, DumpError> {
    let mut found: Option<(usize, String)> = None;
    let mut open = false;
    let mut budget = lines::each_text(path, |line, text, _| {
        if let Some((_, whole)) = &mut found {
            whole.push('\n');
            whole.push_str(text);
        } else {
            open = is_open(text);
            found = Some((line, text.to_owned()));
        }
        Ok(open)
    })?;
    let Some((line, text)) = found else { return Ok(None) };
    let text = finite(path, line, &text, |_| false)?;
    let object = match text.trim_start().strip_prefix('[') {
        Some(list) => split_item(list).map(|(item, _)| item),
        None => Some(&*text),
    };
    let Some(object) = object else { return Ok(None) };
    budget.take(path, line, object)?;
    Ok(Some((line, object.to_owned())))
}
