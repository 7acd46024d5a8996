//! Allocates the shared device segments of a plugin's process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crossdock_memory::{Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Code, Device, Error, Result};

use crate::locks::lock;
use crate::wire::device_segments::{SegmentParts, SegmentSender, SentSegment, fill};

/// The maximum number of segments that a process has requested and not used. A process uses at most
/// one segment for each response or callback.
const MAX_SEGMENTS: usize = 64;

/// The maximum number of segments that are kept for later messages. The driver needs longer to
/// create a segment than to copy its content.
const MAX_FREE_SEGMENTS: usize = 4;

/// Lengths of segments are multiples of this number of bytes, as the driver's are.
const GRANULARITY: usize = 2 << 20;

/// The shared device segments of one process.
pub struct SharedDeviceSegments {
    backend: Backend,
    account: Arc<Account>,
    stream: Stream,
    /// `None` once the process has ended.
    state: Mutex<Option<State>>,
}

#[derive(Default)]
struct State {
    /// Segments that the process requested and has not used yet, by the id of the request.
    requested: HashMap<u64, Segment>,
    /// Segments of messages to the process, which has not returned them yet, by number.
    sent: HashMap<u64, Segment>,
    /// Segments for later messages. The one that was used last is the last.
    free: Vec<Segment>,
    /// The number of [`SegmentReuse`]s. Without any, no segment is free.
    n_reuses: usize,
    /// The number of the last segment.
    last: u64,
}

struct Segment {
    number: u64,
    memory: Buffer,
    file: OwnedFd,
    file_bytes: u64,
    /// When the content of the last message has been copied out.
    copied: Ready,
}

/// Keeps segments for later messages until this value is dropped.
pub struct SegmentReuse(Arc<SharedDeviceSegments>);

impl Drop for SegmentReuse {
    fn drop(&mut self) {
        let mut free = Vec::new();
        if let Some(state) = lock(&self.0.state).as_mut() {
            state.n_reuses -= 1;
            if state.n_reuses == 0 {
                free = std::mem::take(&mut state.free);
            }
        }
        // The segments are dropped after the lock is released.
        drop(free);
    }
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

impl State {
    /// Takes the smallest free segment that has `bytes` bytes and whose content has been copied.
    fn take_free(&mut self, bytes: usize) -> Option<Segment> {
        let is_usable = |segment: &Segment| {
            segment.memory.len() >= Some(bytes) && segment.copied.is_done().unwrap_or(false)
        };
        let usable = self.free.iter().enumerate().filter(|(_, segment)| is_usable(segment));
        let (i, _) = usable.min_by_key(|(_, segment)| segment.memory.len())?;
        Some(self.free.remove(i))
    }

    fn check_request(&self, id: u64) -> Result<()> {
        let count = self.requested.len();
        if count < MAX_SEGMENTS && !self.requested.contains_key(&id) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "a request for segment {id} while {count} segments are unused; expected a new id, and at most {MAX_SEGMENTS} \
             unused segments"
        )))
    }
}

impl SharedDeviceSegments {
    /// Creates segments on the device of `stream` and charges them to `account`.
    pub fn new(backend: Backend, account: Arc<Account>, stream: Stream) -> Self {
        Self { backend, account, stream, state: Mutex::new(Some(State::default())) }
    }

    /// Keeps segments for later messages, as long as a stream or a writer is open. Otherwise they
    /// would use memory of the device for an unknown time.
    pub fn reuse(self: &Arc<Self>) -> SegmentReuse {
        if let Some(state) = lock(&self.state).as_mut() {
            state.n_reuses += 1;
        }
        SegmentReuse(self.clone())
    }

