//! The process of an isolated plugin: loads it, and does what the host asks.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crossdock_arrays::{export_batch, import_result, import_schema};
use crossdock_memory_backend::{Backend, BackendBuilder, Record, Trace};
use crossdock_plugin_api::{
    Call, CallSettings, CallStream, CancelFlag, Device, EncodedArray, Error, Input, Options, Result, Sink,
    Source,
};

use crate::confine::{confine, limit};
use crate::environment::refuse_if_privileged;
use crate::freight::{BatchParts, TreeParts, column_schema, read_schema, write_schema};
use crate::hosting::{HostLibrary, LoadedPlugin};
use crate::lanes::{Lanes, MOST_LANES};
use crate::link::{InFlight, Lane, Message, Reply, fits};
use crate::log::Teller;
use crate::outgoing::Outgoing;
use crate::program::DEVICE_VARIABLE;
use crate::rooms::{RoomParts, Streams};
use crate::serve_ask::Ask;
use crate::serve_instance::{Came, Instance, OpenStream, OpenWriter, decode_by_host};
use crate::serve_objects::{HandedSink, HandedSource};
use crate::serve_rooms::HostRooms;
use crate::shared::Incoming;
use crate::wire::{
    self, Answer, CallParts, Failure, FormatParts, Order, PlanParts, Remark, Settings, Wish, With,
};

/// Serves the host that started this process as [`Program`](crate::Program) says, over standard input, until that closes it. It
/// gives up what a plugin has no use for first: files, network, other processes. A process with rights that its caller need not
/// have serves nobody.
pub fn serve(library: impl HostLibrary) -> ExitCode {
    match run(Box::new(library)) {
        Ok(never) => match never {},
        Err(error) => {
            // Whoever started it by hand reads this; a host sees the end.
            eprintln!(
                "crossdock: {error}: this is started by a host, which speaks with it through standard input"
            );
            ExitCode::FAILURE
        }
    }
}

fn run(library: Box<dyn HostLibrary>) -> Result<std::convert::Infallible> {
    // Its code would be whatever the caller hands it, whose rights are another's.
    refuse_if_privileged("no plugin is served here")?;
    close_others();
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let failed = |what: &str, error: rustix::io::Errno| Error::io(format!("{what}: {error}"));
    let is_socket = rustix::net::sockopt::socket_type(&control);
    is_socket.map_err(|error| failed("standard input is no socket", error))?;
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| failed("cannot close standard input", error))?;
    let device = std::env::var(DEVICE_VARIABLE).ok().map(|name| name.parse::<Device>()).transpose();
    let device = device.and_then(|device| confine(device, |device| library.stream(device)).map(|()| device));
    let (receiver, sender) = (Lane::from(control.try_clone()?), Lane::from(control));
    // The host has its own reasons to be slow.
    let ask = Arc::new(Ask(Lanes::new(sender, MOST_LANES, Duration::from_secs(24 * 60 * 60))));
    let told = ask.clone();
    let tell = move |level, message| told.mention(&Wish::Log { level, message });
    // Nobody else has set one: nothing ran before.
    let _ = tracing::subscriber::set_global_default(Teller(tell));
    let server = Arc::new(Server::new(library, ask, device));
    while let Ok(Some(message)) = receiver.receive() {
        if message.files.is_empty() {
            server.heed(&message.bytes);
        }
        for file in message.files {
            let (server, lane) = (server.clone(), Lane::from(file));
            let serve = move || lane.serve(&InFlight::default(), |message| server.answer(message));
            std::thread::Builder::new().name("crossdock-serve".into()).spawn(serve)?;
        }
    }
    // The host is gone, or wants no more. Its instances have their end, if it is a short one.
    server.library.settle_within(END);
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Closes what the host has left open by mistake: nothing else is open yet that is used from here on.
fn close_others() {
    // SAFETY: three numbers. Where the system does not know the call, nothing happens.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

/// How long instances have to end in. The host waits a little longer.
const END: Duration = Duration::from_secs(1);

struct Server {
    library: Box<dyn HostLibrary>,
    ask: Arc<Ask>,
    /// Whether a plugin may be loaded here, and what it has beside the CPU.
    device: Result<Option<Device>>,
    /// The plugin, and the memory of its host.
    loaded: OnceLock<(Box<dyn LoadedPlugin>, Backend)>,
    instances: Numbered<Arc<Instance>>,
    streams: Numbered<Arc<Mutex<OpenStream>>>,
    writers: Numbered<Arc<Mutex<OpenWriter>>>,
    calls: Arc<Numbered<CancelFlag>>,
    next: AtomicU64,
}

/// Objects by the numbers that the host knows them by.
struct Numbered<T>(Mutex<HashMap<u64, T>>);

impl<T: Clone> Numbered<T> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, number: u64) -> Result<T> {
        let gone = || Error::invalid_argument("an object that was released");
        self.all().get(&number).cloned().ok_or_else(gone)
    }

    fn remove(&self, number: u64) {
        let gone = self.all().remove(&number);
        // Without the lock: its end may take a while.
        drop(gone);
    }
}

