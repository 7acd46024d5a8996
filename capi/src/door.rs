//! Implements the FFI door. Every exported function, and every function of an exported object,
//! makes one call into this module. The module stops unwinding, converts errors to codes, and
//! passes log messages to the host's listener.

use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Error, Result, abi};
use tracing::Dispatch;

/// The FFI door of one object. A panic in a call of the object poisons only this object.
#[derive(Default)]
pub struct Door {
    poison: Poison,
    listener: Option<Dispatch>,
}

impl Door {
    /// Returns the FFI door for an object whose host has this listener.
    pub fn new(listener: Option<Dispatch>) -> Self {
        Self { poison: Poison::new(), listener }
    }

    /// Returns the FFI door for a new object. `self` is the FFI door of the object that creates it.
    pub fn for_new_object(&self) -> Self {
        Self::new(self.listener.clone())
    }

    /// Returns the same FFI door without borrowing the object.
    pub fn share(&self) -> Self {
        Self { poison: self.poison.clone(), listener: self.listener.clone() }
    }

    /// Runs `body` for a caller in C. Returns its status and fills in `err`.
    ///
    /// # Safety
    /// `err` is null or points to an initialised `crossdock_error`.
    pub unsafe fn enter(&self, err: *mut abi::Error, body: impl FnOnce() -> Result<()>) -> abi::Code {
        // SAFETY: `Poison::enter` needs a null or initialised `err`, which this function requires.
        unsafe { self.poison.enter(err, || self.with_listener(body)) }
    }

    /// Runs a function that releases the object, even if the object is poisoned. Ignores panics.
    pub fn leave(&self, body: impl FnOnce()) {
        self.poison.run_release(|| self.with_listener(body));
    }

    /// Runs `body` and passes its log messages to the host's listener.
    pub fn with_listener<T>(&self, body: impl FnOnce() -> T) -> T {
        match &self.listener {
            Some(listener) => tracing::dispatcher::with_default(listener, body),
            None => body(),
        }
    }
}

/// An object behind an opaque handle.
pub trait Handle {
    /// The name of the object in error messages.
    const WHAT: &'static str;

    /// The FFI door for calls of this object.
    fn door(&self) -> &Door;
}

/// Runs `body` on the object behind a handle.
///
/// # Safety
/// `handle` is null or a handle that is not destroyed, and `err` is null or points to an
/// initialised `crossdock_error`.
pub unsafe fn with<H: Handle>(
    handle: *const H,
    err: *mut abi::Error,
    body: impl FnOnce(&H) -> Result<()>,
) -> abi::Code {
    // SAFETY: a handle that is not null is not destroyed, by the requirement of this function.
    match unsafe { handle.as_ref() } {
        // SAFETY: `Door::enter` needs a null or initialised `err`, which this function requires.
        Some(handle) => unsafe { handle.door().enter(err, || body(handle)) },
        // SAFETY: `without` needs a null or initialised `err`, which this function requires.
        None => unsafe { without(err, || Err(Error::invalid_argument(format!("{} is NULL", H::WHAT)))) },
    }
}

/// Runs `body` for a function without a handle.
///
/// # Safety
/// `err` is null or points to an initialised `crossdock_error`.
pub unsafe fn without(err: *mut abi::Error, body: impl FnOnce() -> Result<()>) -> abi::Code {
    // SAFETY: `Door::enter` needs a null or initialised `err`, which this function requires.
    unsafe { Door::default().enter(err, body) }
}

/// Returns a new handle in `out`.
///
/// # Safety
/// `out` is not null and valid for writes.
pub unsafe fn put_handle<H: Handle>(out: *mut *mut H, handle: H) {
    // SAFETY: `out` is valid for writes, by the requirement of this function.
    unsafe { out.write(Box::into_raw(Box::new(handle))) };
}

/// Destroys a handle.
///
/// # Safety
/// `handle` is null or comes from [`put_handle`], and is not used any more.
pub unsafe fn destroy<H: Handle>(handle: *mut H) {
    if handle.is_null() {
        return;
    }
    // SAFETY: `put_handle` created the Box, and the handle is destroyed once, by the requirement of
    // this function.
    let handle = unsafe { Box::from_raw(handle) };
    handle.door().for_new_object().leave(move || drop(handle));
}
