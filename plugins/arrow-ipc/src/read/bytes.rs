//! Reads the body of a message in jobs, which may run on any thread.

use std::cell::Cell;
use std::sync::Arc;

use crossdock_memory::{
    Buffer, BufferMut, Copies, Device, ForeignOwner, LoadRange, Loader, Ready, Result, Stream,
};
use crossdock_plugin_api::{Call, CancelFlag, Error, Map, Source};

use super::waiting;

/// The bytes of a body: a range of a source that has not been read yet, or host memory.
#[derive(Clone)]
pub enum Bytes {
    /// A range of a source whose length is known.
    Stored { file: Arc<Stored>, start: u64, bytes: u64 },
    /// A block of host memory, and a stream of the CPU.
    InMemory { block: Buffer, stream: Stream },
}

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
pub struct Stored {
    source: Source,
    bytes: u64,
    map: Option<Map>,
    /// A shared reference to the mapping, for the buffers that refer to it.
    owner: Option<ForeignOwner>,
}

impl Stored {
    /// Wraps a source. Returns the source as the error if its length is unknown, as for a pipe.
    pub fn new(source: Source) -> Result<Self, Source> {
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
    fn in_pieces(
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
    pub fn read_unmapped(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len() as u64)?;
        self.source.read_exact_at(offset, to)
    }

    fn mapped(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.map.as_ref()?.bytes().get(start..start.checked_add(bytes)?)
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<()> {
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

impl Bytes {
    /// Returns the `bytes` bytes of `file` that begin at `start`. Returns an error if the file is
    /// shorter.
    pub fn stored(file: &Arc<Stored>, start: u64, bytes: u64) -> Result<Self> {
        file.check(start, bytes)?;
        Ok(Self::Stored { file: file.clone(), start, bytes })
    }

    /// Length of the bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Stored { bytes, .. } => *bytes,
            Self::InMemory { block, .. } => block.len().unwrap_or(0) as u64,
        }
    }

    /// Whether the bytes have been read already.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Self::InMemory { .. })
    }

    /// Returns the bytes as a buffer without a copy, if they are on `device` already.
    pub fn in_place(&self, device: Device) -> Option<Buffer> {
        match self {
            Self::Stored { file, start, bytes } if device == Device::CPU => {
                let (map, owner) = (file.map.as_ref()?, file.owner.as_ref()?);
                let address = map.address().checked_add(*start)?;
                let length = usize::try_from(*bytes).ok()?;
                file.mapped(*start, length)?;
                // SAFETY: `mapped` checked that the range is within the mapping, which stays
                // readable while a reference to it exists. `owner` has such a reference.
                Some(unsafe { Buffer::foreign(owner, Device::CPU, address, Some(length as u64), Ready::Now) })
            }
            Self::InMemory { block, .. } if block.device() == device => Some(block.clone()),
            _ => None,
        }
    }

    /// Enqueues the copies of `ranges` to `to` on `stream`, the stream of another device. Returns
    /// when they have been read.
    pub fn load(
        &self,
        loader: &Loader,
        cancel: &CancelFlag,
        to: &mut BufferMut,
        ranges: &[LoadRange],
        stream: &Stream,
    ) -> Result<()> {
        match self {
            Self::Stored { file, start, .. } => {
                let range = |range: &LoadRange| LoadRange { from: start + range.from, ..*range };
                let ranges: Vec<_> = ranges.iter().map(range).collect();
                let load = |call: &Call<'_>| loader.load(call, &file.source, to, &ranges, stream);
                waiting::with_settings(stream.device(), cancel, load)
            }
            Self::InMemory { block, .. } => {
                let mut copies = Copies::new();
                for range in ranges {
                    copies.push(to, range.to, block, to_offset(range.from)?, range.bytes)?;
                }
                copies.submit(stream)
            }
        }
    }

    /// Fills `to` with bytes, beginning at byte `offset`.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        match self {
            Self::Stored { file, start, .. } => file.read(start + offset, to),
            Self::InMemory { .. } => self.in_pieces(offset, to.len(), usize::MAX, &mut |from| {
                to.copy_from_slice(from);
                Ok(())
            }),
        }
    }

    /// Runs `f` on the `bytes` bytes at `offset`, in order. If the bytes are in host memory, `f`
    /// runs once for all of them. Otherwise, parts of at most `max_bytes` bytes are read, and `f`
    /// runs for each of them.
    pub fn in_pieces(
        &self,
        offset: u64,
        bytes: usize,
        max_bytes: usize,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Stored { file, start, .. } => file.in_pieces(start + offset, bytes, max_bytes, f),
            Self::InMemory { block, stream } => f(&block.host_view_of(to_offset(offset)?, bytes, stream)?),
        }
    }
}

fn to_offset(offset: u64) -> Result<usize> {
    usize::try_from(offset).map_err(|_| Error::internal("an offset exceeds the address space"))
}