impl Numbered<CancelFlag> {
    /// The number of a call of the host's, by the flag, which is its alone; 0 for one that a plugin made up.
    fn number(&self, call: &Call<'_>) -> u64 {
        self.all().iter().find(|(_, flag)| flag.is_of(call)).map_or(0, |(number, _)| *number)
    }
}

impl Server {
    fn new(library: Box<dyn HostLibrary>, ask: Arc<Ask>, device: Result<Option<Device>>) -> Self {
        let (instances, streams, writers) = (Numbered::new(), Numbered::new(), Numbered::new());
        let (loaded, calls, next) = (OnceLock::new(), Arc::new(Numbered::new()), AtomicU64::new(1));
        Self { library, ask, device, loaded, instances, streams, writers, calls, next }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What is said without a question.
    fn heed(&self, bytes: &[u8]) {
        if let Ok(Remark::Cancel(call)) = wire::read(bytes)
            && let Ok(flag) = self.calls.get(call)
        {
            flag.cancel();
        }
    }

    fn answer(&self, message: Message) -> Reply {
        let mut files = Outgoing::default();
        let read = wire::read::<(Order, Vec<RoomParts>)>(&message.bytes);
        let answer = read.and_then(|(order, rooms)| {
            let came = Came { files: message.files, rooms };
            self.obey(order, came, &mut files)
        });
        let rooms = files.rooms().to_vec();
        let sent =
            answer.and_then(|message| Ok((With { message, rooms: rooms.clone() }, files.into_files()?)));
        let answer = |answer: Result<With<Answer>>| wire::write(&answer.map_err(Failure::from));
        let written = sent.and_then(|(message, files)| {
            let bytes = answer(Ok(message))?;
            fits(bytes.len()).map(|()| (bytes, files))
        });
        let failed = |error| {
            self.ask.end_rooms(&rooms);
            (answer(Err(error)).unwrap_or_default(), Vec::new())
        };
        let (bytes, files) = written.unwrap_or_else(failed);
        Reply { bytes, files, ..Reply::default() }
    }

    /// Does what it is asked, where `files` came and `to` go with the answer.
    fn obey(&self, order: Order, came: Came, to: &mut Outgoing) -> Result<Answer> {
        match order {
            Order::Load { version, who, memory_limit_bytes, recorded_from } => {
                let trace = recorded_from.map(|began| self.trace(began));
                self.load(&version, who, memory_limit_bytes, trace, came.files)?;
            }
            Order::Create(settings) => return self.create(settings),
            Order::Destroy(instance) => self.instances.remove(instance),
            Order::EndStream(stream) => self.streams.remove(stream),
            Order::EndWriter(writer) => self.writers.remove(writer),
            Order::Open { instance, call, format, input, schema, options } => {
                let at = self.instances.get(instance)?;
                let source = HandedSource::new(input, &Incoming::of_the_host(came.files)?, self.ask.clone());
                let schema = schema.map(|bytes| read_schema(&bytes)).transpose()?.map(|(raw, _)| raw);
                let input = Input::Source(Source::new(Arc::new(source)));
                let options = wishes(options);
                let called = self.called(call, &at);
                let importer = at.plugin.importer()?;
                let open = || importer.open(&called.settings, &format, input, schema.as_ref(), &options);
                let mut stream = at.call("importer.open", open)?;
                let schema = at.call("stream.get_schema", || stream.schema())?;
                let (bytes, schema) = (write_schema(&schema)?, Arc::new(import_schema(&schema)?));
                let number = self.number();
                self.streams.all().insert(number, Arc::new(Mutex::new(OpenStream { stream, schema, at })));
                return Ok(Answer::Stream { number, schema: bytes });
            }
            Order::Next { stream, call } => {
                let stream = self.streams.get(stream)?;
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                let called = self.called(call, &stream.at);
                let OpenStream { stream, schema, at } = &mut *stream;
                let Some(batch) = at.call("stream.get_next", || {
                    Ok(stream.next(&called.settings)?.map(|batch| at.plugin.given(batch)))
                })?
                else {
                    return Ok(Answer::Batch(None));
                };
                let batch = import_result(batch, schema, at.streams.of(called.settings.device))?;
                *to = at.outgoing();
                return BatchParts::write(batch, &at.streams, to).map(|batch| Answer::Batch(Some(batch)));
            }
            Order::Plan { instance, call, format, schema, from, options } => {
                let at = self.instances.get(instance)?;
                let (schema, _) = read_schema(&schema)?;
                let called = self.called(call, &at);
                let exporter = at.plugin.exporter()?;
                let options = wishes(options);
                let plan = || exporter.plan(&called.settings, &format, &schema, from.into(), &options);
                let plan = at.call("exporter.plan", plan)?;
                return Ok(Answer::Plan(plan.into_iter().map(PlanParts::from).collect()));
            }
            Order::Begin { instance, call, format, schema, options, sink } => {
                let at = self.instances.get(instance)?;
                let (raw, schema) = read_schema(&schema)?;
                let sink = Sink::new(Box::new(HandedSink::new(sink, self.ask.clone())));
                let called = self.called(call, &at);
                let exporter = at.plugin.exporter()?;
                let options = wishes(options);
                let begin = || exporter.begin(&called.settings, &format, &raw, &options, Some(sink));
                let writer = at.call("exporter.begin", begin)?;
                let number = self.number();
                let open = OpenWriter { writer: Some(writer), schema, at };
                self.writers.all().insert(number, Arc::new(Mutex::new(open)));
                return Ok(Answer::Writer(number));
            }
            Order::Write { writer, call, batch } => {
                let writer = self.writers.get(writer)?;
                let mut open = writer.lock().unwrap_or_else(PoisonError::into_inner);
                let batch = batch.read(&open.schema, &open.at.incoming(came)?)?;
                let batch = export_batch(&batch, false, open.at.streams.of(batch.device()))?;
                let called = self.called(call, &open.at);
                let OpenWriter { writer, at, .. } = &mut *open;
                let writer = writer.as_mut().ok_or_else(|| Error::invalid_argument("write after finish"))?;
                at.call("writer.write", || writer.write(&called.settings, at.plugin.taken(batch)))?;
            }
            Order::Finish { writer, call } => {
                let writer = self.writers.get(writer)?;
                let mut open = writer.lock().unwrap_or_else(PoisonError::into_inner);
                let called = self.called(call, &open.at);
                let writer =
                    open.writer.take().ok_or_else(|| Error::invalid_argument("finish was called before"))?;
                open.at.call("writer.finish", || writer.finish(&called.settings))?;
            }
            Order::Check { instance, tree } => {
                let (at, tree) = self.tree(instance, tree, came)?;
                let encoding = at.encoding()?;
                at.call("encoding.check", || encoding.check(&tree, 0))?;
            }
            Order::Size { instance, tree } => {
                let (at, tree) = self.tree(instance, tree, came)?;
                let encoding = at.encoding()?;
                return at.call("encoding.size", || encoding.size(&tree, 0)).map(Answer::Size);
            }
            Order::Lower { instance, tree } => {
                let (at, tree) = self.tree(instance, tree, came)?;
                let encoding = at.encoding()?;
                let program = at.call("encoding.lower", || encoding.lower(&tree, 0))?;
                let parts = |raw: crossdock_plugin_api::abi::Operator| (raw.code, raw.index, raw.a, raw.b);
                let parts = program.map(|program| program.into_iter().map(|o| parts(o.raw())).collect());
                return Ok(Answer::Program(parts));
            }
            Order::PlanDecoding { instance, tree, wanted } => {
                let (at, tree) = self.tree(instance, tree, came)?;
                let encoding = at.encoding()?;
                let plan = || encoding.plan(&tree, 0, wanted.into());
                return at.call("encoding.plan", plan).map(Answer::from);
            }
            Order::Decode { instance, call, tree, below } => {
                let at = self.instances.get(instance)?;
                let files = at.incoming(came)?;
                *to = at.outgoing();
                let tree = tree.read(&files)?;
                return self.decode(&at, call, &tree, below, &files, to);
            }
        }
        Ok(Answer::Done)
    }

    /// Has calls recorded by the host, which began to do so then.
    fn trace(&self, began: Duration) -> Arc<Trace> {
        let ask = self.ask.clone();
        let tell = move |record: Record<'_>| {
            let Record { thread, ns, moment } = record;
            ask.mention(&Wish::Record { thread, ns, moment: moment.into() });
        };
        Arc::new(Trace::of_another(began, tell))
    }

