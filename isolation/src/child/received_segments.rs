//! Segments that the plugin's process shares with the host: those of messages from the host, and
//! those that the host allocates at the process's request.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crossdock_memory::{Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Device, Error, Result};

use crate::child::host_client::HostClient;
use crate::files::segment_file::{Access, SegmentFile};
use crate::locks::lock;
use crate::wire::incoming::Incoming;
use crate::wire::messages::{Callback, CallbackReply};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::{SegmentParts, SegmentSender, SentSegment, Streams, fill, open};
use crate::wire::sink_parts::SinkPiece;

/// The shared segments of one instance.
pub struct ReceivedSegments {
    host: Arc<HostClient>,
    backend: Backend,
    /// The default stream of the process's device, or of the CPU if it has none. Requested segments
    /// are on this device.
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
pub struct SegmentReuse(Arc<ReceivedSegments>);

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
    is_read_only: bool,
    /// The message from the host whose arrays are in the segment.
    message: Weak<ReceivedSegment>,
}

/// The segment of a message from the host. Returns the segment to the host when the last buffer of
/// the message is dropped.
pub struct ReceivedSegment {
    host: Arc<HostClient>,
    number: u64,
    /// Keeps the mapping.
    mapping: Mutex<Option<ForeignOwner>>,
}

impl Drop for ReceivedSegment {
    fn drop(&mut self) {
        self.host.return_segment(self.number);
    }
}

/// A segment of host memory from which the host writes to a sink.
pub struct SinkSegment {
    host: Arc<HostClient>,
    id: u64,
    file: SegmentFile,
    /// The number of bytes that the host may not have read yet.
    used: usize,
}

impl SinkSegment {
    /// Copies bytes into the segment. Returns `None` if too few bytes are free.
    pub fn copy(&mut self, bytes: &[u8]) -> Option<SinkPiece> {
        let end = self.used.checked_add(bytes.len()).filter(|end| *end <= self.file.len())?;
        // SAFETY: the range lies in the mapping, and the host does not read it before it receives
        // the piece. `bytes` is not in the segment, because only this function writes it.
        unsafe {
            let to = self.file.start().as_ptr().add(self.used);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        let offset = std::mem::replace(&mut self.used, end) as u64;
        Some(SinkPiece::Copied { id: self.id, offset, bytes: bytes.len() as u64 })
    }

    /// Uses the segment for other bytes, after the host has read all.
    pub fn clear(&mut self) {
        self.used = 0;
    }
}

impl Drop for SinkSegment {
    fn drop(&mut self) {
        self.host.notify(&Callback::ReleaseSegment(self.id));
    }
}

/// The next id of a segment. Ids are unique within the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl ReceivedSegments {
    /// Creates segments on the device of `streams` and in host memory.
    pub fn new(host: Arc<HostClient>, backend: Backend, streams: &Streams) -> Self {
        let stream = streams.device_stream().unwrap_or(streams.for_device(Device::CPU)).clone();
        Self { host, backend, stream, mapped: Mutex::default() }
    }

    /// Returns the files and segments of a message from the host.
    pub fn incoming(&self, files: Vec<OwnedFd>, segments: &[SegmentParts]) -> Result<Incoming> {
        let mut files: Vec<Option<OwnedFd>> = files.into_iter().map(Some).collect();
        let mut buffers = Vec::new();
        for parts in segments {
            let (host, number) = (self.host.clone(), parts.number);
            let message = Arc::new(ReceivedSegment { host, number, mapping: Mutex::new(None) });
            let index = parts.file.and_then(|index| usize::try_from(index).ok());
            let file = index.and_then(|index| files.get_mut(index)).and_then(Option::take);
            let file = file.ok_or_else(|| Error::internal("a segment has no file"))?;
            let segment = self.map(parts, file, Arc::downgrade(&message))?;
            *lock(&message.mapping) = Some(segment.owner);
            let device = if segment.is_read_only { Device::CPU } else { self.stream.device() };
            let owner = ForeignOwner::new(message);
            // SAFETY: `map` mapped `bytes` bytes at the address, and the owner keeps the mapping.
            // `Ready::Now` is correct because the host waited for its copies before it sent the
            // segment. The host does not write it before the owner returns it.
            buffers.push(unsafe {
                Buffer::foreign(&owner, device, segment.address, Some(segment.bytes), Ready::Now)
            });
        }
        Incoming::from_host_without_segments(files).map(|incoming| incoming.with_segments(buffers))
    }

    /// Keeps mapped segments mapped, as long as a stream or a writer is open.
    pub fn reuse(self: &Arc<Self>) -> SegmentReuse {
        lock(&self.mapped).n_reuses += 1;
        SegmentReuse(self.clone())
    }

