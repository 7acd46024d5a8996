//! Gives jobs on any thread access to a message's body.

use std::cell::Cell;
use std::sync::Arc;

use crossdock_memory::{Buffer, Device, ForeignOwner, Ready, Result, Stream};
use crossdock_plugin_api::{Error, Map, Source};

/// A range of a source that is not read yet, or of host memory.
#[derive(Clone)]
pub enum Bytes {
    /// A range of a source of known length.
    Stored { file: Arc<Stored>, start: u64, bytes: u64 },
    /// A block of host memory, with a stream of the CPU.
    InMemory { block: Buffer, stream: Stream },
}

thread_local! {
    /// Memory for bytes that are read once. Reused: new memory costs as much time as reading.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Larger scratch memory is freed after use.
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

/// A source of known length.
pub struct Stored {
    source: Source,
    bytes: u64,
    map: Option<Map>,
    /// Shares the mapping with the buffers in it.
    owner: Option<ForeignOwner>,
}

impl Stored {
    /// Returns a pipe as the error.
    pub fn new(source: Source) -> Result<Self, Source> {
        let Some(bytes) = source.len() else { return Err(source) };
        let map = source.map();
        let owner = map.clone().map(ForeignOwner::new);
        Ok(Self { source, bytes, map, owner })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Runs `f` on `bytes` bytes from `offset` on, in place or after reading them. The caller
    /// checks that the length is reasonable; this function checks that the range lies in the
    /// source.
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

    /// Runs `f` on `bytes` bytes from `offset` on, in order: once if they are in place, else on
    /// pieces of at most `max_bytes` bytes, which are read before.
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

    /// Fills `to` from `offset` on.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len() as u64)?;
        match self.mapped(offset, to.len()) {
            Some(slice) => to.copy_from_slice(slice),
            None => self.source.read_exact_at(offset, to)?,
        }
        Ok(())
    }

    /// Fills `to` from `offset` on without using the mapping. For the few bytes of a message's
    /// metadata a read takes a quarter of the time of a page fault, and needs no page table entry.
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
            "it is truncated: expected {bytes} bytes at offset {offset}, but it has {} in all",
            self.bytes
        )))
    }
}

impl Bytes {
    /// `bytes` bytes of `file` from `start` on. Fails if the file is shorter.
    pub fn stored(file: &Arc<Stored>, start: u64, bytes: u64) -> Result<Self> {
        file.check(start, bytes)?;
        Ok(Self::Stored { file: file.clone(), start, bytes })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Stored { bytes, .. } => *bytes,
            Self::InMemory { block, .. } => block.len().unwrap_or(0) as u64,
        }
    }

    /// The bytes as a buffer, if they are on `device` already.
    pub fn in_place(&self, device: Device) -> Option<Buffer> {
        match self {
            Self::Stored { file, start, bytes } if device == Device::CPU => {
                let (map, owner) = (file.map.as_ref()?, file.owner.as_ref()?);
                let address = map.address().checked_add(*start)?;
                let length = usize::try_from(*bytes).ok()?;
                file.mapped(*start, length)?;
                // SAFETY: `mapped` checked that the range lies in the mapping, which stays readable
                // while a reference to it exists; `owner` has one.
                Some(unsafe { Buffer::foreign(owner, Device::CPU, address, Some(length as u64), Ready::Now) })
            }
            Self::InMemory { block, .. } if block.device() == device => Some(block.clone()),
            _ => None,
        }
    }

    /// Fills `to` from `offset` on.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        match self {
            Self::Stored { file, start, .. } => file.read(start + offset, to),
            Self::InMemory { .. } => self.in_pieces(offset, to.len(), usize::MAX, &mut |from| {
                to.copy_from_slice(from);
                Ok(())
            }),
        }
    }

    /// Runs `f` on `bytes` bytes from `offset` on, in order: once if they are in place, else on
    /// pieces of at most `max_bytes` bytes, which are read before.
    pub fn in_pieces(
        &self,
        offset: u64,
        bytes: usize,
        max_bytes: usize,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Stored { file, start, .. } => file.in_pieces(start + offset, bytes, max_bytes, f),
            Self::InMemory { block, stream } => {
                let offset =
                    usize::try_from(offset).map_err(|_| Error::internal("an offset beyond memory"))?;
                f(&block.host_view_of(offset, bytes, stream)?)
            }
        }
    }
}
