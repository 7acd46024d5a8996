//! Streams of batches.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};

/// A stream of batches with one schema.
pub trait BatchStream: Send {
    /// The schema of all batches.
    ///
    /// # Errors
    /// Any error, which is returned to the caller.
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>>;

    /// The next batch, without a schema; `None` at the end. A batch may outlive the stream.
    ///
    /// # Errors
    /// Any error, which is returned to the caller.
    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>>;
}

struct Shell {
    stream: Box<dyn BatchStream>,
    /// Whether a call has failed. Then the position of the stream is undefined.
    failed: bool,
    poison: Poison,
}

/// Creates a C stream. A panic in it poisons `poison`.
pub fn export_stream(stream: Box<dyn BatchStream>, poison: Poison) -> Owned<abi::BatchStream> {
    let mut raw = abi::BatchStream::new();
    raw.get_schema = Some(get_schema);
    raw.get_next = Some(get_next);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(Shell { stream, failed: false, poison })).cast();
    // SAFETY: the stream was created above with its release function, and this is its only copy.
    unsafe { Owned::new(raw) }
}

/// A C stream, for callers.
pub struct BatchStreamHandle(Owned<abi::BatchStream>);

impl BatchStreamHandle {
    /// Wraps a C stream.
    ///
    /// # Safety
    /// As [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::BatchStream>) -> Self {
        Self(raw)
    }

    /// The C stream.
    pub fn into_raw(self) -> Owned<abi::BatchStream> {
        self.0
    }

    /// The schema of all batches.
    ///
    /// # Errors
    /// The error of the stream.
    pub fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        let get = self.0.get_schema.ok_or_else(|| missing("get_schema"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::ArrowSchema::default();
        // SAFETY: the function belongs to the stream, and `&mut self` prevents concurrent calls.
        Error::check(|err| unsafe { get(raw, &mut out, err) })?;
        // SAFETY: on success the callee passes the ownership of `out`.
        let schema = unsafe { Owned::new(out) };
        if schema.is_released() {
            return Err(Error::internal("a batch stream returned a released schema"));
        }
        Ok(schema)
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// The error of the stream.
    pub fn next(&mut self, call: &CallSettings) -> Result<Option<Owned<abi::Batch>>> {
        let next = self.0.get_next.ok_or_else(|| missing("get_next"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::Batch::new();
        // SAFETY: the function belongs to the stream, and `&mut self` prevents concurrent calls.
        Error::check(|err| unsafe { next(raw, &call.raw(), &mut out, err) })?;
        // SAFETY: on success the callee passes the ownership of `out`.
        let batch = unsafe { Owned::from_out(out) };
        Ok((!batch.array.is_released()).then_some(batch))
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the batch stream has no function '{function}'"))
}

unsafe extern "C" fn get_schema(
    stream: *mut abi::BatchStream,
    out: *mut abi::ArrowSchema,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: only `export_stream` sets this function, with a boxed `Shell` that lives until the
    // release. The header forbids concurrent calls.
    let Shell { stream, poison, .. } = unsafe { &mut *(*stream).private_data.cast::<Shell>() };
    // SAFETY: the header requires an empty out parameter, and an error struct of `struct_size`
    // bytes or null.
    unsafe {
        poison.enter(err, || {
            let schema = stream.schema()?;
            schema.put(out, "get_schema")
        })
    }
}

unsafe extern "C" fn get_next(
    stream: *mut abi::BatchStream,
    call: *const abi::Call,
    out: *mut abi::Batch,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: only `export_stream` sets this function, with a boxed `Shell` that lives until the
    // release. The header forbids concurrent calls.
    let Shell { stream, failed, poison } = unsafe { &mut *(*stream).private_data.cast::<Shell>() };
    let body = || {
        if std::mem::replace(failed, true) {
            return Err(Error::invalid_argument("get_next after a failed call"));
        }
        // SAFETY: the header requires null or settings that are valid for the call.
        let call = unsafe { Call::read(call) }?;
        let next = match stream.next(&call)? {
            Some(batch) => batch,
            // SAFETY: a released batch, which marks the end, owns nothing.
            None => unsafe { Owned::new(abi::Batch::new()) },
        };
        *failed = false;
        // SAFETY: the header requires an empty out parameter.
        unsafe { next.put(out, "get_next") }
    };
    // SAFETY: the header requires an error struct of `struct_size` bytes, or null.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(stream: *mut abi::BatchStream) {
    // SAFETY: only `export_stream` sets this function, with a boxed `Shell`. `release` is cleared,
    // so that this runs once.
    unsafe {
        (*stream).release = None;
        let shell = Box::from_raw((*stream).private_data.cast::<Shell>());
        shell.poison.clone().run_release(move || drop(shell));
    }
}
