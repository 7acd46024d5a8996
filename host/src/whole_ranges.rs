//! Ranges of host memory that are known to be readable as a whole.
//!
//! An array states the ranges of its buffers only. If two buffers lie in the memory of one source,
//! such as a mapped file, the bytes between them are readable, too, so that both can be passed on
//! as one buffer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crossdock_memory::{ALIGNMENT, Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::{ByteSource, Result};

/// The end of each registered range, by its begin and a number.
static RANGES: Mutex<BTreeMap<(u64, u64), u64>> = Mutex::new(BTreeMap::new());

/// The number of ranges that are searched for one that contains a buffer. Ranges begin in other
/// ranges only if a caller passes parts of bytes as sources.
const MAX_SEARCHED: usize = 4;

/// The registration of a range. The memory is readable as long as this value exists.
struct Registered {
    key: (u64, u64),
}

impl Registered {
    fn new(begin: u64, bytes: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let key = (begin, NUMBER.fetch_add(1, Ordering::Relaxed));
        ranges().insert(key, begin.saturating_add(bytes));
        Self { key }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        ranges().remove(&self.key);
    }
}

fn ranges() -> MutexGuard<'static, BTreeMap<(u64, u64), u64>> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wraps a source, so that its memory is known once an importer uses it.
pub(crate) fn source(source: Arc<dyn ByteSource>) -> Arc<dyn ByteSource> {
    Arc::new(Known { registered: OnceLock::new(), source })
}

struct Known {
    /// Dropped before the source.
    registered: OnceLock<Registered>,
    source: Arc<dyn ByteSource>,
}

impl ByteSource for Known {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn len(&self) -> Option<u64> {
        self.source.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        self.source.read_at(offset, to)
    }

    fn map(&self) -> Option<&[u8]> {
        let bytes = self.source.map()?;
        self.registered.get_or_init(|| Registered::new(bytes.as_ptr() as u64, bytes.len() as u64));
        Some(bytes)
    }

    fn version(&self) -> &str {
        self.source.version()
    }
}

/// The same buffer in host memory, whose range is known as long as there is a slice of the result.
pub(crate) fn buffer(buffer: Buffer) -> Buffer {
    let (begin, bytes) = (buffer.address(), buffer.len().unwrap_or(0) as u64);
    let (device, ready) = (buffer.device(), buffer.ready().clone());
    let owner = ForeignOwner::new((Registered::new(begin, bytes), buffer));
    // SAFETY: this is the range of `buffer`, which `owner` keeps.
    unsafe { Buffer::foreign(&owner, device, begin, Some(bytes), ready) }
}

/// Buffers in host memory that are next to each other, and that are passed on as one buffer.
pub(crate) struct Run {
    first: Buffer,
    others: Vec<Buffer>,
    end: u64,
}

impl Run {
    pub(crate) fn new(first: Buffer) -> Self {
        let end = end_of(&first);
        Self { first, others: Vec::new(), end }
    }

    /// Whether the run contains all bytes of the buffer.
    pub(crate) fn contains(&self, buffer: &Buffer) -> bool {
        self.first.address() <= buffer.address() && end_of(buffer) <= self.end
    }

    /// Adds a complete buffer that begins in the run or after it, if all bytes between are padding
    /// in a known range. Otherwise returns the buffer.
    pub(crate) fn extend(&mut self, buffer: Buffer) -> Option<Buffer> {
        let (begin, address, end) = (self.first.address(), buffer.address(), end_of(&buffer));
        let gap = address.saturating_sub(self.end);
        if gap >= ALIGNMENT as u64 || !is_known(begin, end) {
            return Some(buffer);
        }
        // SAFETY: the bytes are in a known range, whose source is kept by the buffers of the run.
        let padding = unsafe { std::slice::from_raw_parts(self.end as usize as *const u8, gap as usize) };
        // Other bytes may belong to a column that is not passed on.
        if padding.iter().any(|byte| *byte != 0) {
            return Some(buffer);
        }
        self.end = self.end.max(end);
        self.others.push(buffer);
        None
    }

