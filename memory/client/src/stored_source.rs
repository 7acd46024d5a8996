//! Reads ranges of a source whose length is known: in place if the source is mapped, otherwise
//! through scratch memory.

use std::cell::Cell;

use crossdock_plugin_api::{Map, Source};

use crate::{Buffer, Device, Error, ForeignOwner, Ready, Result};

thread_local! {
    /// Scratch memory for bytes that are needed only once. It is reused because allocating new
    /// memory takes as long as reading the bytes.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Maximum size of the scratch memory that is kept after use, in bytes. Larger scratch memory is
/// freed.
const MAX_SCRATCH_BYTES: usize = 16 << 20;

/// Runs `f` with `bytes` bytes of the thread's scratch memory.
fn with_scratch<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
    let mut scratch = SCRATCH.take();
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    let result = f(scratch.get_mut(..bytes).unwrap_or_default());
    if scratch.len() <= MAX_SCRATCH_BYTES {
        SCRATCH.set(scratch);
    }
    result
}

/// A source whose length is known.
pub struct StoredSource {
    source: Source,
    bytes: u64,
    map: Option<Map>,
    /// A shared reference to the mapping, for the buffers that refer to it.
    owner: Option<ForeignOwner>,
}

impl StoredSource {
    /// Wraps a source.
    ///
    /// # Errors
    /// Returns the source if its length is unknown, as for a pipe.
    pub fn new(source: Source) -> std::result::Result<Self, Source> {
        let Some(bytes) = source.len() else { return Err(source) };
        let map = source.map();
        let owner = map.clone().map(ForeignOwner::new);
        Ok(Self { source, bytes, map, owner })
    }

    /// Length of the source in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Runs `f` on the `bytes` bytes at `offset`. Reads them first unless they are mapped. The
    /// caller must check that the length is reasonable. This function checks that the range is
    /// within the source.
    ///
    /// # Errors
    /// The range is not within the source, reading fails, or the error of `f`.
    pub fn with<T>(&self, offset: u64, bytes: usize, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        self.check(offset, bytes as u64)?;
        match self.mapped(offset, bytes) {
            Some(slice) => f(slice),
            None => with_scratch(bytes, |scratch| {
                self.source.read_exact_at(offset, scratch)?;
                f(scratch)
            }),
        }
    }

    /// Runs `f` on the `bytes` bytes at `offset`, in order. If the bytes are mapped, `f` runs once
    /// for all of them. Otherwise, parts of at most `max_bytes` bytes are read, and `f` runs for
    /// each of them.
    ///
    /// # Errors
    /// The range is not within the source, reading fails, or the error of `f`.
    pub fn in_pieces(
        &self,
        offset: u64,
        bytes: usize,
        max_bytes: usize,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check(offset, bytes as u64)?;
        if let Some(slice) = self.mapped(offset, bytes) {
            return f(slice);
        }
        with_scratch(max_bytes.min(bytes), |scratch| {
            let mut done = 0;
            while done < bytes {
                let piece = scratch.get_mut(..max_bytes.min(bytes - done)).unwrap_or_default();
                self.source.read_exact_at(offset + done as u64, piece)?;
                f(piece)?;
                done += piece.len();
            }
            Ok(())
        })
    }

    /// Fills `to` with bytes, beginning at byte `offset`.
    ///
    /// # Errors
    /// The range is not within the source, or reading fails.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len() as u64)?;
        match self.mapped(offset, to.len()) {
            Some(slice) => to.copy_from_slice(slice),
            None => self.source.read_exact_at(offset, to)?,
        }
        Ok(())
    }

    /// Fills `to` with bytes, beginning at byte `offset`, without using the mapping. For the few
    /// bytes of a message's metadata, a read takes a quarter of the time of a page fault, and needs
    /// no page table entry.
    ///
    /// # Errors
    /// The range is not within the source, or reading fails.
    pub fn read_unmapped(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len() as u64)?;
        self.source.read_exact_at(offset, to)
    }

    fn mapped(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.map.as_ref()?.bytes().get(start..start.checked_add(bytes)?)
    }

    /// The source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether the source has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the bytes of a range as a buffer in host memory, without a copy, if they are mapped.
    pub fn in_place(&self, offset: u64, bytes: u64) -> Option<Buffer> {
        let (map, owner) = (self.map.as_ref()?, self.owner.as_ref()?);
        let address = map.address().checked_add(offset)?;
        self.mapped(offset, usize::try_from(bytes).ok()?)?;
        // SAFETY: `mapped` checked that the range is within the mapping, which stays readable while
        // a reference to it exists. `owner` has such a reference.
        Some(unsafe { Buffer::foreign(owner, Device::CPU, address, Some(bytes), Ready::Now) })
    }

    /// Returns an error unless the range is within the source.
    ///
    /// # Errors
    /// The source is shorter.
    pub fn check(&self, offset: u64, bytes: u64) -> Result<()> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(Error::bad_data(format!(
            "the input is truncated: expected {bytes} bytes at offset {offset}, but it ends at {}",
            self.bytes
        ))
        .with_offset(self.bytes))
    }
}
