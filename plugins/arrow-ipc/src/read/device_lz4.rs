//! Decompresses a body with LZ4 on the device that its buffers are for.
//!
//! The body is copied to the device as it is stored. A warp decompresses a block of a frame. The
//! device is faster than the host only if it can decompress many of them at the same time;
//! otherwise, the host decompresses the body. It also does so if the memory of the device is not
//! sufficient, or if the device finds an error. The error is then that of the host's library.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_kernels::{Checks, Lz4Buffers, Lz4Content, StartedChecks};
use crossdock_memory::{Buffer, BufferMut, LoadRange, Result, Stream};
use crossdock_plugin_api::{Code, TaskGroup};

use super::bytes::Bytes;
use super::transport::Transport;
use crate::codec::lz4::FrameHeader;
use crate::codec::{PREFIX_BYTES, StoredBuffer};

/// Minimum size of an uncompressed body. The host decompresses a smaller one in less time than a
/// launch takes.
const MIN_BODY_BYTES: usize = 1 << 20;

/// Minimum size of an uncompressed body with linked blocks, which need more launches.
const MIN_LINKED_BODY_BYTES: usize = 12 << 20;

/// Minimum size of a body in relation to its longest part that one warp decompresses. A warp writes
/// 40 to 60 MB/s on an H200, and a thread of the host about 1,500 MB/s.
const MIN_PARTS: usize = 32;

/// A buffer of a compressed body.
pub struct CompressedBuffer {
    /// Its offset and length in the copied body, including the prefix.
    pub from: (usize, usize),
    /// Its offset and length in the output.
    pub to: (usize, usize),
    pub stored: StoredBuffer,
    /// The header of its frame; `None` if a device cannot decompress it.
    pub header: Option<FrameHeader>,
}

/// Lists the buffers for the device. Returns `None` if the host should decompress them.
pub fn list(buffers: &[CompressedBuffer]) -> Option<Lz4Buffers> {
    let mut list = Lz4Buffers::new();
    for buffer in buffers {
        let ((from, stored), (to, bytes)) = (buffer.from, buffer.to);
        let (header_bytes, content) = match buffer.stored {
            StoredBuffer::Plain(0) | StoredBuffer::Frame(0) => continue,
            StoredBuffer::Plain(_) => (0, Lz4Content::Plain),
            StoredBuffer::Frame(_) => {
                let FrameHeader { bytes, block_bytes, are_linked } = buffer.header?;
                (bytes, Lz4Content::Blocks { block_bytes, are_linked })
            }
        };
        list.push(from + PREFIX_BYTES + header_bytes..from + stored, to..to + bytes, content);
    }
    let has_parts = list.bytes() / MIN_PARTS >= list.longest_piece();
    let min_bytes = if list.has_linked() { MIN_LINKED_BODY_BYTES } else { MIN_BODY_BYTES };
    (has_parts && list.bytes() >= min_bytes).then_some(list)
}

/// A body that is being decompressed on a device. `T` is the body while the host decompresses it.
pub struct Decompression<T> {
    task: TaskGroup,
    /// `None` after the task if the device cannot decompress the body.
    started: Arc<Mutex<Option<Started>>>,
    bytes: usize,
    /// Begins to decompress the body on the host.
    on_host: Box<dyn FnOnce() -> Result<T> + Send>,
}

struct Started {
    checks: StartedChecks,
    cell: usize,
    output: Buffer,
}

impl<T> Decompression<T> {
    /// Begins to copy `loads` of the body to a block of `stored_bytes` bytes on the device, and to
    /// decompress them to `bytes` bytes.
    pub fn start(
        transport: &Transport<'_>,
        body: Bytes,
        loads: Vec<LoadRange>,
        stored_bytes: usize,
        list: Lz4Buffers,
        bytes: usize,
        on_host: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let Transport { memory, stream, decompressions, loader, tasks, cancel } = *transport;
        let decompression = decompressions.next(memory, stream.device())?;
        let started = Arc::new(Mutex::new(None));
        let result = started.clone();
        let (memory, stream, loader, cancel) =
            (memory.clone(), stream.clone(), loader.clone(), cancel.clone());
        let task = tasks.start([move || {
            let start = || {
                let mut block = memory.alloc(&stream, stored_bytes)?;
                body.load(&loader, &cancel, &mut block, &loads, &stream)?;
                launch(block, &list, bytes, &stream, &decompression)
            };
            match start() {
                // The host of the session is older than the kernel, or has not enough memory.
                Err(e) if [Code::VERSION, Code::OUT_OF_MEMORY].contains(&e.code()) => {}
                started => *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(started?),
            }
            Ok(())
        }])?;
        Ok(Self { task, started, bytes: stored_bytes + bytes, on_host: Box::new(on_host) })
    }

