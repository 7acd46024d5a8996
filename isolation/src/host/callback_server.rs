//! Handles the callbacks of a plugin's process.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crossdock_arrays::import_batch;
use crossdock_memory::{Buffer, Memory};
use crossdock_memory_backend::{Record, Trace};
use crossdock_parts::ChildParts;
use crossdock_plugin_api::{
    Call, CallSettings, CallStream, CancelFlag, Device, Error, Host, Result, Sink, Source, Validate,
};

use crate::files::mapping::ReceiveBudget;
use crate::host::log::log_plugin_message;
use crate::host::open_sink::{Arrival, OpenSink};
use crate::host::read_only_segments::ReadOnlySegments;
use crate::host::threads::ThreadGroup;
use crate::host::writable_segments::{RequestedSegment, WritableSegments};
use crate::locks::lock;
use crate::wire::array_transfer::{BatchParts, TreeParts, column_schema};
use crate::wire::channel::{Channel, Message, Reply, STALL_TIMEOUT};
use crate::wire::channels::MAX_CHANNELS;
use crate::wire::incoming::Incoming;
use crate::wire::message_limits::{MessageBudget, check_len};
use crate::wire::messages::{self, CallParts, Callback, CallbackReply, Failure, WithSegments};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::{SegmentParts, SegmentSender, Streams};
use crate::wire::sink_parts::{SinkPiece, WriteParts};

/// The number of channels that the host accepts beyond [`MAX_CHANNELS`], because the process may
/// replace closed channels before the host notices that they are closed.
const SPARE_CHANNELS: usize = 16;
/// The maximum number of bytes that one `Read` callback returns.
const MAX_READ_BYTES: u64 = 1 << 20;

type CallbackResult = std::result::Result<CallbackReply, Failure>;

/// Handles the callbacks of one process.
pub struct CallbackServer {
    /// The plugin's name in messages.
    plugin: String,
    /// The trace that records the process's calls.
    trace: Option<Arc<Trace>>,
    pub process_id: OnceLock<u32>,
    sources: Mutex<HashMap<u64, Arc<Source>>>,
    sinks: Mutex<HashMap<u64, Arc<OpenSink>>>,
    /// Segments on the process's device.
    pub writable_segments: Arc<WritableSegments>,
    /// Segments in host memory. The same as `writable_segments` if the process has no device.
    host_segments: Arc<WritableSegments>,
    pub read_only_segments: Arc<ReadOnlySegments>,
    instances: Mutex<HashMap<u64, DecodeContext>>,
    pub calls: Mutex<HashMap<u64, Arc<CallState>>>,
    next_id: AtomicU64,
    /// The open channels. `None` once the process has ended.
    channels: Mutex<Option<Vec<Arc<Channel>>>>,
    message_budget: MessageBudget,
    /// Limits the files and memory that the host keeps for the plugin's messages. All processes of
    /// the plugin share the limit.
    pub budget: ReceiveBudget,
    /// The number of callbacks received.
    pub callback_count: AtomicU64,
    /// The number of callbacks that the host is handling.
    pub active_callbacks: AtomicUsize,
    /// The number of active callbacks that release a source or a sink. A release takes as long as
    /// the application's function takes.
    pub active_releases: AtomicUsize,
}

/// The host, the memory and the device streams with which arrays are decoded for an instance.
#[derive(Clone)]
pub struct DecodeContext {
    pub host: Host,
    pub memory: Memory,
    pub streams: Streams,
}

/// The state of a pending call of the host. The thread that waits for the response reports the
/// progress to the caller and sets the cancel flag. Callbacks of the call use the settings in this
/// struct, and not the settings that the process declares.
pub struct CallState {
    done: AtomicU64,
    total: AtomicU64,
    pub cancel: CancelFlag,
    validate: Validate,
    byte_budget: u64,
}

impl CallState {
    /// Creates the state of a call. `call` is `None` for a request that belongs to no call.
    pub fn new(call: Option<&Call<'_>>) -> Self {
        let (done, total, cancel) = (AtomicU64::new(0), AtomicU64::new(0), CancelFlag::new());
        let validate = call.map_or(Validate::Full, Call::validate);
        Self { done, total, cancel, validate, byte_budget: call.map_or(0, Call::byte_budget) }
    }

