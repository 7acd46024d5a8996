//! Shared segments of host memory that only the host can write.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossdock_memory::{Buffer, Ready};
use crossdock_memory_backend::Reservation;
use crossdock_plugin_api::{Device, Error, Result};

use crate::files::mapping::ReceiveBudget;
use crate::files::segment_file::{Access, SegmentFile};
use crate::host::segment_pool::{SegmentMemory, SegmentPool};
use crate::wire::host_copies::copy_in_threads;
use crate::wire::segments::host_copies;

/// Segments of host memory. The process can only read them.
pub type ReadOnlySegments = SegmentPool<ReadOnlyMemory>;

/// Host memory that is charged to the budget of the process.
pub struct ReadOnlyMemory(ReceiveBudget);

/// A block of host memory.
pub struct ReadOnlyBlock {
    /// There are other references while this process reads the block.
    file: Arc<SegmentFile>,
    _reservation: Option<Reservation>,
}

impl SegmentMemory for ReadOnlyMemory {
    type Block = ReadOnlyBlock;

    fn device(&self) -> Device {
        Device::CPU
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: usize) -> Result<(ReadOnlyBlock, OwnedFd, u64)> {
        let reservation = self.0.reserve(bytes)?;
        let out_of_memory = |error| {
            Error::out_of_memory(format!(
                "cannot allocate {bytes} bytes of shared memory for an isolated plugin: {error}"
            ))
        };
        let (segment, file) = SegmentFile::create(bytes, Access::Read).map_err(out_of_memory)?;
        Ok((ReadOnlyBlock { file: Arc::new(segment), _reservation: reservation }, file, bytes as u64))
    }

    fn is_unused(&self, block: &ReadOnlyBlock) -> bool {
        Arc::strong_count(&block.file) == 1
    }

    fn fill(&self, block: &ReadOnlyBlock, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Ready> {
        let bytes = bytes.min(block.file.len());
        let copies = host_copies(buffers, bytes)?;
        // SAFETY: the buffers have these bytes, and `host_copies` checked that they are ready. The
        // file's mapping has `bytes` bytes, and no message uses the block.
        unsafe { copy_in_threads(block.file.start(), bytes, &copies) };
        Ok(Ready::Now)
    }
}

impl ReadOnlySegments {
    /// Creates segments that are charged to `budget`.
    pub fn new(budget: ReceiveBudget) -> Self {
        Self::over(ReadOnlyMemory(budget))
    }

    /// Runs `f` with a range of a segment of a message to the process.
    ///
    /// # Errors
    /// The process has no such segment, or the range lies outside of it.
    pub fn read_sent<T>(
        &self,
        (number, offset, bytes): (u64, u64, u64),
        f: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let file = self.with_state(|state| {
            let segment = state.sent.get(&number);
            let unknown = || Error::invalid_argument(format!("the process has no segment {number}"));
            Ok(segment.ok_or_else(unknown)?.block.file.clone())
        })?;
        let end = offset.checked_add(bytes).filter(|end| *end <= file.len() as u64);
        if end.is_none() {
            return Err(Error::invalid_argument(format!(
                "bytes {offset}..+{bytes} lie outside a segment of {} bytes",
                file.len()
            )));
        }
        // SAFETY: the range lies within the mapping, which `file` keeps. Other processes cannot
        // write it, and this process does not write it while there is more than one reference.
        f(unsafe { std::slice::from_raw_parts(file.start().as_ptr().add(offset as usize), bytes as usize) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::wire::segments::SegmentSender;

    #[test]
    fn process_reads_what_was_filled_and_segments_in_use_are_not_filled() {
        const BYTES: usize = 5 << 20;
        let host = TestHost::new();
        let stream = host.stream(Device::CPU);
        let segments = Arc::new(ReadOnlySegments::new(ReceiveBudget::default()));
        let _reuse = segments.reuse();
        let buffer = |bytes: usize, seed: usize| {
            let fill = |to: &mut [u8]| {
                to.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i + seed) % 251) as u8);
                Ok(())
            };
            stream.memory().alloc_with(&stream, bytes, fill).unwrap().freeze_now()
        };
        // Several threads copy parts of the first buffer.
        let send = |seed| {
            let buffers = [(buffer(BYTES - 200, seed), 0), (buffer(100, seed + 7), BYTES - 128)];
            segments.fill_segment(&buffers, BYTES).unwrap()
        };
        let expected = |i: usize, seed: usize| match i {
            i if i < BYTES - 200 => ((i + seed) % 251) as u8,
            i if (BYTES - 128..BYTES - 28).contains(&i) => ((i - (BYTES - 128) + seed + 7) % 251) as u8,
            _ => 0,
        };
        let first = send(1);
        let mapped = SegmentFile::open(first.file.unwrap(), BYTES, Access::Read).unwrap();
        // SAFETY: the file has these bytes, and the host does not fill it now.
        let bytes = unsafe { std::slice::from_raw_parts(mapped.start().as_ptr(), BYTES) };
        assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == expected(i, 1)));

        let read = |place| segments.read_sent(place, |bytes| Ok(bytes.to_vec()));
        let (begin, n) = (BYTES as u64 - 300, 290);
        let actual = read((first.number, begin, n)).unwrap();
        assert!(actual.iter().zip(begin as usize..).all(|(byte, i)| *byte == expected(i, 1)));
        for (offset, bytes) in [(0, u64::MAX), (u64::MAX, 1), (first.bytes, 1), (first.bytes - 1, 2)] {
            let error = read((first.number, offset, bytes)).unwrap_err();
            assert!(error.message().contains("lie outside a segment"), "{error}");
        }
        assert!(read((first.number + 1, 0, 1)).unwrap_err().message().contains("has no segment"));

        // The process returns the segment while the host reads it for a sink.
        let second = segments.read_sent((first.number, 0, 1), |_| {
            segments.return_sent(first.number);
            Ok(send(2))
        });
        assert_ne!(second.unwrap().number, first.number);
        assert_eq!(send(3).number, first.number);
    }

    #[test]
    fn segments_are_charged_to_the_budget_of_the_process() {
        let backend = crossdock_memory_backend::Backend::builder().limit_bytes(8 << 20).build();
        let segments =
            ReadOnlySegments::new(ReceiveBudget::default().with_account(backend.account("a process")));
        let first = segments.fill_segment(&[], 6 << 20).unwrap();
        let error = segments.fill_segment(&[], 6 << 20).map(drop).unwrap_err();
        assert_eq!(error.code(), crossdock_plugin_api::Code::OUT_OF_MEMORY);
        segments.return_sent(first.number);
        segments.fill_segment(&[], 6 << 20).unwrap();
    }
}
