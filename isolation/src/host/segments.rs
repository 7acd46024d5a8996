//! Allocates the shared device segments of a plugin's process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use crossdock_memory::{Buffer, BufferMut, Stream};
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Device, Error, Result};

use crate::locks::lock;
use crate::wire::device_segments::{SegmentParts, SegmentSender, SentSegment, fill};

/// The maximum number of segments that a process has requested and not used. A process uses at most
/// one segment for each response or callback.
const MAX_SEGMENTS: usize = 64;

/// The shared device segments of one process.
pub struct SharedDeviceSegments {
    backend: Backend,
    account: Arc<Account>,
    stream: Stream,
    /// Segments that the process requested and has not used yet, by id. `None` once the process has
    /// ended.
    requested: Mutex<Option<HashMap<u64, BufferMut>>>,
}

impl SharedDeviceSegments {
    /// Creates segments on the device of `stream` and charges them to `account`.
    pub fn new(backend: Backend, account: Arc<Account>, stream: Stream) -> Self {
        Self { backend, account, stream, requested: Mutex::new(Some(HashMap::new())) }
    }

    /// Allocates a segment. Returns its memory, its file and the length of the file in bytes.
    fn allocate(&self, bytes: usize) -> Result<(BufferMut, OwnedFd, u64)> {
        let device = self.stream.device();
        let block = self.account.allocate_exportable(device, bytes)?;
        // SAFETY: the line above allocated `block` on `device` in the host that the memory belongs
        // to, and `block` is moved into the buffer.
        let segment = unsafe { BufferMut::from_block(self.stream.memory(), device, block) };
        let (file, file_bytes) = self.backend.export_file(segment.address())?;
        Ok((segment, file, file_bytes))
    }

    fn requested(&self) -> MutexGuard<'_, Option<HashMap<u64, BufferMut>>> {
        lock(&self.requested)
    }

    /// Allocates a segment for a message of the process. Returns its file and the length of the
    /// file in bytes.
    ///
    /// # Errors
    /// Device memory is exhausted, the id is in use, too many segments are unused, or the process
    /// has ended.
    pub fn request(&self, id: u64, bytes: u64) -> Result<(OwnedFd, u64)> {
        let too_long =
            |_| Error::out_of_memory(format!("a segment of {bytes} bytes exceeds the address space"));
        let (segment, file, file_bytes) = self.allocate(usize::try_from(bytes).map_err(too_long)?)?;
        let mut requested = self.requested();
        let ended = || Error::invalid_argument("the process has ended and cannot receive a segment");
        let requested = requested.as_mut().ok_or_else(ended)?;
        if requested.len() >= MAX_SEGMENTS || requested.contains_key(&id) {
            let count = requested.len();
            return Err(Error::invalid_argument(format!(
                "a request for segment {id} while {count} segments are unused; expected a new id, and at most {MAX_SEGMENTS} \
                 unused segments"
            )));
        }
        requested.insert(id, segment);
        Ok((file, file_bytes))
    }

    /// Copies the contents of requested segments on `stream` to memory that the process cannot
    /// access, and releases the segments.
    ///
    /// # Errors
    /// The process did not request one of the segments, or memory is exhausted.
    pub fn copy_out(&self, segments: &[SegmentParts], stream: &Stream) -> Result<Vec<Buffer>> {
        let copy_out = |parts: &SegmentParts| {
            let segment = self.requested().as_mut().and_then(|requested| requested.remove(&parts.handle));
            let unknown = || {
                Error::bad_data(format!(
                    "arrays are in segment {}, which the plugin's process did not request",
                    parts.handle
                ))
            };
            let segment = segment.ok_or_else(unknown)?.freeze_now();
            let bytes = segment.len().unwrap_or(0);
            let mut copy = stream.memory().alloc(stream, bytes)?;
            stream.copy(&mut copy, 0, &segment, 0, bytes)?;
            copy.freeze(stream)
        };
        segments.iter().map(copy_out).collect()
    }

    /// Releases a requested segment that the process does not use.
    pub fn release(&self, id: u64) {
        let segment = self.requested().as_mut().and_then(|requested| requested.remove(&id));
        drop(segment);
    }

    /// Releases all requested segments after the process has ended.
    pub fn release_all(&self) {
        let segments = self.requested().take();
        drop(segments);
    }
}