    /// The progress that the process reported: the amount done and the total.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// A pending call, removed on drop.
pub struct PendingCall<'a> {
    calls: &'a Mutex<HashMap<u64, Arc<CallState>>>,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let state = lock(self.calls).remove(&self.id);
        drop(state);
    }
}

impl CallbackServer {
    pub fn new(
        plugin: String,
        (writable_segments, host_segments): (Arc<WritableSegments>, Arc<WritableSegments>),
        trace: Option<Arc<Trace>>,
        budget: ReceiveBudget,
    ) -> Self {
        Self {
            plugin,
            trace,
            process_id: OnceLock::new(),
            sources: Mutex::default(),
            sinks: Mutex::default(),
            writable_segments,
            host_segments,
            read_only_segments: Arc::new(ReadOnlySegments::new(budget.clone())),
            instances: Mutex::default(),
            calls: Mutex::default(),
            next_id: AtomicU64::new(1),
            channels: Mutex::new(Some(Vec::new())),
            message_budget: MessageBudget::default(),
            budget,
            callback_count: AtomicU64::new(0),
            active_callbacks: AtomicUsize::new(0),
            active_releases: AtomicUsize::new(0),
        }
    }

    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a source available to the process. Returns its id.
    pub fn add_source(&self, source: Arc<Source>) -> u64 {
        let id = self.next_id();
        lock(&self.sources).insert(id, source);
        id
    }

    /// Makes a sink available to the process. Returns its id.
    pub fn add_sink(&self, sink: Sink) -> u64 {
        let id = self.next_id();
        lock(&self.sinks).insert(id, Arc::new(OpenSink::new(sink)));
        id
    }

    /// Lets an instance decode arrays through the host.
    pub fn add_instance(&self, id: u64, context: DecodeContext) {
        lock(&self.instances).insert(id, context);
    }

