//! Reads tables of a flatbuffer in place, in safe code. Every offset is checked when it is
//! followed, so no separate verification is needed.
//!
//! A flatbuffer may refer to the same table from many places, so the decoded type may be much
//! larger than the flatbuffer. Therefore the size of each table and string that is read is
//! subtracted from an allowance, which is proportional to the size of the flatbuffer.

use std::cell::Cell;
use std::ops::Range;

use crossdock_plugin_api::{Error, Result};

/// A flatbuffer and its remaining allowance.
pub struct Flatbuffer<'a> {
    bytes: &'a [u8],
    allowance_bytes: Cell<usize>,
}

/// The number of bytes that are subtracted from the allowance for a table, in addition to its
/// contents.
const TABLE_BYTES: usize = 8;

/// A table.
#[derive(Clone, Copy)]
pub struct Table<'a, 'b> {
    buffer: &'b Flatbuffer<'a>,
    /// Offset of the table.
    at: usize,
    /// Offset of the vtable's list of slots, two bytes each.
    slots: usize,
    n_slots: usize,
}

impl<'a> Flatbuffer<'a> {
    /// `bytes` must not begin with a size prefix.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, allowance_bytes: Cell::new(bytes.len().saturating_mul(16)) }
    }

    /// The root table.
    pub fn root(&self) -> Result<Table<'a, '_>> {
        self.table(self.target(0)?)
    }

    fn table(&self, at: usize) -> Result<Table<'a, '_>> {
        self.charge(TABLE_BYTES)?;
        let back = i64::from(i32::from_le_bytes(self.get(at)?));
        let vtable = usize::try_from(at as i64 - back).map_err(|_| outside(at, "a vtable"))?;
        let vtable_bytes = usize::from(u16::from_le_bytes(self.get(vtable)?));
        let inside = vtable.checked_add(vtable_bytes).is_some_and(|end| end <= self.bytes.len());
        if vtable_bytes < 4 || vtable_bytes % 2 != 0 || !inside {
            return Err(Error::bad_data(format!(
                "a vtable of {vtable_bytes} bytes at {vtable}, expected an even size of at least 4 within the flatbuffer"
            )));
        }
        Ok(Table { buffer: self, at, slots: vtable + 4, n_slots: (vtable_bytes - 4) / 2 })
    }

    /// The target of the offset at `at`.
    fn target(&self, at: usize) -> Result<usize> {
        let offset = u32::from_le_bytes(self.get(at)?);
        at.checked_add(offset as usize).ok_or_else(|| outside(at, "an offset"))
    }

    fn get<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let tail = self.bytes.get(at..).unwrap_or_default();
        tail.first_chunk().copied().ok_or_else(|| outside(at, "a value"))
    }

    /// The elements of the vector at `at`, of `stride` bytes each.
    fn vector(&self, at: usize, stride: usize) -> Result<Range<usize>> {
        let count = u32::from_le_bytes(self.get(at)?) as usize;
        let end = count.checked_mul(stride).and_then(|bytes| bytes.checked_add(at + 4));
        match end {
            Some(end) if end <= self.bytes.len() => Ok(at + 4..end),
            _ => Err(Error::bad_data(format!(
                "a vector at {at} declares {count} elements, but {} bytes are left",
                self.bytes.len().saturating_sub(at + 4)
            ))),
        }
    }

    fn charge(&self, bytes: usize) -> Result<()> {
        let remaining = self.allowance_bytes.get().checked_sub(bytes).ok_or_else(|| {
            Error::bad_data(format!(
                "the flatbuffer of {} bytes expands to more than 16 times its size: it refers to the same parts repeatedly",
                self.bytes.len()
            ))
        })?;
        self.allowance_bytes.set(remaining);
        Ok(())
    }

    fn text(&self, at: usize) -> Result<&'a str> {
        std::str::from_utf8(self.blob(at)?)
            .map_err(|e| Error::bad_data(format!("a text at {at} is not valid UTF-8: {e}")))
    }

    fn blob(&self, at: usize) -> Result<&'a [u8]> {
        let range = self.vector(at, 1)?;
        self.charge(range.len())?;
        Ok(&self.bytes[range])
    }
}

impl<'a, 'b> Table<'a, 'b> {
    /// Offset of the value of slot `n`; `None` if the slot has its default value.
    fn slot(&self, n: usize) -> Result<Option<usize>> {
        if n >= self.n_slots {
            return Ok(None);
        }
        let offset = usize::from(u16::from_le_bytes(self.buffer.get(self.slots + 2 * n)?));
        Ok((offset != 0).then_some(self.at + offset))
    }

    /// One byte.
    pub fn u8(&self, n: usize) -> Result<u8> {
        let at = self.slot(n)?;
        at.map_or(Ok(0), |at| Ok(u8::from_le_bytes(self.buffer.get(at)?)))
    }

