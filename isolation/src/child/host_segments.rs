//! Device segments that the plugin's process shares with the host. The host sends a segment, or
//! allocates it at the plugin's request.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_memory::{Buffer, BufferMut, Stream};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Device, Error, Result};

use crate::child::host_client::HostClient;
use crate::wire::device_segments::{
    SegmentParts, SegmentSender, SentSegment, Streams, fill, open, open_read_only,
};
use crate::wire::incoming::Incoming;
use crate::wire::messages::{Callback, CallbackReply};
use crate::wire::outgoing::Outgoing;

/// The shared device segments of one instance.
pub struct HostSegments {
    host: Arc<HostClient>,
    backend: Backend,
    stream: Stream,
}

/// The next id of a segment. Ids are unique within the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl HostSegments {
    /// Creates segments on the device of `streams`. Returns `None` if `streams` has no device
    /// stream.
    pub fn new(host: Arc<HostClient>, backend: Backend, streams: &Streams) -> Option<Self> {
        let stream = streams.device_stream()?.clone();
        Some(Self { host, backend, stream })
    }

    /// Returns the files and segments of a message from the host.
    pub fn incoming(&self, files: Vec<OwnedFd>, segments: &[SegmentParts]) -> Result<Incoming> {
        let mut files: Vec<Option<OwnedFd>> = files.into_iter().map(Some).collect();
        let mut buffers = Vec::new();
        for parts in segments {
            let file = usize::try_from(parts.handle).ok().and_then(|index| files.get_mut(index));
            let missing = || Error::internal("a segment has no file");
            let file = file.and_then(Option::take).ok_or_else(missing)?;
            buffers.push(open_read_only(&self.backend, self.stream.device(), file, parts.bytes)?);
        }
        Incoming::from_host_without_segments(files).map(|incoming| incoming.with_segments(buffers))
    }

    fn fill(&self, file: OwnedFd, file_bytes: u64, buffers: &[(Buffer, usize)], bytes: usize) -> Result<()> {
        let device = self.stream.device();
        let (owner, address) = open(&self.backend, device, file, file_bytes)?;
        // SAFETY: `open` mapped at least `bytes` bytes at `address`, and `owner` keeps the mapping.
        // The host does not access the segment before it receives the segment's id.
        let mut segment = unsafe { BufferMut::foreign(self.stream.memory(), &owner, device, address, bytes) };
        fill(&mut segment, buffers, &self.stream)
    }
}

impl SegmentSender for HostSegments {
    fn device(&self) -> Device {
        self.stream.device()
    }

    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let callback = Callback::AllocateSegment { id, bytes: bytes as u64 };
        let (reply, _, files) = self.host.call_with(&callback, &[], &Outgoing::default())?;
        let (CallbackReply::Segment(file_bytes), Some(file)) = (reply, files.into_iter().next()) else {
            return Err(Error::internal("the host replied without a segment"));
        };
        let result = self.fill(file, file_bytes, buffers, bytes);
        result.inspect_err(|_| self.host.notify(&Callback::ReleaseSegment(id)))?;
        Ok(SentSegment { id, bytes: file_bytes, file: None, memory: None })
    }
}
