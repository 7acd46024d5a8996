//! Wraps objects that cross between host and plugin so that a [`Trace`] records the calls to them:
//! releases, reads, writes, progress.

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

/// The environment variable that names a file. All hosts of a process record the calls to plugins
/// and the calls by plugins in this file.
pub const TRACE_VARIABLE: &str = "CROSSDOCK_TRACE";

/// Returns the trace that [`TRACE_VARIABLE`] requests, if any.
///
/// Privileged processes ignore the variable. A process that inherits the variable from a process
/// that records to the same file also ignores it.
///
/// # Errors
/// The file cannot be created.
pub fn trace_from_environment() -> Result<Option<Arc<Trace>>> {
    type Created = Option<std::result::Result<Arc<Trace>, String>>;
    static TRACE: ProcessWide<Option<Created>> = ProcessWide::new();
    let create = || {
        let path =
            Environment::from_process().value(TRACE_VARIABLE, |warning| tracing::warn!("{warning}"))?;
        let trace = trace_to(Path::new(&path));
        if let Err(Error::Io { source, .. }) = &trace
            && source.kind() == ErrorKind::ResourceBusy
        {
            tracing::warn!(
                "{TRACE_VARIABLE} is ignored: another process records calls in '{}'",
                path.display()
            );
            return None;
        }
        Some(trace.map_err(|error| error.one_line()))
    };
    let trace = TRACE.lock().get_or_insert_with(create).clone();
    trace.transpose().map_err(|error| Error::usage(format!("{TRACE_VARIABLE}: {error}")))
}

/// Creates a file in which calls are recorded.
///
/// # Errors
/// [`Error::Io`] if the file cannot be created. The error names the path.
pub fn trace_to(path: &Path) -> Result<Arc<Trace>> {
    let trace = Trace::create(path);
    trace.map(Arc::new).map_err(|error| Error::file("cannot record calls in", path, error))
}

/// Records a call from the host to the plugin. The call cannot fail.
pub(crate) fn host_call<T>(account: &Account, what: &str, f: impl FnOnce() -> T) -> T {
    let Ok(result) = account.trace_host_call(what, || Ok::<_, Infallible>(f()));
    result
}

/// Records a call from the plugin to the host. The call cannot fail.
pub(crate) fn plugin_call<T>(account: &Account, what: &str, f: impl FnOnce() -> T) -> T {
    let Ok(result) = account.trace_plugin_call(what, || Ok::<_, Infallible>(f()));
    result
}

/// An object of a plugin. Its drop is recorded as a call to the plugin.
pub(crate) struct TracedDrop<T> {
    value: ManuallyDrop<T>,
    account: Arc<Account>,
    what: &'static str,
}

impl<T> TracedDrop<T> {
    pub(crate) fn new(value: T, account: &Arc<Account>, what: &'static str) -> Self {
        Self { value: ManuallyDrop::new(value), account: account.clone(), what }
    }
}

impl<T> TracedDrop<T> {
    /// Returns the wrapped object, for a call that takes ownership of it.
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is a ManuallyDrop, so `drop` does not run, and each field is taken or
        // dropped only once.
        unsafe {
            std::ptr::drop_in_place(&mut this.account);
            ManuallyDrop::take(&mut this.value)
        }
    }
}

