//! Converts errors of the crate `parquet`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::{Error, Result};
use parquet::errors::ParquetError;

/// The maximum number of characters of a message.
const MAX_CHARS: usize = 600;

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

/// The message of an error in one line.
pub fn text_of(error: &dyn std::fmt::Display) -> String {
    one_line(&error.to_string())
}

/// An error of the crate while it reads.
pub fn of_reader(error: &ParquetError) -> Error {
    match error {
        ParquetError::External(inner) if inner.downcast_ref::<SourceError>().is_some() => {
            inner.downcast_ref::<SourceError>().map_or_else(|| Error::internal(""), |inner| inner.0.clone())
        }
        ParquetError::NYI(why) => {
            Error::unsupported(format!("the crate parquet does not support it: {}", one_line(why)))
        }
        other => Error::bad_data(text_of(other)),
    }
}

/// An error of the host's source, as a cause of an error of the crate.
#[derive(Debug)]
pub struct SourceError(pub Error);

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.message())
    }
}

impl std::error::Error for SourceError {}

/// Calls code of the crate that reads. The crate panics for some damaged files. Such a panic ends
/// the reader, but must not end the plugin's instance.
///
/// # Errors
/// The errors of `f`; bad data if it panics.
pub fn reading<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    guarded(f).unwrap_or_else(|why| Err(Error::bad_data(format!("the crate parquet panicked: {why}"))))
}

/// Calls code of the crate that writes.
///
/// # Errors
/// The errors of `f`; unsupported if it panics.
pub fn writing<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    guarded(f).unwrap_or_else(|why| {
        Err(Error::unsupported(format!("the crate parquet cannot write the values: panic: {why}")))
    })
}

/// Returns the message of a panic as an error.
fn guarded<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    // What `f` has changed is not used after a panic.
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        let text = text_of_panic(&*payload);
        // Dropping the payload may panic again.
        std::mem::forget(payload);
        text
    })
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
        let error = reading::<()>(|| std::panic::panic_any("a\n reason".to_owned())).unwrap_err();
        assert_eq!(error.message(), "the crate parquet panicked: a reason");
        assert_eq!(reading(|| Ok(1)), Ok(1));
    }

    #[test]
    fn error_of_the_source_is_passed_on() {
        let cause = Error::cancelled("cancelled");
        let error = ParquetError::External(Box::new(SourceError(cause.clone())));
        assert_eq!(of_reader(&error), cause);
        assert_eq!(text_of(&"a".repeat(1000)).len(), MAX_CHARS);
    }
}
