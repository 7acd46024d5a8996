//! Exports a writer of the host as a `crossdock_writer`.

use std::sync::Arc;

use crossdock::{Session, Writer};
use crossdock_arrays::{Level, batch_schema, import_pending, validate};
use crossdock_plugin_api::{Capsule, Error, Owned, Result, Validate, abi as api};

use crate::arguments;
use crate::door::{self, Door};
use crate::stream::check_cancelled;

struct ExportedWriter {
    /// The host's writer. `None` after `finish` or after a failed write.
    writer: Option<Writer>,
    /// The reason why `writer` is `None`.
    end_reason: &'static str,
    returns_capsules: bool,
    schema: arrow_schema::SchemaRef,
    session: Session,
    validate: Validate,
    door: Door,
}

const _: fn() = || {
    // A writer is [serial] (crossdock.h): the application may call it on any thread, one call at a
    // time.
    fn any_thread<T: Send>() {}
    any_thread::<ExportedWriter>();
};

/// Exports the writer.
pub fn export(
    writer: Writer,
    returns_capsules: bool,
    schema: arrow_schema::SchemaRef,
    (session, validate): (Session, Validate),
    door: Door,
) -> Owned<api::Writer> {
    let writer = Some(writer);
    let exported =
        ExportedWriter { writer, end_reason: "", returns_capsules, schema, session, validate, door };
    let mut raw = api::Writer::new();
    raw.write = Some(write);
    raw.finish = Some(finish);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(exported)).cast();
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    unsafe { Owned::new(raw) }
}

impl ExportedWriter {
    /// Moves the writer out. If the calling function fails, it drops the writer.
    fn take(&mut self) -> Result<Writer> {
        self.writer.take().ok_or_else(|| Error::invalid_argument(self.end_reason))
    }

    fn write(&mut self, batch: Owned<api::Batch>) -> Result<Vec<Capsule>> {
        let mut writer = self.take()?;
        if batch.array.array.release.is_none() {
            return Err(Error::invalid_argument("the batch is NULL or released"));
        }
        let schema = match batch_schema(&batch)? {
            Some(schema) => Arc::new(schema),
            None => self.schema.clone(),
        };
        let batch = import_pending(batch, &schema, self.session.memory())?;
        if self.validate == Validate::Full {
            let stream = self.session.stream();
            validate(&batch.settle(stream)?, Level::Full, stream)?;
        }
        let capsules = writer.write_pending(&batch)?;
        self.writer = Some(writer);
        Ok(capsules)
    }

    fn finish(&mut self) -> Result<Vec<Capsule>> {
        let writer = self.take()?;
        self.end_reason = "finish was called before";
        Ok(writer.finish()?.capsules)
    }

    /// Drops the writer after a failed write, because the output lacks a batch.
    fn abandon(&mut self) {
        if self.writer.take().is_some() || self.end_reason.is_empty() {
            self.end_reason = "an earlier write failed, and the output was abandoned";
        }
    }

    /// # Safety
    /// `call` is null or valid, and `out` is null or has its `struct_size`.
    unsafe fn check(&self, call: *const api::Call, out: *mut api::Capsules, what: &str) -> Result<()> {
        if out.is_null() && self.returns_capsules {
            return Err(Error::invalid_argument(format!(
                "{what}: out is NULL, but the format returns capsules"
            )));
        }
        // SAFETY: the caller guarantees that `call` is null or valid, and that `out` is null or has
        // its `struct_size`. `check_cancelled` and `check_out` require the same.
        unsafe {
            if !out.is_null() {
                arguments::check_out(out)?;
            }
            check_cancelled(call)
        }
    }

    /// Returns capsules to the application. If the output is bytes, `out` may be null.
    ///
    /// # Safety
    /// `out` is null or writable, and has its `struct_size`.
    unsafe fn put(&self, capsules: Vec<Capsule>, out: *mut api::Capsules) -> Result<()> {
        if out.is_null() && !self.returns_capsules {
            return Ok(());
        }
        // SAFETY: `check` rejects a null `out` for capsules, and `out` is writable by the
        // requirement of this function.
        unsafe { list(capsules).put(out, "capsules") }
    }
}

