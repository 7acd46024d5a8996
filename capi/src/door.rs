//! The one door. Every exported function, and every function of an object that is lent out, is one call into here:
//! unwinding stops, errors become codes, and the host's listener hears what is said meanwhile.

use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Error, Result, abi};
use tracing::Dispatch;

/// What one object's calls go through: a panic in one of them poisons that object alone.
#[derive(Default)]
pub struct Door {
    poison: Poison,
    listener: Option<Dispatch>,
}

impl Door {
    /// For an object of the host that `listener` belongs to.
    pub fn new(listener: Option<Dispatch>) -> Self {
        Self { poison: Poison::new(), listener }
    }

    /// For an object that comes from the one with this door.
    pub fn another(&self) -> Self {
        Self::new(self.listener.clone())
    }

    /// The same door, apart from the object that it stands in.
    pub fn share(&self) -> Self {
        Self { poison: self.poison.clone(), listener: self.listener.clone() }
    }

    /// Runs `body` for a caller in C.
    ///
    /// # Safety
    /// `err` is null or points at a `crossdock_error` whose `struct_size` is true.
    pub unsafe fn enter(&self, err: *mut abi::Error, body: impl FnOnce() -> Result<()>) -> abi::Code {
        // SAFETY: passed on from the caller.
        unsafe { self.poison.enter(err, || self.hear(body)) }
    }

    /// Runs a release: always, and silently.
    pub fn leave(&self, body: impl FnOnce()) {
        self.poison.leave(|| self.hear(body));
    }

    /// Runs `body`, with what is said meanwhile heard by the host's listener.
    pub fn hear<T>(&self, body: impl FnOnce() -> T) -> T {
        match &self.listener {
            Some(listener) => tracing::dispatcher::with_default(listener, body),
            None => body(),
        }
    }
}

/// An opaque handle that the application holds.
pub trait Handle {
    /// What it is called in messages.
    const WHAT: &'static str;

    /// What its calls go through.
    fn door(&self) -> &Door;
}

/// Runs `body` on what the handle stands for.
///
/// # Safety
/// `handle` is null or one that its `create` gave and nobody destroyed; `err` as in [`Door::enter`].
pub unsafe fn with<H: Handle>(
    handle: *const H,
    err: *mut abi::Error,
    body: impl FnOnce(&H) -> Result<()>,
) -> abi::Code {
    // SAFETY: the caller's word; null becomes None.
    match unsafe { handle.as_ref() } {
        // SAFETY: the caller's error struct.
        Some(handle) => unsafe { handle.door().enter(err, || body(handle)) },
        // SAFETY: as above.
        None => unsafe { without(err, || Err(Error::invalid_argument(format!("{} is NULL", H::WHAT)))) },
    }
}

/// Runs `body` where there is no handle yet.
///
/// # Safety
/// As [`Door::enter`].
pub unsafe fn without(err: *mut abi::Error, body: impl FnOnce() -> Result<()>) -> abi::Code {
    // SAFETY: passed on from the caller.
    unsafe { Door::default().enter(err, body) }
}

/// Gives a new handle to the application.
///
/// # Safety
/// `out` is not null and valid for writes.
pub unsafe fn give<H: Handle>(out: *mut *mut H, handle: H) {
    // SAFETY: the caller's word.
    unsafe { out.write(Box::into_raw(Box::new(handle))) };
}

/// Takes a handle back.
///
/// # Safety
/// `handle` is null or one that [`give`] gave, which nobody uses any more.
pub unsafe fn destroy<H: Handle>(handle: *mut H) {
    if handle.is_null() {
        return;
    }
    // SAFETY: the caller's word.
    let handle = unsafe { Box::from_raw(handle) };
    handle.door().another().leave(move || drop(handle));
}
