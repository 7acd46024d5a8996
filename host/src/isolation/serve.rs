//! The process of an isolated plugin: loads it, and does what the host asks.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crossdock_arrays::{export_batch, import_batch, import_schema};
use crossdock_memory_backend::{Backend, BackendBuilder};
use crossdock_plugin_api::{
    CallSettings, CancelFlag, Device, EncodedArray, Error, Input, Options, Result, Sink, Source,
};

use super::confine::{confine, limit};
use super::freight::{BatchParts, TreeParts, read_schema, write_schema};
use super::link::{Lane, Lanes, Message, Reply};
use super::log::Teller;
use super::remote::column_schema;
use super::serve_objects::{Ask, HandedSink, HandedSource, OpenStream, OpenWriter};
use super::shared::{Incoming, Outgoing};
use super::wire::{self, Answer, CallParts, Failure, FormatParts, Order, PlanParts, Remark, Settings, Wish};
use crate::discovery::Search;
use crate::host::Host;
use crate::janitor;
use crate::load::Handed;
use crate::plugin::Plugin;
use crate::session::Session;

/// Serves the host that started this process as [`Program`](super::Program) says, over standard input, until that closes it. It
/// gives up what a plugin has no use for first: files, network, other processes.
pub fn serve() -> ExitCode {
    match run() {
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

fn run() -> Result<std::convert::Infallible> {
    close_others();
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let failed = |what: &str, error: rustix::io::Errno| Error::io(format!("{what}: {error}"));
    let is_socket = rustix::net::sockopt::socket_type(&control);
    is_socket.map_err(|error| failed("standard input is no socket", error))?;
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| failed("cannot close standard input", error))?;
    let confined = confine();
    let (receiver, sender) = (Lane::from(control.try_clone()?), Lane::from(control));
    // The host has its own reasons to be slow.
    let ask = Arc::new(Ask(Lanes::new(sender, Duration::from_secs(24 * 60 * 60))?));
    let told = ask.clone();
    let tell = move |level, message| told.tell(&Wish::Log { level, message });
    // Nobody else has set one: nothing ran before.
    let _ = tracing::subscriber::set_global_default(Teller(tell));
    let server = Arc::new(Server::new(ask, confined));
    while let Ok(Some(message)) = receiver.receive() {
        if message.files.is_empty() {
            server.heed(&message.bytes);
        }
        for file in message.files {
            let (server, lane) = (server.clone(), Lane::from(file));
            let serve = move || lane.serve(|message| server.answer(message));
            std::thread::Builder::new().name("crossdock-serve".into()).spawn(serve)?;
        }
    }
    // The host is gone, or wants no more. Its instances have their end, if it is a short one.
    janitor::settle_within(END);
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
    ask: Arc<Ask>,
    /// Whether a plugin may be loaded here.
    confined: Result<()>,
    host: OnceLock<(Host, String)>,
    instances: Numbered<Arc<Instance>>,
    streams: Numbered<Arc<Mutex<OpenStream>>>,
    writers: Numbered<Arc<Mutex<OpenWriter>>>,
    calls: Numbered<CancelFlag>,
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

/// An instance, in a session of its own.
pub struct Instance {
    // Before the session in which it is.
    plugin: Arc<Plugin>,
    pub session: Session,
}

impl Server {
    fn new(ask: Arc<Ask>, confined: Result<()>) -> Self {
        let (instances, streams, writers) = (Numbered::new(), Numbered::new(), Numbered::new());
        let (host, calls, next) = (OnceLock::new(), Numbered::new(), AtomicU64::new(1));
        Self { ask, confined, host, instances, streams, writers, calls, next }
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
        let answer = wire::read(&message.bytes).and_then(|order| self.obey(order, message.files, &mut files));
        let sent = answer.and_then(|answer| Ok((answer, files.into_files()?)));
        let (answer, files) = sent.map_or_else(|error| (Err(error), Vec::new()), |(a, files)| (Ok(a), files));
        let bytes = wire::write(&answer.map_err(Failure::from)).unwrap_or_default();
        Reply { bytes, files, ..Reply::default() }
    }

    /// Does what it is asked, where `files` came and `to` go with the answer.
    fn obey(&self, order: Order, files: Vec<OwnedFd>, to: &mut Outgoing) -> Result<Answer> {
        match order {
            Order::Load { version, who, memory_limit_bytes } => {
                self.load(&version, who, memory_limit_bytes, files)?;
            }
            Order::Create(settings) => return self.create(settings),
            Order::Destroy(instance) => self.instances.remove(instance),
            Order::EndStream(stream) => self.streams.remove(stream),
            Order::EndWriter(writer) => self.writers.remove(writer),
            Order::Open { instance, call, format, input, schema, options } => {
                let at = self.instances.get(instance)?;
                let source = HandedSource::new(input, &Incoming::of_the_host(files)?, self.ask.clone());
                let schema = schema.map(|bytes| read_schema(&bytes)).transpose()?.map(|(raw, _)| raw);
                let input = Input::Source(Source::new(Arc::new(source)));
                let options = wishes(options);
                let called = self.called(call);
                let importer = at.plugin.importer().map_err(internal)?;
                let mut stream =
                    importer.open(&called.settings, &format, input, schema.as_ref(), &options)?;
                let schema = stream.schema()?;
                let (bytes, schema) = (write_schema(&schema)?, Arc::new(import_schema(&schema)?));
                let number = self.number();
                self.streams.all().insert(number, Arc::new(Mutex::new(OpenStream { stream, schema, at })));
                return Ok(Answer::Stream { number, schema: bytes });
            }
            Order::Next { stream, call } => {
                let stream = self.streams.get(stream)?;
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                let called = self.called(call);
                let Some(batch) = stream.stream.next(&called.settings)? else {
                    return Ok(Answer::Batch(None));
                };
                let session = &stream.at.session;
                let batch = import_batch(batch, &stream.schema, session.memory())?;
                return BatchParts::write(batch, session.stream(), to)
                    .map(|batch| Answer::Batch(Some(batch)));
            }
            Order::Plan { instance, call, format, schema, from, options } => {
                let at = self.instances.get(instance)?;
                let (schema, _) = read_schema(&schema)?;
                let called = self.called(call);
                let exporter = at.plugin.exporter().map_err(internal)?;
                let plan =
                    exporter.plan(&called.settings, &format, &schema, from.into(), &wishes(options))?;
                return Ok(Answer::Plan(plan.into_iter().map(PlanParts::from).collect()));
            }
            Order::Begin { instance, call, format, schema, options, sink } => {
                let at = self.instances.get(instance)?;
                let (raw, schema) = read_schema(&schema)?;
                let sink = Sink::new(Box::new(HandedSink::new(sink, self.ask.clone())));
                let called = self.called(call);
                let exporter = at.plugin.exporter().map_err(internal)?;
                let writer = exporter.begin(&called.settings, &format, &raw, &wishes(options), Some(sink))?;
                let number = self.number();
                let open = OpenWriter { writer: Some(writer), schema, at };
                self.writers.all().insert(number, Arc::new(Mutex::new(open)));
                return Ok(Answer::Writer(number));
            }
            Order::Write { writer, call, batch } => {
                let writer = self.writers.get(writer)?;
                let mut open = writer.lock().unwrap_or_else(PoisonError::into_inner);
                let batch = batch.read(&open.schema, &Incoming::of_the_host(files)?)?;
                let batch = export_batch(&batch, false, open.at.session.stream())?;
                let called = self.called(call);
                let writer =
                    open.writer.as_mut().ok_or_else(|| Error::invalid_argument("write after finish"))?;
                writer.write(&called.settings, batch)?;
            }
            Order::Finish { writer, call } => {
                let writer = self.writers.get(writer)?;
                let mut open = writer.lock().unwrap_or_else(PoisonError::into_inner);
                let called = self.called(call);
                let writer =
                    open.writer.take().ok_or_else(|| Error::invalid_argument("finish was called before"))?;
                writer.finish(&called.settings)?;
            }
            Order::Check { instance, tree } => {
                let (at, tree) = self.tree(instance, tree, files)?;
                at.encoding()?.check(&tree, 0)?;
            }
            Order::Size { instance, tree } => {
                let (at, tree) = self.tree(instance, tree, files)?;
                return at.encoding()?.size(&tree, 0).map(Answer::Size);
            }
            Order::Lower { instance, tree } => {
                let (at, tree) = self.tree(instance, tree, files)?;
                let program = at.encoding()?.lower(&tree, 0)?;
                let parts = |raw: crossdock_plugin_api::abi::Operator| (raw.code, raw.index, raw.a, raw.b);
                let parts = program.map(|program| program.into_iter().map(|o| parts(o.raw())).collect());
                return Ok(Answer::Program(parts));
            }
            Order::PlanDecoding { instance, tree, wanted } => {
                let (at, tree) = self.tree(instance, tree, files)?;
                return at.encoding()?.plan(&tree, 0, wanted.into()).map(Answer::from);
            }
            Order::Decode { instance, call, tree, below } => {
                let at = self.instances.get(instance)?;
                let files = Incoming::of_the_host(files)?;
                let tree = tree.read(&files)?;
                return self.decode(&at, call, &tree, below, &files, to);
            }
        }
        Ok(Answer::Done)
    }

    fn load(&self, version: &str, who: String, memory_limit: u64, files: Vec<OwnedFd>) -> Result<()> {
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            return Err(Error::version(format!(
                "the program that runs isolated plugins is of crossdock {own}, the host of {version}: install them together"
            )));
        }
        self.confined.clone()?;
        let mut files = files.into_iter();
        let (Some(file), None) = (files.next(), files.next()) else {
            return Err(Error::invalid_argument("a plugin comes in one file"));
        };
        let handed = Handed::new(File::from(file), who);
        limit(memory_limit)?;
        let limit = usize::try_from(memory_limit).ok().filter(|limit| *limit > 0);
        let backend = limit.into_iter().fold(Backend::builder(), BackendBuilder::limit_bytes).build();
        let host = Host::builder().search(Search::nowhere().handed(handed)).backend(backend).build();
        let host = host.map_err(internal)?;
        let name = host.plugins().next().map(|metadata| metadata.name.clone());
        let name = name.ok_or_else(|| Error::internal("the plugin was refused"))?;
        host.load(&name).map_err(internal)?;
        // It is the first order, and comes once.
        self.host.set((host, name)).map_err(|_| Error::invalid_argument("a plugin is loaded already"))
    }

    fn create(&self, settings: Settings) -> Result<Answer> {
        let none = || Error::invalid_argument("no plugin is loaded");
        let (host, name) = self.host.get().ok_or_else(none)?;
        let (number, ask) = (self.number(), self.ask.clone());
        // Instances of other plugins are the host's.
        let stream = host.session().open().map_err(internal)?.stream().clone();
        let decoder = Arc::new(move |array| ask.decode(number, array, &stream));
        let session = host.session().decoder(decoder).open().map_err(internal)?;
        let settings = crossdock_plugin_api::SessionSettings {
            device: Device::CPU,
            memory_limit_bytes: settings.memory_limit_bytes,
            threads: settings.threads.max(1) as usize,
        };
        let plugin = session.instance(name, name, settings).map_err(internal)?;
        let formats = |formats: &[crossdock_plugin_api::Format], is_there: bool| {
            is_there.then(|| formats.iter().map(FormatParts::from).collect())
        };
        let importer = formats(plugin.importer_formats(), plugin.importer().is_ok());
        let exporter = formats(plugin.exporter_formats(), plugin.exporter().is_ok());
        let encodings = plugin.encoding().is_some().then(|| plugin.encodings().to_vec());
        self.instances.all().insert(number, Arc::new(Instance { plugin, session }));
        Ok(Answer::Instance { number, importer, exporter, encodings })
    }

    fn tree(
        &self,
        instance: u64,
        tree: TreeParts,
        files: Vec<OwnedFd>,
    ) -> Result<(Arc<Instance>, EncodedArray)> {
        Ok((self.instances.get(instance)?, tree.read(&Incoming::of_the_host(files)?)?))
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
        let (memory, stream) = (at.session.memory(), at.session.stream());
        let given = |(batch, index): (Option<BatchParts>, usize)| {
            let Some(batch) = batch else { return Ok(None) };
            let batch = batch.read(&column_schema(tree.node(index)?)?, files)?;
            export_batch(&batch, false, stream).map(Some)
        };
        let below = below.into_iter().zip(1..).map(given).collect::<Result<_>>()?;
        let called = self.called(call);
        let batch = at.encoding()?.decode(&called.settings, tree, 0, below)?;
        let batch = import_batch(batch, &column_schema(tree.root()?)?, memory)?;
        BatchParts::write(batch, stream, to).map(|batch| Answer::Batch(Some(batch)))
    }

    /// A call, of which the host hears, and which it can cancel.
    fn called(&self, parts: CallParts) -> Called<'_> {
        let cancel = CancelFlag::new();
        self.calls.all().insert(parts.number, cancel.clone());
        let progress = Some(self.ask.clone().progress(parts.number));
        let settings = CallSettings { cancel, progress, ..parts.settings() };
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

impl Instance {
    fn encoding(&self) -> Result<crossdock_plugin_api::EncodingHandle<'_>> {
        self.plugin.encoding().ok_or_else(|| Error::unsupported("this plugin has no encodings"))
    }
}

fn wishes(pairs: Vec<(String, String)>) -> Options {
    pairs.into_iter().fold(Options::new(), |options, (key, value)| options.with(key, value))
}

/// The host's error as a plugin's, with the plugin's own code where it has one.
fn internal(error: crate::Error) -> Error {
    match error {
        crate::Error::Plugin { source, .. } => source,
        other => Error::unsupported(other.one_line()),
    }
}
