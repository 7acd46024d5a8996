//! Streams of batches: the author's trait and the caller's handle.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};

/// Batches with one schema, as their maker provides them.
pub trait BatchStream: Send {
    /// The schema of every batch.
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>>;

    /// The next batch, without a schema of its own; `None` at the end. A batch outlives the stream.
    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>>;
}

struct Shell {
    stream: Box<dyn BatchStream>,
    /// A call of it has failed: where it stands nobody knows.
    failed: bool,
    poison: Poison,
}

/// Offers a stream across the boundary; a panic in it poisons its instance.
pub fn export_stream(stream: Box<dyn BatchStream>, poison: Poison) -> Owned<abi::BatchStream> {
    let mut raw = abi::BatchStream::new();
    raw.get_schema = Some(get_schema);
    raw.get_next = Some(get_next);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(Shell { stream, failed: false, poison })).cast();
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

/// A stream that crossed the boundary.
pub struct BatchStreamHandle(Owned<abi::BatchStream>);

impl BatchStreamHandle {
    /// # Safety
    /// As [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::BatchStream>) -> Self {
        Self(raw)
    }

    /// The bare object, to hand on.
    pub fn into_raw(self) -> Owned<abi::BatchStream> {
        self.0
    }

    /// The schema of every batch.
    pub fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        let get = self.0.get_schema.ok_or_else(|| missing("get_schema"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::ArrowSchema::default();
        // SAFETY: the stream's own function on itself.
        Error::check(|err| unsafe { get(raw, &mut out, err) })?;
        // SAFETY: on success the schema is ours.
        let schema = unsafe { Owned::new(out) };
        if schema.is_released() {
            return Err(Error::internal("a batch stream gave a released schema"));
        }
        Ok(schema)
    }

    /// The next batch, `None` at the end.
    pub fn next(&mut self, call: &CallSettings) -> Result<Option<Owned<abi::Batch>>> {
        let next = self.0.get_next.ok_or_else(|| missing("get_next"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::Batch::new();
        // SAFETY: the stream's own function on itself.
        Error::check(|err| unsafe { next(raw, &call.raw(), &mut out, err) })?;
        // SAFETY: on success the batch is ours.
        let batch = unsafe { Owned::given(out) };
        Ok((!batch.array.is_released()).then_some(batch))
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("a batch stream without '{function}' crossed the boundary"))
}

unsafe extern "C" fn get_schema(
    stream: *mut abi::BatchStream,
    out: *mut abi::ArrowSchema,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: set by `export_stream` only, whose Box lives until release; one call at a time by contract.
    let Shell { stream, poison, .. } = unsafe { &mut *(*stream).private_data.cast::<Shell>() };
    // SAFETY: the caller's out parameter and error struct.
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
    // SAFETY: as in `get_schema`.
    let Shell { stream, failed, poison } = unsafe { &mut *(*stream).private_data.cast::<Shell>() };
    let body = || {
        if std::mem::replace(failed, true) {
            return Err(Error::invalid_argument("get_next after a call that failed"));
        }
        // SAFETY: the caller's call, alive meanwhile.
        let call = unsafe { Call::read(call) }?;
        let next = match stream.next(&call)? {
            Some(batch) => batch,
            // SAFETY: nothing is behind it: a released batch is the end.
            None => unsafe { Owned::new(abi::Batch::new()) },
        };
        *failed = false;
        // SAFETY: the caller's out parameter.
        unsafe { next.put(out, "get_next") }
    };
    // SAFETY: the caller's error struct.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(stream: *mut abi::BatchStream) {
    // SAFETY: set by `export_stream` only; released once because `release` is cleared.
    unsafe {
        (*stream).release = None;
        let shell = Box::from_raw((*stream).private_data.cast::<Shell>());
        shell.poison.clone().leave(move || drop(shell));
    }
}
