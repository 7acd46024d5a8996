//! Decompresses bodies on a device. Bodies that follow each other form a group, which one task
//! loads and one launch decompresses: a device needs many blocks at the same time, and a launch
//! takes 2 ms even if it has few.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_kernels::Lz4Buffers;
use crossdock_memory::{ALIGNMENT, Buffer, LoadRange, Loader, Memory, Result, Stream};
use crossdock_plugin_api::{CancelFlag, Code, Error, TaskGroup, Tasks};

use super::bytes::Bytes;
use super::device_lz4::{self, GROUP_BYTES, Launched, Part};
use super::transport::Transport;

/// Groups on different streams overlap with each other and with the copies of other bodies.
const MAX_STREAMS: usize = 16;

/// Maximum number of bodies in a group. More would not fit into the arguments of one launch.
const MAX_BODIES: usize = 24;

/// The decompressions of a reader. `T` is a body that the host decompresses.
pub struct Decompressions<T> {
    group_bytes: usize,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    /// The streams are created when they are needed, and used one after the other.
    streams: Vec<Stream>,
    used: usize,
    /// The group to which the next body is added.
    open: Option<Arc<Group<T>>>,
}

/// A body of a group. `T` is the body while the host decompresses it.
pub struct CompressedBody<T> {
    pub body: Bytes,
    /// The copies of the body to a block on the device.
    pub loads: Vec<LoadRange>,
    /// The size of this block.
    pub stored_bytes: usize,
    pub list: Lz4Buffers,
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
    memory: Memory,
    /// The stream of the copies.
    copies: Stream,
    stream: Stream,
    loader: Loader,
    tasks: Tasks,
    cancel: CancelFlag,
    state: Mutex<State<T>>,
}

enum State<T> {
    /// Other bodies may follow.
    Open(Vec<CompressedBody<T>>),
    /// A task loads the bodies and launches the decompression.
    Started {
        task: TaskGroup,
        /// `None` after the task if the device cannot decompress the bodies.
        launched: Arc<Mutex<Option<Launched>>>,
        on_host: Vec<OnHost<T>>,
    },
    /// A body is `None` after it was returned.
    Finished(Vec<Option<Decompressed<T>>>),
}

impl<T> Decompressions<T> {
    /// Creates the decompressions of a reader that reads at most `max_bytes_ahead` bytes ahead.
    pub fn new(max_bytes_ahead: u64) -> Self {
        // Several groups are read ahead.
        let max = usize::try_from(max_bytes_ahead / 4).unwrap_or(usize::MAX);
        let inner = Inner { streams: Vec::new(), used: 0, open: None };
        Self { group_bytes: GROUP_BYTES.min(max), inner: Mutex::new(inner) }
    }

    /// Adds a body to the open group.
    pub fn add(&self, transport: &Transport<'_>, body: CompressedBody<T>) -> Result<Decompression<T>> {
        let mut inner = lock(&self.inner);
        let group = match inner.open.take() {
            Some(group) if group.is_open() => group,
            _ => Arc::new(Group::new(transport, inner.next_stream(transport)?)),
        };
        let bytes = body.stored_bytes + body.bytes;
        let (n, group_bytes) = group.push(body)?;
        if n == MAX_BODIES || group_bytes >= self.group_bytes {
            group.close()?;
        } else {
            inner.open = Some(group.clone());
        }
        Ok(Decompression { group, number: n - 1, bytes })
    }

    /// Begins to decompress the open group, because no other body follows.
    pub fn close(&self) -> Result<()> {
        let open = lock(&self.inner).open.take();
        open.map_or(Ok(()), |group| group.close())
    }
}

