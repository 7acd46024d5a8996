//! Shared segments that both processes can write.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_memory::{Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Device, Error, Result};

use crate::files::segment_file::{Access, SegmentFile};
use crate::host::segment_pool::{SegmentMemory, SegmentPool, State};
use crate::wire::host_copies::{HostCopy, copy_in_threads};
use crate::wire::segments::{SegmentParts, fill};

/// The maximum number of segments that a process has requested and not used. A process uses at most
/// one segment for each response, callback or sink, and few for responses that it has read ahead.
const MAX_SEGMENTS: usize = 256;

/// The maximum number of bytes of a segment of host memory. Larger arrays are sent in files.
const MAX_HOST_BYTES: usize = 64 << 20;

/// Segments that both processes can write, on the device of the process. They are in host memory if
/// it has none.
pub type WritableSegments = SegmentPool<WritableMemory>;

/// Memory of a device, or host memory, that is charged to an account.
pub struct WritableMemory {
    backend: Backend,
    account: Arc<Account>,
    stream: Stream,
}

/// A segment for a message of the process.
pub struct RequestedSegment {
    pub number: u64,
    pub file: OwnedFd,
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// The numbers of all segments that later messages may use.
    pub existing: Vec<u64>,
}

impl SegmentMemory for WritableMemory {
    type Block = Buffer;

    fn device(&self) -> Device {
        self.stream.device()
    }

    fn allocate(&self, bytes: usize) -> Result<(Buffer, OwnedFd, u64)> {
        let device = self.device();
        if device == Device::CPU {
            return self.allocate_on_host(bytes);
        }
        let block = self.account.allocate_exportable(device, bytes)?;
        // SAFETY: the line above allocated `block` on `device` in the host that the memory belongs
        // to, and `block` is moved into the buffer.
        let memory = unsafe { BufferMut::from_block(self.stream.memory(), device, block) };
        let memory = memory.freeze_now();
        let (file, file_bytes) = self.backend.export_file(memory.address())?;
        Ok((memory, file, file_bytes))
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn is_unused(&self, _: &Buffer) -> bool {
        // `Segment::copied` says when the copies out of the block are complete.
        true
    }

    fn fill(&self, block: &Buffer, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Ready> {
        let owner = ForeignOwner::new(block.clone());
        let (device, address) = (self.device(), block.address());
        // SAFETY: the block has at least `bytes` bytes, and the owner keeps them. No message uses
        // the block, so the host does not access it elsewhere.
        let mut target = unsafe { BufferMut::foreign(self.stream.memory(), &owner, device, address, bytes) };
        fill(&mut target, buffers, &self.stream)
    }
}

impl WritableMemory {
    fn allocate_on_host(&self, bytes: usize) -> Result<(Buffer, OwnedFd, u64)> {
        if bytes > MAX_HOST_BYTES {
            return Err(Error::invalid_argument(format!(
                "a segment of {bytes} bytes of host memory was requested, expected at most {MAX_HOST_BYTES}"
            )));
        }
        let reservation = self.account.reserve(bytes)?;
        let out_of_memory = |error| {
            Error::out_of_memory(format!(
                "cannot allocate {bytes} bytes of shared memory for an isolated plugin: {error}"
            ))
        };
        let (mapping, file) = SegmentFile::create(bytes, Access::ReadWrite).map_err(out_of_memory)?;
        let address = mapping.start().as_ptr().addr() as u64;
        let owner = ForeignOwner::new((mapping, reservation));
        // SAFETY: the mapping has `bytes` bytes at the address, and the owner keeps it. The process
        // can write it at any time, so it is only read by `copy_out`, which accepts any bytes.
        let block = unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(bytes as u64), Ready::Now) };
        Ok((block, file, bytes as u64))
    }
}

fn check_request<B>(state: &State<B>, id: u64) -> Result<()> {
    let count = state.requested.len();
    if count < MAX_SEGMENTS && !state.requested.contains_key(&id) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "a request for segment {id} while {count} segments are unused; expected a new id, and at most {MAX_SEGMENTS} unused \
         segments"
    )))
}

impl WritableSegments {
    /// Creates segments on the device of `stream`, which may be the CPU, and charges them to
    /// `account`.
    pub fn new(backend: Backend, account: Arc<Account>, stream: Stream) -> Self {
        Self::over(WritableMemory { backend, account, stream })
    }