    /// Adds a pending call. Dropping the returned guard removes the call.
    pub fn add_call(&self, id: u64, state: Arc<CallState>) -> PendingCall<'_> {
        lock(&self.calls).insert(id, state);
        PendingCall { calls: &self.calls, id }
    }

    pub fn remove_instance(&self, id: u64) {
        // The context is dropped after the lock is released.
        let context = lock(&self.instances).remove(&id);
        drop(context);
    }

    pub fn remove_source(&self, id: u64) {
        let source = lock(&self.sources).remove(&id);
        drop(source);
    }

    pub fn remove_sink(&self, id: u64) {
        let sink = lock(&self.sinks).remove(&id);
        sink.iter().for_each(|sink| sink.fail());
        drop(sink);
    }

    /// Creates an empty message to the process. Arrays on the process's device are sent in
    /// segments.
    pub fn outgoing(&self) -> Outgoing {
        let has_device = self.writable_segments.device() != Device::CPU;
        Outgoing::to_plugin(has_device.then(|| self.writable_segments.clone() as Arc<dyn SegmentSender>))
    }

    /// Creates an empty message to the process, with arrays in host memory that it writes to a
    /// sink.
    pub fn outgoing_for_sink(&self) -> Outgoing {
        Outgoing::to_plugin(Some(self.read_only_segments.clone()))
    }

    /// Copies received segments. The copies are ready in the order of the stream on the segments'
    /// device. `streams` is `None` if arrays in segments are not expected.
    ///
    /// # Errors
    /// The instance is not on the device of the process, the process did not request the segments,
    /// or memory is exhausted.
    pub fn receive_segments(&self, parts: &[SegmentParts], streams: Option<&Streams>) -> Result<Vec<Buffer>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let device = self.writable_segments.device();
        match streams.map(|streams| streams.for_device(device)) {
            Some(stream) if stream.device() == device => self.writable_segments.copy_out(parts, stream),
            _ => Err(Error::bad_data("arrays are in shared segments, expected arrays in files")),
        }
    }

    /// Returns a segment of a message to the process, which does not use it or did not receive it.
    pub fn return_segment(&self, number: u64) {
        self.writable_segments.return_sent(number);
        self.read_only_segments.return_sent(number);
    }

    /// Releases the process's segments and closes its channels. The host closes the channels
    /// itself, because copies of the process's ends may still be open in this process or in other
    /// processes.
    pub fn process_ended(&self) {
        self.writable_segments.release_all();
        self.host_segments.release_all();
        self.read_only_segments.release_all();
        let channels = lock(&self.channels).take();
        channels.iter().flatten().for_each(|channel| channel.close());
    }

    /// Accepts new channels over the control socket, and handles callbacks on each, until the
    /// process closes the socket.
    pub fn accept_channels(self: Arc<Self>, control: &Channel, threads: &ThreadGroup) {
        while let Ok(Some(message)) = control.receive() {
            let serve =
                |file| self.clone().serve(Channel::from(file).with_stall_timeout(STALL_TIMEOUT), threads);
            if !message.files.into_iter().all(serve) {
                break;
            }
        }
        control.close();
        // The process can no longer use its sources and sinks.
        let sources = std::mem::take(&mut *lock(&self.sources));
        let sinks = std::mem::take(&mut *lock(&self.sinks));
        sinks.values().for_each(|sink| sink.fail());
        drop((sources, sinks));
    }

    /// Starts a thread that handles the callbacks on a channel until the channel is closed. Returns
    /// whether the thread was started.
    fn serve(self: Arc<Self>, channel: Channel, threads: &ThreadGroup) -> bool {
        let channel = Arc::new(channel);
        {
            let mut channels = lock(&self.channels);
            let has_capacity = |channels: &&mut Vec<_>| channels.len() < MAX_CHANNELS + SPARE_CHANNELS;
            let Some(channels) = channels.as_mut().filter(has_capacity) else { return false };
            channels.push(channel.clone());
        }
        let serve = move || {
            channel.serve(&self.message_budget, |message| self.reply_to(message));
            if let Some(channels) = lock(&self.channels).as_mut() {
                channels.retain(|other| !Arc::ptr_eq(other, &channel));
            }
        };
        threads.spawn(serve).is_ok()
    }

    /// Handles the callback in a message. Returns its reply or its error.
    pub fn reply_to(&self, message: Message) -> Reply {
        self.callback_count.fetch_add(1, Ordering::Relaxed);
        self.active_callbacks.fetch_add(1, Ordering::Relaxed);
        let mut result: CallbackResult = Err(Error::internal("the host failed").into());
        let mut reply = Reply::default();
        crossdock_plugin_api::door::run_release(|| {
            result = self.handle_message(message, &mut reply).map_err(Failure::from);
        });
        self.active_callbacks.fetch_sub(1, Ordering::Relaxed);
        let bytes = messages::to_bytes(&result).unwrap_or_default();
        match check_len(bytes.len().saturating_add(reply.payload.len())) {
            Ok(()) => Reply { bytes, ..reply },
            Err(error) => {
                let result: CallbackResult = Err(error.into());
                Reply { bytes: messages::to_bytes(&result).unwrap_or_default(), ..Reply::default() }
            }
        }
    }

    fn handle_message(&self, message: Message, reply: &mut Reply) -> Result<CallbackReply> {
        let Message { bytes, files } = message;
        // The bytes to write follow the callback in the message and are not parsed.
        let (head, _) = bytes.split_at(bytes.len().min(messages::MAX_UNCHARGED_BYTES));
        let inline = |rest: &[u8]| bytes.get(head.len() - rest.len()..).unwrap_or_default();
        let result = match messages::from_prefix(head) {
            Ok((Callback::Write { sink, write }, rest)) => {
                Some(self.write(sink, write, inline(rest), Arrival::Callback))
            }
            _ => None,
        };
        if let Some(result) = result {
            // Most writes are followed by others of the same size.
            reply.spare = bytes;
            return result.map(|()| CallbackReply::Done);
        }
        let _reservation = messages::charge(bytes.len(), &self.budget)?;
        self.handle(messages::from_bytes(&bytes)?, files, reply)
    }

    fn handle(&self, callback: Callback, files: Vec<OwnedFd>, reply: &mut Reply) -> Result<CallbackReply> {
        match callback {
            Callback::Read { source, offset, bytes } => return self.read(source, offset, bytes, reply),
            // Not reached, because `handle_message` handles this callback itself.
            Callback::Write { sink, write } => self.write(sink, write, &[], Arrival::Callback)?,
            Callback::CloseSource(source) => self.release(|| self.remove_source(source)),
            Callback::CloseSink(sink) => self.release(|| self.remove_sink(sink)),
            Callback::Decode { instance, call, tree, rows, segments } => {
                return self.decode(instance, call, (tree, rows), &segments, files, reply);
            }
            Callback::Children { instance, node } => {
                let children = self.context(instance)?.host.child_types(&node.read()?)?;
                return Ok(CallbackReply::Children(ChildParts::write_all(&children)?));
            }
            Callback::RequestSegment { id, bytes, in_host_memory } => {
                let segments = if in_host_memory { &self.host_segments } else { &self.writable_segments };
                let segment = segments.request(id, bytes)?;
                let RequestedSegment { number, file, file_bytes: bytes, existing } = segment;
                reply.files = vec![file];
                return Ok(CallbackReply::Segment { number, bytes, existing });
            }
            Callback::Progress { call, done, total } => {
                if let Some(state) = lock(&self.calls).get(&call) {
                    state.done.store(done, Ordering::Relaxed);
                    state.total.store(total, Ordering::Relaxed);
                }
            }
            Callback::ReleaseSegment(id) => {
                self.writable_segments.release(id);
                self.host_segments.release(id);
            }
            Callback::ReturnSegment(number) => self.return_segment(number),
            Callback::Record { thread, ns, phase } => {
                if let (Some(trace), Some(process)) = (&self.trace, self.process_id.get()) {
                    trace.add(*process, &Record { thread, ns, phase: phase.into() });
                }
            }
            Callback::Log { level, message } => log_plugin_message(&self.plugin, level, &message),
        }
        Ok(CallbackReply::Done)
    }

    fn read(&self, source: u64, offset: u64, bytes: u64, reply: &mut Reply) -> Result<CallbackReply> {
        let source = lock(&self.sources).get(&source).cloned();
        let source = source.ok_or_else(|| Error::invalid_argument("the source has been released"))?;
        reply.payload.resize(bytes.min(MAX_READ_BYTES) as usize, 0);
        let n = source.read_at(offset, &mut reply.payload)?;
        reply.payload.truncate(n);
        Ok(CallbackReply::Bytes)
    }

    /// Writes pieces to a sink. `inline` has the bytes of the inline pieces.
    pub fn write(&self, sink: u64, write: WriteParts, inline: &[u8], arrival: Arrival) -> Result<()> {
        let released = || Error::invalid_argument("the sink has been released");
        let sink = lock(&self.sinks).get(&sink).cloned().ok_or_else(released)?;
        let WriteParts { number, pieces } = write;
        sink.write(number, arrival, |sink| self.write_pieces(sink, pieces, inline))
    }

    fn write_pieces(&self, sink: &mut Sink, pieces: Vec<SinkPiece>, mut inline: &[u8]) -> Result<()> {
        let mut copied = Vec::new();
        pieces.into_iter().try_for_each(|piece| match piece {
            SinkPiece::Inline(bytes) => {
                let bytes = usize::try_from(bytes).ok().and_then(|bytes| inline.split_off(..bytes));
                sink.write(bytes.ok_or_else(|| Error::invalid_argument("an incomplete write"))?)
            }
            SinkPiece::Segment { number, offset, bytes } => {
                self.read_only_segments.read_sent((number, offset, bytes), |bytes| sink.write(bytes))
            }
            SinkPiece::Copied { id, offset, bytes } => {
                self.host_segments.copy_requested((id, offset, bytes), &mut copied)?;
                sink.write(&copied)
            }
        })
    }

    /// Fails the later writes to a sink, because the host did not make a write before.
    pub fn fail_sink(&self, sink: u64) {
        lock(&self.sinks).get(&sink).iter().for_each(|sink| sink.fail());
    }

    fn release(&self, release: impl FnOnce()) {
        self.active_releases.fetch_add(1, Ordering::Relaxed);
        // The release calls the application's code, which may panic.
        crossdock_plugin_api::door::run_release(release);
        self.active_releases.fetch_sub(1, Ordering::Relaxed);
    }

    fn context(&self, instance: u64) -> Result<DecodeContext> {
        let context = lock(&self.instances).get(&instance).cloned();
        context.ok_or_else(|| Error::invalid_argument("the instance has been destroyed"))
    }

    /// Decodes an array in the session of an instance.
    fn decode(
        &self,
        instance: u64,
        parts: CallParts,
        (tree, rows): (TreeParts, Option<Range<u64>>),
        segments: &[SegmentParts],
        files: Vec<OwnedFd>,
        reply: &mut Reply,
    ) -> Result<CallbackReply> {
        let context = self.context(instance)?;
        let device = Device::from(parts.device);
        let state = lock(&self.calls).get(&parts.id).cloned();
        let state = state.unwrap_or_else(|| Arc::new(CallState::new(None)));
        if context.streams.for_device(device).device() != device {
            return Err(Error::invalid_argument(format!(
                "decoding was requested on {device}, which the instance's session does not have"
            )));
        }
        let segments = self.receive_segments(segments, Some(&context.streams))?;
        let files = Incoming::from_plugin(files, &self.budget)?.with_segments(segments);
        let tree = tree.read(&files)?;
        let schema = column_schema(tree.root()?)?;
        // SAFETY: `CallStream::new` requires a stream that outlives the call. `context.memory`
        // keeps the device's default stream, and `context` is kept until the call ends.
        let stream = unsafe { CallStream::new(context.streams.for_device(device).raw()) };
        let settings = CallSettings {
            stream,
            cancel: state.cancel.clone(),
            validate: state.validate,
            byte_budget: state.byte_budget,
            ..CallSettings::new(device)
        };
        let batch = settings.enter(|call| context.host.decode(call, tree, rows))?;
        let mut files = self.outgoing();
        let batch = import_batch(batch, &schema, &context.memory)?;
        let message = BatchParts::write(batch, &context.streams, &mut files)?;
        let segments = files.segments().to_vec();
        reply.files = files.into_files()?;
        Ok(CallbackReply::Batch(WithSegments { message, segments }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use crossdock_memory_backend::Backend;
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::wire::array_transfer::tests::one_node;

    fn server() -> CallbackServer {
        server_with(ReceiveBudget::new(1))
    }

    fn server_with(budget: ReceiveBudget) -> CallbackServer {
        let backend = Backend::builder().build();
        let (account, stream) = (backend.account("test"), TestHost::new().stream(Device::CPU));
        let segments = Arc::new(WritableSegments::new(backend, account, stream));
        CallbackServer::new("test".into(), (segments.clone(), segments), None, budget)
    }

    #[test]
    fn thread_group_waits_for_all_of_its_threads_except_the_calling_thread() {
        let (threads, (sender, receiver)) = (ThreadGroup::default(), std::sync::mpsc::channel::<()>());
        let object = Arc::new(());
        let (weak, same_threads) = (Arc::downgrade(&object), threads.clone());
        let work = move || {
            // Without the exception for threads of the group, this thread would wait for itself.
            same_threads.wait_within(Duration::MAX);
            let _ = receiver.recv();
            drop(object);
        };
        threads.spawn(work).unwrap();
        threads.wait_within(Duration::from_millis(1));
        assert!(weak.upgrade().is_some(), "the thread still waits for the sender");
        drop(sender);
        threads.wait_within(Duration::from_secs(60));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn end_of_process_stops_host_threads_that_reply_to_each_other() {
        let (callbacks, threads) = (Arc::new(server()), ThreadGroup::default());
        let ((local, remote), (a, b)) = (Channel::pair().unwrap(), Channel::pair().unwrap());
        b.send(&[], &[], &[]).unwrap();
        remote.send(&[], &[], &[a.as_fd(), b.as_fd()]).unwrap();
        drop((a, b));
        let (server, server_threads) = (callbacks.clone(), threads.clone());
        threads.spawn(move || server.accept_channels(&local, &server_threads)).unwrap();
        let start = std::time::Instant::now();
        while callbacks.callback_count.load(Ordering::Relaxed) < 100 {
            assert!(start.elapsed() < Duration::from_secs(60), "the host does not reply to its own replies");
        }
        drop(remote);
        threads.wait_within(Duration::from_millis(1));
        assert!(Arc::strong_count(&callbacks) > 2, "the threads reply to each other");
        callbacks.process_ended();
        threads.wait_within(Duration::from_secs(60));
        assert_eq!(Arc::strong_count(&callbacks), 1);
    }

    fn error(callbacks: &CallbackServer, callback: &Callback) -> String {
        let bytes = messages::to_bytes(callback).unwrap();
        let reply = callbacks.reply_to(Message { bytes, files: Vec::new() });
        let result: CallbackResult = messages::from_bytes(&reply.bytes).unwrap();
        Error::from(result.err().unwrap()).to_string()
    }

    #[test]
    fn long_callbacks_are_charged_before_they_are_parsed() {
        const NODES: usize = 20_000;
        let mut callbacks = Vec::new();
        let call = CallSettings::new(Device::CPU).enter(|call| CallParts::new(call, 1, Device::CPU));
        for nodes in [1, NODES] {
            let tree = TreeParts::of_equal_nodes(one_node(0, Vec::new()).root().unwrap(), nodes);
            callbacks.push(Callback::Decode { instance: 1, call, tree, rows: None, segments: Vec::new() });
        }
        let bytes = messages::to_bytes(&callbacks[1]).unwrap().len();
        assert!(bytes > messages::MAX_UNCHARGED_BYTES);
        for (limit_bytes, is_rejected) in [(1 << 20, true), (1 << 30, false)] {
            let backend = Backend::builder().limit_bytes(limit_bytes).build();
            let budget = ReceiveBudget::default().with_account(backend.account("test (its process)"));
            let server = server_with(budget);
            assert!(error(&server, &callbacks[0]).contains("the instance has been destroyed"));
            let message = error(&server, &callbacks[1]);
            assert_eq!(message.contains("'test (its process)' asked for"), is_rejected, "{message}");
            let context = format!("a message of {bytes} bytes from its process");
            assert_eq!(message.contains(&context), is_rejected, "{message}");
            assert_eq!(backend.ledger().live_bytes(), 0);
        }
    }

    #[test]
    fn payloads_of_any_length_are_written_to_the_sink() {
        let (callbacks, written) = (server(), Arc::new(Mutex::new(Vec::new())));
        let sink = callbacks.add_sink(Sink::new(Box::new(MemorySink(written.clone()))));
        const MAX: usize = messages::MAX_UNCHARGED_BYTES;
        for (len, number) in [0, 1, MAX - 2, MAX, 3 * MAX + 1].into_iter().zip(0..) {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let pieces = vec![SinkPiece::Inline(len as u64)];
            let write = WriteParts { number, pieces };
            let callback = messages::to_bytes(&Callback::Write { sink, write }).unwrap();
            let bytes = [callback, payload.clone()].concat();
            let reply = callbacks.reply_to(Message { bytes, files: Vec::new() });
            let result: CallbackResult = messages::from_bytes(&reply.bytes).unwrap();
            assert!(result.is_ok());
            assert!(std::mem::take(&mut *written.lock().unwrap()) == payload, "{len} bytes");
        }
    }

    struct MemorySink(Arc<Mutex<Vec<u8>>>);

    impl crossdock_plugin_api::ByteSink for MemorySink {
        fn name(&self) -> &str {
            "memory"
        }

        fn write(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn rejects_callbacks_for_a_device_that_the_process_does_not_have() {
        let (callbacks, host) = (server(), TestHost::new());
        let parts = [SegmentParts { number: 1, file: None, bytes: 64, is_read_only: false }];
        let rejected = callbacks.receive_segments(&parts, None).err().unwrap();
        assert!(rejected.message().contains("expected arrays in files"), "{rejected}");
        let streams = Streams::new(host.stream(Device::CPU), None);
        callbacks.add_instance(1, DecodeContext { host: host.host(), memory: host.memory(), streams });
        let tree = one_node(0, Vec::new());
        for device in [Device::cuda(7), Device::UNTOUCHABLE] {
            let tree = TreeParts::write(tree.root().unwrap(), &mut Outgoing::default()).unwrap();
            let call = CallSettings::new(device).enter(|call| CallParts::new(call, 1, device));
            let decode = Callback::Decode { instance: 1, call, tree, rows: None, segments: Vec::new() };
            let message = error(&callbacks, &decode);
            assert!(message.contains(&format!("decoding was requested on {device}, which")), "{message}");
        }
    }
}
