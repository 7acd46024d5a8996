//! Streams that the plugin opened. A thread reads the batches of the next response while the host
//! uses those of the last one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, import_result};
use crossdock_plugin_api::{
    BatchStreamHandle, CallSettings, CallStream, CancelFlag, Error, Result, Validate,
};

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
/// The maximum number of responses of a stream that are read ahead, and the number of copied bytes
/// from which on no other is read.
const MAX_RESPONSES: usize = 2;
const MAX_BYTES: u64 = 64 << 20;
/// The number of responses of all streams from which on no other is read, because the host limits
/// the segments of a process.
const MAX_RESPONSES_OF_PROCESS: usize = 64;
/// The number of responses of all streams that are read ahead and not sent.
static READY: AtomicUsize = AtomicUsize::new(0);
/// The minimum memory limit of sessions, in bytes, for which batches are read ahead, and for which
/// the host collects batches for a process.
pub const MIN_LIMIT_TO_READ_AHEAD: u64 = 256 << 20;

/// A stream of the plugin, and what is read from it.
pub struct Reader {
    // Dropped before `instance`, because fields are dropped in the order of their declaration.
    pub stream: BatchStreamHandle,
    /// A batch or an error that was read and did not fit into the last response.
    pub pending: Option<Result<Option<DeviceBatch>>>,
    pub schema: SchemaRef,
    pub _reuse: SegmentReuse,
    pub instance: Arc<Instance>,
}

/// A stream that the host can request batches from.
pub struct OpenStream {
    host: Arc<HostClient>,
    calls: Arc<ObjectTable<CancelFlag>>,
    /// Whether batches may be read that the host has not requested.
    reads_ahead: bool,
    /// Cancels reads from the plugin's stream.
    cancel: Mutex<CancelFlag>,
    progress: Arc<CallProgress>,
    /// `None` once the stream is closed.
    reader: Mutex<Option<Reader>>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A response, with its files and segments.
type ReadResponse = (Result<Response>, Outgoing);

#[derive(Default)]
struct Queue {
    /// The number of requests for batches.
    n_requests: u64,
    /// Responses that were read ahead.
    ready: VecDeque<ReadResponse>,
    /// The settings with which the thread reads. `None` if it must not read.
    settings: Option<CallParts>,
    /// Whether the thread or a request reads.
    is_reading: bool,
    has_thread: bool,
    is_closed: bool,
}

impl Queue {
    /// The settings for another response, if the thread may read one.
    fn order(&self) -> Option<CallParts> {
        let copied: u64 = self.ready.iter().map(|(_, outgoing)| outgoing.copied_bytes()).sum();
        let is_room = self.ready.len() < MAX_RESPONSES && copied < MAX_BYTES;
        self.settings.filter(|_| is_room && READY.load(Ordering::Relaxed) < MAX_RESPONSES_OF_PROCESS)
    }
}

/// Whether other batches may follow a response.
fn has_more(response: &Result<Response>) -> bool {
    matches!(response, Ok(Response::Batches { are_last: false, .. }))
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
        // Later calls are not cancelled.
        let mut cancel = lock(&self.stream.cancel);
        if cancel.is_cancelled() {
            *cancel = CancelFlag::new();
        }
    }
}