    /// Returns a segment of at least `bytes` bytes for a message of the process.
    ///
    /// # Errors
    /// Memory is exhausted, the id is in use, too many segments are unused, or the process
    /// has ended.
    pub fn request(&self, id: u64, bytes: u64) -> Result<RequestedSegment> {
        let too_long =
            |_| Error::out_of_memory(format!("a segment of {bytes} bytes exceeds the address space"));
        let bytes = usize::try_from(bytes).map_err(too_long)?;
        self.with_state(|state| check_request(state, id))?;
        let segment = self.take(bytes)?;
        let (number, file, file_bytes) = (segment.number, segment.file.try_clone()?, segment.file_bytes);
        self.with_state(|state| {
            check_request(state, id)?;
            state.requested.insert(id, segment);
            Ok(RequestedSegment { number, file, file_bytes, existing: state.numbers() })
        })
    }

    /// Copies the contents of requested segments on `stream` to memory that the process cannot
    /// access.
    ///
    /// # Errors
    /// The process did not request one of the segments, or memory is exhausted.
    pub fn copy_out(&self, segments: &[SegmentParts], stream: &Stream) -> Result<Vec<Buffer>> {
        let copy_out = |parts: &SegmentParts| {
            let unknown = || {
                Error::bad_data(format!(
                    "arrays are in segment {}, which the plugin's process did not request",
                    parts.number
                ))
            };
            let take = |state: &mut State<Buffer>| state.requested.remove(&parts.number).ok_or_else(unknown);
            let mut segment = self.with_state(take)?;
            // The process states the length of its message. Its segment may be longer.
            let bytes = usize::try_from(parts.bytes).unwrap_or(usize::MAX).min(segment.bytes);
            let mut copy = self.with_memory(|| stream.memory().alloc(stream, bytes))?;
            match copy.host_slice_mut() {
                Some(target) => {
                    let start = NonNull::from(&mut *target).cast();
                    let from = HostCopy { from: segment.block.address() as usize, offset: 0, bytes };
                    // SAFETY: the block has at least `bytes` bytes and is mapped, and `copy` is new
                    // memory of `bytes` bytes. The process may write the block meanwhile; then the
                    // copy has any bytes.
                    unsafe { copy_in_threads(start, bytes, &[from]) };
                }
                None => stream.copy(&mut copy, 0, &segment.block, 0, bytes)?,
            }
            let copy = copy.freeze(stream)?;
            segment.copied = copy.ready().clone();
            self.keep(segment);
            Ok(copy)
        };
        segments.iter().map(copy_out).collect()
    }

