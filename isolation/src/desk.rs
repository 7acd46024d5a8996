//! What the process of an isolated plugin is served with by its host.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use crossdock_arrays::import_batch;
use crossdock_memory::{Buffer, Memory, Stream};
use crossdock_memory_backend::{Record, Trace};
use crossdock_plugin_api::{
    Call, CallSettings, CallStream, CancelFlag, Device, Error, Host, Result, Sink, Source, Validate,
};

use crate::freight::{BatchParts, column_schema};
use crate::lanes::MOST_LANES;
use crate::link::{InFlight, Lane, Message, Reply, STALL, fits};
use crate::locks::lock;
use crate::log::heard;
use crate::mapping::Allowance;
use crate::outgoing::Outgoing;
use crate::rooms::{Lender, RoomParts, Rooms, Streams};
use crate::shared::Incoming;
use crate::wire::{self, Failure, Grant, Wish, With};

/// The process may know of the end of lanes that this side has not seen yet.
const SPARE_LANES: usize = 16;
/// Bytes read for a process at once.
const MOST_READ: u64 = 1 << 20;

/// What the process is served with while it works.
pub struct Desk {
    who: String,
    /// Where its calls are recorded, and as whose.
    trace: Option<Arc<Trace>>,
    pub process: OnceLock<u32>,
    sources: Mutex<HashMap<u64, Arc<Source>>>,
    sinks: Mutex<HashMap<u64, Arc<Mutex<Sink>>>>,
    /// On its device, if it has one.
    pub rooms: Option<Arc<Rooms>>,
    /// Whose sessions decode for them.
    instances: Mutex<HashMap<u64, Decoding>>,
    pub calls: Mutex<HashMap<u64, Arc<Progress>>>,
    next: AtomicU64,
    /// Those that are served; `None` once the process is gone.
    lanes: Mutex<Option<Vec<Arc<Lane>>>>,
    asked: InFlight,
    /// What may be mapped of all that the plugin sends, by this process or another.
    pub allowed: Allowance,
    /// Counts what it has asked for, and what of it the host is about to do.
    pub signs: AtomicU64,
    pub busy: AtomicUsize,
    /// How many of its sources and sinks are being ended just now, which takes as long as whoever gave them takes.
    pub ending: AtomicUsize,
}

/// What decodes for an instance.
#[derive(Clone)]
pub struct Decoding {
    pub host: Host,
    pub memory: Memory,
    pub streams: Streams,
}

/// A call of the host's, while it is on its way: how far it is, told to whoever called by the thread that waits for it, which hears
/// from there whether it is cancelled; and what is done for it meanwhile is done as it says, not as the process does.
pub struct Progress {
    pub done: AtomicU64,
    pub total: AtomicU64,
    pub cancel: CancelFlag,
    validate: Validate,
    byte_budget: u64,
}

impl Progress {
    /// Of a call, or of what nobody has a wish for.
    pub fn of(call: Option<&Call<'_>>) -> Self {
        let (done, total, cancel) = (AtomicU64::new(0), AtomicU64::new(0), CancelFlag::new());
        let validate = call.map_or(Validate::Full, Call::validate);
        Self { done, total, cancel, validate, byte_budget: call.map_or(0, Call::byte_budget) }
    }
}

/// The threads that work at a desk.
#[derive(Clone, Default)]
pub struct Threads(Arc<(Mutex<usize>, Condvar)>);

/// One of them, as long as it has anything of the desk's.
struct Working(Threads);

impl Threads {
    const NAME: &str = "crossdock-isolated";

    /// One more.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        *lock(&self.0.0) += 1;
        let working = Working(self.clone());
        let work = move || {
            work();
            drop(working);
        };
        std::thread::Builder::new().name(Self::NAME.into()).spawn(work).map(drop)
    }

    /// Waits until none is left that has memory or a device's stream, which would outlive its host; no longer than this, for they
    /// may be in functions that others gave. One of them does not wait for itself.
    pub fn end_within(&self, time: Duration) {
        if std::thread::current().name() != Some(Self::NAME) {
            drop(self.0.1.wait_timeout_while(lock(&self.0.0), time, |working| *working > 0));
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let Threads(threads) = &self.0;
        *lock(&threads.0) -= 1;
        threads.1.notify_all();
    }
}

