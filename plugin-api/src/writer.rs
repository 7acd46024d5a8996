//! Writers of batches.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::capsule::{self, Capsule, Capsules};
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::Owned;

/// A writer of batches with one schema. Dropping it before `finish` discards what it wrote.
pub trait BatchWriter: Send {
    /// Writes a batch. Returns the capsules that were made of it, none if it was written to the
    /// sink.
    ///
    /// # Errors
    /// Any error, which is returned to the caller.
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>>;

    /// Ends the output, and returns the remaining capsules. Called at most once.
    ///
    /// # Errors
    /// Any error, which is returned to the caller.
    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>>;
}

struct Shell {
    writer: Box<dyn BatchWriter>,
    /// The last call, if no further call is allowed after it.
    ended_by: Option<&'static str>,
    poison: Poison,
}

/// Creates a C writer. A panic in it poisons `poison`.
pub fn export_writer(writer: Box<dyn BatchWriter>, poison: Poison) -> Owned<abi::Writer> {
    let mut raw = abi::Writer::new();
    raw.write = Some(write);
    raw.finish = Some(finish);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(Shell { writer, ended_by: None, poison })).cast();
    // SAFETY: the writer was created above with its release function, and this is its only copy.
    unsafe { Owned::new(raw) }
}

/// A C writer, for callers.
pub struct WriterHandle(Owned<abi::Writer>);

impl WriterHandle {
    /// Wraps a C writer.
    ///
    /// # Safety
    /// As [`Owned::new`].
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
    /// The error of the writer.
    pub fn write(&mut self, call: &CallSettings, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        let write = self.0.write.ok_or_else(|| missing("write"))?;
        let raw = self.0.as_mut_ptr();
        let mut batch = batch.into_raw();
        let mut out = abi::Capsules::new();
        // SAFETY: the function belongs to the writer, and `&mut self` prevents concurrent calls. It
        // takes ownership of the batch by moving it out.
        let result = Error::check(|err| unsafe { write(raw, &call.raw(), &mut batch, &mut out, err) });
        // SAFETY: if the writer did not move the batch out, this function still owns it; else it is
        // released.
        drop(unsafe { Owned::new(batch) });
        result?;
        // SAFETY: on success the callee passes the ownership of `out`, a valid list.
        unsafe { Capsules::from_raw(Owned::from_out(out)) }.map(Iterator::collect)
    }

    /// Ends the output. See [`BatchWriter::finish`].
    ///
    /// # Errors
    /// The error of the writer.
    pub fn finish(mut self, call: &CallSettings) -> Result<Vec<Capsule>> {
        let finish = self.0.finish.ok_or_else(|| missing("finish"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::Capsules::new();
        // SAFETY: the function belongs to the writer, and `&mut self` prevents concurrent calls.
        Error::check(|err| unsafe { finish(raw, &call.raw(), &mut out, err) })?;
        // SAFETY: on success the callee passes the ownership of `out`, a valid list.
        unsafe { Capsules::from_raw(Owned::from_out(out)) }.map(Iterator::collect)
    }
}

/// Rejects a call after the writer has ended. Marks the call as failed until the caller resets
/// `ended_by`.
fn begin(function: &str, ended_by: &mut Option<&'static str>) -> Result<()> {
    match ended_by.replace("a failed call") {
        None => Ok(()),
        Some(last) => {
            *ended_by = Some(last);
            Err(Error::invalid_argument(format!("{function} after {last}")))
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
    // The function takes ownership also if it fails, so this comes first.
    // SAFETY: the header requires null or a valid batch, whose ownership the caller passes.
    let batch = unsafe { Owned::take(batch) };
    // SAFETY: only `export_writer` sets this function, with a boxed `Shell` that lives until the
    // release. The header forbids concurrent calls.
    let Shell { writer, ended_by, poison } = unsafe { &mut *(*writer).private_data.cast::<Shell>() };
    let body = || {
        // SAFETY: the header requires null or settings that are valid for the call.
        let call = unsafe { Call::read(call) }?;
        begin("write", ended_by)?;
        let capsules = writer.write(&call, batch)?;
        *ended_by = None;
        // SAFETY: the header requires an empty out parameter.
        unsafe { capsule::into_list(capsules).put(out, "write") }
    };
    // SAFETY: the header requires an error struct of `struct_size` bytes, or null.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn finish(
    writer: *mut abi::Writer,
    call: *const abi::Call,
    out: *mut abi::Capsules,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: only `export_writer` sets this function, with a boxed `Shell` that lives until the
    // release. The header forbids concurrent calls.
    let Shell { writer, ended_by, poison } = unsafe { &mut *(*writer).private_data.cast::<Shell>() };
    let body = || {
        // SAFETY: the header requires null or settings that are valid for the call.
        let call = unsafe { Call::read(call) }?;
        begin("finish", ended_by)?;
        let capsules = writer.finish(&call)?;
        *ended_by = Some("finish");
        // SAFETY: the header requires an empty out parameter.
        unsafe { capsule::into_list(capsules).put(out, "finish") }
    };
    // SAFETY: the header requires an error struct of `struct_size` bytes, or null.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(writer: *mut abi::Writer) {
    // SAFETY: only `export_writer` sets this function, with a boxed `Shell`. `release` is cleared,
    // so that this runs once.
    unsafe {
        (*writer).release = None;
        let shell = Box::from_raw((*writer).private_data.cast::<Shell>());
        shell.poison.clone().run_release(move || drop(shell));
    }
}