    /// One buffer with all bytes of the run.
    pub(crate) fn into_buffer(self) -> Buffer {
        let Self { first, others, end } = self;
        if others.is_empty() {
            return first;
        }
        let (begin, device) = (first.address(), first.device());
        let owner = ForeignOwner::new((first, others));
        // SAFETY: the range is known to be readable, and the owner keeps the buffers, whose arrays
        // keep its source. The buffers are complete.
        unsafe { Buffer::foreign(&owner, device, begin, Some(end - begin), Ready::Now) }
    }
}

fn end_of(buffer: &Buffer) -> u64 {
    buffer.address() + buffer.len().unwrap_or(0) as u64
}

fn is_known(begin: u64, end: u64) -> bool {
    let ranges = ranges();
    let mut before = ranges.range(..=(begin, u64::MAX)).rev().take(MAX_SEARCHED);
    before.any(|(_, end_of_range)| end <= *end_of_range)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crossdock_plugin_api::Device;

    use super::*;
    use crate::source::{Bytes, BytesSource};

    fn slice(bytes: &[u8], begin: usize, end: usize) -> Buffer {
        let owner = ForeignOwner::new(());
        let address = bytes.as_ptr() as u64 + begin as u64;
        // SAFETY: the tests keep `bytes` longer than the buffers.
        unsafe { Buffer::foreign(&owner, Device::CPU, address, Some((end - begin) as u64), Ready::Now) }
    }

    /// The ranges of the buffers that result from buffers at ranges of `bytes`.
    fn merged(bytes: &[u8], of: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let mut runs: Vec<Run> = Vec::new();
        for (begin, end) in of {
            let buffer = slice(bytes, *begin, *end);
            let rest = match runs.last_mut() {
                Some(run) => run.extend(buffer),
                None => Some(buffer),
            };
            runs.extend(rest.map(Run::new));
        }
        let range = |run: Run| {
            let buffer = run.into_buffer();
            let begin = (buffer.address() - bytes.as_ptr() as u64) as usize;
            (begin, begin + buffer.len().unwrap())
        };
        runs.into_iter().map(range).collect()
    }

    #[test]
    fn buffers_of_one_source_are_merged_across_zeros() {
        let mut bytes = vec![0; 1000];
        bytes[200..300].fill(1);
        let bytes = Arc::new(bytes);
        let ranges = [(0, 100), (128, 200), (200, 300), (320, 330), (350, 360), (400, 500), (564, 600)];
        assert_eq!(merged(&bytes, &ranges), ranges);
        let source = source(Arc::new(BytesSource::new(Bytes::Owned(bytes.clone()))));
        assert_eq!(merged(&bytes, &ranges), ranges);
        assert!(source.map().is_some());
        assert_eq!(merged(&bytes, &ranges), [(0, 500), (564, 600)]);
        // Bytes that are not zero may be those of another column.
        assert_eq!(merged(&bytes, &[(0, 200), (210, 300)]), [(0, 200), (210, 300)]);
        // A buffer that is not completely in the source.
        assert_eq!(merged(&bytes[..], &[(900, 950), (950, 1001)]), [(900, 950), (950, 1001)]);
        drop(source);
        assert_eq!(merged(&bytes, &ranges), ranges);
    }

    #[test]
    fn range_of_a_buffer_is_known_while_slices_exist() {
        let bytes = vec![0; 100];
        let known = buffer(slice(&bytes, 0, 100));
        let part = known.slice(10, 10).unwrap();
        drop(known);
        assert_eq!(merged(&bytes, &[(0, 10), (20, 30)]), [(0, 30)]);
        drop(part);
        assert_eq!(merged(&bytes, &[(0, 10), (20, 30)]), [(0, 10), (20, 30)]);
    }
}
