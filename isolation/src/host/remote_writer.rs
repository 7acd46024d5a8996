//! Writers whose plugin runs in another process.

use std::cell::Cell;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, import_batch};
use crossdock_parts::read_schema;
use crossdock_plugin_api::{BatchWriter, Call, CallSettings, Capsule, Device, Owned, Result, abi};

use crate::host::connection::{Connection, SegmentReuses};
use crate::host::write_queue::WriteQueue;
use crate::wire::array_transfer::BatchParts;
use crate::wire::messages::Request;
use crate::wire::outgoing::Outgoing;

thread_local! {
    static MORE_FOLLOW: Cell<bool> = const { Cell::new(false) };
}

/// Runs `write`, which writes a batch. The caller then writes another batch, which does not depend
/// on bytes of the first one, before it returns to the application. Therefore a plugin's process
/// may receive both batches in one message, and an error of the first batch may be that of a later
/// call.
pub fn with_more_to_follow<T>(write: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            MORE_FOLLOW.set(self.0);
        }
    }
    let _restore = Restore(MORE_FOLLOW.replace(true));
    write()
}

/// The maximum number of batches of a message with batches to write.
const MAX_COLLECTED: usize = 16;
/// The maximum number of bytes of the batches of such a message, unless it has only one batch.
const MAX_COLLECTED_BYTES: u64 = 4 << 20;
/// The maximum number of bytes of a message that a thread sends. Up to three of these messages
/// exist at the same time.
const MAX_QUEUED_BYTES: u64 = 32 << 20;

/// A writer of batches in the plugin's process.
pub struct RemoteWriter {
    connection: Connection,
    id: u64,
    schema: SchemaRef,
    sink: u64,
    /// Batches on one device that the process has not received yet.
    collected: Vec<DeviceBatch>,
    collected_bytes: u64,
    /// Sends messages while the next batches are collected. Created when it is first needed.
    queue: Option<WriteQueue>,
    _reuse: SegmentReuses,
}

impl RemoteWriter {
    pub fn new(connection: Connection, id: u64, schema: &[u8], sink: u64) -> Result<Self> {
        let (_, schema) = read_schema(schema)?;
        let (_reuse, collected) = (connection.reuse_segments(), Vec::new());
        Ok(Self { connection, id, schema, sink, collected, collected_bytes: 0, queue: None, _reuse })
    }

    /// Sends the collected batches, and writes the bytes that the plugin returns to the sink. If
    /// more batches follow, a thread does this.
    fn send_collected(&mut self, call: &Call<'_>) -> Result<()> {
        let batches = std::mem::take(&mut self.collected);
        let bytes = std::mem::take(&mut self.collected_bytes);
        // A fork has no such thread, and its requests fail.
        let uses_thread =
            MORE_FOLLOW.get() && bytes <= MAX_QUEUED_BYTES && !self.connection.child.is_in_forked_process();
        if uses_thread && let Ok(message) = self.message(&batches) {
            return self.send(call, message, true);
        }
        // The batches may need too many files or too much memory together, or with earlier ones.
        self.wait(call)?;
        match self.message(&batches) {
            Ok(message) => self.send(call, message, false),
            Err(_) if batches.len() > 1 => batches.chunks(1).try_for_each(|batch| {
                let message = self.message(batch)?;
                self.send(call, message, false)
            }),
            Err(error) => Err(error),
        }
    }

    /// The message with batches on one device.
    fn message(&self, batches: &[DeviceBatch]) -> Result<(Vec<BatchParts>, Outgoing)> {
        let child = &self.connection.child;
        let is_on_cpu = batches.iter().all(|batch| batch.device() == Device::CPU);
        let mut files = if is_on_cpu { child.callbacks.outgoing_for_sink() } else { child.outgoing() };
        let add = |batch: &DeviceBatch| BatchParts::add(batch.clone(), &self.connection.streams, &mut files);
        let batches = batches.iter().map(add).collect::<Result<_>>()?;
        files.fill_segments()?;
        Ok((batches, files))
    }

    fn send(
        &mut self,
        call: &Call<'_>,
        (batches, files): (Vec<BatchParts>, Outgoing),
        uses_thread: bool,
    ) -> Result<()> {
        if batches.is_empty() {
            return Ok(());
        }
        if uses_thread && self.queue.is_none() {
            // Without a thread, this one sends the message.
            self.queue = WriteQueue::start().ok();
        }
        let (child, writer, sink) = (self.connection.child.clone(), self.id, self.sink);
        // Without a call, the message is not sent.
        let send = move |call: Option<&Call<'_>>| {
            let Some(call) = call else {
                child.take_back(&files);
                return Ok(());
            };
            let parts = child.call_parts(call);
            let request = Request::Write { writer, call: parts, batches };
            child.request_to_write(request, &files, (call, parts), sink)
        };
        match &self.queue {
            Some(queue) if uses_thread => {
                let send = |settings: Option<&CallSettings>| match settings {
                    Some(settings) => settings.enter(|call| send(Some(call))),
                    None => send(None),
                };
                queue.push(Box::new(send), call)
            }
            _ => send(Some(call)),
        }
    }

    /// Waits until the thread has sent all messages.
    fn wait(&self, call: &Call<'_>) -> Result<()> {
        match &self.queue {
            Some(queue) if !self.connection.child.is_in_forked_process() => queue.wait(call),
            _ => Ok(()),
        }
    }
}

impl BatchWriter for RemoteWriter {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        let batch = import_batch(batch, &self.schema, &self.connection.memory)?;
        let bytes = self.collected_bytes.saturating_add(batch.buffer_bytes());
        let is_same_device = |other: &DeviceBatch| other.device() == batch.device();
        if bytes > MAX_COLLECTED_BYTES || !self.collected.first().is_none_or(is_same_device) {
            self.send_collected(call)?;
        }
        self.collected_bytes = self.collected_bytes.saturating_add(batch.buffer_bytes());
        self.collected.push(batch);
        let is_full = self.collected.len() >= MAX_COLLECTED || self.collected_bytes >= MAX_COLLECTED_BYTES;
        if is_full || !MORE_FOLLOW.get() {
            self.send_collected(call)?;
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        self.send_collected(call)?;
        self.wait(call)?;
        let parts = self.connection.child.call_parts(call);
        let request = Request::Finish { writer: self.id, call: parts };
        let files = Outgoing::default();
        self.connection.child.request_to_write(request, &files, (call, parts), self.sink)?;
        Ok(Vec::new())
    }
}

impl Drop for RemoteWriter {
    fn drop(&mut self) {
        match self.queue.take() {
            // Its thread does not exist in a fork.
            Some(queue) if self.connection.child.is_in_forked_process() => std::mem::forget(queue),
            queue => drop(queue),
        }
        self.connection.child.release(&Request::CloseWriter(self.id));
        self.connection.child.callbacks.remove_sink(self.sink);
    }
}
