//! The bytes of a file, for the crate `parquet`.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use crossdock_plugin_api::{Error, Map, Result, Source};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// The largest gap between two ranges that are read together, in bytes.
const MAX_GAP: u64 = 64 << 10;

/// An open file.
pub struct File {
    source: Source,
    len: u64,
    /// The whole file, if it is mapped.
    mapped: Option<Bytes>,
}

/// A mapping as the owner of [`Bytes`].
struct Mapped(Map);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
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
        let mapped = source.map().map(|map| Bytes::from_owner(Mapped(map)));
        Ok(Self { source, len, mapped })
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
        let wrong = || {
            Error::bad_data(format!(
                "the metadata name the bytes {}..{}, but the file has {}",
                range.start, range.end, self.len
            ))
        };
        let bytes = range.end.checked_sub(range.start).filter(|_| range.end <= self.len).ok_or_else(wrong)?;
        let bytes = usize::try_from(bytes).map_err(|_| wrong())?;
        if let Some(mapped) = &self.mapped {
            let start = usize::try_from(range.start).map_err(|_| wrong())?;
            return match mapped.get(start..start.saturating_add(bytes)) {
                Some(slice) => Ok(mapped.slice_ref(slice)),
                None => Err(wrong()),
            };
        }
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(bytes)
            .map_err(|_| Error::out_of_memory(format!("no memory for {bytes} bytes of the file")))?;
        buffer.resize(bytes, 0);
        self.source.read_exact_at(range.start, &mut buffer)?;
        Ok(buffer.into())
    }

    /// Reads ranges of a column chunk, adjacent ones together. A mapped file is not read.
    ///
    /// # Errors
    /// See [`File::read`].
    pub fn chunk(&self, mut ranges: Vec<Range<u64>>) -> Result<Chunk> {
        if let Some(mapped) = &self.mapped {
            return Ok(Chunk { parts: Arc::new(vec![(0, mapped.clone())]), len: self.len });
        }
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
        let parts = merged.into_iter().map(|range| Ok((range.start, self.read(range)?)));
        Ok(Chunk { parts: Arc::new(parts.collect::<Result<_>>()?), len: self.len })
    }
}

/// The bytes of a column chunk, as far as they are needed.
#[derive(Clone)]
pub struct Chunk {
    /// Each part with its position in the file.
    parts: Arc<Vec<(u64, Bytes)>>,
    /// The length of the file.
    len: u64,
}

impl Chunk {
    /// The bytes from a position to the end of the part that contains it.
    pub fn from(&self, start: u64) -> Option<Bytes> {
        let at = self.parts.partition_point(|(begin, _)| *begin <= start).checked_sub(1)?;
        let (begin, bytes) = self.parts.get(at)?;
        let skipped = usize::try_from(start - begin).ok().filter(|skipped| *skipped <= bytes.len())?;
        Some(bytes.slice(skipped..))
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.len
    }
}

fn outside(start: u64) -> ParquetError {
    ParquetError::EOF(format!("a page at byte {start} is outside of its column chunk"))
}

impl ChunkReader for Chunk {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(self.from(start).ok_or_else(|| outside(start))?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let mut bytes =
            self.from(start).filter(|bytes| bytes.len() >= length).ok_or_else(|| outside(start))?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_finds_the_part_of_a_position() {
        let parts = vec![(10, Bytes::from_static(b"abcd")), (20, Bytes::from_static(b"ef"))];
        let chunk = Chunk { parts: Arc::new(parts), len: 30 };
        assert_eq!(&*chunk.get_bytes(11, 2).unwrap(), b"bc");
        assert_eq!(&*chunk.get_bytes(20, 2).unwrap(), b"ef");
        for (start, length) in [(9, 1), (13, 2), (15, 1), (20, 3)] {
            assert!(chunk.get_bytes(start, length).is_err(), "{start}");
        }
    }
}
