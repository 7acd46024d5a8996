//! Shared device segments: device memory that the host allocates and that both processes map.
//!
//! A segment is sent to the plugin's process as an open file. Device memory cannot be sealed, so
//! both sides copy: the sender copies its buffers into a segment on the device and waits for the
//! copy; the host copies received buffers out of the segment before it validates them. Thus a
//! process sees no other memory of the host, and cannot change what the host has validated. The
//! host never opens a file of a process: a process refers to a segment by its id.

use std::os::fd::OwnedFd;

use crossdock_memory::{Buffer, BufferMut, Copies, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Device, Result};
use serde::{Deserialize, Serialize};

/// A segment of a message.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct SegmentParts {
    /// To the plugin's process: the index of the segment's file in the message. To the host: the id
    /// of the segment.
    pub handle: u64,
    /// The length of the file in bytes.
    pub bytes: u64,
}

/// A segment that buffers were copied into.
pub struct SentSegment {
    pub id: u64,
    pub bytes: u64,
    /// The segment's file, from the host.
    pub file: Option<OwnedFd>,
    /// The segment's memory, in the host.
    pub memory: Option<Buffer>,
}

/// Copies buffers into segments.
pub trait SegmentSender: Send + Sync {
    /// The device of the segments.
    fn device(&self) -> Device;

    /// Copies each buffer to its offset in a segment of `bytes` bytes, and waits for the copies.
    ///
    /// # Errors
    /// Out of device memory, or the device fails.
    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment>;
}

/// Copies each buffer to its offset, and waits for the copies.
pub fn fill(segment: &mut BufferMut, buffers: &[(Buffer, usize)], stream: &Stream) -> Result<()> {
    let mut copies = Copies::new();
    for (buffer, offset) in buffers {
        copies.push(segment, *offset, buffer, 0, buffer.len().unwrap_or(0))?;
    }
    copies.submit(stream)?;
    // The receiver does not wait: an event of a plugin's process might never be reached.
    stream.synchronize()
}

/// Maps a segment that the host sent: its owner and its address.
pub fn open(backend: &Backend, device: Device, file: OwnedFd, bytes: u64) -> Result<(ForeignOwner, u64)> {
    let memory = backend.open_file(device, file, bytes)?;
    let address = memory.address();
    Ok((ForeignOwner::new(memory), address))
}

/// Maps a segment that the host has filled.
pub fn open_read_only(backend: &Backend, device: Device, file: OwnedFd, bytes: u64) -> Result<Buffer> {
    let (owner, address) = open(backend, device, file, bytes)?;
    // SAFETY: `open` mapped `bytes` bytes at the address, and the owner keeps the mapping.
    // `Ready::Now`: the host waited for its copies in `fill` before it sent the segment.
    Ok(unsafe { Buffer::foreign(&owner, device, address, Some(bytes), Ready::Now) })
}

/// The default streams of the CPU and of the device of a plugin instance, if it has one.
#[derive(Clone)]
pub struct Streams {
    cpu: Stream,
    device: Option<Stream>,
}

impl Streams {
    pub fn new(cpu: Stream, device: Option<Stream>) -> Self {
        Self { cpu, device }
    }

    /// The stream of `device`, or of the CPU if `device` is another one.
    pub fn for_device(&self, device: Device) -> &Stream {
        self.device.as_ref().filter(|stream| stream.device() == device).unwrap_or(&self.cpu)
    }

    /// The stream of the device.
    pub fn device_stream(&self) -> Option<&Stream> {
        self.device.as_ref()
    }
}
