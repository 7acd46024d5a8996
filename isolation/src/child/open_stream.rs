//! Streams that the plugin opened. A thread reads the batches of the next response while the host
//! uses those of the last one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, import_result};
use crossdock_plugin_api::{BatchStreamHandle, CallSettings, CallStream, CancelFlag, Error, Result};

use crate::child::host_client::{CallProgress, HostClient};
use crate::child::instance::Instance;
use crate::child::object_table::ObjectTable;
use crate::child::received_segments::SegmentReuse;
use crate::locks::lock;
use crate::wire::array_transfer::BatchParts;
use crate::wire::messages::{CallParts, Response};
use crate::wire::outgoing::Outgoing;

/// The maximum number of batches of a response, and the number of copied bytes after which no other
/// batch is added. A message takes longer than reading a small batch.
const MAX_BATCHES: usize = 16;
const MAX_BYTES_AHEAD: u64 = 4 << 20;
/// The maximum number of columns of the batches of a response, because a message is charged with
/// many times its length.
const MAX_COLUMNS: usize = 1000;
/// The minimum memory limit of sessions for which batches are read ahead.
pub const MIN_LIMIT_TO_READ_AHEAD: u64 = 256 << 20;

/// A stream of the plugin, and what is read from it.
pub struct Reader {
    // Dropped before `instance`, because fields are dropped in the order of their declaration.
    pub stream: BatchStreamHandle,
    /// Whether batches may be read that the host has not requested.
    pub reads_ahead: bool,
    pub schema: SchemaRef,
    pub _reuse: SegmentReuse,
    pub instance: Arc<Instance>,
}

/// A stream that the host can request batches from.
pub struct OpenStream {
    host: Arc<HostClient>,
    calls: Arc<ObjectTable<CancelFlag>>,
    /// Cancels the current or the next read from the plugin's stream.
    cancel: Mutex<CancelFlag>,
    progress: Arc<CallProgress>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// `None` once the stream is closed.
    reader: Option<Reader>,
    /// The number of requests for batches.
    n_requests: u64,
    /// A batch or an error that was read and did not fit into the last response.
    pending: Option<Result<Option<DeviceBatch>>>,
    /// The settings for reading the next response.
    order: Option<CallParts>,
    /// The next response, with its files and segments.
    next: Option<(Result<Response>, Outgoing)>,
    has_thread: bool,
}

/// Removes a call when it ends.
struct Waiting<'a> {
    stream: &'a OpenStream,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.stream.progress.call.store(0, Ordering::Relaxed);
        self.stream.calls.remove(self.id);
    }
}

