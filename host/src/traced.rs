//! Where calls are recorded ([`crossdock_memory_backend::Trace`]): what makes those visible that no function here makes, such as
//! releases, and reads by a plugin.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use crossdock_isolation::Environment;
use crossdock_memory_backend::{Account, ProcessWide, Trace, note_bytes};
use crossdock_plugin_api::{ByteSink, ByteSource, Owned, Progress, Result as ApiResult, abi};

use crate::error::{Error, Result};

/// The environment variable that names a file to record calls of and by plugins in, those of all hosts of a process.
pub const TRACE_VARIABLE: &str = "CROSSDOCK_TRACE";

/// What [`TRACE_VARIABLE`] asks for; a privileged process does not listen to it, nor does one that was started by a process which
/// records into the same file.
///
/// # Errors
/// The file cannot be made.
pub fn trace_from_environment() -> Result<Option<Arc<Trace>>> {
    type Made = Option<std::result::Result<Arc<Trace>, String>>;
    static TRACE: ProcessWide<Option<Made>> = ProcessWide::new();
    let make = || {
        let path = Environment::of_process().value(TRACE_VARIABLE, |warning| tracing::warn!("{warning}"))?;
        let made = trace_to(Path::new(&path));
        if let Err(Error::Io { source, .. }) = &made
            && source.kind() == ErrorKind::ResourceBusy
        {
            tracing::warn!(
                "{TRACE_VARIABLE} is ignored: another process records calls in '{}'",
                path.display()
            );
            return None;
        }
        Some(made.map_err(|error| error.one_line()))
    };
    let made = TRACE.lock().get_or_insert_with(make).clone();
    made.transpose().map_err(|error| Error::usage(format!("{TRACE_VARIABLE}: {error}")))
}

/// A new file to record calls in.
///
/// # Errors
/// [`Error::Io`] names it.
pub fn trace_to(path: &Path) -> Result<Arc<Trace>> {
    let trace = Trace::create(path);
    trace
        .map(Arc::new)
        .map_err(|error| Error::io(format!("cannot record calls in '{}'", path.display()), error))
}

/// A call of the plugin that cannot fail.
pub(crate) fn call<T>(account: &Account, what: &str, f: impl FnOnce() -> T) -> T {
    let Ok(result) = account.call(what, || Ok::<_, Infallible>(f()));
    result
}

/// A call of the host by the plugin that cannot fail.
pub(crate) fn called<T>(account: &Account, what: &str, f: impl FnOnce() -> T) -> T {
    let Ok(result) = account.called(what, || Ok::<_, Infallible>(f()));
    result
}

/// Something of a plugin's whose end is a call of it.
pub(crate) struct Ended<T> {
    value: ManuallyDrop<T>,
    account: Arc<Account>,
    what: &'static str,
}

impl<T> Ended<T> {
    pub(crate) fn new(value: T, account: &Arc<Account>, what: &'static str) -> Self {
        Self { value: ManuallyDrop::new(value), account: account.clone(), what }
    }
}

impl<T> Ended<T> {
    /// The thing itself, for what takes it and ends it.
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: both are taken once, and `drop` does not run.
        unsafe {
            std::ptr::drop_in_place(&mut this.account);
            ManuallyDrop::take(&mut this.value)
        }
    }
}

impl<T> Deref for Ended<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Ended<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        call(&self.account, self.what, || {
            // SAFETY: dropped once, here; the field is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        });
    }
}

/// Whose array it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    Plugin,
    Host,
}

/// A batch that crosses between the host and the account's plugin: how many bytes it has, as far as it tells, is noted, and its
/// release recorded.
pub(crate) fn crossing(batch: Owned<abi::Batch>, account: &Arc<Account>, maker: Maker) -> Owned<abi::Batch> {
    if !account.is_traced() {
        return batch;
    }
    let batch = batch.into_raw();
    if !batch.buffer_sizes.is_null() {
        // SAFETY: the table of a batch that was owned has as many entries as it says, and lives as long as its array.
        let sizes = unsafe { std::slice::from_raw_parts(batch.buffer_sizes, batch.n_buffer_sizes) };
        note_bytes(sizes.iter().filter_map(|bytes| u64::try_from(*bytes).ok()).fold(0, u64::saturating_add));
    }
    // SAFETY: it was owned, and moves.
    let batch = unsafe { Owned::new(batch) };
    let account = account.clone();
    ended_by(batch, move |array| {
        let end = || drop(array);
        match maker {
            Maker::Plugin => call(&account, "array.release", end),
            Maker::Host => called(&account, "array.release", end),
        }
    })
}

/// The same batch, whose array is handed to `end` when it is released.
pub(crate) fn ended_by(
    batch: Owned<abi::Batch>,
    end: impl FnOnce(Owned<abi::ArrowArray>) + Send + 'static,
) -> Owned<abi::Batch> {
    let mut batch = batch.into_raw();
    if batch.array.array.release.is_some() {
        // SAFETY: of the two copies one releases the array, and the other calls that one.
        let array = unsafe { std::ptr::read(&batch.array.array) };
        let lent = Box::new(Lent { array, end: Box::new(end) });
        batch.array.array.release = Some(release);
        batch.array.array.private_data = Box::into_raw(lent).cast();
    }
    // SAFETY: it was owned; what it points at is kept by the array as it was, which `release` hands on in the end.
    unsafe { Owned::new(batch) }
}

/// The array as its maker gave it.
struct Lent {
    array: abi::ArrowArray,
    end: Box<dyn FnOnce(Owned<abi::ArrowArray>) + Send>,
}

unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
    // SAFETY: set by `ended_by` only, with a Box of this; released once, because `release` is cleared.
    let lent = unsafe {
        (*array).release = None;
        Box::from_raw((*array).private_data.cast::<Lent>())
    };
    let Lent { array, end } = *lent;
    // SAFETY: the array as it was, which nobody else has. Its children are those that the one around it had: where a consumer
    // moved some out, they are marked so in the very structs that the maker looks at.
    end(unsafe { Owned::new(array) });
}

/// A source that the account's plugin reads.
pub(crate) fn source(source: Arc<dyn ByteSource>, account: &Arc<Account>) -> Arc<dyn ByteSource> {
    if account.is_traced() { Arc::new(Traced(source, account.clone())) } else { source }
}

/// A sink that the account's plugin writes.
pub(crate) fn sink(sink: Box<dyn ByteSink>, account: &Arc<Account>) -> Box<dyn ByteSink> {
    if account.is_traced() { Box::new(Traced(sink, account.clone())) } else { sink }
}

/// Progress that the account's plugin reports.
pub(crate) fn progress(progress: Arc<Progress>, account: &Arc<Account>) -> Arc<Progress> {
    if !account.is_traced() {
        return progress;
    }
    let account = account.clone();
    Arc::new(move |done, total| called(&account, "progress", || progress(done, total)))
}

struct Traced<T>(T, Arc<Account>);

impl ByteSource for Traced<Arc<dyn ByteSource>> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn len(&self) -> Option<u64> {
        self.0.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> ApiResult<usize> {
        self.1.called("source.read_at", || {
            let read = self.0.read_at(offset, to)?;
            note_bytes(read as u64);
            Ok(read)
        })
    }

    fn map(&self) -> Option<&[u8]> {
        self.0.map()
    }
}

impl ByteSink for Traced<Box<dyn ByteSink>> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn write(&mut self, bytes: &[u8]) -> ApiResult<()> {
        self.1.called("sink.write", || {
            note_bytes(bytes.len() as u64);
            self.0.write(bytes)
        })
    }
}