    /// Two bytes.
    pub fn u16(&self, n: usize) -> Result<u16> {
        let at = self.slot(n)?;
        at.map_or(Ok(0), |at| Ok(u16::from_le_bytes(self.buffer.get(at)?)))
    }

    /// Eight bytes.
    pub fn u64(&self, n: usize) -> Result<u64> {
        let at = self.slot(n)?;
        at.map_or(Ok(0), |at| Ok(u64::from_le_bytes(self.buffer.get(at)?)))
    }

    /// Whether the slot has a value.
    pub fn has(&self, n: usize) -> Result<bool> {
        Ok(self.slot(n)?.is_some())
    }

    /// Four bytes.
    pub fn u32(&self, n: usize) -> Result<u32> {
        let at = self.slot(n)?;
        at.map_or(Ok(0), |at| Ok(u32::from_le_bytes(self.buffer.get(at)?)))
    }

    /// A bool.
    pub fn bool(&self, n: usize) -> Result<bool> {
        Ok(self.u8(n)? != 0)
    }

    /// A nested table.
    pub fn table(&self, n: usize, what: &str) -> Result<Table<'a, 'b>> {
        let at = self.slot(n)?.ok_or_else(|| Error::bad_data(format!("{what} is missing")))?;
        self.buffer.table(self.buffer.target(at)?)
    }

    /// A text; empty if absent.
    pub fn text(&self, n: usize) -> Result<&'a str> {
        let at = self.slot(n)?;
        at.map_or(Ok(""), |at| self.buffer.text(self.buffer.target(at)?))
    }

    /// Bytes; empty if absent.
    pub fn blob(&self, n: usize) -> Result<&'a [u8]> {
        let at = self.slot(n)?;
        at.map_or(Ok(&[]), |at| self.buffer.blob(self.buffer.target(at)?))
    }

    /// The elements of a vector of texts.
    pub fn texts(&self, n: usize) -> Result<impl ExactSizeIterator<Item = Result<&'a str>> + use<'a, 'b>> {
        let buffer = self.buffer;
        Ok(self.offsets(n)?.map(move |at| buffer.text(buffer.target(at)?)))
    }

    /// The elements of a vector of tables.
    pub fn tables(
        &self,
        n: usize,
    ) -> Result<impl ExactSizeIterator<Item = Result<Table<'a, 'b>>> + use<'a, 'b>> {
        let buffer = self.buffer;
        Ok(self.offsets(n)?.map(move |at| buffer.table(buffer.target(at)?)))
    }

    /// The elements of a vector of structs or numbers of `N` bytes each.
    pub fn structs<const N: usize>(&self, n: usize) -> Result<&'a [[u8; N]]> {
        let Some(at) = self.slot(n)? else { return Ok(&[]) };
        let range = self.buffer.vector(self.buffer.target(at)?, N)?;
        self.buffer.charge(range.len())?;
        Ok(self.buffer.bytes[range].as_chunks().0)
    }

    fn offsets(&self, n: usize) -> Result<impl ExactSizeIterator<Item = usize> + use<>> {
        let range = match self.slot(n)? {
            Some(at) => self.buffer.vector(self.buffer.target(at)?, 4)?,
            None => 0..0,
        };
        Ok(range.step_by(4))
    }
}

fn outside(at: usize, what: &str) -> Error {
    Error::bad_data(format!("{what} at {at} is outside of the flatbuffer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with one text, after its vtable.
    const TEXT: &[u8] =
        &[12, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c'];

    fn text(bytes: &[u8]) -> Result<&str> {
        Flatbuffer::new(bytes).root()?.text(0)
    }

    #[test]
    fn rejects_texts_beyond_the_end() {
        assert_eq!(text(TEXT).unwrap(), "abc");
        assert_eq!(
            text(&TEXT[..26]).unwrap_err().message(),
            "a vector at 20 declares 3 elements, but 2 bytes are left"
        );
        for n in 0..TEXT.len() {
            assert!(text(&TEXT[..n]).is_err(), "{n} bytes");
        }
    }

    #[test]
    fn rejects_malformed_vtables() {
        let with = |at: usize, byte: u8| {
            let mut bytes = TEXT.to_vec();
            bytes[at] = byte;
            text(&bytes).map(str::to_owned)
        };
        for (at, byte) in [(4, 2), (4, 7), (4, 200), (12, 13), (0, 200), (16, 200), (20, 4), (26, 0xff)] {
            assert!(with(at, byte).is_err(), "{byte} at {at}");
        }
        // If the slot is absent, the text has its default value.
        assert_eq!(with(4, 4).unwrap(), "");
        assert_eq!(with(8, 0).unwrap(), "");
    }
}