    /// Maps a segment, unless it is mapped already. `message` is the message from the host whose
    /// arrays are in it.
    fn map(&self, parts: &SegmentParts, file: OwnedFd, message: Weak<ReceivedSegment>) -> Result<Mapped> {
        if let Some(segment) = lock(&self.mapped).kept.get_mut(&parts.number) {
            segment.message = message;
            return Ok(segment.clone());
        }
        let device = self.stream.device();
        let (owner, address) = if parts.is_read_only || device == Device::CPU {
            let too_long = |_| Error::out_of_memory("a segment exceeds the address space");
            let bytes = usize::try_from(parts.bytes).map_err(too_long)?;
            let access = if parts.is_read_only { Access::Read } else { Access::ReadWrite };
            let file = SegmentFile::open(file, bytes, access)?;
            let address = file.start().as_ptr().addr() as u64;
            (ForeignOwner::new(file), address)
        } else {
            open(&self.backend, device, file, parts.bytes)?
        };
        let (bytes, is_read_only) = (parts.bytes, parts.is_read_only);
        let segment = Mapped { owner, address, bytes, is_read_only, message };
        let mut mapped = lock(&self.mapped);
        if mapped.n_reuses > 0 {
            mapped.kept.insert(parts.number, segment.clone());
        }
        Ok(segment)
    }

    /// Finds bytes of a message from the host that are in a read-only segment. Returns their place,
    /// and the owner of the place.
    pub fn piece(&self, bytes: &[u8]) -> Option<(SinkPiece, Arc<ReceivedSegment>)> {
        let (begin, n) = (bytes.as_ptr().addr() as u64, bytes.len() as u64);
        let mapped = lock(&self.mapped);
        let is_around = |segment: &&Mapped| {
            let offset = begin.checked_sub(segment.address);
            segment.is_read_only && offset.is_some_and(|offset| n <= segment.bytes.saturating_sub(offset))
        };
        let segment = mapped.kept.values().find(is_around)?;
        let message = segment.message.upgrade()?;
        let offset = begin - segment.address;
        Some((SinkPiece::Segment { number: message.number, offset, bytes: n }, message))
    }

    /// Requests a segment of at least `bytes` bytes for the message `id`.
    fn request(&self, id: u64, bytes: usize) -> Result<Mapped> {
        let in_host_memory = self.stream.device() == Device::CPU;
        let (number, file, file_bytes, existing) = self.request_file(id, bytes, in_host_memory)?;
        let is_removed =
            |number: &u64, segment: &mut Mapped| !segment.is_read_only && !existing.contains(number);
        let removed: Vec<_> = lock(&self.mapped).kept.extract_if(is_removed).collect();
        // The segments are unmapped after the lock is released.
        drop(removed);
        let parts = SegmentParts { number, file: None, bytes: file_bytes, is_read_only: false };
        let mapped = self.map(&parts, file, Weak::new())?;
        if mapped.bytes < bytes as u64 {
            return Err(Error::internal("the host returned a segment that is too short"));
        }
        Ok(mapped)
    }

    /// Requests a segment. Returns its number, its file, the length of the file in bytes, and the
    /// numbers of the segments that still exist.
    fn request_file(
        &self,
        id: u64,
        bytes: usize,
        in_host_memory: bool,
    ) -> Result<(u64, OwnedFd, u64, Vec<u64>)> {
        let callback = Callback::RequestSegment { id, bytes: bytes as u64, in_host_memory };
        let (reply, _, files) = self.host.call_with(&callback, &[], &Outgoing::default())?;
        match (reply, files.into_iter().next()) {
            (CallbackReply::Segment { number, bytes, existing }, Some(file)) => {
                Ok((number, file, bytes, existing))
            }
            _ => Err(Error::internal("the host replied without a segment")),
        }
    }

    /// Requests a segment of host memory for bytes that a sink receives.
    pub fn request_for_sink(&self, bytes: usize) -> Result<SinkSegment> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let host = self.host.clone();
        let (_, file, ..) = self.request_file(id, bytes, true)?;
        let file = SegmentFile::open(file, bytes, Access::ReadWrite)
            .inspect_err(|_| host.notify(&Callback::ReleaseSegment(id)))?;
        Ok(SinkSegment { host, id, file, used: 0 })
    }

    fn fill(&self, segment: &Mapped, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Ready> {
        let stream = &self.stream;
        // SAFETY: `request` returned a segment of at least `bytes` bytes, and `owner` keeps the
        // mapping. The host does not access the segment before it receives the message's id.
        let mut target = unsafe {
            BufferMut::foreign(stream.memory(), &segment.owner, stream.device(), segment.address, bytes)
        };
        fill(&mut target, buffers, stream)
    }

    /// Sends buffers on the process's device in segments. `None` if it has no device.
    pub fn sender(self: &Arc<Self>) -> Option<Arc<dyn SegmentSender>> {
        (self.stream.device() != Device::CPU).then(|| self.clone() as Arc<dyn SegmentSender>)
    }
}

impl SegmentSender for ReceivedSegments {
    fn device(&self) -> Device {
        self.stream.device()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let segment = self.request(id, bytes);
        let filled = segment.and_then(|segment| self.fill(&segment, buffers, bytes));
        let filled = filled.inspect_err(|_| self.host.notify(&Callback::ReleaseSegment(id)))?;
        Ok(SentSegment { number: id, bytes: bytes as u64, file: None, filled })
    }
}
