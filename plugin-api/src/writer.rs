//! Writers of batches.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::capsule::{self, Capsule, Capsules};
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::Owned;

/// A writer of batches that have the same schema. If it is dropped before `finish`, the output is
/// discarded.
pub trait BatchWriter: Send {
    /// Writes a batch. Returns the capsules that the batch was converted to. If the batch was
    /// written to the sink, the list is empty.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>>;

    /// Completes the output, and returns the remaining capsules. It is called at most once.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>>;
}

struct Shell {
    writer: Box<dyn BatchWriter>,
    /// The reason why calls are rejected: "a failed call" or "finish". `None` if calls are allowed.
    ended_by: Option<&'static str>,
    poison: Poison,
}

/// Converts to a C writer. If the writer panics, this is recorded in `poison`.
pub fn export_writer(writer: Box<dyn BatchWriter>, poison: Poison) -> Owned<abi::Writer> {
    let mut raw = abi::Writer::new();
    raw.write = Some(write);
    raw.finish = Some(finish);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(Shell { writer, ended_by: None, poison })).cast();
    // SAFETY: this function created the writer with its release function, and there is no other
    // copy of it.
    unsafe { Owned::new(raw) }
}

/// A C writer, for a caller such as the host.
pub struct WriterHandle(Owned<abi::Writer>);

impl WriterHandle {
    /// Wraps a C writer.
    ///
    /// # Safety
    /// The requirements of [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::Writer>) -> Self {
        Self(raw)
    }

    /// The address of the C writer, for direct calls of its functions.
    pub fn as_mut_ptr(&mut self) -> *mut abi::Writer {
        self.0.as_mut_ptr()
    }

    /// Writes a batch. See [`BatchWriter::write`].
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn write(&mut self, call: &CallSettings, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        let write = self.0.write.ok_or_else(|| missing("write"))?;
        let raw = self.0.as_mut_ptr();
        let mut batch = batch.into_raw();
        let mut out = abi::Capsules::new();
        // SAFETY: the function belongs to the writer, and `&mut self` prevents concurrent calls.
        // The function takes ownership of the batch by moving it out.
        let result = Error::check(|err| unsafe { write(raw, &call.raw(), &mut batch, &mut out, err) });
        // SAFETY: if the writer moved the batch out, `batch` is a released struct. Otherwise, this
        // function still owns it.
        drop(unsafe { Owned::new(batch) });
        result?;
        // SAFETY: on success, the callee passes the ownership of `out`, which is a valid list.
        unsafe { Capsules::from_raw(Owned::from_out(out)) }.map(Iterator::collect)
    }

    /// Completes the output. See [`BatchWriter::finish`].
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn finish(mut self, call: &CallSettings) -> Result<Vec<Capsule>> {
        let finish = self.0.finish.ok_or_else(|| missing("finish"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::Capsules::new();
        // SAFETY: the function belongs to the writer, and `&mut self` prevents concurrent calls.
        Error::check(|err| unsafe { finish(raw, &call.raw(), &mut out, err) })?;
        // SAFETY: on success, the callee passes the ownership of `out`, which is a valid list.
        unsafe { Capsules::from_raw(Owned::from_out(out)) }.map(Iterator::collect)
    }
}

/// Returns an error if no further call is allowed. Otherwise, sets `ended_by` as for a failed call.
/// The caller of this function resets `ended_by` if the call succeeds.
fn begin(function: &str, ended_by: &mut Option<&'static str>) -> Result<()> {
    match ended_by.replace("a failed call") {
        None => Ok(()),
        Some(last) => {
            *ended_by = Some(last);
            Err(Error::invalid_argument(format!("{function} was called after {last}")))
        }
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the writer has no function '{function}'"))
}

unsafe extern "C" fn write(
    writer: *mut abi::Writer,
    call: *const abi::Call,
    batch: *mut abi::Batch,
    out: *mut abi::Capsules,
    err: *mut abi::Error,
) -> abi::Code {
    // Takes the ownership first, because the function must take it even if it returns an error.
    // SAFETY: the header requires that `batch` is null or a valid batch, whose ownership the caller
    // passes.
    let batch = unsafe { Owned::take(batch) };
    // SAFETY: only `export_writer` sets this function, with a boxed `Shell` that lives until the
    // writer is released. The header forbids concurrent calls.
    let Shell { writer, ended_by, poison } = unsafe { &mut *(*writer).private_data.cast::<Shell>() };
    let body = || {
        // SAFETY: the header requires that `call` is null or points to settings that are valid for
        // the call.
        let call = unsafe { Call::read(call) }?;
        begin("write", ended_by)?;
        let capsules = writer.write(&call, batch)?;
        *ended_by = None;
        // SAFETY: the header requires that the out parameter is empty.
        unsafe { capsule::into_list(capsules).put(out, "write") }
    };
    // SAFETY: the header requires that `err` is null or points to `struct_size` bytes.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn finish(
    writer: *mut abi::Writer,
    call: *const abi::Call,
    out: *mut abi::Capsules,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: only `export_writer` sets this function, with a boxed `Shell` that lives until the
    // writer is released. The header forbids concurrent calls.
    let Shell { writer, ended_by, poison } = unsafe { &mut *(*writer).private_data.cast::<Shell>() };
    let body = || {
        // SAFETY: the header requires that `call` is null or points to settings that are valid for
        // the call.
        let call = unsafe { Call::read(call) }?;
        begin("finish", ended_by)?;
        let capsules = writer.finish(&call)?;
        *ended_by = Some("finish");
        // SAFETY: the header requires that the out parameter is empty.
        unsafe { capsule::into_list(capsules).put(out, "finish") }
    };
    // SAFETY: the header requires that `err` is null or points to `struct_size` bytes.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(writer: *mut abi::Writer) {
    // SAFETY: only `export_writer` sets this function, with a boxed `Shell`. Clearing `release`
    // ensures that this runs only once.
    unsafe {
        (*writer).release = None;
        let shell = Box::from_raw((*writer).private_data.cast::<Shell>());
        shell.poison.clone().run_release(move || drop(shell));
    }
}
