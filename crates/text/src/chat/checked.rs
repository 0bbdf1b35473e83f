//! Operators, filters, tests and methods with limits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use minijinja::value::Rest;
use minijinja::{Environment, Error, State, Value, filters, functions, tests};
use minijinja_contrib::pycompat;

use super::expression::{COMPARED, CONCAT, PLUS, SLICE, SLICED, TIMES};
use super::{limits, python};

pub(super) fn set(environment: &mut Environment<'_>) {
    environment.add_filter(PLUS, plus);
    environment.add_filter(CONCAT, concat);
    environment.add_filter(TIMES, times);
    environment.add_filter(COMPARED, compared);
    for (name, original) in checked_filters() {
        environment.add_filter(name, move |state: &State<'_, '_>, arguments: Rest<Value>| {
            check_growth(name, &arguments)?;
            limits::made(original.call(state, &arguments)?)
        });
    }
    for (name, original) in checked_tests() {
        environment.add_test(name, move |state: &State<'_, '_>, arguments: Rest<Value>| {
            limits::check_time()?;
            arguments.iter().try_for_each(limits::check_nested)?;
            original.call(state, &arguments)
        });
    }
    let copying = [
        ("dict", Value::from_function(functions::dict)),
        ("namespace", Value::from_function(functions::namespace)),
    ];
    for (name, original) in copying {
        environment.add_function(name, move |state: &State<'_, '_>, arguments: Rest<Value>| {
            arguments.iter().try_for_each(|argument| limits::made(argument.clone()).map(drop))?;
            original.call(state, &arguments)
        });
    }
    // Prints nested values without limits, and is unknown in `transformers`.
    environment.remove_global("debug");
}

fn plus(state: &State<'_, '_>, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(first), Some(second)) = (left.as_str(), right.as_str()) {
        limits::check_length("+", first.len() + second.len())?;
        return limits::made(Value::from([first, second].concat()));
    }
    let integer = |value: &Value| if value.is_integer() { value.as_i64() } else { None };
    if let (Some(first), Some(second)) = (integer(left), integer(right))
        && let Some(sum) = first.checked_add(second)
    {
        return limits::made(Value::from(sum));
    }
    limits::made(native(state, "left + right", left, right)?)
}

fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    limits::check_nested(left)?;
    limits::check_nested(right)?;
    limits::check_length("~", shown(left).len() + shown(right).len())?;
    limits::made(Value::from(format!("{left}{right}")))
}

fn times(state: &State<'_, '_>, left: &Value, right: &Value) -> Result<Value, Error> {
    for (value, count) in [(left, right), (right, left)] {
        let count = usize::try_from(count.clone()).unwrap_or(0);
        limits::check_length("*", limits::size(value).saturating_mul(count))?;
    }
    limits::made(native(state, "left * right", left, right)?)
}

fn compared(value: Value) -> Result<Value, Error> {
    limits::check_time()?;
    limits::check_nested(&value)?;
    Ok(value)
}

/// Applies an operator of `minijinja`, whose functions for them are private.
fn native(
    state: &State<'_, '_>,
    operation: &'static str,
    left: &Value,
    right: &Value,
) -> Result<Value, Error> {
    let variables = BTreeMap::from([("left", left), ("right", right)]);
    let result = state.env().compile_expression(operation).and_then(|compiled| compiled.eval(variables));
    // The error's line is that of the operation, not that of the template.
    result.map_err(|error| match error.detail() {
        Some(detail) => Error::new(error.kind(), detail.to_owned()),
        None => error.kind().into(),
    })
}