    /// Copies a range of a requested segment of host memory to `to`, because the process can change
    /// the segment at any time.
    ///
    /// # Errors
    /// The process did not request the segment, or the range lies outside of it.
    pub fn copy_requested(&self, (id, offset, bytes): (u64, u64, u64), to: &mut Vec<u8>) -> Result<()> {
        let block = self.with_state(|state| {
            let unknown = || {
                Error::invalid_argument(format!("bytes of segment {id}, which the process did not request"))
            };
            Ok(state.requested.get(&id).ok_or_else(unknown)?.block.clone())
        })?;
        let outside = |_| Error::invalid_argument(format!("bytes {offset}..+{bytes} lie outside a segment"));
        let range = (usize::try_from(offset).map_err(outside)?, usize::try_from(bytes).map_err(outside)?);
        let part = block.slice(range.0, range.1)?;
        to.clear();
        to.reserve(range.1);
        // SAFETY: `slice` checked that the range lies in the block, which is mapped as long as
        // `block` exists, and `to` has memory for it. The process may write the range meanwhile;
        // then the copy has any bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(part.address() as *const u8, to.as_mut_ptr(), range.1);
            to.set_len(range.1);
        }
        Ok(())
    }

    /// Releases a requested segment that the process does not use. It is not kept, because work of
    /// the process on it may be incomplete after an error.
    pub fn release(&self, id: u64) {
        // After the end of the process, there is none.
        let segment = self.with_state(|state| Ok(state.requested.remove(&id)));
        drop(segment);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use crossdock_plugin_api::{Code, abi};
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::wire::segments::{SegmentSender, open};

    const GPU: Device = Device::cuda(0);
    const BYTES: usize = 3 << 20;

    struct Test {
        host: TestHost,
        segments: Arc<WritableSegments>,
        stream: Stream,
    }

    /// Runs a test with the segments of a process without a device, and of one with a GPU. If the
    /// machine has no GPU, prints the reason.
    fn for_each_device(name: &str, test: impl Fn(&Test)) {
        for device in [Device::CPU, GPU] {
            let backend = Backend::builder().limit_bytes(1 << 30).build();
            if device == GPU
                && let Err(missing) = backend.cuda()
            {
                // `eprintln!` would be captured by the test runner.
                std::io::stderr().write_all(format!("skipped: {name}: {missing}\n").as_bytes()).unwrap();
                continue;
            }
            let host = TestHost::over(backend.clone());
            let stream = host.stream(device);
            let account = backend.account("a process");
            let segments = Arc::new(WritableSegments::new(backend, account, stream.clone()));
            let all = Test { host, segments, stream };
            test(&all);
            all.segments.release_all();
            all.host.assert_nothing_leaked();
        }
    }

    /// Maps a segment as the process does.
    fn map(host: &TestHost, device: Device, file: OwnedFd, bytes: u64) -> (ForeignOwner, u64) {
        if device != Device::CPU {
            return open(host.backend(), device, file, bytes).unwrap();
        }
        let mapping = SegmentFile::open(file, bytes as usize, Access::ReadWrite).unwrap();
        let address = mapping.start().as_ptr().addr() as u64;
        (ForeignOwner::new(mapping), address)
    }

    fn parts(number: u64, bytes: usize) -> SegmentParts {
        SegmentParts { number, file: None, bytes: bytes as u64, is_read_only: false }
    }

    fn contents(buffer: &Buffer, stream: &Stream) -> Vec<u8> {
        buffer.host_view(stream).unwrap().to_vec()
    }

    #[test]
    fn process_cannot_change_received_buffers() {
        for_each_device("process_cannot_change_received_buffers", |Test { segments, stream, .. }| {
            // A plugin's process has its own backend.
            let (process, device) = (TestHost::over(Backend::builder().build()), stream.device());
            let process_stream = process.stream(device);
            let RequestedSegment { file, file_bytes, .. } = segments.request(7, BYTES as u64).unwrap();
            let (owner, address) = map(&process, device, file, file_bytes);
            let write = |value| {
                // SAFETY: `map` mapped at least `BYTES` bytes at the address, and the owner keeps
                // the mapping.
                let mut segment =
                    unsafe { BufferMut::foreign(process_stream.memory(), &owner, device, address, BYTES) };
                process_stream.fill(&mut segment, 0, BYTES, value).unwrap();
                process_stream.synchronize().unwrap();
            };
            write(1);
            let received = segments.copy_out(&[parts(7, BYTES)], stream).unwrap();
            stream.synchronize().unwrap();
            write(2);
            assert!(contents(&received[0], stream) == vec![1; BYTES], "the process changed it afterwards");
            drop((received, owner, process_stream));
            process.backend().settle();
        });
    }

    #[test]
    fn process_cannot_change_the_buffers_that_the_host_sends() {
        let name = "process_cannot_change_the_buffers_that_the_host_sends";
        for_each_device(name, |Test { host, segments, stream }| {
            let device = stream.device();
            let buffer = stream.memory().alloc_with(stream, BYTES, |to| {
                to.fill(3);
                Ok(())
            });
            let buffer = buffer.unwrap().freeze(stream).unwrap();
            let sent = segments.fill_segment(&[(buffer.clone(), 0)], BYTES).unwrap();
            let (owner, address) = map(host, device, sent.file.unwrap(), sent.bytes);
            // SAFETY: `map` mapped at least `BYTES` bytes at the address, and the owner keeps the
            // mapping.
            let mapped = unsafe { Buffer::foreign(&owner, device, address, Some(BYTES as u64), Ready::Now) };
            assert!(contents(&mapped, stream) == vec![3; BYTES]);
            // SAFETY: as above.
            let mut written = unsafe { BufferMut::foreign(stream.memory(), &owner, device, address, BYTES) };
            stream.fill(&mut written, 0, BYTES, 4).unwrap();
            assert!(contents(&buffer, stream) == vec![3; BYTES], "the process writes into the host's buffer");
        });
    }

    #[test]
    fn rejects_unknown_segments_and_too_many_unused_ones() {
        for_each_device(
            "rejects_unknown_segments_and_too_many_unused_ones",
            |Test { segments, stream, .. }| {
                let error = |handle| segments.copy_out(&[parts(handle, 64)], stream).map(drop).unwrap_err();
                let not_requested = "segment 1, which the plugin's process did not request";
                assert!(error(1).message().contains(not_requested));
                segments.request(1, 64).unwrap();
                assert!(segments.request(1, 64).is_err(), "the id is in use");
                assert_eq!(segments.copy_out(&[parts(1, 64)], stream).unwrap()[0].len(), Some(64));
                assert!(error(1).message().contains(not_requested), "it was used");
                segments.request(1, 64).unwrap();
                segments.release(1);
                assert!(error(1).message().contains(not_requested), "it was released");
                for bytes in [2 << 30, u64::MAX] {
                    let code = segments.request(1, bytes).map(drop).unwrap_err().code();
                    let expected =
                        if stream.device() == GPU { abi::OUT_OF_MEMORY } else { abi::INVALID_ARGUMENT };
                    assert_eq!(code, Code(expected), "{bytes}");
                }
                for id in 0..MAX_SEGMENTS as u64 {
                    segments.request(id, 64).unwrap();
                }
                let too_many = segments.request(1000, 64).map(drop).unwrap_err();
                assert!(too_many.message().contains("at most 256 unused segments"), "{too_many}");
                segments.release_all();
                assert!(segments.request(1000, 64).map(drop).unwrap_err().message().contains("has ended"));
                assert!(error(0).message().contains("has ended"));
                // `for_each_device` fails if unused segments were not released.
            },
        );
    }

    #[test]
    fn segments_are_used_again_after_their_content_was_copied_or_returned() {
        let name = "segments_are_used_again_after_their_content_was_copied_or_returned";
        for_each_device(name, |Test { segments, stream, .. }| {
            let request = |id, bytes: usize| segments.request(id, bytes as u64).unwrap();
            let receive = |id, bytes| {
                let received = segments.copy_out(&[parts(id, bytes)], stream).unwrap();
                stream.synchronize().unwrap();
                assert_eq!(received[0].len(), Some(bytes));
            };
            let reuse = segments.reuse();
            let first = request(1, BYTES);
            receive(1, BYTES);
            let second = request(2, BYTES - 1000);
            assert_eq!((second.number, second.file_bytes), (first.number, first.file_bytes));
            // While the segment is in use, there is another one.
            let third = request(3, BYTES);
            assert_ne!(third.number, first.number);
            receive(2, BYTES - 1000);
            receive(3, BYTES);
            // A longer message needs another segment.
            let mut long = request(4, 3 * BYTES);
            long.existing.sort_unstable();
            assert_eq!(long.existing, [first.number, third.number, long.number]);
            segments.release(4);

            // Messages to the process use the same segments.
            let memory = stream.memory().alloc(stream, BYTES).unwrap().freeze(stream).unwrap();
            let send = || segments.fill_segment(&[(memory.clone(), 0)], BYTES).unwrap().number;
            let (one, other, another) = (send(), send(), send());
            let known = [first.number, third.number];
            assert!(
                one != other && known.contains(&one) && known.contains(&other) && !known.contains(&another)
            );
            segments.return_sent(other);
            assert_eq!(send(), other);
            // It is returned only once, and only segments that were sent are returned.
            for number in [one, one, another, other, 1000] {
                segments.return_sent(number);
            }
            assert_eq!(request(5, 64).existing.len(), 3);
            assert!(segments.release_free() && !segments.release_free());
            assert_eq!(request(6, BYTES).existing.len(), 2);
            receive(6, BYTES);
            drop(reuse);
            // Now, no segment is kept.
            assert_eq!(request(7, BYTES).existing.len(), 2);
            receive(7, BYTES);
            assert_eq!(request(8, BYTES).existing.len(), 2);
        });
    }
}
