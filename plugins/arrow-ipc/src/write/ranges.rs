//! Offsets on the host: where ranges begin and end, and offsets moved to begin at 0.

use crossdock_memory::{Buffer, Result, Stream};
use crossdock_plugin_api::Error;

use super::chunk::{Chunk, view};

/// An offsets buffer of `width` bytes an entry.
pub struct Offsets<'a> {
    /// The buffer.
    pub buffer: Option<&'a Buffer>,
    /// 4 or 8.
    pub width: usize,
}

impl Offsets<'_> {
    /// Entries `at` to `at + len` as a chunk that begins at 0, and what they span. No values have one offset, 0.
    pub fn rebased(&self, at: usize, len: usize, stream: &Stream) -> Result<(Chunk, usize, usize)> {
        if len == 0 {
            return Ok((Chunk::Made(vec![0; self.width]), 0, 0));
        }
        let (begin, end) = (self.entry(at, stream)?, self.entry(at + len, stream)?);
        let (first, bytes) = (at.saturating_mul(self.width), (len + 1).saturating_mul(self.width));
        if begin > end {
            return Err(Error::bad_data(format!("offsets begin at {begin} and end at {end}")));
        }
        if begin == 0 {
            return Ok((Chunk::of(self.buffer, first, bytes)?, begin, end));
        }
        let entries = view(self.buffer, first, bytes, stream)?;
        Ok((
            Chunk::Made(subtract(entries.as_deref().unwrap_or_default(), begin as u64, self.width)),
            begin,
            end,
        ))
    }

    fn entry(&self, at: usize, stream: &Stream) -> Result<usize> {
        let bytes = view(self.buffer, at.saturating_mul(self.width), self.width, stream)?;
        let value = signed(bytes.as_deref().unwrap_or_default());
        usize::try_from(value).map_err(|_| Error::bad_data(format!("offset {at} is {value}")))
    }
}

/// Entries of `width` bytes, each less `by`.
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

/// Where ranges of a child lie together: the least begin and the greatest end; `None` if all are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent(Option<(usize, usize)>);

impl Extent {
    /// Takes `size` rows from `begin` on into account.
    pub fn add(&mut self, begin: usize, size: usize) -> Result<()> {
        let end = begin.checked_add(size).ok_or_else(|| Error::bad_data(format!("rows {begin}..+{size}")))?;
        if size > 0 {
            let (least, most) = self.0.unwrap_or((begin, end));
            self.0 = Some((least.min(begin), most.max(end)));
        }
        Ok(())
    }

    /// Begin and length.
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
