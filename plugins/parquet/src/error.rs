//! Converts errors of the crate `parquet`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

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
        ParquetError::NYI(why) => {
            Error::unsupported(format!("the crate parquet does not support it: {}", one_line(why)))
        }
        other => Error::bad_data(text_of(other)),
    }
}

/// The error of a column with another number of rows than the metadata state.
pub fn wrong_rows(n: usize, expected: usize) -> Error {
    Error::bad_data(format!("the column has {n} rows where the others have {expected}"))
}

/// The first error of this plugin in a function that the crate calls. The crate passes on only its
/// text.
#[derive(Clone, Default)]
pub struct Cause(Arc<Mutex<Option<Error>>>);

impl Cause {
    /// Records an error, and converts it to one of the crate.
    pub fn set(&self, error: Error) -> ParquetError {
        let text = error.message().to_owned();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        ParquetError::General(text)
    }

    /// Takes the error, if there was one.
    pub fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

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
    fn first_error_is_recorded() {
        let cause = Cause::default();
        let first = Error::cancelled("cancelled");
        assert_eq!(of_reader(&cause.set(first.clone())).message(), "Parquet error: cancelled");
        cause.set(Error::internal("another"));
        assert_eq!((cause.take(), cause.take()), (Some(first), None));
        assert_eq!(text_of(&"a".repeat(1000)).len(), MAX_CHARS);
    }
}