impl Desk {
    pub fn of(who: String, rooms: Option<Arc<Rooms>>, trace: Option<Arc<Trace>>, allowed: Allowance) -> Self {
        let (sources, sinks, calls) = (Mutex::default(), Mutex::default(), Mutex::default());
        let instances = Mutex::default();
        let (next, signs) = (AtomicU64::new(1), AtomicU64::new(0));
        let lanes = Mutex::new(Some(Vec::new()));
        let (busy, ending) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (process, asked) = (OnceLock::new(), InFlight::default());
        Self {
            who,
            trace,
            process,
            sources,
            sinks,
            rooms,
            instances,
            calls,
            next,
            lanes,
            asked,
            allowed,
            signs,
            busy,
            ending,
        }
    }

    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the process read; the number to read by.
    pub fn add_source(&self, source: Arc<Source>) -> u64 {
        let number = self.number();
        lock(&self.sources).insert(number, source);
        number
    }

    /// Lets the process write; the number to write by.
    pub fn add_sink(&self, sink: Sink) -> u64 {
        let number = self.number();
        lock(&self.sinks).insert(number, Arc::new(Mutex::new(sink)));
        number
    }

    /// Lets an instance have arrays decoded.
    pub fn add_instance(&self, number: u64, decoding: Decoding) {
        lock(&self.instances).insert(number, decoding);
    }

    /// It has none decoded any more.
    pub fn remove_instance(&self, number: u64) {
        let gone = lock(&self.instances).remove(&number);
        drop(gone);
    }

    /// It reads there no more.
    pub fn remove_source(&self, number: u64) {
        let gone = lock(&self.sources).remove(&number);
        drop(gone);
    }

    /// It writes there no more.
    pub fn remove_sink(&self, number: u64) {
        let gone = lock(&self.sinks).remove(&number);
        drop(gone);
    }