    /// Number of bytes that are allocated on the device.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the device has begun to decompress the body, or cannot decompress it.
    pub fn has_begun(&self) -> bool {
        self.task.is_done()
    }

    /// Waits for the result. If the device could not decompress the body, returns the same body,
    /// which the host is decompressing.
    pub fn finish(self, check: impl Fn() -> Result<()>) -> Result<std::result::Result<Buffer, T>> {
        self.task.wait(check)?;
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Started { checks, cell, output }) = started
            && checks.finish()?.first_wrong(cell).is_none()
        {
            return Ok(Ok(output));
        }
        (self.on_host)().map(Err)
    }
}

/// Launches the decompression on `stream`.
fn launch(
    block: BufferMut,
    list: &Lz4Buffers,
    bytes: usize,
    copies: &Stream,
    stream: &Stream,
) -> Result<Started> {
    let memory = stream.memory();
    // On the stream of the bodies: on another stream, this copy would compete with those of later
    // bodies, and the device would begin to decompress after them.
    let words = memory.alloc_with(copies, list.words().len(), |to| {
        to.copy_from_slice(list.words());
        Ok(())
    })?;
    let (words, block) = (words.freeze(copies)?, block.freeze(copies)?);
    let mut output = memory.alloc(stream, bytes)?;
    // The bytes between the buffers.
    stream.fill(&mut output, 0, bytes, 0)?;
    let mut scratch = memory.alloc(stream, list.scratch_bytes(bytes))?;
    stream.fill(&mut scratch, 0, list.scratch_bytes(bytes), 0)?;
    let mut checks = Checks::new();
    let cell = checks.decompress_lz4(&block, list, &words, &mut output, 0..bytes, &mut scratch)?;
    Ok(Started { checks: checks.start(stream)?, cell, output: output.freeze(stream)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: FrameHeader = FrameHeader { bytes: 7, block_bytes: 65536, are_linked: false };

    fn frame(bytes: usize, header: Option<FrameHeader>) -> CompressedBuffer {
        CompressedBuffer { from: (64, 1000), to: (0, bytes), stored: StoredBuffer::Frame(bytes), header }
    }

    #[test]
    fn device_decompresses_only_bodies_with_many_parts() {
        let is_for_device = |buffers: &[CompressedBuffer]| list(buffers).is_some();
        assert!(is_for_device(&[frame(32 * 65536, Some(BLOCKS))]));
        assert!(!is_for_device(&[frame(31 * 65536, Some(BLOCKS))]));
        let linked = FrameHeader { are_linked: true, ..BLOCKS };
        assert!(is_for_device(&[frame(8 << 20, Some(linked)), frame(4 << 20, Some(BLOCKS))]));
        assert!(!is_for_device(&[frame(8 << 20, Some(linked)), frame(3 << 20, Some(BLOCKS))]));
        let many = |n: usize, bytes: usize| (0..n).map(|_| frame(bytes, Some(BLOCKS))).collect::<Vec<_>>();
        assert!(is_for_device(&many(32, 50_000)));
        assert!(!is_for_device(&many(31, 50_000)));
        // A small body.
        assert!(!is_for_device(&many(1000, 1000)));
        assert!(is_for_device(&many(1100, 1000)));
        // Few large blocks.
        let large = FrameHeader { block_bytes: 4 << 20, ..BLOCKS };
        assert!(!is_for_device(&[frame(100 << 20, Some(large))]));
        // A frame that only the host decompresses.
        let mut buffers = many(40, 50_000);
        buffers.push(frame(1, None));
        assert!(!is_for_device(&buffers));
        let plain =
            CompressedBuffer { from: (0, 10), to: (0, 2), stored: StoredBuffer::Plain(2), header: None };
        buffers.pop();
        buffers.push(plain);
        assert_eq!(list(&buffers).map(|list| list.n_pieces()), Some(41));
    }
}
