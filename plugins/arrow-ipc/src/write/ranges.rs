//! Reads offsets on the host and adjusts them, so that they begin at 0.

use crossdock_memory::{Buffer, Result, Stream};
use crossdock_plugin_api::Error;

use super::chunk::{Chunk, view};

/// An offsets buffer.
pub struct Offsets<'a> {
    /// The buffer. It may be missing if there are no values.
    pub buffer: Option<&'a Buffer>,
    /// Bytes per offset, which is 4 or 8.
    pub width: usize,
}

impl Offsets<'_> {
    /// Returns the offsets of the values `at..at + len`, adjusted so that they begin at 0, and the
    /// first and the last original offset. If `len` is 0, the result has one offset, which is 0.
    pub fn rebased(&self, at: usize, len: usize, stream: &Stream) -> Result<(Chunk, usize, usize)> {
        if len == 0 {
            return Ok((Chunk::Owned(vec![0; self.width]), 0, 0));
        }
        let (begin, end) = (self.entry(at, stream)?, self.entry(at + len, stream)?);
        let (first, bytes) = (at.saturating_mul(self.width), (len + 1).saturating_mul(self.width));
        if begin > end {
            return Err(Error::bad_data(format!(
                "the offsets begin at {begin} and end at {end}, expected ascending offsets"
            )));
        }
        if begin == 0 {
            return Ok((Chunk::from_range(self.buffer, first, bytes)?, begin, end));
        }
        let entries = view(self.buffer, first, bytes, stream)?;
        Ok((
            Chunk::Owned(subtract(entries.as_deref().unwrap_or_default(), begin as u64, self.width)),
            begin,
            end,
        ))
    }

    fn entry(&self, at: usize, stream: &Stream) -> Result<usize> {
        let bytes = view(self.buffer, at.saturating_mul(self.width), self.width, stream)?;
        let value = signed(bytes.as_deref().unwrap_or_default());
        usize::try_from(value)
            .map_err(|_| Error::bad_data(format!("offset {at} is {value}, expected 0 or more")))
    }
}

/// Subtracts `by` from each entry. An entry has `width` bytes.
pub fn subtract(entries: &[u8], by: u64, width: usize) -> Vec<u8> {
    let mut out = entries.to_vec();
    match width {
        4 => out
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|e| *e = u32::from_le_bytes(*e).wrapping_sub(by as u32).to_le_bytes()),
        _ => out
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|e| *e = u64::from_le_bytes(*e).wrapping_sub(by).to_le_bytes()),
    }
    out
}

/// The smallest range that contains all ranges of a child that were added; `None` if all of them
/// are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent(Option<(usize, usize)>);

impl Extent {
    /// Extends the range so that it contains rows `begin..begin + size`.
    pub fn add(&mut self, begin: usize, size: usize) -> Result<()> {
        let end = begin
            .checked_add(size)
            .ok_or_else(|| Error::bad_data(format!("rows {begin}..+{size} overflow an address")))?;
        if size > 0 {
            let (min, max) = self.0.unwrap_or((begin, end));
            self.0 = Some((min.min(begin), max.max(end)));
        }
        Ok(())
    }

    /// Returns the begin and the length of the range.
    pub fn range(self) -> (usize, usize) {
        self.0.map_or((0, 0), |(begin, end)| (begin, end - begin))
    }
}

/// A little-endian signed integer of 4 or 8 bytes.
pub fn signed(bytes: &[u8]) -> i64 {
    match bytes {
        [a, b, c, d] => i32::from_le_bytes([*a, *b, *c, *d]).into(),
        [a, b, c, d, e, f, g, h] => i64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        [a, b] => i16::from_le_bytes([*a, *b]).into(),
        _ => 0,
    }
}