/// Returns the filters whose work depends on the lengths of their arguments.
fn checked_filters() -> Vec<(&'static str, Value)> {
    vec![
        ("batch", Value::from_function(filters::batch)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("chain", Value::from_function(filters::chain)),
        ("count", Value::from_function(filters::length)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("e", Value::from_function(filters::escape)),
        ("escape", Value::from_function(filters::escape)),
        ("format", Value::from_function(filters::format)),
        ("groupby", Value::from_function(filters::groupby)),
        ("indent", Value::from_function(filters::indent)),
        ("items", Value::from_function(filters::items)),
        ("join", Value::from_function(filters::join)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
        ("lines", Value::from_function(filters::lines)),
        ("list", Value::from_function(filters::list)),
        ("lower", Value::from_function(filters::lower)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("pprint", Value::from_function(filters::pprint)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("replace", Value::from_function(filters::replace)),
        ("reverse", Value::from_function(filters::reverse)),
        ("safe", Value::from_function(filters::safe)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("slice", Value::from_function(filters::slice)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("sum", Value::from_function(filters::sum)),
        ("title", Value::from_function(filters::title)),
        ("trim", Value::from_function(filters::trim)),
        ("unique", Value::from_function(filters::unique)),
        ("upper", Value::from_function(filters::upper)),
        ("zip", Value::from_function(filters::zip)),
    ]
}

/// Filters that go through a list without looking into its items.
const SHALLOW: [&str; 16] = [
    "batch",
    "chain",
    "count",
    "items",
    "last",
    "length",
    "list",
    "map",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "slice",
    "sum",
    "zip",
];

/// Returns the tests whose work depends on the lengths of their arguments.
fn checked_tests() -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("in", Value::from_function(tests::is_in)),
        ("startingwith", Value::from_function(tests::is_startingwith)),
        ("endingwith", Value::from_function(tests::is_endingwith)),
        ("lower", Value::from_function(tests::is_lower)),
        ("upper", Value::from_function(tests::is_upper)),
    ];
    let comparisons: [(&[&'static str], Value); 6] = [
        (&["eq", "equalto", "=="], Value::from_function(tests::is_eq)),
        (&["ne", "!="], Value::from_function(tests::is_ne)),
        (&["lt", "lessthan", "<"], Value::from_function(tests::is_lt)),
        (&["le", "<="], Value::from_function(tests::is_le)),
        (&["gt", "greaterthan", ">"], Value::from_function(tests::is_gt)),
        (&["ge", ">="], Value::from_function(tests::is_ge)),
    ];
    for (names, original) in comparisons {
        all.extend(names.iter().map(|name| (*name, original.clone())));
    }
    all
}

/// Checks the arguments of a filter, and how long its result can become. The first argument is the
/// filtered value.
fn check_growth(filter: &str, arguments: &[Value]) -> Result<(), Error> {
    limits::check_time()?;
    let shallow = SHALLOW.contains(&filter);
    let check: fn(&Value) -> Result<(), Error> =
        if shallow { limits::check_kept } else { limits::check_nested };
    arguments.iter().try_for_each(check)?;
    let text = |place: usize| arguments.get(place).map_or(Cow::Borrowed(""), shown);
    let size = |place: usize| arguments.get(place).map_or(0, limits::size);
    let number = |name: &str| {
        let named = arguments.last().and_then(|last| last.get_attr(name).ok());
        arguments.get(1).cloned().into_iter().chain(named).find_map(|value| usize::try_from(value).ok())
    };
    let grown = match filter {
        "replace" => {
            let (text, from, to) = (text(0), text(1), text(2));
            text.matches(&*from).count().saturating_mul(to.len()).saturating_add(text.len())
        }
        "join" => {
            let parts = |list: &Value| list.as_str().map_or_else(|| limits::items(list), str::len);
            arguments.first().map_or(0, parts).saturating_mul(text(1).len())
        }
        "indent" => {
            let text = text(0);
            let lines = text.matches('\n').count() + 1;
            lines.saturating_mul(number("width").unwrap_or(4)).saturating_add(text.len())
        }
        "format" => formatted(&text(0), '%', arguments.get(1..).unwrap_or_default()),
        "batch" | "slice" => number("count").unwrap_or(0).saturating_mul(limits::ITEM),
        "zip" => size(0).saturating_mul(arguments.len()),
        _ => 0,
    };
    limits::check_length(filter, grown)
}

/// Returns an upper bound of the bytes that formatting makes. Fields start with `start`.
fn formatted(format: &str, start: char, arguments: &[Value]) -> usize {
    let longest = arguments.iter().map(|argument| shown(argument).len()).max().unwrap_or(0);
    let mut bytes = format.len();
    for field in format.split(start).skip(1) {
        let options = if start == '{' {
            field.split('}').next().unwrap_or_default()
        } else {
            let key = if field.starts_with('(') { field.find(')').unwrap_or(0) } else { 0 };
            field[key..].split(char::is_alphabetic).next().unwrap_or_default()
        };
        let widths =
            options.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
        let width = widths.map(|digits| digits.parse().unwrap_or(usize::MAX)).fold(0, usize::saturating_add);
        bytes = bytes.saturating_add(longest).saturating_add(width);
    }
    bytes
}

fn shown(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed)
}

/// Calls a method of Python's strings, lists and maps, or one of the rewritten source.
pub(super) fn method(
    state: &State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    limits::check_time()?;
    arguments.iter().try_for_each(limits::check_nested)?;
    match (method, value.as_str(), arguments) {
        (SLICED, Some(_), []) => return limits::made(value.clone()),
        (SLICED, None, []) => return Ok(value.clone()),
        (SLICE, ..) => return limits::made(python::slice(value, arguments)?),
        // `minijinja_contrib` counts without end.
        ("count", Some(text), [part]) if part.as_str() == Some("") => {
            return Ok(Value::from(text.chars().count() + 1));
        }
        ("replace", Some(_), [from, to, ..]) => {
            check_growth(method, &[value.clone(), from.clone(), to.clone()])?;
        }
        ("join", Some(_), [list]) => check_growth(method, &[list.clone(), value.clone()])?,
        ("format", Some(text), _) => limits::check_length(method, formatted(text, '{', arguments))?,
        _ => {}
    }
    limits::made(pycompat::unknown_method_callback(state, value, method, arguments)?)
}