impl OpenStream {
    pub fn new(host: Arc<HostClient>, calls: Arc<ObjectTable<CancelFlag>>, reader: Reader) -> Self {
        let state = State {
            reader: Some(reader),
            n_requests: 0,
            pending: None,
            order: None,
            next: None,
            has_thread: false,
        };
        Self {
            progress: CallProgress::new(host.clone(), 0),
            host,
            calls,
            cancel: Mutex::new(CancelFlag::new()),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Returns the batches of the next response. Waits for the thread if it reads them.
    pub fn next(self: &Arc<Self>, parts: CallParts, to: &mut Outgoing) -> Result<Response> {
        let _waiting = Waiting { stream: self, id: parts.id };
        self.progress.call.store(parts.id, Ordering::Relaxed);
        // The host can cancel the read that has begun.
        self.calls.insert(parts.id, lock(&self.cancel).clone());
        let mut state = self.state();
        // The thread has not begun to read.
        state.order = None;
        let response = match state.next.take() {
            Some((response, outgoing)) => {
                *to = outgoing;
                response
            }
            None => self.read(&mut state, parts, to),
        };
        // Another call has another flag.
        *lock(&self.cancel) = CancelFlag::new();
        let reads_ahead = state.reader.as_ref().is_some_and(|reader| reader.reads_ahead);
        let has_more = matches!(response, Ok(Response::Batches { are_last: false, .. }));
        if reads_ahead && has_more && state.n_requests > 1 && parts.byte_budget == 0 {
            state.order = Some(parts);
            state.has_thread = state.has_thread || self.start_thread();
            self.changed.notify_one();
        }
        response
    }

    /// Starts the thread that reads ahead. Without it, batches are read when they are requested.
    fn start_thread(self: &Arc<Self>) -> bool {
        let stream = self.clone();
        let work = move || stream.read_ahead();
        std::thread::Builder::new().name("crossdock-ahead".into()).spawn(work).is_ok()
    }

    /// Reads the responses that are ordered, until the stream is closed.
    fn read_ahead(&self) {
        let mut state = self.state();
        while state.reader.is_some() {
            match state.order.take() {
                Some(parts) => {
                    let mut to = Outgoing::default();
                    let response = self.read(&mut state, parts, &mut to);
                    state.next = Some((response, to));
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Locks the state. If an earlier call panicked, the plugin decides whether the stream still
    /// works.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the batches of a response.
    fn read(&self, state: &mut State, parts: CallParts, to: &mut Outgoing) -> Result<Response> {
        let closed = || Error::invalid_argument("the stream is closed");
        let State { reader, n_requests, pending, .. } = state;
        let reader = reader.as_mut().ok_or_else(closed)?;
        *n_requests += 1;
        // The first batch is returned at once. A budget of the call limits the size of one batch.
        let reads_ahead = reader.reads_ahead && *n_requests > 1 && parts.byte_budget == 0;
        let max_batches = if reads_ahead { MAX_COLUMNS / reader.schema.fields().len().max(1) } else { 1 };
        let cancel = lock(&self.cancel).clone();
        let progress = Some(self.progress.clone().function());
        let settings = CallSettings { cancel, progress, ..parts.settings() };
        let instance = reader.instance.clone();
        let stream = instance.streams.for_device(settings.device);
        // SAFETY: `CallStream::new` requires a stream that outlives the call. `instance` owns this
        // default stream of the device until the end of this function.
        let settings = CallSettings { stream: unsafe { CallStream::new(stream.raw()) }, ..settings };
        // A segment is only faster if it is used again.
        *to = if reads_ahead { instance.outgoing_of_stream() } else { instance.outgoing() };
        let (mut batches, mut are_last) = (Vec::new(), false);
        while batches.len() < max_batches.clamp(1, MAX_BATCHES) && to.copied_bytes() < MAX_BYTES_AHEAD {
            let next = pending.take().unwrap_or_else(|| reader.next_batch(&settings));
            let batch = match next {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    are_last = true;
                    break;
                }
                Err(error) if batches.is_empty() => return Err(error),
                // It is returned after the batches before it.
                Err(error) => {
                    *pending = Some(Err(error));
                    break;
                }
            };
            match BatchParts::add(batch.clone(), &instance.streams, to) {
                Ok(parts) => batches.push(parts),
                Err(error) if batches.is_empty() => return Err(error),
                // It may fit into a message of its own.
                Err(_) => {
                    *pending = Some(Ok(Some(batch)));
                    break;
                }
            }
        }
        to.fill_segments()?;
        Ok(Response::Batches { batches, are_last, progress: self.progress.take_last() })
    }

    /// Cancels a read that has begun, and releases the plugin's stream. The thread ends.
    pub fn close(&self) {
        // The thread uses this flag, also for a read that it has not begun.
        lock(&self.cancel).cancel();
        let mut state = self.state();
        let (reader, pending, next) = (state.reader.take(), state.pending.take(), state.next.take());
        state.order = None;
        drop(state);
        self.changed.notify_all();
        // They are dropped after the lock is released, because a drop may take long.
        if let Some((_, outgoing)) = next {
            self.host.release_segments(outgoing.segments());
        }
        drop((pending, reader));
    }
}

impl Reader {
    fn next_batch(&mut self, call: &CallSettings) -> Result<Option<DeviceBatch>> {
        let Self { stream, schema, instance, .. } = self;
        let next = || {
            let batch = stream.next(call)?;
            Ok(batch.map(|batch| instance.plugin.batch_from_plugin(batch)))
        };
        let Some(batch) = instance.call("stream.get_next", next)? else { return Ok(None) };
        import_result(batch, schema, instance.streams.for_device(call.device)).map(Some)
    }
}
