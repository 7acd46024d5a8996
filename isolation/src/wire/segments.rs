//! Shared segments: memory that the host allocates and that both processes map.
//!
//! The host sends a segment to the plugin's process as an open file. The driver needs longer to
//! create or to map a segment than to copy its content, so segments are used for several messages
//! in both directions, one after the other.
//!
//! Device memory cannot be sealed, so both sides copy. The sender copies its buffers into a segment
//! on the device and waits for the copies before it sends the message. The host copies received
//! buffers out of the segment before it validates them. Therefore a process can access no other
//! device memory of the host, and cannot change data that the host has validated. The host never
//! opens a file from a process, because a process refers to a segment by its id.
//!
//! A process without a device returns small batches of a stream in writable segments of host
//! memory, in the same way. This takes less time than a new sealed file for each message, whose
//! pages the system must provide.
//!
//! Read-only segments are host memory with the arrays that a process writes to a sink. Only the
//! host can write them, so the host writes to the sink from the segment.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use crossdock_arrays::copy_to_block;
use crossdock_memory::{Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Device, Error, Result};
use serde::{Deserialize, Serialize};

use crate::wire::host_copies::{HostCopy, copy_in_threads};

/// A segment of a message.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct SegmentParts {
    /// In a message to the plugin's process: the number of the segment, which is unique within the
    /// process. In a message to the host: the id of the request for the segment.
    pub number: u64,
    /// In a message to the plugin's process: the index of the segment's file in the message.
    pub file: Option<u32>,
    /// In a message to the plugin's process: the length of the segment's file in bytes. In a
    /// message to the host: the number of bytes of the segment that the message uses.
    pub bytes: u64,
    /// Whether only the host can write the segment, which is then in host memory. Set in messages
    /// to the plugin's process.
    pub is_read_only: bool,
}

/// A segment into which buffers were copied.
pub struct SentSegment {
    pub number: u64,
    pub bytes: u64,
    /// The segment's file. Set in a segment that the host sends.
    pub file: Option<OwnedFd>,
    /// When the copies into the segment are complete.
    pub filled: Ready,
}

/// Copies buffers into segments.
pub trait SegmentSender: Send + Sync {
    /// The device of the segments.
    fn device(&self) -> Device;

    /// Whether only this process can write the segments.
    fn is_read_only(&self) -> bool;

    /// Copies each buffer to its offset in a segment of `bytes` bytes. The copies may not be
    /// complete yet.
    ///
    /// # Errors
    /// Device memory is exhausted, or the device fails.
    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment>;
}

/// The copies of buffers in host memory to a segment of `bytes` bytes.
///
/// # Errors
/// A buffer lies outside the segment, or is not ready. `BatchParts::write` waits for the buffers.
pub fn host_copies(buffers: &[(Buffer, usize)], bytes: usize) -> Result<Vec<HostCopy>> {
    let copy = |(buffer, offset): &(Buffer, usize)| {
        let (offset, len) = (*offset, buffer.len().unwrap_or(0));
        if offset.checked_add(len).is_none_or(|end| end > bytes) {
            return Err(Error::internal("a buffer lies outside its segment"));
        }
        if !buffer.ready().is_done()? {
            return Err(Error::internal("a buffer is not ready"));
        }
        Ok(HostCopy { from: buffer.address() as usize, offset, bytes: len })
    };
    buffers.iter().map(copy).collect()
}

/// Copies each buffer to its offset in `segment`. Returns when the copies are complete.
pub fn fill(segment: &mut BufferMut, buffers: &[(Buffer, usize)], stream: &Stream) -> Result<Ready> {
    if let Some(target) = segment.host_slice_mut() {
        let (start, bytes) = (NonNull::from(&mut *target).cast(), target.len());
        let copies = host_copies(buffers, bytes)?;
        // SAFETY: `buffers` keeps the sources, which `host_copies` checked to be ready. `segment`
        // is borrowed for writing, and is none of the sources.
        unsafe { copy_in_threads(start, bytes, &copies) };
        return Ok(Ready::Now);
    }
    copy_to_block(segment, buffers, stream)?;
    stream.record()
}

/// The copies into the segments of a message. The sender waits for them before it sends the
/// message. The receiver cannot wait for an event, because an event of a plugin's process might
/// never complete. Dropping this value waits too, so that a segment has no other use before.
#[derive(Default)]
pub struct SegmentCopies(Vec<Ready>);

impl SegmentCopies {
    pub fn add(&mut self, filled: Ready) {
        self.0.push(filled);
    }

    /// Waits until all copies are complete.
    ///
    /// # Errors
    /// The device fails.
    pub fn wait(&self) -> Result<()> {
        self.0.iter().try_for_each(|filled| match filled {
            Ready::After(event) => event.synchronize(),
            Ready::Now | Ready::AfterForeign(_) => Ok(()),
        })
    }
}

impl Drop for SegmentCopies {
    fn drop(&mut self) {
        // After an error of the device, nothing uses the segments.
        let _ = self.wait();
    }
}

/// Maps a segment that the host sent. Returns the owner and the address of the mapping.
pub fn open(backend: &Backend, device: Device, file: OwnedFd, bytes: u64) -> Result<(ForeignOwner, u64)> {
    let memory = backend.open_file(device, file, bytes)?;
    let address = memory.address();
    Ok((ForeignOwner::new(memory), address))
}

/// The default stream of the CPU and, if a plugin instance has a device, the default stream of the
/// device.
#[derive(Clone)]
pub struct Streams {
    cpu: Stream,
    device: Option<Stream>,
}

impl Streams {
    pub fn new(cpu: Stream, device: Option<Stream>) -> Self {
        Self { cpu, device }
    }

    /// Returns the stream of `device` if the instance has this device, otherwise the stream of the
    /// CPU.
    pub fn for_device(&self, device: Device) -> &Stream {
        self.device.as_ref().filter(|stream| stream.device() == device).unwrap_or(&self.cpu)
    }

    /// The default stream of the instance's device. `None` if it has no device.
    pub fn device_stream(&self) -> Option<&Stream> {
        self.device.as_ref()
    }
}