    fn load(
        &self,
        version: &str,
        who: String,
        memory_limit: u64,
        trace: Option<Arc<Trace>>,
        files: Vec<OwnedFd>,
    ) -> Result<()> {
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            return Err(Error::version(format!(
                "the program that runs isolated plugins is of crossdock {own}, the host of {version}: install them together"
            )));
        }
        let device = self.device.clone()?;
        let mut files = files.into_iter();
        let (Some(file), None) = (files.next(), files.next()) else {
            return Err(Error::invalid_argument("a plugin comes in one file"));
        };
        limit(memory_limit, device.is_some())?;
        let limit = usize::try_from(memory_limit).ok().filter(|limit| *limit > 0);
        let backend = limit.into_iter().fold(Backend::builder(), BackendBuilder::limit_bytes);
        let backend = trace.into_iter().fold(backend, BackendBuilder::trace).build();
        let plugin = self.library.load(File::from(file), who, backend.clone())?;
        // It is the first order, and comes once.
        self.loaded.set((plugin, backend)).map_err(|_| Error::invalid_argument("a plugin is loaded already"))
    }

    fn create(&self, settings: Settings) -> Result<Answer> {
        let none = || Error::invalid_argument("no plugin is loaded");
        let (loaded, backend) = self.loaded.get().ok_or_else(none)?;
        let (number, ask, calls) = (self.number(), self.ask.clone(), self.calls.clone());
        // Instances of other plugins are the host's.
        let device = self.device.clone()?;
        let on = loaded.stream(device.unwrap_or(Device::CPU))?;
        let cpu = on.memory().default_stream(Device::CPU)?;
        let streams = Streams::new(cpu, Some(on).filter(|stream| stream.device() != Device::CPU));
        let rooms = HostRooms::new(ask.clone(), backend.clone(), &streams).map(Arc::new);
        let (for_decoder, own) = (rooms.clone(), streams.clone());
        let decoder = Arc::new(move |call: &Call<'_>, array| {
            let call = CallParts::of(call, calls.number(call), call.device());
            decode_by_host(&ask, number, call, array, &own, for_decoder.as_ref())
        });
        let settings = crossdock_plugin_api::SessionSettings {
            device: device.unwrap_or(Device::CPU),
            memory_limit_bytes: settings.memory_limit_bytes,
            threads: settings.threads.max(1) as usize,
        };
        let plugin = loaded.create(settings.device, settings, decoder)?;
        let formats = |formats: &[crossdock_plugin_api::Format], is_there: bool| {
            is_there.then(|| formats.iter().map(|format| FormatParts::of(format, device.is_some())).collect())
        };
        let importer = formats(plugin.importer_formats(), plugin.importer().is_ok());
        let exporter = formats(plugin.exporter_formats(), plugin.exporter().is_ok());
        let encodings = plugin.encoding().map(|encoding| (plugin.encodings().to_vec(), encoding.decodes()));
        self.instances.all().insert(number, Arc::new(Instance { plugin, streams, rooms }));
        Ok(Answer::Instance { number, importer, exporter, encodings })
    }

    fn tree(&self, instance: u64, tree: TreeParts, came: Came) -> Result<(Arc<Instance>, EncodedArray)> {
        let at = self.instances.get(instance)?;
        let tree = tree.read(&at.incoming(came)?)?;
        Ok((at, tree))
    }

    fn decode(
        &self,
        at: &Instance,
        call: CallParts,
        tree: &EncodedArray,
        below: Vec<Option<BatchParts>>,
        files: &Incoming,
        to: &mut Outgoing,
    ) -> Result<Answer> {
        let given = |(batch, index): (Option<BatchParts>, usize)| {
            let Some(batch) = batch else { return Ok(None) };
            let batch = batch.read(&column_schema(tree.node(index)?)?, files)?;
            export_batch(&batch, false, at.streams.of(batch.device())).map(Some)
        };
        let below = below.into_iter().zip(1..).map(given).collect::<Result<_>>()?;
        let called = self.called(call, at);
        let encoding = at.encoding()?;
        let decode = || {
            let batch = encoding.decode(&called.settings, tree, 0, below)?;
            Ok(at.plugin.given(batch))
        };
        let batch = at.call("encoding.decode", decode)?;
        let on = at.streams.of(called.settings.device);
        let batch = import_result(batch, &column_schema(tree.root()?)?, on)?;
        BatchParts::write(batch, &at.streams, to).map(|batch| Answer::Batch(Some(batch)))
    }

    /// A call of an instance, of which the host hears, and which it can cancel.
    fn called(&self, parts: CallParts, at: &Instance) -> Called<'_> {
        let cancel = CancelFlag::new();
        self.calls.all().insert(parts.number, cancel.clone());
        let progress = Some(self.ask.clone().progress(parts.number));
        let settings = CallSettings { cancel, progress, ..parts.settings() };
        let stream = at.streams.of(settings.device);
        // SAFETY: the device's default one, which lives as long as the memory of the instance, which the caller keeps.
        let settings = CallSettings { stream: unsafe { CallStream::new(stream.raw()) }, ..settings };
        Called { server: self, number: parts.number, settings }
    }
}

/// A call, while it is on its way.
struct Called<'a> {
    server: &'a Server,
    number: u64,
    settings: CallSettings,
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        self.server.calls.remove(self.number);
    }
}

fn wishes(pairs: Vec<(String, String)>) -> Options {
    pairs.into_iter().fold(Options::new(), |options, (key, value)| options.with(key, value))
}
