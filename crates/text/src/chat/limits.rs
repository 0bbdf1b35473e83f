//! Limits for chat templates, which are programs from untrusted model folders.

use std::cell::Cell;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

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
/// Bytes that an item of a list counts as. `MOST_ITEMS` items count as `MOST_TEXT` bytes.
pub(super) const ITEM: usize = MOST_TEXT / MOST_ITEMS;
/// Maximum bytes of texts and lists that a rendering makes in total.
const MOST_MADE: usize = 2 << 30;
/// Maximum time of a rendering. A conversation takes milliseconds.
const LONGEST: Duration = Duration::from_secs(10);
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
    /// Bytes made by this thread's rendering.
    static MADE: Cell<usize> = const { Cell::new(0) };
    /// Start of this thread's rendering.
    static STARTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

pub(super) fn set(environment: &mut Environment<'_>) {
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.add_filter(CHECK, |values: Value| {
        check_time()?;
        values.try_iter()?.try_for_each(|value| check_kept(&value))
    });
    environment.add_filter(COUNT, count_printed);
}

/// Compiles or renders a template in a thread with a large stack.
pub(super) fn rendering<T: Send>(
    render: impl FnOnce() -> Result<T, TextError> + Send,
) -> Result<T, TextError> {
    let timed = || {
        STARTED.set(Some(Instant::now()));
        render()
    };
    thread::scope(|scope| {
        let spawned =
            thread::Builder::new().name("chat template".into()).stack_size(STACK).spawn_scoped(scope, timed);
        let thread =
            spawned.map_err(|error| TextError::Chat(format!("no thread for the chat template: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn exceeded(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

pub(super) fn check_time() -> Result<(), Error> {
    match STARTED.get() {
        Some(started) if started.elapsed() > LONGEST => {
            Err(exceeded(format!("the template takes more than {} s", LONGEST.as_secs())))
        }
        _ => Ok(()),
    }
}

/// Checks the bytes that an operator or a filter is about to make.
pub(super) fn check_length(name: &str, bytes: usize) -> Result<(), Error> {
    if bytes > MOST_TEXT {
        return Err(exceeded(format!("`{name}` makes more than {MOST_TEXT} bytes")));
    }
    Ok(())
}

/// Returns the number of a list's or map's items, or more than `MOST_ITEMS` if there are more.
pub(super) fn items(value: &Value) -> usize {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => value.len().unwrap_or_else(|| {
            // Lists without a known length, like chained ones, are computed item by item.
            value.try_iter().map_or(0, |items| items.take(MOST_ITEMS + 1).count())
        }),
        _ => 0,
    }
}

/// Returns the bytes of a text or list without those of its items.
pub(super) fn size(value: &Value) -> usize {
    value.as_str().map_or_else(|| items(value).saturating_mul(ITEM), str::len)
}

/// Checks a value that the template made, and all of them together. They can be kept in lists, so
/// limits for single variables do not limit memory.
pub(super) fn made(value: Value) -> Result<Value, Error> {
    check_time()?;
    check_kept(&value)?;
    // An item of a list takes at least 24 bytes.
    let bytes = if value.as_str().is_some() { size(&value) } else { 2 * size(&value) };
    let made = MADE.get().saturating_add(bytes);
    MADE.set(made);
    if made > MOST_MADE {
        return Err(exceeded(format!("the template makes more than {MOST_MADE} bytes of texts and lists")));
    }
    Ok(value)
}

/// Checks a value that is stored or computed, because repeated doubling would exhaust memory.
pub(super) fn check_kept(value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if text.len() > MOST_TEXT => {
            Err(exceeded(format!("a text has more than {MOST_TEXT} bytes")))
        }
        None if items(value) > MOST_ITEMS => {
            Err(exceeded(format!("a list has more than {MOST_ITEMS} items")))
        }
        _ => Ok(()),
    }
}

/// Checks a value whose nested items are printed or compared. A list that holds another twice, and
/// so on, has any number of them.
pub(super) fn check_nested(value: &Value) -> Result<(), Error> {
    if value.as_str().is_some() { Ok(()) } else { check_printed(value) }
}

pub(super) fn check_printed(value: &Value) -> Result<(), Error> {
    let mut left = MOST_TEXT;
    walk(value, 0, &mut left)
}

fn walk(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(exceeded(format!(
            "a printed or compared value has more than {DEEPEST} lists and maps inside each other"
        )));
    }
    let bytes = 2 + match value.as_str() {
        Some(text) => text.len(),
        // Up to 309 digits.
        None if value.kind() == ValueKind::Number => value.to_string().len(),
        None => 0,
    };
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| exceeded(format!("a printed or compared value has more than {MOST_TEXT} bytes")))?;
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
    check_time()?;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::chat::source::rewritten;

    #[test]
    fn time_is_checked_by_whatever_takes_time() {
        let environment = crate::chat::environment();
        let render =
            |source: &str| environment.render_str(&rewritten(source).unwrap(), BTreeMap::from([("x", "a")]));
        for source in [
            "{% set y = x %}",
            "{% for y in [x] %}{% endfor %}",
            "{{ x }}",
            "{% if x == 'b' %}{% endif %}",
            "{% if x is eq 'b' %}{% endif %}",
            "{% if x ~ x %}{% endif %}",
            "{% if 1 + 1 %}{% endif %}",
            "{% if x | length %}{% endif %}",
            "{% if x.upper() %}{% endif %}",
            "{% if x[1:] %}{% endif %}",
        ] {
            STARTED.set(Some(Instant::now()));
            assert!(render(source).is_ok(), "{source}: {:?}", render(source));
            STARTED.set(Instant::now().checked_sub(LONGEST));
            std::thread::sleep(Duration::from_millis(1));
            let error = render(source).unwrap_err().to_string();
            assert!(error.contains("takes more than 10 s"), "{source}: {error}");
        }
    }
}