impl SegmentSender for SharedDeviceSegments {
    fn device(&self) -> Device {
        self.stream.device()
    }

    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
        let (mut segment, file, file_bytes) = self.allocate(bytes)?;
        fill(&mut segment, buffers, &self.stream)?;
        Ok(SentSegment { id: 0, bytes: file_bytes, file: Some(file), memory: Some(segment.freeze_now()) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use crossdock_memory::ForeignOwner;
    use crossdock_plugin_api::{Code, abi};
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::wire::device_segments::{open, open_read_only};

    const GPU: Device = Device::cuda(0);
    const BYTES: usize = 3 << 20;

    /// Returns the segments of a process, and a stream of the host. If the machine has no GPU,
    /// prints the reason for the test `test` and returns `None`.
    fn segments(test: &str) -> Option<(TestHost, SharedDeviceSegments, Stream)> {
        let backend = Backend::builder().limit_bytes(1 << 30).build();
        if let Err(missing) = backend.cuda() {
            // `eprintln!` would be captured by the test runner.
            std::io::stderr().write_all(format!("skipped: {test}: {missing}\n").as_bytes()).unwrap();
            return None;
        }
        let host = TestHost::over(backend.clone());
        let stream = host.stream(GPU);
        let account = backend.account("a process");
        Some((host, SharedDeviceSegments::new(backend, account, stream.clone()), stream))
    }

    fn parts(handle: u64) -> SegmentParts {
        SegmentParts { handle, bytes: 0 }
    }

    fn contents(buffer: &Buffer, stream: &Stream) -> Vec<u8> {
        buffer.host_view(stream).unwrap().to_vec()
    }

    #[test]
    fn process_cannot_change_received_buffers() {
        let Some((host, segments, stream)) = segments("process_cannot_change_received_buffers") else {
            return;
        };
        // A plugin's process has its own backend.
        let process = TestHost::over(Backend::builder().build());
        let process_stream = process.stream(GPU);
        let (file, file_bytes) = segments.request(7, BYTES as u64).unwrap();
        let (owner, address) = open(process.backend(), GPU, file, file_bytes).unwrap();
        let write = |value| {
            // SAFETY: `open` mapped at least `BYTES` bytes at the address, and the owner keeps the
            // mapping.
            let mut segment =
                unsafe { BufferMut::foreign(process_stream.memory(), &owner, GPU, address, BYTES) };
            process_stream.fill(&mut segment, 0, BYTES, value).unwrap();
            process_stream.synchronize().unwrap();
        };
        write(1);
        let received = segments.copy_out(&[parts(7)], &stream).unwrap();
        stream.synchronize().unwrap();
        write(2);
        assert!(contents(&received[0], &stream) == vec![1; BYTES], "the process changed it afterwards");
        drop((received, owner, process_stream));
        process.backend().settle();
        host.assert_nothing_leaked();
    }

    #[test]
    fn process_cannot_change_the_buffers_that_the_host_sends() {
        let Some((host, segments, stream)) =
            segments("process_cannot_change_the_buffers_that_the_host_sends")
        else {
            return;
        };
        let buffer = stream.memory().alloc_with(&stream, BYTES, |to| {
            to.fill(3);
            Ok(())
        });
        let buffer = buffer.unwrap().freeze(&stream).unwrap();
        let sent = segments.fill_segment(&[(buffer.clone(), 0)], BYTES).unwrap();
        let mapped = open_read_only(host.backend(), GPU, sent.file.unwrap(), sent.bytes).unwrap();
        assert!(contents(&mapped.slice(0, BYTES).unwrap(), &stream) == vec![3; BYTES]);
        // SAFETY: `mapped` has at least `BYTES` bytes, and its owner keeps the mapping.
        let mut written = unsafe {
            BufferMut::foreign(
                stream.memory(),
                &ForeignOwner::new(mapped.clone()),
                GPU,
                mapped.address(),
                BYTES,
            )
        };
        stream.fill(&mut written, 0, BYTES, 4).unwrap();
        assert!(contents(&buffer, &stream) == vec![3; BYTES], "the process writes into the host's buffer");
        drop((buffer, sent.memory, mapped, written, segments));
        host.assert_nothing_leaked();
    }

    #[test]
    fn rejects_unknown_segments_and_too_many_unused_ones() {
        let Some((host, segments, stream)) = segments("rejects_unknown_segments_and_too_many_unused_ones")
        else {
            return;
        };
        let error = |handle| segments.copy_out(&[parts(handle)], &stream).map(drop).unwrap_err();
        let not_requested = "segment 1, which the plugin's process did not request";
        assert!(error(1).message().contains(not_requested));
        segments.request(1, 64).unwrap();
        assert!(segments.request(1, 64).is_err(), "the id is in use");
        assert_eq!(segments.copy_out(&[parts(1)], &stream).unwrap()[0].len(), Some(64));
        assert!(error(1).message().contains(not_requested), "it was used");
        segments.request(1, 64).unwrap();
        segments.release(1);
        assert!(error(1).message().contains(not_requested), "it was released");
        for bytes in [2 << 30, u64::MAX] {
            let code = segments.request(1, bytes).map(drop).unwrap_err().code();
            assert_eq!(code, Code(abi::OUT_OF_MEMORY), "{bytes}");
        }
        for id in 0..MAX_SEGMENTS as u64 {
            segments.request(id, 64).unwrap();
        }
        let too_many = segments.request(1000, 64).map(drop).unwrap_err();
        assert!(too_many.message().contains("at most 64 unused segments"), "{too_many}");
        segments.release_all();
        assert!(segments.request(1000, 64).map(drop).unwrap_err().message().contains("has ended"));
        assert!(error(0).message().contains("did not request"));
        // `assert_nothing_leaked` fails if unused segments were not released.
        host.assert_nothing_leaked();
    }
}