impl<T> Inner<T> {
    fn next_stream(&mut self, transport: &Transport<'_>) -> Result<Stream> {
        if self.streams.len() < MAX_STREAMS {
            self.streams.push(transport.memory.create_stream(transport.stream.device())?);
        }
        let stream = self.streams.get(self.used % self.streams.len()).cloned();
        self.used += 1;
        stream.ok_or_else(|| Error::internal("there is no stream"))
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
        self.group.close()?;
        let mut state = lock(&self.group.state);
        if let State::Started { .. } = *state
            && let State::Started { task, launched, on_host } =
                std::mem::replace(&mut *state, State::Finished(Vec::new()))
        {
            task.wait(check)?;
            let launched = lock(&launched).take();
            *state = State::Finished(finish(launched, on_host)?);
        }
        let body = match &mut *state {
            State::Finished(bodies) => bodies.get_mut(self.number).and_then(Option::take),
            State::Open(_) | State::Started { .. } => None,
        };
        body.ok_or_else(|| Error::internal("a group of decompressed bodies lacks a body"))?
    }
}

/// Waits for the device, and begins to decompress bodies on the host that the device could not
/// decompress.
fn finish<T>(launched: Option<Launched>, on_host: Vec<OnHost<T>>) -> Result<Vec<Option<Decompressed<T>>>> {
    let start = |on_host: OnHost<T>| Some(on_host().map(Err));
    let Some(Launched { checks, bodies }) = launched else {
        return Ok(on_host.into_iter().map(start).collect());
    };
    let findings = checks.finish()?;
    let bodies = bodies.into_iter().zip(on_host).map(|((cell, body), on_host)| {
        if findings.first_wrong(cell).is_none() { Some(Ok(Ok(body))) } else { start(on_host) }
    });
    Ok(bodies.collect())
}

impl<T> Group<T> {
    fn new(transport: &Transport<'_>, stream: Stream) -> Self {
        let Transport { memory, stream: copies, loader, tasks, cancel, .. } = *transport;
        Self {
            memory: memory.clone(),
            copies: copies.clone(),
            stream,
            loader: loader.clone(),
            tasks: tasks.clone(),
            cancel: cancel.clone(),
            state: Mutex::new(State::Open(Vec::new())),
        }
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
    fn close(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let State::Open(bodies) = &mut *state else { return Ok(()) };
        let bodies = std::mem::take(bodies);
        *state = if device_lz4::is_for_device(bodies.iter().map(|body| &body.list)) {
            self.start(bodies)?
        } else {
            State::Finished(bodies.into_iter().map(|body| Some((body.on_host)().map(Err))).collect())
        };
        Ok(())
    }

    fn start(&self, bodies: Vec<CompressedBody<T>>) -> Result<State<T>> {
        let (mut loads, mut parts, mut on_host) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = 0usize;
        for body in bodies {
            let at = end;
            end = at + body.stored_bytes.next_multiple_of(ALIGNMENT);
            let shift = |load: LoadRange| LoadRange { to: at + load.to, ..load };
            loads.push((body.body, body.loads.into_iter().map(shift).collect::<Vec<_>>()));
            parts.push(Part { from: (at, body.stored_bytes), list: body.list, bytes: body.bytes });
            on_host.push(body.on_host);
        }
        let launched = Arc::new(Mutex::new(None));
        let result = launched.clone();
        let Self { memory, copies, stream, loader, cancel, .. } = self;
        let (memory, copies, stream) = (memory.clone(), copies.clone(), stream.clone());
        let (loader, cancel) = (loader.clone(), cancel.clone());
        let n = loads.len();
        let task = self.tasks.start([move || {
            let start = || {
                let mut block = memory.alloc(&copies, end)?;
                let loads = loads.iter().map(|(body, loads)| (body, loads.as_slice()));
                Bytes::load_all(loads, &loader, &cancel, &mut block, &copies)?;
                device_lz4::launch(block, &parts, &copies, &stream)
            };
            match start() {
                // The host of the session is older than the kernel, or has not enough memory.
                Err(e) if [Code::VERSION, Code::OUT_OF_MEMORY].contains(&e.code()) => {}
                // The bodies before one that cannot be read are returned.
                Err(e) if n > 1 && ![Code::CANCELLED, Code::DEVICE].contains(&e.code()) => {}
                launched => *lock(&result) = Some(launched?),
            }
            Ok(())
        }])?;
        Ok(State::Started { task, launched, on_host })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
