//! What writing gives: a `crossdock_writer` over the host's.

use std::sync::Arc;

use crossdock::{Session, Writer};
use crossdock_arrays::{Level, batch_schema, import_batch, validate};
use crossdock_plugin_api::{Capsule, Error, Owned, Result, Validate, abi as api};

use crate::door::{self, Door};
use crate::stream::check_cancelled;
use crate::{arguments, error};

struct Shell {
    /// `None` from the end, or a failure, on.
    writer: Option<Writer>,
    /// Why there is none.
    ended: &'static str,
    gives_capsules: bool,
    schema: arrow_schema::SchemaRef,
    session: Session,
    validate: Validate,
    door: Door,
}

const _: fn() = || {
    // The application may use it on any thread, one call at a time.
    fn any_thread<T: Send>() {}
    any_thread::<Shell>();
};

/// Lends the writer out.
pub fn export(
    writer: Writer,
    gives_capsules: bool,
    schema: arrow_schema::SchemaRef,
    (session, validate): (Session, Validate),
    door: Door,
) -> Owned<api::Writer> {
    let shell = Shell { writer: Some(writer), ended: "", gives_capsules, schema, session, validate, door };
    let mut raw = api::Writer::new();
    raw.write = Some(write);
    raw.finish = Some(finish);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(shell)).cast();
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

impl Shell {
    /// The writer, which is gone if what follows fails.
    fn take(&mut self) -> Result<Writer> {
        self.writer.take().ok_or_else(|| Error::invalid_argument(self.ended))
    }

    fn write(&mut self, batch: Owned<api::Batch>) -> Result<Vec<Capsule>> {
        let mut writer = self.take()?;
        if batch.array.array.release.is_none() {
            return Err(Error::invalid_argument("the batch is NULL or released"));
        }
        let schema = match batch_schema(&batch)? {
            Some(own) => Arc::new(own),
            None => self.schema.clone(),
        };
        let batch = import_batch(batch, &schema, self.session.memory())?;
        if self.validate == Validate::Full {
            validate(&batch, Level::Full, self.session.stream())?;
        }
        let capsules = writer.write(batch).map_err(error::of_host)?;
        self.writer = Some(writer);
        Ok(capsules)
    }

    fn finish(&mut self) -> Result<Vec<Capsule>> {
        let writer = self.take()?;
        self.ended = "finish was called before";
        Ok(writer.finish().map_err(error::of_host)?.capsules)
    }

    /// A batch is missing from now on: what was written is worth nothing.
    fn abandon(&mut self) {
        if self.writer.take().is_some() || self.ended.is_empty() {
            self.ended = "an earlier write failed, and with it everything that was written";
        }
    }

    /// # Safety
    /// `call` and `out` are null or the application's.
    unsafe fn check(&self, call: *const api::Call, out: *mut api::Capsules, what: &str) -> Result<()> {
        if out.is_null() && self.gives_capsules {
            return Err(Error::invalid_argument(format!(
                "{what}: out is NULL, and the format gives capsules"
            )));
        }
        // SAFETY: the caller's word.
        unsafe {
            if !out.is_null() {
                arguments::place(out)?;
            }
            check_cancelled(call)
        }
    }

    /// Gives capsules to the application. Without a place for them it has asked for bytes.
    ///
    /// # Safety
    /// `out` is null or the application's out parameter.
    unsafe fn put(&self, capsules: Vec<Capsule>, out: *mut api::Capsules) -> Result<()> {
        if out.is_null() && !self.gives_capsules {
            return Ok(());
        }
        // SAFETY: the caller's word.
        unsafe { list(capsules).put(out, "capsules") }
    }
}

/// # Safety
/// `writer` is null or one that `export` made, used by one call at a time.
unsafe fn with(
    writer: *mut api::Writer,
    err: *mut api::Error,
    body: impl FnOnce(&mut Shell) -> Result<()>,
) -> api::Code {
    // SAFETY: the caller's word; null becomes None.
    let shell = unsafe { writer.as_ref() }.filter(|writer| writer.release.is_some());
    let Some(shell) = shell.map(|writer| writer.private_data.cast::<Shell>()) else {
        let failed = || Err(Error::invalid_argument("the writer is NULL or released"));
        // SAFETY: the caller's error struct.
        return unsafe { door::without(err, failed) };
    };
    // SAFETY: set by `export` only, whose Box lives until release.
    let shell = unsafe { &mut *shell };
    let door = shell.door.share();
    // SAFETY: the caller's error struct.
    unsafe { door.enter(err, || body(shell)) }
}

unsafe extern "C" fn write(
    writer: *mut api::Writer,
    call: *const api::Call,
    batch: *mut api::Batch,
    out: *mut api::Capsules,
    err: *mut api::Error,
) -> api::Code {
    // Before anything can fail, for the caller does not release it any more.
    // SAFETY: the caller hands the batch over.
    let batch = unsafe { Owned::take(batch) };
    let body = |shell: &mut Shell| {
        // SAFETY: the caller's call and out parameter.
        let result = unsafe {
            shell.check(call, out, "write").and_then(|()| shell.write(batch)).and_then(|c| shell.put(c, out))
        };
        if result.is_err() {
            shell.abandon();
        }
        result
    };
    // SAFETY: the caller's writer and error struct.
    unsafe { with(writer, err, body) }
}

unsafe extern "C" fn finish(
    writer: *mut api::Writer,
    call: *const api::Call,
    out: *mut api::Capsules,
    err: *mut api::Error,
) -> api::Code {
    let body = |shell: &mut Shell| {
        // SAFETY: the caller's call and out parameter.
        unsafe {
            shell.check(call, out, "finish")?;
            let capsules = shell.finish()?;
            shell.put(capsules, out)
        }
    };
    // SAFETY: the caller's writer and error struct.
    unsafe { with(writer, err, body) }
}

unsafe extern "C" fn release(writer: *mut api::Writer) {
    // SAFETY: set by `export` only; released once because `release` is cleared.
    unsafe {
        (*writer).release = None;
        let shell = Box::from_raw((*writer).private_data.cast::<Shell>());
        shell.door.another().leave(move || drop(shell));
    }
}

/// The capsules as one object, to hand across; none gives a released one.
fn list(capsules: Vec<Capsule>) -> Owned<api::Capsules> {
    let mut raw = api::Capsules::new();
    if !capsules.is_empty() {
        let raws: Vec<_> = capsules.into_iter().map(|capsule| capsule.into_raw().into_raw()).collect();
        let raws = Box::leak(raws.into_boxed_slice());
        (raw.capsules, raw.n_capsules) = (raws.as_mut_ptr(), raws.len());
        raw.release = Some(release_list);
    }
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_list(list: *mut api::Capsules) {
    // SAFETY: set by `list` only; released once because `release` is cleared. Capsules that were taken out are released
    // structs by now, the others are ours.
    unsafe {
        (*list).release = None;
        let raws = std::ptr::slice_from_raw_parts_mut((*list).capsules, (*list).n_capsules);
        let raws = Box::from_raw(raws);
        let release = move || raws.into_iter().for_each(|capsule| drop(Owned::new(capsule)));
        Door::default().leave(release);
    }
}
