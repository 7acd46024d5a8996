//! Device segments that the plugin's process shares with the host. The host sends a segment, or
//! allocates it at the plugin's request.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossdock_memory::{Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Device, Error, Result};

use crate::child::host_client::HostClient;
use crate::locks::lock;
use crate::wire::device_segments::{SegmentParts, SegmentSender, SentSegment, Streams, fill, open};
use crate::wire::incoming::Incoming;
use crate::wire::messages::{Callback, CallbackReply};
use crate::wire::outgoing::Outgoing;

/// The shared device segments of one instance.
pub struct HostSegments {
    host: Arc<HostClient>,
    backend: Backend,
    stream: Stream,
    mapped: Mutex<Mappings>,
}

#[derive(Default)]
struct Mappings {
    /// The segments that stay mapped, by number.
    kept: HashMap<u64, Mapped>,
    /// The number of [`SegmentReuse`]s. Without any, no segment stays mapped.
    n_reuses: usize,
}

/// Keeps mapped segments mapped until this value is dropped.
pub struct SegmentReuse(Arc<HostSegments>);

impl Drop for SegmentReuse {
    fn drop(&mut self) {
        let mut unmapped = HashMap::new();
        let mut mapped = lock(&self.0.mapped);
        mapped.n_reuses -= 1;
        if mapped.n_reuses == 0 {
            unmapped = std::mem::take(&mut mapped.kept);
        }
        // The segments are unmapped after the lock is released.
        drop(mapped);
        drop(unmapped);
    }
}

/// A segment that this process has mapped.
#[derive(Clone)]
struct Mapped {
    owner: ForeignOwner,
    address: u64,
    bytes: u64,
}

/// Returns the segment of a message to the host when the last buffer of the message is dropped.
struct Received {
    host: Arc<HostClient>,
    number: u64,
    /// Keeps the mapping.
    _mapped: Option<ForeignOwner>,
}

impl Drop for Received {
    fn drop(&mut self) {
        self.host.notify(&Callback::ReturnSegment(self.number));
    }
}

/// The next id of a segment. Ids are unique within the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl HostSegments {
    /// Creates segments on the device of `streams`. Returns `None` if `streams` has no device
    /// stream.
    pub fn new(host: Arc<HostClient>, backend: Backend, streams: &Streams) -> Option<Self> {
        let stream = streams.device_stream()?.clone();
        Some(Self { host, backend, stream, mapped: Mutex::default() })
    }

    /// Returns the files and segments of a message from the host.
    pub fn incoming(&self, files: Vec<OwnedFd>, segments: &[SegmentParts]) -> Result<Incoming> {
        let mut files: Vec<Option<OwnedFd>> = files.into_iter().map(Some).collect();
        let mut buffers = Vec::new();
        for parts in segments {
            let mut received = Received { host: self.host.clone(), number: parts.number, _mapped: None };
            let index = parts.file.and_then(|index| usize::try_from(index).ok());
            let file = index.and_then(|index| files.get_mut(index)).and_then(Option::take);
            let file = file.ok_or_else(|| Error::internal("a segment has no file"))?;
            let Mapped { owner, address, bytes } = self.map(parts.number, file, parts.bytes)?;
            received._mapped = Some(owner);
            let owner = ForeignOwner::new(received);
            // SAFETY: `map` mapped `bytes` bytes at the address, and the owner keeps the mapping.
            // `Ready::Now` is correct because the host waited for its copies in `fill` before it
            // sent the segment. The host does not write it before the owner returns it.
            buffers.push(unsafe {
                Buffer::foreign(&owner, self.stream.device(), address, Some(bytes), Ready::Now)
            });
        }
        Incoming::from_host_without_segments(files).map(|incoming| incoming.with_segments(buffers))
    }

    /// Keeps mapped segments mapped, as long as a stream or a writer is open.
    pub fn reuse(self: &Arc<Self>) -> SegmentReuse {
        lock(&self.mapped).n_reuses += 1;
        SegmentReuse(self.clone())
    }

    /// Maps a segment, unless it is mapped already.
    fn map(&self, number: u64, file: OwnedFd, bytes: u64) -> Result<Mapped> {
        if let Some(segment) = lock(&self.mapped).kept.get(&number) {
            return Ok(segment.clone());
        }
        let (owner, address) = open(&self.backend, self.stream.device(), file, bytes)?;
        let segment = Mapped { owner, address, bytes };
        let mut mapped = lock(&self.mapped);
        if mapped.n_reuses > 0 {
            mapped.kept.insert(number, segment.clone());
        }
        Ok(segment)
    }

    /// Requests a segment of at least `bytes` bytes for the message `id`.
    fn request(&self, id: u64, bytes: usize) -> Result<Mapped> {
        let callback = Callback::RequestSegment { id, bytes: bytes as u64 };
        let (reply, _, files) = self.host.call_with(&callback, &[], &Outgoing::default())?;
        let (CallbackReply::Segment { number, bytes: file_bytes, existing }, Some(file)) =
            (reply, files.into_iter().next())
        else {
            return Err(Error::internal("the host replied without a segment"));
        };
        let removed: Vec<_> =
            lock(&self.mapped).kept.extract_if(|number, _| !existing.contains(number)).collect();
        // The segments are unmapped after the lock is released.
        drop(removed);
        let mapped = self.map(number, file, file_bytes)?;
        if mapped.bytes < bytes as u64 {
            return Err(Error::internal("the host returned a segment that is too short"));
        }
        Ok(mapped)
    }

    fn fill(&self, segment: &Mapped, buffers: &[(Buffer, usize)], bytes: usize) -> Result<()> {
        let (device, address) = (self.stream.device(), segment.address);
        // SAFETY: `request` returned a segment of at least `bytes` bytes, and `owner` keeps the
        // mapping. The host does not access the segment before it receives the message's id.
        let mut target =
            unsafe { BufferMut::foreign(self.stream.memory(), &segment.owner, device, address, bytes) };
        fill(&mut target, buffers, &self.stream)
    }
}

impl SegmentSender for HostSegments {
    fn device(&self) -> Device {
        self.stream.device()
    }

    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let segment = self.request(id, bytes);
        let filled = segment.and_then(|segment| self.fill(&segment, buffers, bytes));
        filled.inspect_err(|_| self.host.notify(&Callback::ReleaseSegment(id)))?;
        Ok(SentSegment { number: id, bytes: bytes as u64, file: None })
    }
}
