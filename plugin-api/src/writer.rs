//! Writers of batches: the author's trait and the caller's handle.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::capsule::{self, Capsule, Capsules};
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::Owned;

/// Takes batches of one schema, as its maker provides it. Dropped before `finish`, it abandons what it wrote.
pub trait BatchWriter: Send {
    /// Takes a batch; the capsules that it became, none where it went into the sink.
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>>;

    /// The end, once: what only now can be given.
    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>>;
}

struct Shell {
    writer: Box<dyn BatchWriter>,
    /// After what there is nothing more to ask of it.
    over: Option<&'static str>,
    poison: Poison,
}

/// Offers a writer across the boundary; a panic in it poisons its instance.
pub fn export_writer(writer: Box<dyn BatchWriter>, poison: Poison) -> Owned<abi::Writer> {
    let mut raw = abi::Writer::new();
    raw.write = Some(write);
    raw.finish = Some(finish);
    raw.release = Some(release);
    raw.private_data = Box::into_raw(Box::new(Shell { writer, over: None, poison })).cast();
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

/// A writer that crossed the boundary.
pub struct WriterHandle(Owned<abi::Writer>);

impl WriterHandle {
    /// # Safety
    /// As [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::Writer>) -> Self {
        Self(raw)
    }

    /// The bare object, for those who look at what a call leaves.
    pub fn as_mut_ptr(&mut self) -> *mut abi::Writer {
        self.0.as_mut_ptr()
    }

    /// Gives it a batch.
    pub fn write(&mut self, call: &CallSettings, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        let write = self.0.write.ok_or_else(|| missing("write"))?;
        let raw = self.0.as_mut_ptr();
        let mut batch = batch.into_raw();
        let mut out = abi::Capsules::new();
        // SAFETY: the writer's own function on itself; it takes the batch whatever happens.
        let result = Error::check(|err| unsafe { write(raw, &call.raw(), &mut batch, &mut out, err) });
        // SAFETY: what the writer did not take (it should have) is still ours.
        drop(unsafe { Owned::new(batch) });
        result?;
        // SAFETY: on success the list is ours.
        unsafe { Capsules::from_raw(Owned::given(out)) }.map(Iterator::collect)
    }

    /// Ends it.
    pub fn finish(mut self, call: &CallSettings) -> Result<Vec<Capsule>> {
        let finish = self.0.finish.ok_or_else(|| missing("finish"))?;
        let raw = self.0.as_mut_ptr();
        let mut out = abi::Capsules::new();
        // SAFETY: the writer's own function on itself.
        Error::check(|err| unsafe { finish(raw, &call.raw(), &mut out, err) })?;
        // SAFETY: on success the list is ours.
        unsafe { Capsules::from_raw(Owned::given(out)) }.map(Iterator::collect)
    }
}

/// What a call begins with that counts as failed until it has not.
fn begin(what: &str, over: &mut Option<&'static str>) -> Result<()> {
    match over.replace("a call that failed") {
        None => Ok(()),
        Some(why) => {
            *over = Some(why);
            Err(Error::invalid_argument(format!("{what} after {why}")))
        }
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("a writer without '{function}' crossed the boundary"))
}

unsafe extern "C" fn write(
    writer: *mut abi::Writer,
    call: *const abi::Call,
    batch: *mut abi::Batch,
    out: *mut abi::Capsules,
    err: *mut abi::Error,
) -> abi::Code {
    // Taken before anything can fail, for the caller does not release it any more.
    // SAFETY: the caller hands the batch over.
    let batch = unsafe { Owned::take(batch) };
    // SAFETY: set by `export_writer` only, whose Box lives until release; one call at a time by contract.
    let Shell { writer, over, poison } = unsafe { &mut *(*writer).private_data.cast::<Shell>() };
    let body = || {
        // SAFETY: the caller's call, alive meanwhile.
        let call = unsafe { Call::read(call) }?;
        begin("write", over)?;
        let capsules = writer.write(&call, batch)?;
        *over = None;
        // SAFETY: the caller's out parameter.
        unsafe { capsule::list(capsules).put(out, "write") }
    };
    // SAFETY: the caller's error struct.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn finish(
    writer: *mut abi::Writer,
    call: *const abi::Call,
    out: *mut abi::Capsules,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as in `write`.
    let Shell { writer, over, poison } = unsafe { &mut *(*writer).private_data.cast::<Shell>() };
    let body = || {
        // SAFETY: the caller's call, alive meanwhile.
        let call = unsafe { Call::read(call) }?;
        begin("finish", over)?;
        let capsules = writer.finish(&call)?;
        *over = Some("finish");
        // SAFETY: the caller's out parameter.
        unsafe { capsule::list(capsules).put(out, "finish") }
    };
    // SAFETY: the caller's error struct.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn release(writer: *mut abi::Writer) {
    // SAFETY: set by `export_writer` only; released once because `release` is cleared.
    unsafe {
        (*writer).release = None;
        let shell = Box::from_raw((*writer).private_data.cast::<Shell>());
        shell.poison.clone().leave(move || drop(shell));
    }
}
