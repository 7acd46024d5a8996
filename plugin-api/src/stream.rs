//! Streams of batches.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::owned::{Owned, Release};
use crate::read_request::Honoured;

/// A stream of batches that have the same schema.
pub trait BatchStream: Send {
    /// The schema of all batches.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>>;

    /// Returns the next batch without a schema, or `None` at the end. A batch may outlive the
    /// stream.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>>;

    /// The parts of the request that the stream honours. Must not change.
    fn honoured(&self) -> Honoured {
        Honoured::default()
    }

    /// Options for writing the format, with which a writer stores data as the input does. Must not
    /// change.
    fn write_options(&self) -> Options {
        Options::new()
    }
}

/// The greatest number of options of a stream.
const MAX_OPTIONS: usize = 1 << 10;

struct Shell {
    stream: Box<dyn BatchStream>,
    /// The options that the C struct points to.
    _write_options: (Options, Vec<abi::OptionPair>),
    /// Whether a call has failed. After a failed call, the position of the stream is undefined.
    failed: bool,
    poison: Poison,
}

/// Converts to a C stream. If the stream panics, this is recorded in `poison`.
pub fn export_stream(stream: Box<dyn BatchStream>, poison: Poison) -> Owned<abi::BatchStream> {
    let mut raw = abi::BatchStream::new();
    raw.get_schema = Some(get_schema);
    raw.get_next = Some(get_next);
    raw.release = Some(release);
    stream.honoured().write(&mut raw);
    let options = stream.write_options();
    // The pairs refer to heap blocks, which stay in place when their owner is moved.
    let pairs = options.pairs();
    (raw.write_options, raw.n_write_options) = (pairs.as_ptr(), pairs.len());
    let shell = Shell { stream, _write_options: (options, pairs), failed: false, poison };
    raw.private_data = Box::into_raw(Box::new(shell)).cast();
    // SAFETY: this function created the stream with its release function, and there is no other
    // copy of it.
    unsafe { Owned::new(raw) }
}

/// A C stream, for a caller such as the host.
pub struct BatchStreamHandle(Owned<abi::BatchStream>);

impl BatchStreamHandle {
    /// Wraps a C stream.
    ///
    /// # Safety
    /// The requirements of [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::BatchStream>) -> Self {
        Self(raw)
    }

    /// Converts to a C stream.
    pub fn into_raw(self) -> Owned<abi::BatchStream> {
        self.0
    }

    /// The parts of the request that the stream honours.
    pub fn honoured(&self) -> Honoured {
        Honoured::read(&self.0)
    }

    /// Options for writing the format, with which a writer stores data as the input does.
    ///
    /// # Errors
    /// Returns an error if the list is invalid.
    pub fn write_options(&self) -> Result<Options> {
        let n = self.0.n_write_options;
        if n > MAX_OPTIONS {
            return Err(Error::internal(format!(
                "a batch stream has {n} options, expected at most {MAX_OPTIONS}"
            )));
        }
        // SAFETY: the header requires a list that is valid until the stream is released.
        unsafe { Options::read(self.0.write_options, n) }
    }

    /// The schema of all batches.
    ///
    /// # Errors
    /// Returns the error of the stream.
    pub fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        let get = self.0.get_schema.ok_or_else(|| missing("get_schema"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::ArrowSchema::default();
        // SAFETY: the function belongs to the stream, and `&mut self` prevents concurrent calls.
        Error::check(|err| unsafe { get(raw, &mut out, err) })?;
        // SAFETY: on success, the callee passes the ownership of `out`.
        let schema = unsafe { Owned::new(out) };
        if schema.is_released() {
            return Err(Error::internal("a batch stream returned a released schema"));
        }
        Ok(schema)
    }

    /// Returns the next batch, or `None` at the end.
    ///
    /// # Errors
    /// Returns the error of the stream.
    pub fn next(&mut self, call: &CallSettings) -> Result<Option<Owned<abi::Batch>>> {
        let next = self.0.get_next.ok_or_else(|| missing("get_next"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::Batch::new();
        // SAFETY: the function belongs to the stream, and `&mut self` prevents concurrent calls.
        Error::check(|err| unsafe { next(raw, &call.raw(), &mut out, err) })?;
        // SAFETY: on success, the callee passes the ownership of `out`.
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
    // stream is released. The header forbids concurrent calls.
    let Shell { stream, poison, .. } = unsafe { &mut *(*stream).private_data.cast::<Shell>() };
    // SAFETY: the header requires that the out parameter is empty, and that `err` is null or points
    // to `struct_size` bytes.
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
    // stream is released. The header forbids concurrent calls.
    let Shell { stream, failed, poison, .. } = unsafe { &mut *(*stream).private_data.cast::<Shell>() };
    let body = || {
        if std::mem::replace(failed, true) {
            return Err(Error::invalid_argument("get_next was called after a failed call"));
        }
        // SAFETY: the header requires that `call` is null or points to settings that are valid for
        // the call.
        let call = unsafe { Call::read(call) }?;
        let next = match stream.next(&call)? {
            Some(batch) => batch,
            // SAFETY: a released batch means the end of the stream and owns nothing.
            None => unsafe { Owned::new(abi::Batch::new()) },
        };
        *failed = false;
        // SAFETY: the header requires that the out parameter is empty.
        unsafe { next.put(out, "get_next") }
    };
    // SAFETY: the header requires that `err` is null or points to `struct_size` bytes.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(stream: *mut abi::BatchStream) {
    // SAFETY: only `export_stream` sets this function, with a boxed `Shell`. Clearing `release`
    // ensures that this runs only once.
    unsafe {
        (*stream).release = None;
        let shell = Box::from_raw((*stream).private_data.cast::<Shell>());
        shell.poison.clone().run_release(move || drop(shell));
    }
}
