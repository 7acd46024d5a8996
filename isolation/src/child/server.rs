//! The main function of a plugin's process: confines it, loads the plugin and serves the host's
//! requests.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crossdock_memory_backend::{Backend, BackendBuilder, Record, Trace};
use crossdock_plugin_api::{
    Call, CancelFlag, ChildType, Device, EncodedArray, EncodedNode, Error, Format, Owned, Result,
    SessionSettings, abi,
};

use crate::child::host_client::HostClient;
use crate::child::instance::{Attachments, Instance, OpenWriter, children_by_host, decode_by_host};
use crate::child::library::{Decoder, HostLibrary, LoadedPlugin};
use crate::child::log::HostLogger;
use crate::child::object_table::ObjectTable;
use crate::child::open_stream::OpenStream;
use crate::child::received_segments::ReceivedSegments;
use crate::sandbox::confine::{confine, limit_memory};
use crate::sandbox::environment::refuse_if_privileged;
use crate::wire::channel::{Channel, Message, Reply};
use crate::wire::channels::{Channels, MAX_CHANNELS};
use crate::wire::message_limits::{MessageBudget, check_len};
use crate::wire::messages::{
    self, CallParts, Callback, DEVICE_VARIABLE, Failure, FormatParts, Notice, Request, Response, Settings,
    WithSegments,
};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::{SegmentParts, Streams};

/// Serves the host that started this process (see [`Program`](crate::Program)) over standard input,
/// until the host closes it.
///
/// First gives up the rights that a plugin does not need: access to files, the network and other
/// processes. Serves no plugin in a privileged process. Returns only after an error.
pub fn serve(library: impl HostLibrary) -> ExitCode {
    match run(Box::new(library)) {
        Ok(never) => match never {},
        Err(error) => {
            // A user who starts the program by hand reads this message. A host reports the exit
            // status instead.
            eprintln!(
                "crossdock: {error}: this command is started by a host, which communicates with it through standard input"
            );
            ExitCode::FAILURE
        }
    }
}

fn run(library: Box<dyn HostLibrary>) -> Result<std::convert::Infallible> {
    // The caller chooses the plugin, whose code would get rights that the caller does not have.
    refuse_if_privileged("no plugin is served here")?;
    close_other_files();
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let failed = |what: &str, error: rustix::io::Errno| Error::io(format!("{what}: {error}"));
    let socket_type = rustix::net::sockopt::socket_type(&control);
    socket_type.map_err(|error| failed("standard input is no socket", error))?;
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| failed("cannot close standard input", error))?;
    let device = std::env::var(DEVICE_VARIABLE).ok().map(|name| name.parse::<Device>()).transpose();
    let device = device.and_then(|device| confine(device, |device| library.stream(device)).map(|()| device));
    let (receiver, sender) = (Channel::from(control.try_clone()?), Channel::from(control));
    // The timeout is too long to have an effect, because the host decides how long a request may
    // take.
    const STALL_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
    let host = Arc::new(HostClient::new(Channels::new(sender, MAX_CHANNELS, STALL_TIMEOUT)));
    let log_host = host.clone();
    let log = move |level, message| log_host.try_notify(&Callback::Log { level, message });
    // This cannot fail, because no subscriber has been set before.
    let _ = tracing::subscriber::set_global_default(HostLogger(log));
    let server = Arc::new(Server::new(library, host, device));
    while let Ok(Some(message)) = receiver.receive() {
        if message.files.is_empty() {
            server.handle_notice(&message.bytes);
        }
        for file in message.files {
            let (server, channel) = (server.clone(), Channel::from(file));
            let serve = move || channel.serve(&MessageBudget::default(), |message| server.reply_to(message));
            std::thread::Builder::new().name("crossdock-serve".into()).spawn(serve)?;
        }
    }
    // The host has ended or closed the connection.
    server.library.settle_within(SETTLE_TIMEOUT);
    // SAFETY: `_exit` has no preconditions. It skips destructors, so that threads of the plugin
    // cannot delay it.
    unsafe { libc::_exit(0) }
}

