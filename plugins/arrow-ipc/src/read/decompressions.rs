//! Decompresses bodies on a device. Bodies that follow each other form a group, which one task
//! loads and one launch decompresses: a device needs many blocks at the same time, and a launch
//! takes 2 ms even if it has few. A large body is loaded and decompressed in portions, so that both
//! overlap.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_memory::{Buffer, BufferMut, LoadRange, Loader, Memory, Result, Stream};
use crossdock_plugin_api::{CancelFlag, Code, Error, TaskGroup, Tasks};

use super::bytes::Bytes;
use super::decompression_streams::DecompressionStreams;
use super::device_lz4::{self, GROUP_BYTES, Launched, Portion};
use super::transport::Transport;

/// Maximum number of bodies in a group. More would not fit into the arguments of one launch.
const MAX_BODIES: usize = 24;

/// The decompressions of a reader. `T` is a body that the host decompresses.
pub struct Decompressions<T> {
    group_bytes: usize,
    streams: Arc<DecompressionStreams>,
    /// The group to which the next body is added.
    open: Mutex<Option<Arc<Group<T>>>>,
}

/// A body of a group. `T` is the body while the host decompresses it.
pub struct CompressedBody<T> {
    pub body: Bytes,
    pub portions: Vec<Portion>,
    /// The size of the uncompressed body.
    pub bytes: usize,
    /// Begins to decompress the body on the host.
    pub on_host: OnHost<T>,
}

pub type OnHost<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// The uncompressed body, or the body that the host decompresses.
type Decompressed<T> = Result<std::result::Result<Buffer, T>>;

/// A body that is being decompressed.
pub struct Decompression<T> {
    group: Arc<Group<T>>,
    number: usize,
    bytes: usize,
}

struct Group<T> {
    tasks: Tasks,
    services: Services,
    state: Mutex<State<T>>,
}

/// The services that load and decompress bodies.
#[derive(Clone)]
struct Services {
    memory: Memory,
    /// The stream of the copies.
    copies: Stream,
    streams: Arc<DecompressionStreams>,
    loader: Loader,
    cancel: CancelFlag,
}

enum State<T> {
    /// Other bodies may follow.
    Open(Vec<CompressedBody<T>>),
    /// A task loads the bodies and launches the decompression.
    Started {
        task: TaskGroup,
        /// `None` after the task if the device cannot decompress the bodies.
        loaded: Arc<Mutex<Option<Loaded>>>,
        on_host: Vec<OnHost<T>>,
    },
    /// A body is `None` after it was returned.
    Finished(Vec<Option<Decompressed<T>>>),
}

/// Bodies that the device is decompressing to `outputs`. Empty if it cannot decompress them.
#[derive(Default)]
struct Loaded {
    launched: Vec<Launched>,
    outputs: Vec<Buffer>,
}

impl<T> Decompressions<T> {
    /// Creates the decompressions of a reader that reads at most `max_bytes_ahead` bytes ahead.
    pub fn new(max_bytes_ahead: u64) -> Self {
        // Several groups are read ahead.
        let max = usize::try_from(max_bytes_ahead / 4).unwrap_or(usize::MAX);
        Self { group_bytes: GROUP_BYTES.min(max), streams: Arc::default(), open: Mutex::new(None) }
    }

    /// Adds a body to the open group.
    pub fn add(&self, transport: &Transport<'_>, body: CompressedBody<T>) -> Result<Decompression<T>> {
        let mut open = lock(&self.open);
        let group = match open.take() {
            Some(group) if group.is_open() => group,
            _ => Arc::new(Group::new(transport, &self.streams)),
        };
        let stored_bytes: usize = body.portions.iter().map(|portion| portion.stored_bytes).sum();
        let bytes = stored_bytes + body.bytes;
        let (n, group_bytes) = group.push(body)?;
        if n == MAX_BODIES || group_bytes >= self.group_bytes {
            group.close();
        } else {
            *open = Some(group.clone());
        }
        Ok(Decompression { group, number: n - 1, bytes })
    }

