//! Converts errors and panics of other crates.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{Error, Result};

/// An error of any crate.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The maximum number of characters of a message.
const MAX_CHARS: usize = 600;

/// The first error of a source or a sink. The errors of other crates often contain only its text,
/// and would lose its code.
#[derive(Clone, Default)]
pub(crate) struct FirstError(Arc<Mutex<Option<Error>>>);

impl FirstError {
    /// Keeps the error, and converts it for [`std::io`].
    pub(crate) fn keep(&self, error: Error) -> io::Error {
        let text = error.message().to_owned();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        io::Error::other(text)
    }

    fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Calls code of another crate. If it fails, the result is the error of the source or the sink
    /// if there is one, the error itself if it is one of the plugin interface, and otherwise the
    /// result of `convert` for the error's text.
    pub(crate) fn guard<T>(
        &self,
        convert: fn(String) -> Error,
        f: impl FnOnce() -> std::result::Result<T, BoxError>,
    ) -> Result<T> {
        // After a panic, the caller does not use what `f` has changed.
        let error = match catch_unwind(AssertUnwindSafe(f)) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => match error.downcast::<Error>() {
                Ok(error) => *error,
                Err(error) => convert(one_line(&error.to_string())),
            },
            Err(payload) => {
                let text = one_line(text_of_panic(&*payload));
                // Dropping the payload may panic again.
                std::mem::forget(payload);
                convert(format!("panic: {text}"))
            }
        };
        Err(self.take().unwrap_or(error))
    }
}

fn text_of_panic(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use crossdock_plugin_api::Code;

    use super::*;

    fn guarded(first: &FirstError, f: impl FnOnce() -> std::result::Result<(), BoxError>) -> Error {
        first.guard(Error::bad_data, f).unwrap_err()
    }

    #[test]
    fn errors_and_panics_are_one_line() {
        let first = FirstError::default();
        let error = guarded(&first, || Err("a\n  reason\u{7}".into()));
        assert_eq!((error.code(), error.message()), (Code::BAD_DATA, "a reason"));
        let error = guarded(&first, || std::panic::panic_any("no\nvalue".to_owned()));
        assert_eq!((error.code(), error.message()), (Code::BAD_DATA, "panic: no value"));
        assert_eq!(guarded(&first, || Err("a".repeat(1000).into())).message().len(), MAX_CHARS);
    }

    #[test]
    fn errors_of_the_interface_keep_their_code() {
        let first = FirstError::default();
        let error = guarded(&first, || Err(Error::cancelled("stop").into()));
        assert_eq!((error.code(), error.message()), (Code::CANCELLED, "stop"));
        let error = guarded(&first, || {
            let error = first.keep(Error::out_of_memory("full"));
            Err(format!("wrapped: {error}").into())
        });
        assert_eq!((error.code(), error.message()), (Code::OUT_OF_MEMORY, "full"));
        assert_eq!(guarded(&first, || Err("later".into())).code(), Code::BAD_DATA);
    }
}
