//! Sinks, to which bytes are written.

use std::ffi::c_void;

use crate::abi;
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::Owned;

/// A destination to which bytes are written in order.
pub trait ByteSink: Send {
    /// A name for use in messages.
    fn name(&self) -> &str;

    /// Writes all bytes of `bytes`.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
}

/// A C sink, for a plugin that writes to it.
pub struct Sink(Owned<abi::Sink>);

struct Shell {
    sink: Box<dyn ByteSink>,
    poison: Poison,
}

impl Sink {
    /// Converts to a C sink.
    pub fn new(sink: Box<dyn ByteSink>) -> Self {
        // The name borrows from the object in the box, which stays in place when the box is moved.
        let mut raw = abi::Sink { name: abi::Str::new(sink.name()), ..abi::Sink::new() };
        raw.write = Some(write);
        raw.release = Some(release);
        raw.private_data = Box::into_raw(Box::new(Shell { sink, poison: Poison::for_host() })).cast();
        // SAFETY: this function created the sink with its release function, and there is no other
        // copy of it.
        Self(unsafe { Owned::new(raw) })
    }

    /// Wraps a C sink.
    ///
    /// # Safety
    /// The requirements of [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::Sink>) -> Self {
        Self(raw)
    }

    /// Converts to a C sink.
    pub fn into_raw(self) -> Owned<abi::Sink> {
        self.0
    }

    /// A name for use in messages.
    pub fn name(&self) -> &str {
        // SAFETY: the header requires that the string is valid and lives as long as the sink.
        unsafe { self.0.name.get() }.unwrap_or("a sink whose name is not UTF-8")
    }

    /// Writes all bytes of `bytes`.
    ///
    /// # Errors
    /// Returns the error of the sink.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let write = self.0.write.ok_or_else(|| Error::invalid_argument("the sink has no 'write'"))?;
        let raw = self.0.as_mut_ptr();
        // SAFETY: the function belongs to the sink, `&mut self` prevents concurrent calls, and
        // `bytes` is valid for the call.
        Error::check(|err| unsafe { write(raw, bytes.as_ptr().cast(), bytes.len(), err) })
    }
}

unsafe extern "C" fn write(
    sink: *mut abi::Sink,
    from: *const c_void,
    bytes: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: only `Sink::new` sets this function, with a boxed `Shell` that lives until the sink
    // is released. The header forbids concurrent calls.
    let Shell { sink, poison } = unsafe { &mut *(*sink).private_data.cast::<Shell>() };
    let body = || match bytes {
        0 => Ok(()),
        _ if from.is_null() => {
            Err(Error::invalid_argument(format!("write: the pointer to {bytes} bytes is NULL")))
        }
        // SAFETY: `from` is not null, and the header requires that `bytes` bytes are readable.
        _ => sink.write(unsafe { std::slice::from_raw_parts(from.cast(), bytes) }),
    };
    // SAFETY: the header requires that `err` is null or points to `struct_size` bytes.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(sink: *mut abi::Sink) {
    // SAFETY: only `Sink::new` sets this function, with a boxed `Shell`. Clearing `release` ensures
    // that this runs only once.
    unsafe {
        (*sink).release = None;
        let shell = Box::from_raw((*sink).private_data.cast::<Shell>());
        shell.poison.clone().run_release(move || drop(shell));
    }
}
