//! Host memory for bytes that come one after another.

use crossdock_plugin_api::{Device, Error, Result};

use crate::{Buffer, BufferMut, Memory, Stream};

/// What the first piece of it has room for.
const FIRST_BYTES: usize = 1 << 10;

/// Bytes in host memory, to which more are added: for those who do not know how many there will be, in the place of a `Vec`, which
/// no host sees. All of it is the host's memory, so that it is counted, and refused where the budget has no room for it.
pub struct Growing {
    memory: Memory,
    stream: Stream,
    room: Option<BufferMut>,
    len: usize,
}

impl Growing {
    /// None so far, and nothing is taken.
    pub fn new(memory: &Memory) -> Result<Self> {
        let stream = memory.default_stream(Device::CPU)?;
        Ok(Self { memory: memory.clone(), stream, room: None, len: 0 })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes room for so many more, in one piece.
    ///
    /// # Errors
    /// The host has no room for them; those that are there stay.
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        let too_many = || Error::out_of_memory(format!("{more} bytes after {}", self.len));
        let needed = self.len.checked_add(more).ok_or_else(too_many)?;
        let there = self.room.as_ref().map_or(0, BufferMut::len);
        if needed <= there {
            return Ok(());
        }
        let mut room = self.memory.alloc(&self.stream, needed.max(2 * there).max(FIRST_BYTES))?;
        if let Some(before) = &mut self.room
            && let Some(before) = bytes_of(before)?.get(..self.len)
            && let Some(to) = bytes_of(&mut room)?.get_mut(..self.len)
        {
            to.copy_from_slice(before);
        }
        self.room = Some(room);
        Ok(())
    }

    /// Adds these.
    ///
    /// # Errors
    /// As [`Growing::reserve`].
    pub fn extend(&mut self, bytes: &[u8]) -> Result<()> {
        self.reserve(bytes.len())?;
        if let Some(room) = &mut self.room
            && let Some(to) = bytes_of(room)?.get_mut(self.len..self.len + bytes.len())
        {
            to.copy_from_slice(bytes);
            self.len += bytes.len();
        }
        Ok(())
    }

    /// Those that are there.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        let len = self.len;
        match &mut self.room {
            Some(room) => Ok(bytes_of(room)?.get_mut(..len).unwrap_or_default()),
            None => Ok(&mut []),
        }
    }

    /// No more of them: a buffer for an array.
    pub fn freeze(self) -> Result<Buffer> {
        let room = match self.room {
            Some(room) => room,
            None => self.memory.alloc(&self.stream, 0)?,
        };
        room.freeze_now().slice(0, self.len)
    }
}

fn bytes_of(room: &mut BufferMut) -> Result<&mut [u8]> {
    room.host_slice_mut().ok_or_else(|| Error::internal("host memory that the host does not reach"))
}