    /// Runs `f` with the state.
    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let has_ended = || Error::invalid_argument("the process has ended and cannot receive a segment");
        f(lock(&self.state).as_mut().ok_or_else(has_ended)?)
    }

    /// Returns a segment of at least `bytes` bytes that no message uses.
    fn take(&self, bytes: usize) -> Result<Segment> {
        if let Some(segment) = self.with_state(|state| Ok(state.take_free(bytes)))? {
            return Ok(segment);
        }
        // A segment that is slightly too large also fits for the next message.
        let bytes = bytes.checked_next_multiple_of(GRANULARITY).unwrap_or(bytes);
        let device = self.stream.device();
        let block = self.with_memory(|| self.account.allocate_exportable(device, bytes))?;
        // SAFETY: the line above allocated `block` on `device` in the host that the memory belongs
        // to, and `block` is moved into the buffer.
        let memory = unsafe { BufferMut::from_block(self.stream.memory(), device, block) };
        let memory = memory.freeze_now();
        let (file, file_bytes) = self.backend.export_file(memory.address())?;
        self.with_state(|state| {
            state.last += 1;
            Ok(Segment { number: state.last, memory, file, file_bytes, copied: Ready::Now })
        })
    }

    /// Runs `work`. If memory is exhausted, releases the free segments and runs it again.
    fn with_memory<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if error.code() == Code::OUT_OF_MEMORY && self.release_free() => work(),
            result => result,
        }
    }

    /// Releases the segments that are kept for later messages. Returns whether there were any.
    fn release_free(&self) -> bool {
        let free = lock(&self.state).as_mut().map(|state| std::mem::take(&mut state.free));
        // The segments are dropped after the lock is released.
        free.is_some_and(|free| !free.is_empty())
    }

    /// Returns a segment of at least `bytes` bytes for a message of the process.
    ///
    /// # Errors
    /// Device memory is exhausted, the id is in use, too many segments are unused, or the process
    /// has ended.
    pub fn request(&self, id: u64, bytes: u64) -> Result<RequestedSegment> {
        let too_long =
            |_| Error::out_of_memory(format!("a segment of {bytes} bytes exceeds the address space"));
        let bytes = usize::try_from(bytes).map_err(too_long)?;
        self.with_state(|state| state.check_request(id))?;
        let segment = self.take(bytes)?;
        let (number, file, file_bytes) = (segment.number, segment.file.try_clone()?, segment.file_bytes);
        self.with_state(|state| {
            state.check_request(id)?;
            state.requested.insert(id, segment);
            let existing = state.requested.values().chain(state.sent.values()).chain(&state.free);
            let existing = existing.map(|segment| segment.number).collect();
            Ok(RequestedSegment { number, file, file_bytes, existing })
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
            let take = |state: &mut State| state.requested.remove(&parts.number);
            let mut segment = lock(&self.state).as_mut().and_then(take).ok_or_else(unknown)?;
            // The process states the length of its message. Its segment may be longer.
            let bytes = usize::try_from(parts.bytes).unwrap_or(usize::MAX);
            let bytes = bytes.min(segment.memory.len().unwrap_or(0));
            let mut copy = self.with_memory(|| stream.memory().alloc(stream, bytes))?;
            stream.copy(&mut copy, 0, &segment.memory, 0, bytes)?;
            let copy = copy.freeze(stream)?;
            segment.copied = copy.ready().clone();
            self.keep(segment);
            Ok(copy)
        };
        segments.iter().map(copy_out).collect()
    }

    /// Keeps a segment for a later message, or releases it.
    fn keep(&self, segment: Segment) {
        let mut released = Vec::new();
        match lock(&self.state).as_mut() {
            Some(state) if state.n_reuses > 0 => {
                state.free.push(segment);
                let surplus = state.free.len().saturating_sub(MAX_FREE_SEGMENTS);
                released.extend(state.free.drain(..surplus));
            }
            _ => released.push(segment),
        }
        // The segments are dropped after the lock is released.
        drop(released);
    }

    /// Releases a requested segment that the process does not use. It is not kept, because work of
    /// the process on it may be incomplete after an error.
    pub fn release(&self, id: u64) {
        let segment = lock(&self.state).as_mut().and_then(|state| state.requested.remove(&id));
        drop(segment);
    }

    /// Keeps or releases the segment of a message to the process, which does not use it any more.
    pub fn return_sent(&self, number: u64) {
        let segment = lock(&self.state).as_mut().and_then(|state| state.sent.remove(&number));
        segment.into_iter().for_each(|segment| self.keep(segment));
    }

    /// Releases all segments after the process has ended.
    pub fn release_all(&self) {
        let state = lock(&self.state).take();
        drop(state);
    }
}

