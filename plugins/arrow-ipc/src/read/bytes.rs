//! Where a message's body is, for jobs on any thread.

use std::cell::Cell;
use std::sync::Arc;

use crossdock_memory::{Buffer, Device, ForeignOwner, Ready, Result, Stream};
use crossdock_plugin_api::{Error, Map, Source};

/// A range of bytes that are not read yet, or that lie in host memory.
#[derive(Clone)]
pub enum Bytes {
    /// Of a source of known length, from `start` on.
    Stored { file: Arc<Stored>, start: u64, bytes: u64 },
    /// In a block of host memory, with a stream of the host's device.
    Arrived { block: Buffer, stream: Stream },
}

thread_local! {
    /// What is read to be looked at once: fresh memory for each frame costs as much as reading it.
    static READ: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What a thread keeps of it.
const MOST_KEPT_BYTES: usize = 16 << 20;

/// Runs `f` with `bytes` bytes of memory that the thread keeps.
fn with_room<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
    let mut room = READ.take();
    if room.len() < bytes {
        room.resize(bytes, 0);
    }
    let result = f(room.get_mut(..bytes).unwrap_or_default());
    if room.len() <= MOST_KEPT_BYTES {
        READ.set(room);
    }
    result
}

/// A source of known length.
pub struct Stored {
    source: Source,
    bytes: u64,
    map: Option<Map>,
    /// The mapping once more, for the buffers that lie in it.
    owner: Option<ForeignOwner>,
}

impl Stored {
    /// `None` for a pipe, which is given back.
    pub fn new(source: Source) -> Result<Self, Source> {
        let Some(bytes) = source.len() else { return Err(source) };
        let map = source.map();
        let owner = map.clone().map(ForeignOwner::new);
        Ok(Self { source, bytes, map, owner })
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Runs `f` on `bytes` bytes from `offset` on, in place or read for it. The caller has checked that the length is a
    /// reasonable one; that the range lies in the source is checked here.
    pub fn with<T>(&self, offset: u64, bytes: usize, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        self.check(offset, bytes as u64)?;
        match self.mapped(offset, bytes) {
            Some(slice) => f(slice),
            None => with_room(bytes, |room| {
                self.source.read_exact_at(offset, room)?;
                f(room)
            }),
        }
    }

    /// Runs `f` on `bytes` bytes from `offset` on, in order: at once where they are in place, else on pieces of `most`
    /// bytes, each read for it.
    fn in_pieces(
        &self,
        offset: u64,
        bytes: usize,
        most: usize,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check(offset, bytes as u64)?;
        if let Some(slice) = self.mapped(offset, bytes) {
            return f(slice);
        }
        with_room(most.min(bytes), |room| {
            let mut done = 0;
            while done < bytes {
                let piece = room.get_mut(..most.min(bytes - done)).unwrap_or_default();
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

    /// Fills `to` from `offset` on without touching the mapping: for the few bytes of a message's metadata a read costs a
    /// quarter of the page fault, and of the page table for a region that nobody looks at otherwise.
    pub fn read_apart(&self, offset: u64, to: &mut [u8]) -> Result<()> {
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
    /// `bytes` bytes of `file` from `start` on, if it has them.
    pub fn stored(file: &Arc<Stored>, start: u64, bytes: u64) -> Result<Self> {
        file.check(start, bytes)?;
        Ok(Self::Stored { file: file.clone(), start, bytes })
    }

    /// How many.
    pub fn len(&self) -> u64 {
        match self {
            Self::Stored { bytes, .. } => *bytes,
            Self::Arrived { block, .. } => block.len().unwrap_or(0) as u64,
        }
    }

    /// All of them as a buffer of `device`, if they lie there already.
    pub fn in_place(&self, device: Device) -> Option<Buffer> {
        match self {
            Self::Stored { file, start, bytes } if device == Device::CPU => {
                let (map, owner) = (file.map.as_ref()?, file.owner.as_ref()?);
                let address = map.address().checked_add(*start)?;
                let length = usize::try_from(*bytes).ok()?;
                file.mapped(*start, length)?;
                // SAFETY: `mapped` answered that the range lies in the mapping, which is readable host memory for as
                // long as a share of it is held; `owner` holds one.
                Some(unsafe { Buffer::foreign(owner, Device::CPU, address, Some(length as u64), Ready::Now) })
            }
            Self::Arrived { block, .. } if block.device() == device => Some(block.clone()),
            _ => None,
        }
    }

    /// Fills `to` with what lies `offset` bytes from the beginning.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        match self {
            Self::Stored { file, start, .. } => file.read(start + offset, to),
            Self::Arrived { .. } => self.in_pieces(offset, to.len(), usize::MAX, &mut |from| {
                to.copy_from_slice(from);
                Ok(())
            }),
        }
    }

    /// Runs `f` on `bytes` bytes from `offset` on, in order: at once where they are in place, else on pieces of `most`
    /// bytes, each read for it.
    pub fn in_pieces(
        &self,
        offset: u64,
        bytes: usize,
        most: usize,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Stored { file, start, .. } => file.in_pieces(start + offset, bytes, most, f),
            Self::Arrived { block, stream } => {
                let offset =
                    usize::try_from(offset).map_err(|_| Error::internal("an offset beyond memory"))?;
                f(&block.host_view_of(offset, bytes, stream)?)
            }
        }
    }
}