/// Closes all files except the standard streams, in case the host has left files open. This process
/// has not opened any file yet.
fn close_other_files() {
    // SAFETY: `close_range` takes three integers and accesses no memory, and this process uses none
    // of the closed files. An older system returns ENOSYS.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

/// The time that plugin instances have to end. It is shorter than the time that the host waits for
/// the exit of the process.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the requests of one host.
pub struct Server {
    library: Box<dyn HostLibrary>,
    pub(super) host: Arc<HostClient>,
    /// The process's device besides the CPU, or the reason why the process must not load a plugin.
    device: Result<Option<Device>>,
    /// The plugin, and the backend of its host library.
    loaded: OnceLock<(Box<dyn LoadedPlugin>, Backend)>,
    pub(super) instances: ObjectTable<Arc<Instance>>,
    pub(super) streams: ObjectTable<Arc<OpenStream>>,
    pub(super) writers: ObjectTable<Arc<Mutex<OpenWriter>>>,
    pub(super) calls: Arc<ObjectTable<CancelFlag>>,
    next_id: AtomicU64,
}

impl Server {
    fn new(library: Box<dyn HostLibrary>, host: Arc<HostClient>, device: Result<Option<Device>>) -> Self {
        Self {
            library,
            host,
            device,
            loaded: OnceLock::new(),
            instances: ObjectTable::new(),
            streams: ObjectTable::new(),
            writers: ObjectTable::new(),
            calls: Arc::new(ObjectTable::new()),
            next_id: AtomicU64::new(1),
        }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn handle_notice(&self, bytes: &[u8]) {
        if let Ok(Notice::Cancel(call)) = messages::from_bytes(bytes)
            && let Ok(flag) = self.calls.get(call)
        {
            flag.cancel();
        }
    }

    /// Dispatches the request in a message. Returns its response or its error.
    fn reply_to(&self, message: Message) -> Reply {
        self.host.begin_request();
        let mut files = Outgoing::default();
        let request = messages::from_bytes::<(Request, Vec<SegmentParts>)>(&message.bytes);
        let response = request.and_then(|(request, segments)| {
            let attachments = Attachments { files: message.files, segments };
            self.dispatch(request, attachments, &mut files)
        });
        let segments = files.segments().to_vec();
        let payload = std::mem::take(&mut files.payload);
        let response = response.and_then(|message| {
            Ok((WithSegments { message, segments: segments.clone() }, files.into_files()?))
        });
        let returned = self.host.end_request();
        let to_bytes = |result: Result<WithSegments<Response>>| {
            messages::to_bytes(&(&returned, result.map_err(Failure::from)))
        };
        let reply = response.and_then(|(message, files)| {
            let bytes = to_bytes(Ok(message))?;
            check_len(bytes.len().saturating_add(payload.len()))?;
            Ok(Reply { bytes, payload, files, ..Reply::default() })
        });
        let failed = |error| {
            self.host.release_segments(&segments);
            Reply { bytes: to_bytes(Err(error)).unwrap_or_default(), ..Reply::default() }
        };
        reply.unwrap_or_else(failed)
    }

    /// Returns a trace that sends its records to the host. The host's trace began at `start`.
    pub(super) fn trace(&self, start: Duration) -> Arc<Trace> {
        let host = self.host.clone();
        let forward = move |record: Record<'_>| {
            let Record { thread, ns, phase } = record;
            host.try_notify(&Callback::Record { thread, ns, phase: phase.into() });
        };
        Arc::new(Trace::forwarded(start, forward))
    }

    pub(super) fn load(
        &self,
        version: &str,
        plugin: String,
        memory_limit: u64,
        trace: Option<Arc<Trace>>,
        files: Vec<OwnedFd>,
    ) -> Result<()> {
        let expected = env!("CARGO_PKG_VERSION");
        if version != expected {
            return Err(Error::version(format!(
                "the program that runs isolated plugins has version {expected} of crossdock, the host has version {version}: \
                 install the same version of both"
            )));
        }
        let device = self.device.clone()?;
        let mut files = files.into_iter();
        let (Some(file), None) = (files.next(), files.next()) else {
            return Err(Error::invalid_argument("expected one file for the plugin, got none or several"));
        };
        limit_memory(memory_limit, device.is_some())?;
        let limit = usize::try_from(memory_limit).ok().filter(|limit| *limit > 0);
        let backend = limit.into_iter().fold(Backend::builder(), BackendBuilder::limit_bytes);
        let backend = trace.into_iter().fold(backend, BackendBuilder::trace).build();
        let loaded = self.library.load(File::from(file), plugin, backend.clone())?;
        self.loaded.set((loaded, backend)).map_err(|_| Error::invalid_argument("a plugin is loaded already"))
    }

    pub(super) fn create(&self, settings: Settings) -> Result<Response> {
        let not_loaded = || Error::invalid_argument("no plugin is loaded");
        let (loaded, backend) = self.loaded.get().ok_or_else(not_loaded)?;
        let (id, host, calls) = (self.next_id(), self.host.clone(), self.calls.clone());
        let device = self.device.clone()?;
        let stream = loaded.stream(device.unwrap_or(Device::CPU))?;
        let cpu_stream = stream.memory().default_stream(Device::CPU)?;
        let device_stream = Some(stream).filter(|stream| stream.device() != Device::CPU);
        let streams = Streams::new(cpu_stream, device_stream);
        let segments = Arc::new(ReceivedSegments::new(host.clone(), backend.clone(), &streams));
        // The host's session decodes the encodings that the plugin does not decode.
        let (streams_of_decoder, segments_of_decoder) = (streams.clone(), segments.clone());
        let decoder = HostDecoder {
            host,
            calls,
            instance: id,
            streams: streams_of_decoder,
            segments: segments_of_decoder,
        };
        let settings = SessionSettings {
            device: device.unwrap_or(Device::CPU),
            memory_limit_bytes: settings.memory_limit_bytes,
            threads: settings.threads.max(1) as usize,
        };
        let plugin = loaded.create(settings.device, settings, Arc::new(decoder))?;
        let parts = |formats: &[Format], is_supported: bool, on_device: fn(&Format) -> bool| {
            let parts = |format| FormatParts::new(format, device.is_some() && on_device(format));
            is_supported.then(|| formats.iter().map(parts).collect())
        };
        let importer = parts(plugin.importer_formats(), plugin.importer().is_ok(), |_| true);
        // The bytes of a sink are in host memory. The host copies arrays to host memory faster than
        // the process, which would have to return its copy through another segment.
        let on_device = |format: &Format| !format.bytes || !format.accepts_device(Device::CPU.r#type);
        let has_fragments = plugin.importer().is_ok_and(|importer| importer.has_fragments());
        let exporter = parts(plugin.exporter_formats(), plugin.exporter().is_ok(), on_device);
        let encodings = plugin.encoding().map(|encoding| (plugin.encodings().to_vec(), encoding.decodes()));
        self.instances.insert(
            id,
            Arc::new(Instance { memory_limit_bytes: settings.memory_limit_bytes, plugin, streams, segments }),
        );
        Ok(Response::Instance { id, importer, has_fragments, exporter, encodings })
    }
}

/// Decodes arrays for the plugin's instance by callbacks of the host.
struct HostDecoder {
    host: Arc<HostClient>,
    calls: Arc<ObjectTable<CancelFlag>>,
    instance: u64,
    streams: Streams,
    segments: Arc<ReceivedSegments>,
}

impl Decoder for HostDecoder {
    fn decode(
        &self,
        call: &Call<'_>,
        array: EncodedArray,
        rows: Option<Range<u64>>,
    ) -> Result<Owned<abi::Batch>> {
        let parts = CallParts::new(call, self.calls.call_id(call), call.device());
        let Self { host, instance, streams, segments, .. } = self;
        decode_by_host(host, *instance, parts, (array, rows), streams, segments)
    }

    fn children(&self, node: EncodedNode<'_>) -> Result<Vec<ChildType>> {
        children_by_host(&self.host, self.instance, node)
    }
}