    /// Begins to decompress the open group, because no other body follows.
    pub fn close(&self) {
        if let Some(group) = lock(&self.open).take() {
            group.close();
        }
    }
}

impl<T> Decompression<T> {
    /// Number of bytes that are allocated on the device.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the device or the host has begun to decompress the body, so that
    /// [`Self::finish`] waits for no task.
    pub fn has_begun(&self) -> bool {
        match &*lock(&self.group.state) {
            State::Open(_) => false,
            State::Started { task, .. } => task.is_done(),
            State::Finished(_) => true,
        }
    }

    /// Waits for the result. If the device could not decompress the body, returns the same body,
    /// which the host is decompressing.
    pub fn finish(self, check: impl Fn() -> Result<()>) -> Decompressed<T> {
        self.group.close();
        let mut state = lock(&self.group.state);
        *state = match std::mem::replace(&mut *state, State::Finished(Vec::new())) {
            State::Started { task, loaded, on_host } => {
                task.wait(check)?;
                let loaded = lock(&loaded).take();
                State::Finished(finish(loaded.unwrap_or_default(), on_host)?)
            }
            other => other,
        };
        let body = match &mut *state {
            State::Finished(bodies) => bodies.get_mut(self.number).and_then(Option::take),
            State::Open(_) | State::Started { .. } => None,
        };
        body.ok_or_else(|| Error::internal("a group of decompressed bodies lacks a body"))?
    }
}

/// Waits for the device, and begins to decompress bodies on the host that the device could not
/// decompress.
fn finish<T>(loaded: Loaded, on_host: Vec<OnHost<T>>) -> Result<Vec<Option<Decompressed<T>>>> {
    let Loaded { launched, outputs } = loaded;
    let mut outputs: Vec<_> = outputs.into_iter().map(Some).collect();
    outputs.resize(on_host.len(), None);
    for Launched { checks, cells } in launched {
        let findings = checks.finish()?;
        for (body, _) in cells.iter().filter(|(_, cell)| findings.first_wrong(*cell).is_some()) {
            if let Some(output) = outputs.get_mut(*body) {
                *output = None;
            }
        }
    }
    let bodies = outputs.into_iter().zip(on_host).map(|(output, on_host)| match output {
        Some(output) => Some(Ok(Ok(output))),
        None => Some(on_host().map(Err)),
    });
    Ok(bodies.collect())
}

impl<T> Group<T> {
    fn new(transport: &Transport<'_>, streams: &Arc<DecompressionStreams>) -> Self {
        let Transport { memory, stream: copies, loader, tasks, cancel } = *transport;
        let services = Services {
            memory: memory.clone(),
            copies: copies.clone(),
            streams: streams.clone(),
            loader: loader.clone(),
            cancel: cancel.clone(),
        };
        Self { tasks: tasks.clone(), services, state: Mutex::new(State::Open(Vec::new())) }
    }

    fn is_open(&self) -> bool {
        matches!(*lock(&self.state), State::Open(_))
    }

    /// Adds a body. Returns the number of bodies, and their size.
    fn push(&self, body: CompressedBody<T>) -> Result<(usize, usize)> {
        match &mut *lock(&self.state) {
            State::Open(bodies) => {
                bodies.push(body);
                Ok((bodies.len(), bodies.iter().map(|body| body.bytes).sum()))
            }
            State::Started { .. } | State::Finished(_) => {
                Err(Error::internal("a body was added to a group that is closed"))
            }
        }
    }

    /// Begins to decompress an open group: on the device if that is faster.
    fn close(&self) {
        let mut state = lock(&self.state);
        let State::Open(bodies) = &mut *state else { return };
        let (n, bodies) = (bodies.len(), std::mem::take(bodies));
        let lists = bodies.iter().flat_map(|body| &body.portions).map(|portion| &portion.list);
        *state = if device_lz4::is_for_device(n, lists) {
            let failed = |error: Error| State::Finished((0..n).map(|_| Some(Err(error.clone()))).collect());
            self.start(bodies).unwrap_or_else(failed)
        } else {
            State::Finished(bodies.into_iter().map(|body| Some((body.on_host)().map(Err))).collect())
        };
    }

