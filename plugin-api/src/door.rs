//! The FFI door. It runs the body of every function that another module can call across the
//! boundary: it stops panics, converts results to status codes, and rejects calls to an instance
//! that has panicked.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once, OnceLock};

use crate::abi;
use crate::error::{Error, Result};

/// Records whether an instance has panicked, and with which message. The instance shares this
/// record with its streams and writers, so a panic in a stream stops the instance too. Other
/// instances are not affected.
#[derive(Clone, Default)]
pub struct Poison {
    message: Arc<OnceLock<String>>,
    is_host: bool,
}

impl Poison {
    /// Creates the record of an instance that has not panicked.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the record of an object of the host. Panics of host objects have the code
    /// [`crate::Code::INTERNAL`]. If they had `PANICKED`, a plugin that passes the error on would
    /// seem to have panicked itself.
    pub fn for_host() -> Self {
        Self { is_host: true, ..Self::default() }
    }

    /// The message of the first panic.
    pub fn message(&self) -> Option<&str> {
        self.message.get().map(String::as_str)
    }

    /// Runs the body of a function that can fail, and returns its status.
    ///
    /// # Safety
    /// `err` is null or points to a `crossdock_error` of `struct_size` bytes.
    pub unsafe fn enter(&self, err: *mut abi::Error, body: impl FnOnce() -> Result<()>) -> abi::Code {
        let error = match self.message() {
            Some(message) if self.is_host => {
                Error::internal(format!("rejected: this host object panicked earlier: {message}"))
            }
            Some(message) => {
                Error::panicked(format!("rejected: this plugin instance panicked earlier: {message}"))
            }
            None => match catch(body) {
                Ok(Ok(())) => return abi::OK,
                Ok(Err(error)) => error,
                Err(payload) => {
                    let message = self.poison(payload);
                    if self.is_host {
                        Error::internal(format!("the host panicked: {message}"))
                    } else {
                        Error::panicked(format!(
                            "panicked: {message}; the instance accepts only releases from now on"
                        ))
                    }
                }
            },
        };
        // SAFETY: the caller guarantees the requirement of `write_to` on `err`.
        unsafe { error.write_to(err) }
    }

    /// Runs a release function, even if the instance has panicked. If the release function panics,
    /// the panic is caught and recorded.
    pub fn run_release(&self, body: impl FnOnce()) {
        if let Err(payload) = catch(body) {
            self.poison(payload);
        }
    }

    fn poison(&self, payload: Box<dyn Any + Send>) -> String {
        let message = panic_message(payload);
        self.message.get_or_init(|| message).clone()
    }
}

/// Runs the release function of an object that belongs to no instance. Catches a panic.
pub fn run_release(body: impl FnOnce()) {
    if let Err(payload) = catch(body) {
        panic_message(payload);
    }
}

/// Returns the text and the location of a panic.
fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_string()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "with a payload that is not text".to_string()
    };
    // Dropping a payload can panic again, and no code would catch that panic, so the payload is
    // leaked.
    std::mem::forget(payload);
    // Thread locals are not accessible while a thread exits.
    let location = LOCATION.try_with(|location| location.take()).ok().flatten();
    let location = location.map_or_else(String::new, |location| format!(" (at {location})"));
    message + &location
}

thread_local! {
    /// The nesting depth of `catch` on this thread's stack.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The location of the last panic within `catch`.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body` and catches its panic. The panic is not printed, because it becomes an error message
/// and the standard error stream belongs to the application. Panics outside of `catch` are printed
/// as usual.
fn catch<T>(body: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    // A panic hook cannot be set while this thread unwinds. That happens if a destructor calls a
    // release function during a panic.
    if !std::thread::panicking() {
        HOOK.call_once(set_hook);
    }
    DEPTH.with(|depth| {
        depth.set(depth.get() + 1);
        let result = catch_unwind(AssertUnwindSafe(body));
        depth.set(depth.get() - 1);
        result
    })
}

fn set_hook() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if DEPTH.get() == 0 {
            return previous(info);
        }
        // `with` would panic while the thread exits, and a panic in a panic hook aborts the
        // process.
        let _ = LOCATION.try_with(|location| location.replace(info.location().map(ToString::to_string)));
    }));
}

/// Writes the result of `value` to an out parameter. If `out` is null, does not call `value`,
/// because the object that `value` creates would leak.
///
/// # Errors
/// Returns an error if `out` is null.
///
/// # Safety
/// `out` is null or valid for writes.
pub unsafe fn put<T>(out: *mut T, what: &str, value: impl FnOnce() -> T) -> Result<()> {
    if out.is_null() {
        return Err(Error::invalid_argument(format!("{what}: the out parameter is NULL")));
    }
    // SAFETY: `out` is not null, so the caller guarantees that it is valid for writes. The old
    // value is not dropped, because it may be uninitialised.
    unsafe { out.write(value()) };
    Ok(())
}