impl SegmentSender for SharedDeviceSegments {
    fn device(&self) -> Device {
        self.stream.device()
    }

    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
        let segment = self.take(bytes)?;
        let owner = ForeignOwner::new(segment.memory.clone());
        let (device, address) = (self.device(), segment.memory.address());
        // SAFETY: the segment has at least `bytes` bytes, and the owner keeps them. No message uses
        // the segment, so the host does not access it elsewhere.
        let mut target = unsafe { BufferMut::foreign(self.stream.memory(), &owner, device, address, bytes) };
        fill(&mut target, buffers, &self.stream)?;
        let (number, bytes, file) = (segment.number, segment.file_bytes, segment.file.try_clone()?);
        self.with_state(|state| {
            state.sent.insert(number, segment);
            Ok(SentSegment { number, bytes, file: Some(file) })
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use crossdock_plugin_api::abi;
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::wire::device_segments::open;

    const GPU: Device = Device::cuda(0);
    const BYTES: usize = 3 << 20;

    /// Returns the segments of a process, and a stream of the host. If the machine has no GPU,
    /// prints the reason for the test `test` and returns `None`.
    fn segments(test: &str) -> Option<(TestHost, Arc<SharedDeviceSegments>, Stream)> {
        let backend = Backend::builder().limit_bytes(1 << 30).build();
        if let Err(missing) = backend.cuda() {
            // `eprintln!` would be captured by the test runner.
            std::io::stderr().write_all(format!("skipped: {test}: {missing}\n").as_bytes()).unwrap();
            return None;
        }
        let host = TestHost::over(backend.clone());
        let stream = host.stream(GPU);
        let account = backend.account("a process");
        Some((host, Arc::new(SharedDeviceSegments::new(backend, account, stream.clone())), stream))
    }

    fn parts(number: u64, bytes: usize) -> SegmentParts {
        SegmentParts { number, file: None, bytes: bytes as u64 }
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
        let RequestedSegment { file, file_bytes, .. } = segments.request(7, BYTES as u64).unwrap();
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
        let received = segments.copy_out(&[parts(7, BYTES)], &stream).unwrap();
        stream.synchronize().unwrap();
        write(2);
        assert!(contents(&received[0], &stream) == vec![1; BYTES], "the process changed it afterwards");
        drop((received, owner, process_stream, segments));
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
        let (owner, address) = open(host.backend(), GPU, sent.file.unwrap(), sent.bytes).unwrap();
        // SAFETY: `open` mapped at least `BYTES` bytes at the address, and the owner keeps the
        // mapping.
        let mapped = unsafe { Buffer::foreign(&owner, GPU, address, Some(BYTES as u64), Ready::Now) };
        assert!(contents(&mapped, &stream) == vec![3; BYTES]);
        // SAFETY: as above.
        let mut written = unsafe { BufferMut::foreign(stream.memory(), &owner, GPU, address, BYTES) };
        stream.fill(&mut written, 0, BYTES, 4).unwrap();
        assert!(contents(&buffer, &stream) == vec![3; BYTES], "the process writes into the host's buffer");
        drop((buffer, mapped, written, owner, segments));
        host.assert_nothing_leaked();
    }

    #[test]
    fn rejects_unknown_segments_and_too_many_unused_ones() {
        let Some((host, segments, stream)) = segments("rejects_unknown_segments_and_too_many_unused_ones")
        else {
            return;
        };
        let error = |handle| segments.copy_out(&[parts(handle, 64)], &stream).map(drop).unwrap_err();
        let not_requested = "segment 1, which the plugin's process did not request";
        assert!(error(1).message().contains(not_requested));
        segments.request(1, 64).unwrap();
        assert!(segments.request(1, 64).is_err(), "the id is in use");
        assert_eq!(segments.copy_out(&[parts(1, 64)], &stream).unwrap()[0].len(), Some(64));
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

    #[test]
    fn segments_are_used_again_after_their_content_was_copied_or_returned() {
        let Some((host, segments, stream)) =
            segments("segments_are_used_again_after_their_content_was_copied_or_returned")
        else {
            return;
        };
        let request = |id, bytes: usize| segments.request(id, bytes as u64).unwrap();
        let receive = |id, bytes| {
            let received = segments.copy_out(&[parts(id, bytes)], &stream).unwrap();
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
        let memory = stream.memory().alloc(&stream, BYTES).unwrap().freeze(&stream).unwrap();
        let send = || segments.fill_segment(&[(memory.clone(), 0)], BYTES).unwrap().number;
        let (one, other, another) = (send(), send(), send());
        let known = [first.number, third.number];
        assert!(one != other && known.contains(&one) && known.contains(&other) && !known.contains(&another));
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
        drop(memory);
        segments.release_all();
        host.assert_nothing_leaked();
    }
}