    fn start(&self, bodies: Vec<CompressedBody<T>>) -> Result<State<T>> {
        let (mut stored, mut on_host) = (Vec::new(), Vec::new());
        for CompressedBody { body, portions, bytes, on_host: start } in bodies {
            stored.push(StoredBody { body, portions, bytes });
            on_host.push(start);
        }
        let loaded = Arc::new(Mutex::new(None));
        let (result, services) = (loaded.clone(), self.services.clone());
        let task = self.tasks.start([move || {
            match services.run(&stored) {
                // The host of the session is older than the kernel, or has not enough memory.
                Err(e) if [Code::VERSION, Code::OUT_OF_MEMORY].contains(&e.code()) => {}
                // The bodies before one that cannot be read are returned.
                Err(e) if stored.len() > 1 && ![Code::CANCELLED, Code::DEVICE].contains(&e.code()) => {}
                loaded => *lock(&result) = Some(loaded?),
            }
            Ok(())
        }])?;
        Ok(State::Started { task, loaded, on_host })
    }
}

/// A compressed body without the function that decompresses it on the host.
struct StoredBody {
    body: Bytes,
    portions: Vec<Portion>,
    bytes: usize,
}

/// A portion, and the number of its body.
type Numbered<'a> = (usize, &'a Portion);

/// Divides the portions of bodies into launches.
fn launches(bodies: &[StoredBody]) -> Vec<Vec<Numbered<'_>>> {
    let (mut launches, mut next, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (i, body) in bodies.iter().enumerate() {
        for portion in &body.portions {
            next.push((i, portion));
            bytes += portion.to.len();
            if bytes >= GROUP_BYTES {
                launches.push(std::mem::take(&mut next));
                bytes = 0;
            }
        }
    }
    if !next.is_empty() {
        launches.push(next);
    }
    launches
}

impl Services {
    /// Loads bodies, and launches their decompression. Returns when they have been read.
    fn run(&self, bodies: &[StoredBody]) -> Result<Loaded> {
        let first = self.next_stream()?;
        let allocate = |body: &StoredBody| {
            let mut output = self.memory.alloc(&first, body.bytes)?;
            // The bytes between the buffers.
            first.fill(&mut output, 0, body.bytes, 0)?;
            Ok(output)
        };
        let mut outputs = bodies.iter().map(allocate).collect::<Result<Vec<_>>>()?;
        let filled = first.record()?;
        let (mut launched, mut ends) = (Vec::new(), Vec::new());
        for portions in launches(bodies) {
            let block = self.load(bodies, &portions)?;
            let stream = if launched.is_empty() { first.clone() } else { self.next_stream()? };
            stream.wait(&filled)?;
            launched.push(device_lz4::launch(block, &portions, &mut outputs, &self.copies, &stream)?);
            ends.push(stream.record()?);
        }
        first.wait_each(ends.iter())?;
        let outputs = outputs.into_iter().map(|output| output.freeze(&first)).collect::<Result<_>>()?;
        Ok(Loaded { launched, outputs })
    }

    /// Loads portions to one block.
    fn load(&self, bodies: &[StoredBody], portions: &[Numbered<'_>]) -> Result<BufferMut> {
        let Self { memory, copies, loader, cancel, .. } = self;
        let (mut loads, mut end) = (Vec::new(), 0);
        for (body, portion) in portions {
            let shift = |load: &LoadRange| LoadRange { to: end + load.to, ..*load };
            let shifted: Vec<_> = portion.loads.iter().map(shift).collect();
            loads.extend(bodies.get(*body).map(|body| (&body.body, shifted)));
            end += portion.aligned_bytes();
        }
        let mut block = memory.alloc(copies, end)?;
        let loads = loads.iter().map(|(body, loads)| (*body, loads.as_slice()));
        Bytes::load_all(loads, loader, cancel, &mut block, copies)?;
        Ok(block)
    }

    fn next_stream(&self) -> Result<Stream> {
        self.streams.next(&self.memory, self.copies.device())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
