//! Exports a reader of the host as a `crossdock_batch_stream`.

use std::sync::atomic::{AtomicU32, Ordering};

use crossdock::{Reader, Session};
use crossdock_arrays::PendingBatch;
use crossdock_plugin_api::{Error, Owned, Result, abi as api};

use crate::arguments;
use crate::door::{self, Door};

struct ExportedReader {
    reader: Reader,
    session: Session,
    /// Whether the number of a batch's rows may be on the device (`n_rows_device`).
    device_rows: bool,
    door: Door,
}

const _: fn() = || {
    // A stream is [serial] (crossdock.h): the application may call it on any thread, one call at a
    // time.
    fn any_thread<T: Send>() {}
    any_thread::<ExportedReader>();
};

/// Exports the reader. `device_rows`: whether the number of a batch's rows may be on the device.
pub fn export(reader: Reader, session: Session, device_rows: bool, door: Door) -> Owned<api::BatchStream> {
    let exported = ExportedReader { reader, session, device_rows, door };
    let mut raw = api::BatchStream::new();
    raw.get_schema = Some(get_schema);
    raw.get_next = Some(get_next);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(exported)).cast();
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    unsafe { Owned::new(raw) }
}

impl ExportedReader {
    /// Returns the next batch. It has a counter only if the application requested counters, and if
    /// its struct has a field for the counter.
    fn next(&mut self, has_counter: bool) -> Result<Option<PendingBatch>> {
        if !self.device_rows || !has_counter {
            return Ok(self.reader.next()?.map(PendingBatch::from));
        }
        let Some(batch) = self.reader.next_pending()? else { return Ok(None) };
        if batch.counter().is_none() || batch.has_fixed_width() {
            return Ok(Some(batch));
        }
        Ok(Some(batch.settle(self.session.stream())?.into()))
    }
}

/// Checks the cancel flag of a call, if there is one.
///
/// # Safety
/// `call` is null or points to a valid `crossdock_call`.
pub unsafe fn check_cancelled(call: *const api::Call) -> Result<()> {
    // SAFETY: `call` is read only if it is not null. By the requirement of this function, it then
    // points to a valid struct. `cancel` is read only if `struct_size` covers this field.
    let cancel = unsafe {
        match call.is_null() || (*call).struct_size < std::mem::offset_of!(api::Call, progress) {
            true => return Ok(()),
            false => (&raw const (*call).cancel).read(),
        }
    };
    // SAFETY: crossdock.h requires that the flag is valid for the call and is accessed atomically.
    let is_set = || unsafe { AtomicU32::from_ptr((&raw const (*cancel).is_set).cast_mut()) };
    if !cancel.is_null() && is_set().load(Ordering::Relaxed) != 0 {
        return Err(Error::cancelled("cancelled"));
    }
    Ok(())
}

/// # Safety
/// `stream` is null or comes from `export`, no other call uses it, and `err` is null or
/// initialised.
unsafe fn with(
    stream: *mut api::BatchStream,
    err: *mut api::Error,
    body: impl FnOnce(&mut ExportedReader) -> Result<()>,
) -> api::Code {
    // SAFETY: a stream that is not null is valid, by the requirement of this function.
    let exported = unsafe { stream.as_ref() }.filter(|stream| stream.release.is_some());
    let Some(exported) = exported.map(|stream| stream.private_data.cast::<ExportedReader>()) else {
        let failed = || Err(Error::invalid_argument("the batch stream is NULL or released"));
        // SAFETY: the header requires an `err` that is NULL or initialised.
        return unsafe { door::without(err, failed) };
    };
    // SAFETY: `release` is set, so `private_data` is the box that `export` stored. Streams are
    // [serial], so this is the only reference to it.
    let exported = unsafe { &mut *exported };
    let door = exported.door.share();
    // SAFETY: `err` is null or initialised, by the requirement of this function.
    unsafe { door.enter(err, || body(exported)) }
}

unsafe extern "C" fn get_schema(
    stream: *mut api::BatchStream,
    out: *mut api::ArrowSchema,
    err: *mut api::Error,
) -> api::Code {
    let body = |exported: &mut ExportedReader| {
        arguments::check_not_null(out, "get_schema: out")?;
        let schema = crossdock_arrays::export_schema(exported.reader.schema())?;
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { schema.put(out, "get_schema") }
    };
    // SAFETY: crossdock.h requires a stream that is valid and used by one call at a time, and an
    // `err` that is NULL or initialised.
    unsafe { with(stream, err, body) }
}

unsafe extern "C" fn get_next(
    stream: *mut api::BatchStream,
    call: *const api::Call,
    out: *mut api::Batch,
    err: *mut api::Error,
) -> api::Code {
    let body = |exported: &mut ExportedReader| {
        // SAFETY: crossdock.h requires an `out` with its `struct_size`, and a call that is NULL or
        // valid.
        unsafe {
            arguments::check_out(out)?;
            check_cancelled(call)?;
        }
        // SAFETY: `check_out` accepted `out`, which begins with its `struct_size`. A size of 0
        // stands for the whole struct.
        let bytes = unsafe { (&raw const (*out).struct_size).read() };
        let has_counter = bytes == 0 || bytes >= std::mem::offset_of!(api::Batch, n_rows_device) + 8;
        let batch = match exported.next(has_counter)? {
            Some(batch) => crossdock_arrays::export_pending(&batch, exported.session.stream(), true)?,
            // SAFETY: `Batch::new` returns a released batch, which marks the end of the stream and
            // owns nothing.
            None => unsafe { Owned::new(api::Batch::new()) },
        };
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { batch.put(out, "get_next") }
    };
    // SAFETY: crossdock.h requires a stream that is valid and used by one call at a time, and an
    // `err` that is NULL or initialised.
    unsafe { with(stream, err, body) }
}

unsafe extern "C" fn release(stream: *mut api::BatchStream) {
    // SAFETY: only `export` sets this function, and stores a box in `private_data`. `release` is
    // cleared, so the box is freed only once.
    unsafe {
        (*stream).release = None;
        let exported = Box::from_raw((*stream).private_data.cast::<ExportedReader>());
        exported.door.for_new_object().leave(move || drop(exported));
    }
}