    /// What came in rooms, in the order of the stream of an instance that works on their device.
    pub fn collect(&self, parts: &[RoomParts], stream: Option<&Stream>) -> Result<Vec<Buffer>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        match (&self.rooms, stream) {
            (Some(rooms), Some(stream)) => rooms.collect(parts, stream),
            _ => Err(Error::bad_data("arrays came on a device, where none were asked for")),
        }
    }

    /// The process is gone: nothing comes in its rooms any more, and nobody is at the other end of a lane. But the end itself it may
    /// have kept somewhere that did not go with it: with the host, even.
    pub fn forget_process(&self) {
        if let Some(rooms) = &self.rooms {
            rooms.forget();
        }
        let lanes = lock(&self.lanes).take();
        lanes.iter().flatten().for_each(|lane| lane.close());
    }

    /// Takes new lanes, and answers on each of them, until the process ends.
    pub fn accept(self: Arc<Self>, control: &Lane, threads: &Threads) {
        while let Ok(Some(message)) = control.receive() {
            let serve = |file| self.clone().serve(Lane::from(file).stall_for(STALL), threads);
            if !message.files.into_iter().all(serve) {
                break;
            }
        }
        control.close();
        // Nobody reads or writes for it any more.
        let gone = (std::mem::take(&mut *lock(&self.sources)), std::mem::take(&mut *lock(&self.sinks)));
        drop(gone);
    }

    /// Answers on one more lane, until it ends; whether it can.
    fn serve(self: Arc<Self>, lane: Lane, threads: &Threads) -> bool {
        let lane = Arc::new(lane);
        {
            let mut lanes = lock(&self.lanes);
            let has_room = |lanes: &&mut Vec<_>| lanes.len() < MOST_LANES + SPARE_LANES;
            let Some(lanes) = lanes.as_mut().filter(has_room) else { return false };
            lanes.push(lane.clone());
        }
        let serve = move || {
            lane.serve(&self.asked, |message| self.answer(message));
            if let Some(lanes) = lock(&self.lanes).as_mut() {
                lanes.retain(|other| !Arc::ptr_eq(other, &lane));
            }
        };
        threads.spawn(serve).is_ok()
    }

    pub fn answer(&self, question: Message) -> Reply {
        self.signs.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        let mut answer: std::result::Result<Grant, Failure> = Err(Error::internal("the host failed").into());
        let mut reply = Reply::default();
        crossdock_plugin_api::door::leave(|| {
            let Message { bytes, files } = question;
            let grant = || -> Result<Grant> {
                // What is written comes behind the wish, and is not read here.
                let (short, _) = bytes.split_at(bytes.len().min(wire::SMALL_BYTES));
                if let Ok((Wish::Write { sink }, rest)) = wire::read_head(short) {
                    return self.write(sink, bytes.get(short.len() - rest.len()..).unwrap_or_default());
                }
                let _counted = wire::count(bytes.len(), &self.allowed)?;
                self.grant(wire::read(&bytes)?, files, &mut reply)
            };
            answer = grant().map_err(Failure::from);
        });
        self.busy.fetch_sub(1, Ordering::Relaxed);
        let bytes = wire::write(&answer).unwrap_or_default();
        match fits(bytes.len().saturating_add(reply.after.len())) {
            Ok(()) => Reply { bytes, ..reply },
            Err(error) => {
                let answer: std::result::Result<Grant, Failure> = Err(error.into());
                Reply { bytes: wire::write(&answer).unwrap_or_default(), ..Reply::default() }
            }
        }
    }

    fn ended(&self, end: impl FnOnce()) {
        self.ending.fetch_add(1, Ordering::Relaxed);
        // It is somebody's code, which may panic.
        crossdock_plugin_api::door::leave(end);
        self.ending.fetch_sub(1, Ordering::Relaxed);
    }

    fn write(&self, sink: u64, bytes: &[u8]) -> Result<Grant> {
        let sink = lock(&self.sinks).get(&sink).cloned();
        let sink = sink.ok_or_else(|| Error::invalid_argument("a sink that was released"))?;
        lock(&sink).write(bytes)?;
        Ok(Grant::Done)
    }

    fn grant(&self, wish: Wish, files: Vec<OwnedFd>, reply: &mut Reply) -> Result<Grant> {
        match wish {
            Wish::Read { source, offset, bytes } => {
                let source = lock(&self.sources).get(&source).cloned();
                let source = source.ok_or_else(|| Error::invalid_argument("a source that was released"))?;
                reply.after.resize(bytes.min(MOST_READ) as usize, 0);
                let n = source.read_at(offset, &mut reply.after)?;
                reply.after.truncate(n);
                return Ok(Grant::Bytes);
            }
            // Its head is no longer than any message that is read as one.
            Wish::Write { sink } => return self.write(sink, &[]),
            Wish::EndSource(source) => self.ended(|| self.remove_source(source)),
            Wish::EndSink(sink) => self.ended(|| self.remove_sink(sink)),
            Wish::Decode { instance, call, tree, rooms } => {
                let by = lock(&self.instances).get(&instance).cloned();
                let by = by.ok_or_else(|| Error::invalid_argument("an instance that was destroyed"))?;
                let on = by.streams.on_device();
                let device = Device::from(call.device);
                let asked = lock(&self.calls).get(&call.number).cloned();
                let call = asked.unwrap_or_else(|| Arc::new(Progress::of(None)));
                if device != Device::CPU && on.is_none_or(|stream| stream.device() != device) {
                    return Err(Error::invalid_argument(format!("arrays on {device}, which it has not")));
                }
                let files =
                    Incoming::of_a_plugin(files, &self.allowed)?.with_rooms(self.collect(&rooms, on)?);
                let tree = tree.read(&files)?;
                let schema = column_schema(tree.root()?)?;
                // SAFETY: a default stream, which lives as long as the memory of `by`.
                let stream = unsafe { CallStream::new(by.streams.of(device).raw()) };
                let call = CallSettings {
                    stream,
                    cancel: call.cancel.clone(),
                    validate: call.validate,
                    byte_budget: call.byte_budget,
                    ..CallSettings::new(device)
                };
                let batch = call.enter(|call| by.host.decode(call, tree))?;
                let mut files = Outgoing::to_plugin(self.rooms.clone().map(|rooms| rooms as Arc<dyn Lender>));
                let batch = import_batch(batch, &schema, &by.memory)?;
                let message = BatchParts::write(batch, &by.streams, &mut files)?;
                let rooms = files.rooms().to_vec();
                reply.files = files.into_files()?;
                return Ok(Grant::Batch(With { message, rooms }));
            }
            Wish::Room { number, bytes } => {
                let none = || Error::invalid_argument("room on a device, which it has not");
                let (file, bytes) = self.rooms.as_ref().ok_or_else(none)?.ask(number, bytes)?;
                reply.files = vec![file];
                return Ok(Grant::Room(bytes));
            }
            Wish::Progress { call, done, total } => {
                if let Some(progress) = lock(&self.calls).get(&call) {
                    progress.done.store(done, Ordering::Relaxed);
                    progress.total.store(total, Ordering::Relaxed);
                }
            }
            Wish::EndRoom(number) => {
                if let Some(rooms) = &self.rooms {
                    rooms.end(number);
                }
            }
            Wish::Record { thread, ns, moment } => {
                if let (Some(trace), Some(process)) = (&self.trace, self.process.get()) {
                    trace.add(*process, &Record { thread, ns, moment: moment.into() });
                }
            }
            Wish::Log { level, message } => heard(&self.who, level, &message),
        }
        Ok(Grant::Done)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use crossdock_memory_backend::Backend;
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::freight::TreeParts;
    use crate::freight::tests::one_node;
    use crate::wire::CallParts;

    fn stranger() -> Desk {
        Desk::of("a stranger".into(), None, None, Allowance::of(1))
    }

    #[test]
    fn a_host_waits_for_what_the_threads_at_a_desk_have_and_they_do_not_for_themselves() {
        let (threads, (say, hear)) = (Threads::default(), std::sync::mpsc::channel::<()>());
        let theirs = Arc::new(());
        let (still, own) = (Arc::downgrade(&theirs), threads.clone());
        let work = move || {
            // It would be for ever.
            own.end_within(Duration::MAX);
            let _ = hear.recv();
            drop(theirs);
        };
        threads.spawn(work).unwrap();
        threads.end_within(Duration::from_millis(1));
        assert!(still.upgrade().is_some(), "it was not told to end yet");
        drop(say);
        threads.end_within(Duration::from_secs(60));
        assert!(still.upgrade().is_none());
    }

    #[test]
    fn lanes_of_which_a_process_gave_both_ends_away_end_with_it() {
        let (desk, threads) = (Arc::new(stranger()), Threads::default());
        let ((ours, theirs), (a, b)) = (Lane::pair().unwrap(), Lane::pair().unwrap());
        b.send(&[], &[], &[]).unwrap();
        theirs.send(&[], &[], &[a.as_fd(), b.as_fd()]).unwrap();
        drop((a, b));
        let (served, others) = (desk.clone(), threads.clone());
        threads.spawn(move || served.accept(&ours, &others)).unwrap();
        let begin = std::time::Instant::now();
        while desk.signs.load(Ordering::Relaxed) < 100 {
            assert!(begin.elapsed() < Duration::from_secs(60), "the host does not answer itself");
        }
        drop(theirs);
        threads.end_within(Duration::from_millis(1));
        assert!(Arc::strong_count(&desk) > 2, "both answer each other");
        desk.forget_process();
        threads.end_within(Duration::from_secs(60));
        assert_eq!(Arc::strong_count(&desk), 1);
    }

    fn refused(desk: &Desk, wish: &Wish) -> String {
        let reply = desk.answer(Message { bytes: wire::write(wish).unwrap(), files: Vec::new() });
        let answer: std::result::Result<Grant, Failure> = wire::read(&reply.bytes).unwrap();
        Error::from(answer.err().unwrap()).to_string()
    }

    #[test]
    fn what_a_process_says_counts_before_it_is_read() {
        const NODES: usize = 20_000;
        let mut many = Vec::new();
        let call = CallSettings::new(Device::CPU).enter(|call| CallParts::of(call, 1, Device::CPU));
        for nodes in [1, NODES] {
            let tree = TreeParts::of_equal_nodes(one_node(0, Vec::new()).root().unwrap(), nodes);
            many.push(Wish::Decode { instance: 1, call, tree, rooms: Vec::new() });
        }
        let bytes = wire::write(&many[1]).unwrap().len();
        assert!(bytes > wire::SMALL_BYTES);
        for (limit_bytes, is_refused) in [(1 << 20, true), (1 << 30, false)] {
            let backend = Backend::builder().limit_bytes(limit_bytes).build();
            let allowed = Allowance::default().counted_by(backend.account("chatty (its process)"));
            let desk = Desk::of("chatty".into(), None, None, allowed);
            assert!(refused(&desk, &many[0]).contains("an instance that was destroyed"));
            let said = refused(&desk, &many[1]);
            assert_eq!(said.contains("'chatty (its process)' asked for"), is_refused, "{said}");
            assert_eq!(
                said.contains(&format!("a message of {bytes} bytes of its process")),
                is_refused,
                "{said}"
            );
            assert_eq!(backend.ledger().live_bytes(), 0);
        }
    }

    #[test]
    fn what_is_written_is_passed_on_whatever_its_length() {
        let (desk, written) = (stranger(), Arc::new(Mutex::new(Vec::new())));
        let number = desk.add_sink(Sink::new(Box::new(Kept(written.clone()))));
        for bytes in [0, 1, wire::SMALL_BYTES - 2, wire::SMALL_BYTES, 3 * wire::SMALL_BYTES + 1] {
            let piece: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
            let question = [wire::write(&Wish::Write { sink: number }).unwrap(), piece.clone()].concat();
            let reply = desk.answer(Message { bytes: question, files: Vec::new() });
            let answer: std::result::Result<Grant, Failure> = wire::read(&reply.bytes).unwrap();
            assert!(answer.is_ok());
            assert!(std::mem::take(&mut *written.lock().unwrap()) == piece, "{bytes} bytes");
        }
    }

    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl crossdock_plugin_api::ByteSink for Kept {
        fn name(&self) -> &str {
            "memory"
        }

        fn write(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn of_a_device_that_it_has_not_a_process_gets_nothing() {
        let (desk, host) = (stranger(), TestHost::new());
        assert!(refused(&desk, &Wish::Room { number: 1, bytes: 64 }).contains("which it has not"));
        let came = desk.collect(&[RoomParts { number: 1, bytes: 64 }], None).err().unwrap();
        assert!(came.message().contains("where none were asked for"), "{came}");
        let streams = Streams::new(host.stream(Device::CPU), None);
        desk.add_instance(1, Decoding { host: host.host(), memory: host.memory(), streams });
        let tree = one_node(0, Vec::new());
        for device in [Device::cuda(7), Device::UNTOUCHABLE] {
            let tree = TreeParts::write(tree.root().unwrap(), &mut Outgoing::default()).unwrap();
            let call = CallSettings::new(device).enter(|call| CallParts::of(call, 1, device));
            let said = refused(&desk, &Wish::Decode { instance: 1, call, tree, rooms: Vec::new() });
            assert!(said.contains(&format!("arrays on {device}, which it has not")), "{said}");
        }
    }
}