/// # Safety
/// `writer` is null or comes from `export`, no other call uses it, and `err` is null or
/// initialised.
unsafe fn with(
    writer: *mut api::Writer,
    err: *mut api::Error,
    body: impl FnOnce(&mut ExportedWriter) -> Result<()>,
) -> api::Code {
    // SAFETY: a writer that is not null is valid, by the requirement of this function.
    let exported = unsafe { writer.as_ref() }.filter(|writer| writer.release.is_some());
    let Some(exported) = exported.map(|writer| writer.private_data.cast::<ExportedWriter>()) else {
        let failed = || Err(Error::invalid_argument("the writer is NULL or released"));
        // SAFETY: the header requires an `err` that is NULL or initialised.
        return unsafe { door::without(err, failed) };
    };
    // SAFETY: `release` is set, so `private_data` is the box that `export` stored. Writers are
    // [serial], so this is the only reference to it.
    let exported = unsafe { &mut *exported };
    let door = exported.door.share();
    // SAFETY: `err` is null or initialised, by the requirement of this function.
    unsafe { door.enter(err, || body(exported)) }
}

unsafe extern "C" fn write(
    writer: *mut api::Writer,
    call: *const api::Call,
    batch: *mut api::Batch,
    out: *mut api::Capsules,
    err: *mut api::Error,
) -> api::Code {
    // Takes ownership before all checks, because ownership passes even if a check fails.
    // SAFETY: crossdock.h requires a batch that is NULL or valid, and passes its ownership.
    let batch = unsafe { Owned::take(batch) };
    let body = |exported: &mut ExportedWriter| {
        // SAFETY: crossdock.h requires a call that is NULL or valid, and an `out` that is NULL or
        // has its `struct_size`.
        let result = unsafe {
            let capsules = exported.check(call, out, "write").and_then(|()| exported.write(batch));
            capsules.and_then(|capsules| exported.put(capsules, out))
        };
        if result.is_err() {
            exported.abandon();
        }
        result
    };
    // SAFETY: crossdock.h requires a writer that is valid and used by one call at a time, and an
    // `err` that is NULL or initialised.
    unsafe { with(writer, err, body) }
}

unsafe extern "C" fn finish(
    writer: *mut api::Writer,
    call: *const api::Call,
    out: *mut api::Capsules,
    err: *mut api::Error,
) -> api::Code {
    let body = |exported: &mut ExportedWriter| {
        // SAFETY: crossdock.h requires a call that is NULL or valid, and an `out` that is NULL or
        // has its `struct_size`.
        unsafe {
            exported.check(call, out, "finish")?;
            let capsules = exported.finish()?;
            exported.put(capsules, out)
        }
    };
    // SAFETY: crossdock.h requires a writer that is valid and used by one call at a time, and an
    // `err` that is NULL or initialised.
    unsafe { with(writer, err, body) }
}

unsafe extern "C" fn release(writer: *mut api::Writer) {
    // SAFETY: only `export` sets this function, and stores a box in `private_data`. `release` is
    // cleared, so the box is freed only once.
    unsafe {
        (*writer).release = None;
        let exported = Box::from_raw((*writer).private_data.cast::<ExportedWriter>());
        exported.door.for_new_object().leave(move || drop(exported));
    }
}

/// Returns the capsules as one object. If there are no capsules, `release` of the object is NULL.
fn list(capsules: Vec<Capsule>) -> Owned<api::Capsules> {
    let mut raw = api::Capsules::new();
    if !capsules.is_empty() {
        let structs: Vec<_> = capsules.into_iter().map(|capsule| capsule.into_raw().into_raw()).collect();
        let structs = Box::leak(structs.into_boxed_slice());
        (raw.capsules, raw.n_capsules) = (structs.as_mut_ptr(), structs.len());
        raw.release = Some(release_list);
    }
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_list(list: *mut api::Capsules) {
    // SAFETY: only `list` sets this function, and stores a box in `private_data`. `release` is
    // cleared, so the box is freed only once. The application cleared `release` of the capsules
    // that it moved out, so `Owned` releases only the remaining capsules.
    unsafe {
        (*list).release = None;
        let structs = std::ptr::slice_from_raw_parts_mut((*list).capsules, (*list).n_capsules);
        let structs = Box::from_raw(structs);
        let release = move || structs.into_iter().for_each(|capsule| drop(Owned::new(capsule)));
        Door::default().leave(release);
    }
}
