//! Bytes to write: the maker's trait and the writer's handle.

use std::ffi::c_void;

use crate::abi;
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::Owned;

/// Where bytes go, in order.
pub trait ByteSink: Send {
    /// A name for messages.
    fn name(&self) -> &str;

    /// Writes all of them.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
}

/// The handle to write to.
pub struct Sink(Owned<abi::Sink>);

struct Shell {
    sink: Box<dyn ByteSink>,
    poison: Poison,
}

impl Sink {
    /// Offers `sink` across the boundary.
    pub fn new(sink: Box<dyn ByteSink>) -> Self {
        // The name is the sink's own and lives with it: the Box's content does not move.
        let mut raw = abi::Sink { name: abi::Str::new(sink.name()), ..abi::Sink::new() };
        raw.write = Some(write);
        raw.release = Some(release);
        raw.private_data = Box::into_raw(Box::new(Shell { sink, poison: Poison::of_host() })).cast();
        // SAFETY: made above; nobody else has it.
        Self(unsafe { Owned::new(raw) })
    }

    /// Takes a sink that crossed the boundary.
    ///
    /// # Safety
    /// As [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::Sink>) -> Self {
        Self(raw)
    }

    /// The bare object, to hand across.
    pub fn into_raw(self) -> Owned<abi::Sink> {
        self.0
    }

    /// A name for messages.
    pub fn name(&self) -> &str {
        // SAFETY: the maker's string lives as long as the sink.
        unsafe { self.0.name.get() }.unwrap_or("a sink whose name is not UTF-8")
    }

    /// Writes all of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let write = self.0.write.ok_or_else(|| Error::invalid_argument("the sink has no 'write'"))?;
        let raw = self.0.as_mut_ptr();
        // SAFETY: the sink's own function on itself; `bytes` is borrowed for the call.
        Error::check(|err| unsafe { write(raw, bytes.as_ptr().cast(), bytes.len(), err) })
    }
}

unsafe extern "C" fn write(
    sink: *mut abi::Sink,
    from: *const c_void,
    bytes: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: set by `Sink::new` only, whose Box lives until release; one call at a time by contract.
    let Shell { sink, poison } = unsafe { &mut *(*sink).private_data.cast::<Shell>() };
    let body = || match bytes {
        0 => Ok(()),
        _ if from.is_null() => Err(Error::invalid_argument(format!("write: {bytes} bytes at NULL"))),
        // SAFETY: the writer's range, not null.
        _ => sink.write(unsafe { std::slice::from_raw_parts(from.cast(), bytes) }),
    };
    // SAFETY: the writer's error struct.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(sink: *mut abi::Sink) {
    // SAFETY: set by `Sink::new` only; released once because `release` is cleared.
    unsafe {
        (*sink).release = None;
        let shell = Box::from_raw((*sink).private_data.cast::<Shell>());
        shell.poison.clone().leave(move || drop(shell));
    }
}