impl OpenStream {
    pub fn new(
        host: Arc<HostClient>,
        calls: Arc<ObjectTable<CancelFlag>>,
        reads_ahead: bool,
        reader: Reader,
    ) -> Self {
        Self {
            progress: CallProgress::new(host.clone(), 0),
            host,
            calls,
            reads_ahead,
            cancel: Mutex::new(CancelFlag::new()),
            reader: Mutex::new(Some(reader)),
            queue: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Returns the batches of the next response. Waits for the thread if it reads them.
    pub fn next(self: &Arc<Self>, parts: CallParts, to: &mut Outgoing) -> Result<Response> {
        let _waiting = Waiting { stream: self, id: parts.id };
        self.progress.call.store(parts.id, Ordering::Relaxed);
        // The host can cancel a read that has begun.
        self.calls.insert(parts.id, lock(&self.cancel).clone());
        let mut queue = lock(&self.queue);
        queue.n_requests += 1;
        // The first batch is returned at once. A budget of the call limits the size of one batch.
        let reads_ahead = self.reads_ahead && queue.n_requests > 1 && parts.byte_budget == 0;
        let response = loop {
            if let Some((response, outgoing)) = queue.ready.pop_front() {
                READY.fetch_sub(1, Ordering::Relaxed);
                *to = outgoing;
                break response;
            }
            if queue.order().is_none() && !queue.is_reading {
                // The thread does not read at the same time, because responses have an order.
                queue.is_reading = true;
                drop(queue);
                let response = self.read(parts, reads_ahead, to);
                queue = lock(&self.queue);
                queue.is_reading = false;
                break response;
            }
            // The thread sleeps if other streams had read too much ahead.
            self.changed.notify_all();
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        // The thread does not read on after an error before the host has received the error.
        let may_continue = has_more(&response) && queue.ready.iter().all(|(response, _)| has_more(response));
        if reads_ahead && may_continue {
            queue.has_thread = queue.has_thread || self.start_thread();
            queue.settings = Some(parts).filter(|_| queue.has_thread);
        }
        self.changed.notify_all();
        response
    }

    /// Starts the thread that reads ahead. Without it, batches are read when they are requested.
    fn start_thread(self: &Arc<Self>) -> bool {
        let stream = self.clone();
        let work = move || stream.read_ahead();
        std::thread::Builder::new().name("crossdock-ahead".into()).spawn(work).is_ok()
    }

    /// Reads responses until the stream is closed.
    fn read_ahead(&self) {
        let mut queue = lock(&self.queue);
        while !queue.is_closed {
            let Some(parts) = queue.order().filter(|_| !queue.is_reading) else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.is_reading = true;
            drop(queue);
            let mut to = Outgoing::default();
            // A request waits for the response, so the thread must not end without one.
            let read = catch_unwind(AssertUnwindSafe(|| self.read(parts, true, &mut to)));
            let response = read.unwrap_or_else(|_| Err(Error::internal("reading ahead panicked")));
            queue = lock(&self.queue);
            if queue.is_closed {
                // `close` may have released the other responses before.
                self.release(to);
                return;
            }
            queue.is_reading = false;
            queue.settings = queue.settings.filter(|_| has_more(&response));
            queue.ready.push_back((response, to));
            READY.fetch_add(1, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    /// Reads the batches of a response.
    fn read(&self, parts: CallParts, reads_ahead: bool, to: &mut Outgoing) -> Result<Response> {
        let closed = || Error::invalid_argument("the stream is closed");
        let mut reader = lock(&self.reader);
        let reader = reader.as_mut().ok_or_else(closed)?;
        let max_batches = if reads_ahead { MAX_COLUMNS / reader.schema.fields().len().max(1) } else { 1 };
        let cancel = lock(&self.cancel).clone();
        let progress = Some(self.progress.clone().function());
        // The host validates the contents of all batches.
        let validate = Validate::Layout;
        let settings = CallSettings { cancel, progress, validate, ..parts.settings() };
        let instance = reader.instance.clone();
        let stream = instance.streams.for_device(settings.device);
        // SAFETY: `CallStream::new` requires a stream that outlives the call. `instance` owns this
        // default stream of the device until the end of this function.
        let settings = CallSettings { stream: unsafe { CallStream::new(stream.raw()) }, ..settings };
        // A segment is only faster if it is used again.
        *to = if reads_ahead { instance.outgoing_of_stream() } else { instance.outgoing() };
        let (mut batches, mut are_last) = (Vec::new(), false);
        while batches.len() < max_batches.clamp(1, MAX_BATCHES) && to.copied_bytes() < MAX_BYTES_AHEAD {
            let next = reader.pending.take().unwrap_or_else(|| reader.next_batch(&settings));
            let batch = match next {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    are_last = true;
                    break;
                }
                Err(error) if batches.is_empty() => return Err(error),
                // It is returned after the batches before it.
                Err(error) => {
                    reader.pending = Some(Err(error));
                    break;
                }
            };
            match BatchParts::add(batch.clone(), &instance.streams, to) {
                Ok(parts) => batches.push(parts),
                Err(error) if batches.is_empty() => return Err(error),
                // It may fit into a message of its own.
                Err(_) => {
                    reader.pending = Some(Ok(Some(batch)));
                    break;
                }
            }
        }
        to.fill_segments()?;
        Ok(Response::Batches { batches, are_last, progress: self.progress.take_last() })
    }

    /// Releases the segments of a response that is not sent.
    fn release(&self, response: Outgoing) {
        let segments = response.segments().to_vec();
        // Waits for the copies into the segments, which the host may use at once.
        drop(response);
        self.host.release_segments(&segments);
    }

    /// Cancels a read that has begun, and releases the plugin's stream. The thread ends.
    pub fn close(&self) {
        // The thread uses this flag, also for a read that it has not begun.
        lock(&self.cancel).cancel();
        let mut queue = lock(&self.queue);
        queue.is_closed = true;
        queue.settings = None;
        drop(queue);
        self.changed.notify_all();
        let reader = lock(&self.reader).take();
        // The segments of responses that are not sent.
        let ready = std::mem::take(&mut lock(&self.queue).ready);
        READY.fetch_sub(ready.len(), Ordering::Relaxed);
        ready.into_iter().for_each(|(_, outgoing)| self.release(outgoing));
        // It is dropped after the lock is released, because a drop may take long.
        drop(reader);
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
