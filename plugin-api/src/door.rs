//! The one door at the boundary. Every function that a plugin (or the host) offers across it is one call into here:
//! unwinding stops, results become codes, and an instance that panicked answers nothing but releases.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once, OnceLock};

use crate::abi;
use crate::error::{Error, Result};

/// Whether an instance has panicked, and with what words. Shared by the instance and everything that it lent out, so
/// that a panic in a stream stops its plugin too, and no other instance.
#[derive(Clone, Default)]
pub struct Poison {
    words: Arc<OnceLock<String>>,
    of_host: bool,
}

impl Poison {
    /// Of nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// For what the host offers: its panics are [`crate::Code::INTERNAL`], so that a plugin that passes them on is not taken for
    /// the one that panicked.
    pub fn of_host() -> Self {
        Self { of_host: true, ..Self::default() }
    }

    /// The words of the panic that poisoned it.
    pub fn message(&self) -> Option<&str> {
        self.words.get().map(String::as_str)
    }

    /// Runs `body` for a caller on the other side.
    ///
    /// # Safety
    /// `err` is null or points at a `crossdock_error` whose `struct_size` is true.
    pub unsafe fn enter(&self, err: *mut abi::Error, body: impl FnOnce() -> Result<()>) -> abi::Code {
        let error = match self.message() {
            Some(message) if self.of_host => {
                Error::internal(format!("refused: the host panicked in this earlier: {message}"))
            }
            Some(message) => {
                Error::panicked(format!("refused: this plugin instance panicked earlier: {message}"))
            }
            None => match catch(body) {
                Ok(Ok(())) => return abi::OK,
                Ok(Err(error)) => error,
                Err(payload) => {
                    let message = self.poison(payload);
                    if self.of_host {
                        Error::internal(format!("the host panicked: {message}"))
                    } else {
                        Error::panicked(format!(
                            "panicked: {message}; the instance answers only releases from now on"
                        ))
                    }
                }
            },
        };
        // SAFETY: the caller's word.
        unsafe { error.write_to(err) }
    }

    /// Runs a release: always, poisoned or not, and silently.
    pub fn leave(&self, body: impl FnOnce()) {
        if let Err(payload) = catch(body) {
            self.poison(payload);
        }
    }

    fn poison(&self, payload: Box<dyn Any + Send>) -> String {
        let message = words(payload);
        self.words.get_or_init(|| message).clone()
    }
}

/// Runs a release of what no instance lent out, silently.
pub fn leave(body: impl FnOnce()) {
    if let Err(payload) = catch(body) {
        words(payload);
    }
}

/// What a panic said, and where.
fn words(payload: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_string()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "with a payload that is not text".to_string()
    };
    // Dropping a payload can panic again, and then there is no door left to catch it.
    std::mem::forget(payload);
    // A thread at its end has no place to note it any more.
    let place = PLACE.try_with(|place| place.take()).ok().flatten();
    let place = place.map_or_else(String::new, |place| format!(" (at {place})"));
    message + &place
}

thread_local! {
    /// How many doors this thread stands behind.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    /// Where the last panic behind a door began.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body` and catches its panic, which becomes an error's words and is not printed as well: the standard error
/// stream is the application's. Panics elsewhere are reported as they always were.
fn catch<T>(body: impl FnOnce() -> T) -> std::thread::Result<T> {
    static QUIET: Once = Once::new();
    // A hook cannot be set while this thread unwinds, as when a release runs because its holder panicked.
    if !std::thread::panicking() {
        QUIET.call_once(quiet);
    }
    INSIDE.with(|inside| {
        inside.set(inside.get() + 1);
        let result = catch_unwind(AssertUnwindSafe(body));
        inside.set(inside.get() - 1);
        result
    })
}

fn quiet() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if INSIDE.get() == 0 {
            return usual(info);
        }
        // A panic in here would be the end of the process; see above for when there is no place.
        let _ = PLACE.try_with(|place| place.replace(info.location().map(ToString::to_string)));
    }));
}

/// Writes what `value` makes to an out parameter. A null one is the caller's mistake and is named here, before anything
/// is made that nobody would release.
///
/// # Safety
/// `out` is null or valid for writes.
pub unsafe fn put<T>(out: *mut T, what: &str, value: impl FnOnce() -> T) -> Result<()> {
    if out.is_null() {
        return Err(Error::invalid_argument(format!("{what}: the out parameter is NULL")));
    }
    // SAFETY: not null, and valid by the caller's word. What was there is zero or undefined: it is not dropped.
    unsafe { out.write(value()) };
    Ok(())
}
