//! The bytes of a file, for the crate `parquet`.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crossdock_plugin_api::{Error, Result, Source};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::Cause;

/// The largest gap between two ranges that are read together, in bytes.
const MAX_GAP: u64 = 64 << 10;
/// The least and the greatest number of bytes of a column chunk that are read together from a local
/// file. A page that does not end in the bytes that were read is read again.
const LOCAL_BYTES: (u64, u64) = (64 << 10, 4 << 20);
/// The same for other sources, whose reads may be requests to a server.
const REMOTE_BYTES: (u64, u64) = (1 << 20, 16 << 20);

/// The greatest number of windows whose memory is kept.
const MAX_BUFFERS: usize = 64;

/// An open file.
///
/// A mapped file is not used in place. Tasks decode batches ahead while no call of the plugin is
/// running. If the file was truncated meanwhile, an access to the mapping would end the process,
/// but a read returns an error.
pub struct File {
    source: Source,
    len: u64,
    is_local: bool,
    /// `None` if the memory of windows is freed.
    buffers: Option<Arc<Buffers>>,
}

/// Memory of windows that are not used any more. The operating system needs more time to provide
/// new memory than to read a file that is in its cache.
#[derive(Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Memory of at least `bytes` bytes with any contents.
    fn take(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut unused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = unused.iter().position(|buffer| buffer.len() >= bytes);
        found.map(|i| unused.swap_remove(i)).map_or_else(|| zeros(bytes), Ok)
    }
}

/// The bytes of a window, whose memory is used again.
struct Window {
    buffer: Vec<u8>,
    len: usize,
    buffers: Arc<Buffers>,
}

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let mut unused = self.buffers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if unused.len() < MAX_BUFFERS {
            unused.push(std::mem::take(&mut self.buffer));
        }
    }
}

impl File {
    /// Wraps a source.
    ///
    /// # Errors
    /// Unsupported if the length of the source is unknown, as for a pipe.
    pub fn new(source: Source) -> Result<Self> {
        let len = source.len().ok_or_else(|| {
            Error::unsupported(
                "a Parquet file is read from its end, but the input is a pipe: store it in a file first",
            )
        })?;
        let is_local = source.map().is_some();
        Ok(Self { source, len, is_local, buffers: None })
    }

    /// Keeps the memory of windows, and uses it again.
    pub fn with_kept_windows(mut self) -> Self {
        self.buffers = Some(Arc::default());
        self
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reads a range.
    ///
    /// # Errors
    /// Bad data if the range is not within the file; the error of the source.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let mut buffer = zeros(self.check(&range)?)?;
        self.source.read_exact_at(range.start, &mut buffer)?;
        Ok(buffer.into())
    }

    /// Like [`Self::read`]. The memory may be used again when it is dropped.
    fn read_window(&self, range: Range<u64>) -> Result<Bytes> {
        let Some(buffers) = &self.buffers else { return self.read(range) };
        let len = self.check(&range)?;
        let mut buffer = buffers.take(len)?;
        let to = buffer.get_mut(..len).ok_or_else(|| Error::internal("a window is too small"))?;
        self.source.read_exact_at(range.start, to)?;
        Ok(Bytes::from_owner(Window { buffer, len, buffers: buffers.clone() }))
    }

    /// The number of bytes of a range.
    fn check(&self, range: &Range<u64>) -> Result<usize> {
        let wrong = || {
            Error::bad_data(format!(
                "the metadata name the bytes {}..{}, but the file has {}",
                range.start, range.end, self.len
            ))
        };
        let bytes = range.end.checked_sub(range.start).filter(|_| range.end <= self.len).ok_or_else(wrong)?;
        usize::try_from(bytes).map_err(|_| wrong())
    }

    /// The number of bytes to read together, if all column chunks that are open at the same time
    /// may use `max_bytes` bytes.
    pub fn window_bytes(&self, max_bytes: u64, n_chunks: usize) -> u64 {
        let (least, greatest) = if self.is_local { LOCAL_BYTES } else { REMOTE_BYTES };
        (max_bytes / (n_chunks as u64).max(1)).clamp(least, greatest)
    }
}

/// Memory that is zero. The allocator provides it faster than memory that is filled with zeros.
fn zeros(bytes: usize) -> Result<Vec<u8>> {
    if bytes as u64 <= REMOTE_BYTES.1 {
        return Ok(vec![0; bytes]);
    }
    let mut buffer = Vec::new();
    let no_memory = |_| Error::out_of_memory(format!("no memory for {bytes} bytes of the file"));
    buffer.try_reserve_exact(bytes).map_err(no_memory)?;
    buffer.resize(bytes, 0);
    Ok(buffer)
}

/// A column chunk, whose needed bytes are read when they are used.
#[derive(Clone)]
pub struct Chunk(Arc<Inner>);

struct Inner {
    file: Arc<File>,
    /// The needed ranges, in ascending order.
    ranges: Vec<Range<u64>>,
    window_bytes: u64,
    /// The bytes that were read last, and their position in the file.
    window: Mutex<(u64, Bytes)>,
    cause: Cause,
}

