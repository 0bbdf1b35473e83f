//! Panics of libraries that read malformed files.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Calls a library that panics on malformed input, and returns the message of such a panic as an
/// error. The message is not printed to stderr.
///
/// The first call wraps the process's panic hook. Panics outside of such calls still reach the hook
/// that was set before. State that `call` changes must not be used after an error.
///
/// # Errors
/// Returns the message of the panic.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static WRAP: Once = Once::new();
    WRAP.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !CATCHING.get() {
                before(panic);
            }
        }));
    });
    let outer = CATCHING.replace(true);
    let called = catch_unwind(AssertUnwindSafe(call));
    CATCHING.set(outer);
    called.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::panic, reason = "the panics are what is tested")]
    fn a_panic_is_an_error_and_others_reach_the_hook() {
        assert_eq!(catch_panic(|| 1), Ok(1));
        let constant: Result<(), String> = catch_panic(|| panic!("bad page"));
        assert_eq!(constant, Err("bad page".to_owned()));
        let made: Result<(), String> = catch_panic(|| panic!("bad page {}", 2));
        assert_eq!(made, Err("bad page 2".to_owned()));
        let nested = catch_panic(|| {
            let _ = catch_panic(|| panic!("inner"));
            CATCHING.get()
        });
        assert_eq!(nested, Ok(true));
        assert!(!CATCHING.get());
        let passed = catch_unwind(|| panic!("outside"));
        assert!(passed.is_err());
    }
}
