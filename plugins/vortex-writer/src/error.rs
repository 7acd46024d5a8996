//! Converts errors of the crate `vortex`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::{Error, Result};
use vortex::error::VortexError;

/// The maximum number of characters of a message.
const MAX_CHARS: usize = 600;

/// The message of an error in one line, without the backtrace that the crate adds.
pub fn text_of(error: &VortexError) -> String {
    one_line(&error.to_string())
}

fn one_line(text: &str) -> String {
    let message = text.split("Backtrace:").next().unwrap_or(text);
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

/// An error of the crate for a batch whose types the crate has accepted.
pub fn of_batch(error: &VortexError) -> Error {
    rejected(&text_of(error))
}

/// Calls code of the crate. The crate panics for some values, such as a timestamp after the year
/// 9999. Such a panic ends the writer, but must not end the plugin's instance.
///
/// # Errors
/// The errors of `f`; unsupported if it panics.
pub fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // What `f` has changed is not used after a panic.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let error = rejected(&format!("panic: {}", text_of_panic(&*payload)));
        // Dropping the payload may panic again.
        std::mem::forget(payload);
        Err(error)
    })
}

fn rejected(why: &str) -> Error {
    Error::unsupported(format!("the crate vortex cannot write the values: {why}"))
}

fn text_of_panic(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    one_line(text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_an_error() {
        let error = guarded::<()>(|| std::panic::panic_any("a\n reason".to_owned())).unwrap_err();
        assert_eq!(error.message(), "the crate vortex cannot write the values: panic: a reason");
        assert_eq!(guarded(|| Ok(1)), Ok(1));
    }

    #[test]
    fn message_is_one_line_without_a_backtrace() {
        assert_eq!(one_line("Other error: a\n  b\u{7}\nBacktrace:\n 0: main"), "Other error: a b");
        assert_eq!(one_line(&"a".repeat(1000)).len(), MAX_CHARS);
    }
}