impl Chunk {
    /// The ranges `ranges` of a file, of which `window_bytes` bytes are read together. Errors are
    /// recorded in `cause`.
    pub fn new(file: &Arc<File>, mut ranges: Vec<Range<u64>>, window_bytes: u64, cause: Cause) -> Self {
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(MAX_GAP) => {
                    last.end = last.end.max(range.end);
                }
                _ => merged.push(range),
            }
        }
        let window = Mutex::new((0, Bytes::new()));
        Self(Arc::new(Inner { file: file.clone(), ranges: merged, window_bytes, window, cause }))
    }

    /// The bytes from a position on: at least `least` bytes, or all bytes to the end of the needed
    /// range.
    ///
    /// # Errors
    /// Bad data if the position is not in a needed range; the error of the source.
    pub fn from(&self, start: u64, least: u64) -> Result<Bytes> {
        let Inner { file, ranges, window_bytes, window, .. } = &*self.0;
        let after = ranges.partition_point(|range| range.start <= start);
        let range = after.checked_sub(1).and_then(|i| ranges.get(i)).filter(|range| start < range.end);
        let range = range.ok_or_else(|| {
            Error::bad_data(format!("a page at byte {start} is outside of its column chunk"))
        })?;
        let least = least.min(range.end - start);
        let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, bytes) = &*window;
        if let Some(skipped) = start.checked_sub(*begin)
            && skipped.saturating_add(least) <= bytes.len() as u64
            && let Ok(skipped) = usize::try_from(skipped)
        {
            return Ok(bytes.slice(skipped..));
        }
        // The old bytes are freed before new ones are read, unless a page refers to them.
        *window = (0, Bytes::new());
        let bytes = file.read_window(start..range.end.min(start.saturating_add(least.max(*window_bytes))))?;
        *window = (start, bytes.clone());
        Ok(bytes)
    }
}

impl Chunk {
    /// The first error.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.0.file.len()
    }
}

impl ChunkReader for Chunk {
    type T = ChunkRead;

    fn get_read(&self, start: u64) -> parquet::errors::Result<ChunkRead> {
        Ok(ChunkRead { chunk: self.clone(), at: start, bytes: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let mut bytes = self.from(start, length as u64).map_err(|error| self.cause().set(error))?;
        if bytes.len() < length {
            let why = format!("a page at byte {start} has {length} bytes, but its column chunk ends");
            return Err(ParquetError::EOF(why));
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Reads a column chunk in order.
pub struct ChunkRead {
    chunk: Chunk,
    at: u64,
    /// The bytes before `at` that were not returned yet.
    bytes: Bytes,
}

impl std::io::Read for ChunkRead {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.bytes.is_empty() {
            let bytes = self.chunk.from(self.at, 1);
            self.bytes = bytes.map_err(|error| std::io::Error::other(self.chunk.cause().set(error)))?;
            self.at += self.bytes.len() as u64;
        }
        let part = self.bytes.split_to(to.len().min(self.bytes.len()));
        if let Some(to) = to.get_mut(..part.len()) {
            to.copy_from_slice(&part);
        }
        Ok(part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_plugin_api::ByteSource;
    use std::io::Read;

    struct Counting;

    impl ByteSource for Counting {
        fn name(&self) -> &str {
            "bytes that count"
        }

        fn len(&self) -> Option<u64> {
            Some(1 << 20)
        }

        fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
            to.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
            Ok(to.len())
        }
    }

    fn file() -> Arc<File> {
        Arc::new(File::new(Source::new(Arc::new(Counting))).unwrap())
    }

    #[test]
    fn chunk_has_the_needed_ranges_only() {
        let chunk = Chunk::new(&file(), vec![200_000..200_010, 10..20, 15..30], 4, Cause::default());
        assert_eq!(&*chunk.get_bytes(11, 2).unwrap(), [11, 12]);
        assert_eq!(&*chunk.get_bytes(11, 19).unwrap(), Vec::from_iter(11..30));
        assert_eq!(chunk.get_bytes(200_000, 10).unwrap().len(), 10);
        for (start, length) in [(9, 1), (29, 2), (30, 1), (200_000, 11)] {
            assert!(chunk.get_bytes(start, length).is_err(), "{start}");
        }
    }

    #[test]
    fn bytes_are_read_in_order() {
        let chunk = Chunk::new(&file(), vec![0..100], 7, Cause::default());
        let mut read = chunk.get_read(5).unwrap();
        let mut bytes = [0; 40];
        read.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes.to_vec(), Vec::from_iter(5..45));
        assert!(chunk.get_read(90).unwrap().read_exact(&mut bytes).is_err());
    }

    #[test]
    fn windows_share_the_memory() {
        let file = file();
        assert_eq!(file.window_bytes(u64::MAX, 3), 16 << 20);
        assert_eq!(file.window_bytes(12 << 20, 3), 4 << 20);
        assert_eq!(file.window_bytes(0, 3), 1 << 20);
    }

    #[test]
    fn memory_of_windows_is_used_again() {
        let file = File::new(Source::new(Arc::new(Counting))).unwrap().with_kept_windows();
        let first = file.read_window(10..1010).unwrap();
        let memory = first.as_ptr();
        let other = file.read_window(0..20).unwrap();
        assert_ne!(other.as_ptr(), memory, "the first window is in use");
        drop(first);
        let second = file.read_window(100..600).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (memory, 500));
        assert!(second.iter().zip(100u64..).all(|(byte, at)| *byte == at as u8));
        let longer = file.read_window(0..2000).unwrap();
        assert_eq!((longer.len(), longer.last()), (2000, Some(&(1999u64 as u8))));
    }
}