impl<T> Deref for TracedDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TracedDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for TracedDrop<T> {
    fn drop(&mut self) {
        host_call(&self.account, self.what, || {
            // SAFETY: `drop` runs once and does not use `value` afterwards; `into_inner` skips
            // `drop`.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        });
    }
}

/// The producer of an array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Producer {
    Plugin,
    Host,
}

/// Records the declared bytes of a batch that crosses between the host and the account's plugin,
/// and later its release.
pub(crate) fn batch(
    batch: Owned<abi::Batch>,
    account: &Arc<Account>,
    producer: Producer,
) -> Owned<abi::Batch> {
    if !account.is_traced() {
        return batch;
    }
    let batch = batch.into_raw();
    if !batch.buffer_sizes.is_null() {
        // SAFETY: the batch was an `Owned`, so its table has `n_buffer_sizes` entries and lives as
        // long as its array.
        let sizes = unsafe { std::slice::from_raw_parts(batch.buffer_sizes, batch.n_buffer_sizes) };
        note_bytes(sizes.iter().filter_map(|bytes| u64::try_from(*bytes).ok()).fold(0, u64::saturating_add));
    }
    // SAFETY: `into_raw` gave up the ownership of the batch, and this line restores it.
    let batch = unsafe { Owned::new(batch) };
    let account = account.clone();
    on_release(batch, move |array| {
        let end = || drop(array);
        match producer {
            Producer::Plugin => host_call(&account, "array.release", end),
            Producer::Host => plugin_call(&account, "array.release", end),
        }
    })
}

/// Replaces the batch's `release` by a function that passes the original array to `end`.
pub(crate) fn on_release(
    batch: Owned<abi::Batch>,
    end: impl FnOnce(Owned<abi::ArrowArray>) + Send + 'static,
) -> Owned<abi::Batch> {
    let mut batch = batch.into_raw();
    if batch.array.array.release.is_some() {
        // SAFETY: only this copy keeps the producer's `release`, because the next lines replace the
        // batch's `release`.
        let array = unsafe { std::ptr::read(&batch.array.array) };
        let wrapped = Box::new(WrappedArray { array, end: Box::new(end) });
        batch.array.array.release = Some(release);
        batch.array.array.private_data = Box::into_raw(wrapped).cast();
    }
    // SAFETY: the batch was an `Owned`. The original array keeps the batch's memory alive until
    // `release` passes the array to `end`.
    unsafe { Owned::new(batch) }
}

/// The original array of a batch, with the producer's `release`.
struct WrappedArray {
    array: abi::ArrowArray,
    end: Box<dyn FnOnce(Owned<abi::ArrowArray>) + Send>,
}

unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
    // SAFETY: only `on_release` sets this function, with a Box in `private_data`. Clearing
    // `release` makes sure that the Box is taken once.
    let wrapped = unsafe {
        (*array).release = None;
        Box::from_raw((*array).private_data.cast::<WrappedArray>())
    };
    let WrappedArray { array, end } = *wrapped;
    // SAFETY: the Box owned the original array. The original array shares its child structs with
    // the array that the consumer received. If the consumer moved out a child, the producer finds
    // this child marked as released.
    end(unsafe { Owned::new(array) });
}

/// Wraps a source so that reads by the account's plugin are recorded.
pub(crate) fn source(source: Arc<dyn ByteSource>, account: &Arc<Account>) -> Arc<dyn ByteSource> {
    if account.is_traced() { Arc::new(Traced { inner: source, account: account.clone() }) } else { source }
}

/// Wraps a sink so that writes by the account's plugin are recorded.
pub(crate) fn sink(sink: Box<dyn ByteSink>, account: &Arc<Account>) -> Box<dyn ByteSink> {
    if account.is_traced() { Box::new(Traced { inner: sink, account: account.clone() }) } else { sink }
}

/// Wraps a progress callback so that calls by the account's plugin are recorded.
pub(crate) fn progress(progress: Arc<Progress>, account: &Arc<Account>) -> Arc<Progress> {
    if !account.is_traced() {
        return progress;
    }
    let account = account.clone();
    Arc::new(move |done, total| plugin_call(&account, "progress", || progress(done, total)))
}

struct Traced<T> {
    inner: T,
    account: Arc<Account>,
}

impl ByteSource for Traced<Arc<dyn ByteSource>> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Option<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> ApiResult<usize> {
        self.account.trace_plugin_call("source.read_at", || {
            let n_read = self.inner.read_at(offset, to)?;
            note_bytes(n_read as u64);
            Ok(n_read)
        })
    }

    fn map(&self) -> Option<&[u8]> {
        self.inner.map()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }
}

impl ByteSink for Traced<Box<dyn ByteSink>> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn write(&mut self, bytes: &[u8]) -> ApiResult<()> {
        self.account.trace_plugin_call("sink.write", || {
            note_bytes(bytes.len() as u64);
            self.inner.write(bytes)
        })
    }
}
