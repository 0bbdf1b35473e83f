//! Limits for chat templates, which are programs from untrusted model folders.
//!
//! | limit | bounds |
//! |---|---|
//! | [`FUEL`] | number of instructions, to stop endless loops |
//! | [`RECURSION`], [`STACK`] | depth of recursive macros and nested values |
//! | [`MOST_TEXT`] | length of the printed text, and of each text stored in a variable |
//! | [`MOST_ITEMS`] | number of items in each list stored in a variable |
//!
//! `replace`, `join`, `indent`, `slice` and `batch` are checked before they run, because each can
//! produce text of any length. The results of other expressions are limited by the length of the
//! expression.

use std::cell::Cell;
use std::io::{self, Write};
use std::thread;

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use crate::TextError;

/// Maximum number of template instructions per rendering. A message takes about 100.
pub(super) const FUEL: u64 = 2_000_000;
/// Maximum nesting depth of loops, blocks and macros; a macro counts as four levels.
const RECURSION: usize = 300;
/// Maximum size of a template's source in bytes. The longest known template has about 30,000 bytes.
pub(super) const MOST_SOURCE: usize = 1 << 20;
/// Maximum size in bytes of a rendered text, of all printed text, and of a text in a variable.
const MOST_TEXT: usize = 16 << 20;
/// Maximum number of items in a list stored in a variable.
const MOST_ITEMS: usize = 1 << 20;
/// Maximum nesting depth of lists and maps in a printed value.
const DEEPEST: usize = 100;
/// Stack of a rendering. `FUEL` would allow 200,000 nested lists, and dropping these recurses.
const STACK: usize = 128 << 20;
/// Function that rewritten templates call to check variables after they are set.
pub(super) const CHECK: &str = "turnwise_check";

thread_local! {
    /// Number of bytes printed by the rendering on this thread. Every rendering has its own thread.
    static PRINTED: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn set(environment: &mut Environment<'_>) {
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.add_function(CHECK, |values: Rest<Value>| values.iter().try_for_each(check_kept));
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

/// Filters whose result can be much longer than their arguments, and the names under which the
/// original filters are kept.
const GROWING: [(&str, &str); 5] = [
    ("replace", "turnwise_replace"),
    ("join", "turnwise_join"),
    ("indent", "turnwise_indent"),
    ("slice", "turnwise_slice_filter"),
    ("batch", "turnwise_batch"),
];

/// Limits a filter's result by checking its arguments first. The first argument is the filtered
/// value.
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
        // For lists, limits the items.
        _ => number("count").unwrap_or(0).saturating_mul(MOST_TEXT / MOST_ITEMS),
    };
    if grown > MOST_TEXT {
        return Err(exceeded(format!("`{filter}` makes more than {MOST_TEXT} bytes")));
    }
    Ok(())
}

/// Applies the limits of filters to the string methods of the same names.
pub(super) fn check_method(method: &str, value: &Value, arguments: &[Value]) -> Result<(), Error> {
    match (method, arguments) {
        ("replace", [from, to, ..]) => check_growth(method, &[value.clone(), from.clone(), to.clone()]),
        ("join", [list]) => check_growth(method, &[list.clone(), value.clone()]),
        _ => Ok(()),
    }
}

/// Runs a rendering on a thread with a stack of size [`STACK`].
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

/// Checks a value before it is stored in a variable, because repeated doubling would exhaust
/// memory.
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

/// Checks a value before it is printed. It may contain the same value many times, or be nested too
/// deeply.
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
    // Brackets, commas and quotes count, too.
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

/// Counts text that is printed to the result or captured in a variable.
pub(super) fn count_printed(text: &str) -> Result<(), Error> {
    let printed = PRINTED.get().saturating_add(text.len());
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
        // Templates write complete characters.
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
