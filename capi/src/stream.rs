//! What reading gives: a `crossdock_batch_stream` over the host's reader.

use std::sync::atomic::{AtomicU32, Ordering};

use crossdock::{Reader, Session};
use crossdock_plugin_api::{Error, Owned, Result, abi as api};

use crate::door::{self, Door};
use crate::{arguments, error};

struct Shell {
    reader: Reader,
    session: Session,
    door: Door,
}

const _: fn() = || {
    // The application may use it on any thread, one call at a time.
    fn any_thread<T: Send>() {}
    any_thread::<Shell>();
};

/// Lends the reader out.
pub fn export(reader: Reader, session: Session, door: Door) -> Owned<api::BatchStream> {
    let mut raw = api::BatchStream::new();
    raw.get_schema = Some(get_schema);
    raw.get_next = Some(get_next);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(Shell { reader, session, door })).cast();
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

/// What a call's cancel flag says; a null call says nothing.
///
/// # Safety
/// `call` is null or a valid `crossdock_call`.
pub unsafe fn check_cancelled(call: *const api::Call) -> Result<()> {
    // SAFETY: the caller's word, as far as its size tells: `cancel` lies behind `stream`.
    let cancel = unsafe {
        match call.is_null() || (*call).struct_size < std::mem::offset_of!(api::Call, progress) {
            true => return Ok(()),
            false => (&raw const (*call).cancel).read(),
        }
    };
    // SAFETY: the flag lives for the call, and everybody accesses it atomically.
    if !cancel.is_null() && unsafe { AtomicU32::from_ptr(cancel.cast_mut()) }.load(Ordering::Relaxed) != 0 {
        return Err(Error::cancelled("cancelled"));
    }
    Ok(())
}

/// # Safety
/// `stream` is null or one that `export` made, used by one call at a time.
unsafe fn with(
    stream: *mut api::BatchStream,
    err: *mut api::Error,
    body: impl FnOnce(&mut Reader, &Session) -> Result<()>,
) -> api::Code {
    // SAFETY: the caller's word; null becomes None.
    let shell = unsafe { stream.as_ref() }.filter(|stream| stream.release.is_some());
    let Some(shell) = shell.map(|stream| stream.private_data.cast::<Shell>()) else {
        let failed = || Err(Error::invalid_argument("the batch stream is NULL or released"));
        // SAFETY: the caller's error struct.
        return unsafe { door::without(err, failed) };
    };
    // SAFETY: set by `export` only, whose Box lives until release.
    let Shell { reader, session, door } = unsafe { &mut *shell };
    // SAFETY: the caller's error struct.
    unsafe { door.enter(err, || body(reader, session)) }
}

unsafe extern "C" fn get_schema(
    stream: *mut api::BatchStream,
    out: *mut api::ArrowSchema,
    err: *mut api::Error,
) -> api::Code {
    let body = |reader: &mut Reader, _: &Session| {
        arguments::given(out, "get_schema: out")?;
        let schema = crossdock_arrays::export_schema(reader.schema())?;
        // SAFETY: the caller's out parameter.
        unsafe { schema.put(out, "get_schema") }
    };
    // SAFETY: the caller's stream and error struct.
    unsafe { with(stream, err, body) }
}

unsafe extern "C" fn get_next(
    stream: *mut api::BatchStream,
    call: *const api::Call,
    out: *mut api::Batch,
    err: *mut api::Error,
) -> api::Code {
    let body = |reader: &mut Reader, session: &Session| {
        // SAFETY: the caller's out parameter and call.
        unsafe {
            arguments::place(out)?;
            check_cancelled(call)?;
        }
        let batch = match reader.next().map_err(error::of_host)? {
            Some(batch) => crossdock_arrays::lend_batch(&batch, false, session.stream())?,
            // SAFETY: a released batch, which is the end.
            None => unsafe { Owned::new(api::Batch::new()) },
        };
        // SAFETY: the caller's out parameter.
        unsafe { batch.put(out, "get_next") }
    };
    // SAFETY: the caller's stream and error struct.
    unsafe { with(stream, err, body) }
}

unsafe extern "C" fn release(stream: *mut api::BatchStream) {
    // SAFETY: set by `export` only; released once because `release` is cleared.
    unsafe {
        (*stream).release = None;
        let shell = Box::from_raw((*stream).private_data.cast::<Shell>());
        shell.door.another().leave(move || drop(shell));
    }
}
