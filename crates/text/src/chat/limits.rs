//! Limits for chat templates, which are programs from untrusted model folders.
//!
//! Filters that can produce text of any length are checked before they run.

use std::cell::Cell;
use std::io::{self, Write};
use std::thread;

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use crate::TextError;

/// Maximum instructions per rendering; a message takes about 100.
pub(super) const FUEL: u64 = 2_000_000;
/// Maximum nesting; a macro counts as four levels.
const RECURSION: usize = 300;
/// Maximum bytes of a template's source; the longest known has about 30,000.
pub(super) const MOST_SOURCE: usize = 1 << 20;
/// Maximum bytes that a rendering prints in total, and maximum bytes of a text in a variable.
const MOST_TEXT: usize = 16 << 20;
const MOST_ITEMS: usize = 1 << 20;
const DEEPEST: usize = 100;
/// Stack size in bytes. Dropping nested lists recurses, and `FUEL` allows 200,000 levels.
const STACK: usize = 128 << 20;
/// Filter that rewritten templates apply to the variables that a tag sets. Unlike a function, a
/// filter cannot be replaced by a variable of the same name.
pub(super) const CHECK: &str = "turnwise_check";
/// Filter that rewritten templates apply to the length of a text that they write next.
pub(super) const COUNT: &str = "turnwise_count";

thread_local! {
    /// Bytes printed by this thread's rendering; every rendering has its own thread.
    static PRINTED: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn set(environment: &mut Environment<'_>) {
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment
        .add_filter(CHECK, |values: Value| values.try_iter()?.try_for_each(|value| check_kept(&value)));
    environment.add_filter(COUNT, count_printed);
    for (name, own) in GROWING {
        environment.add_filter(name, move |state: &State<'_, '_>, arguments: Rest<Value>| {
            check_growth(name, &arguments)?;
            state.apply_filter(own, &arguments)
        });
    }
    environment.add_filter("turnwise_replace", filters::replace);
    environment.add_filter("turnwise_join", filters::join);
    environment.add_filter("turnwise_indent", filters::indent);
    environment.add_filter("turnwise_slice_filter", filters::slice);
    environment.add_filter("turnwise_batch", filters::batch);
}

/// Filters whose result can be far longer than their arguments, each with the name under which the
/// original filter is kept.
const GROWING: [(&str, &str); 5] = [
    ("replace", "turnwise_replace"),
    ("join", "turnwise_join"),
    ("indent", "turnwise_indent"),
    ("slice", "turnwise_slice_filter"),
    ("batch", "turnwise_batch"),
];

/// Checks how long a filter's result can become, given its arguments. The first argument is the
/// filtered value.
fn check_growth(filter: &str, arguments: &[Value]) -> Result<(), Error> {
    let length = |place: usize| arguments.get(place).and_then(Value::as_str).map_or(0, str::len);
    let number = |name: &str| {
        let named = arguments.last().and_then(|last| last.get_attr(name).ok());
        arguments.get(1).cloned().into_iter().chain(named).find_map(|value| usize::try_from(value).ok())
    };
    let text = arguments.first().and_then(Value::as_str).unwrap_or_default();
    let grown = match filter {
        "replace" => {
            let from = arguments.get(1).and_then(Value::as_str).unwrap_or_default();
            text.matches(from).count().saturating_mul(length(2)).saturating_add(text.len())
        }
        "join" => {
            let Some(list) = arguments.first() else { return Ok(()) };
            check_printed(list)?;
            list.len().unwrap_or(0).saturating_mul(length(1))
        }
        "indent" => text.lines().count().saturating_mul(number("width").unwrap_or(4)),
        // `slice` and `batch` are limited by items.
        _ => number("count").unwrap_or(0).saturating_mul(MOST_TEXT / MOST_ITEMS),
    };
    if grown > MOST_TEXT {
        return Err(exceeded(format!("`{filter}` makes more than {MOST_TEXT} bytes")));
    }
    Ok(())
}

pub(super) fn check_method(method: &str, value: &Value, arguments: &[Value]) -> Result<(), Error> {
    match (method, arguments) {
        ("replace", [from, to, ..]) => check_growth(method, &[value.clone(), from.clone(), to.clone()]),
        ("join", [list]) => check_growth(method, &[list.clone(), value.clone()]),
        _ => Ok(()),
    }
}

pub(super) fn rendering<T: Send>(
    render: impl FnOnce() -> Result<T, TextError> + Send,
) -> Result<T, TextError> {
    thread::scope(|scope| {
        let spawned =
            thread::Builder::new().name("chat template".into()).stack_size(STACK).spawn_scoped(scope, render);
        let thread =
            spawned.map_err(|error| TextError::Chat(format!("no thread for the chat template: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn exceeded(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Checks a value stored in a variable, because repeated doubling would exhaust memory.
fn check_kept(value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if text.len() > MOST_TEXT => {
            Err(exceeded(format!("a variable holds a text of more than {MOST_TEXT} bytes")))
        }
        None if value.len().is_some_and(|length| length > MOST_ITEMS) => {
            Err(exceeded(format!("a variable holds a list of more than {MOST_ITEMS} items")))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_printed(value: &Value) -> Result<(), Error> {
    let mut left = MOST_TEXT;
    walk(value, 0, &mut left)
}

fn walk(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(exceeded(format!(
            "a printed value has more than {DEEPEST} lists and maps inside each other"
        )));
    }
    let bytes = 2 + value.as_str().map_or(0, str::len);
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| exceeded(format!("a printed value has more than {MOST_TEXT} bytes")))?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.try_for_each(|item| walk(&item, depth + 1, left))
        }
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            walk(&key, depth + 1, left)?;
            walk(&value.get_item(&key)?, depth + 1, left)
        }),
        _ => Ok(()),
    }
}

pub(super) fn count_printed(length: usize) -> Result<(), Error> {
    let printed = PRINTED.get().saturating_add(length);
    PRINTED.set(printed);
    if printed > MOST_TEXT {
        return Err(exceeded(format!("the template prints more than {MOST_TEXT} bytes")));
    }
    Ok(())
}

#[derive(Debug, Default)]
pub(super) struct Output(Vec<u8>);

impl Output {
    pub(super) fn into_text(self) -> String {
        String::from_utf8(self.0)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_TEXT {
            return Err(io::Error::other(format!("the template prints more than {MOST_TEXT} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
