//! Builds buffers in host memory.

use crossdock_plugin_api::{Device, Error, Result};

use crate::{Buffer, BufferMut, Memory, Stream};

/// Size of the first allocation in bytes.
const FIRST_BYTES: usize = 1 << 10;

/// A growing buffer of bytes in host memory, for producers that do not know the final length.
/// Unlike a `Vec`, it allocates through the host's memory interface, so that the ledger counts its
/// bytes and the budget limits them.
pub struct BufferBuilder {
    memory: Memory,
    stream: Stream,
    block: Option<BufferMut>,
    len: usize,
}

impl BufferBuilder {
    /// Creates an empty builder, which has not allocated memory yet.
    pub fn new(memory: &Memory) -> Result<Self> {
        let stream = memory.default_stream(Device::CPU)?;
        Ok(Self { memory: memory.clone(), stream, block: None, len: 0 })
    }

    /// Number of bytes appended so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the builder is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reserves capacity for `more` bytes beyond the current length, in one allocation.
    ///
    /// # Errors
    /// If the host cannot allocate the memory. The builder then keeps the bytes appended so far.
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        let too_many =
            || Error::out_of_memory(format!("cannot allocate {more} bytes after {} bytes", self.len));
        let needed = self.len.checked_add(more).ok_or_else(too_many)?;
        let capacity = self.block.as_ref().map_or(0, BufferMut::len);
        if needed <= capacity {
            return Ok(());
        }
        let mut block = self.memory.alloc(&self.stream, needed.max(2 * capacity).max(FIRST_BYTES))?;
        if let Some(old) = &mut self.block
            && let Some(from) = bytes_of(old)?.get(..self.len)
            && let Some(to) = bytes_of(&mut block)?.get_mut(..self.len)
        {
            to.copy_from_slice(from);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// Those of [`BufferBuilder::reserve`].
    pub fn extend(&mut self, bytes: &[u8]) -> Result<()> {
        self.reserve(bytes.len())?;
        if let Some(block) = &mut self.block
            && let Some(to) = bytes_of(block)?.get_mut(self.len..self.len + bytes.len())
        {
            to.copy_from_slice(bytes);
            self.len += bytes.len();
        }
        Ok(())
    }

    /// Returns the bytes appended so far.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        let len = self.len;
        match &mut self.block {
            Some(block) => Ok(bytes_of(block)?.get_mut(..len).unwrap_or_default()),
            None => Ok(&mut []),
        }
    }

    /// Returns the appended bytes as an immutable buffer.
    pub fn freeze(self) -> Result<Buffer> {
        let block = match self.block {
            Some(block) => block,
            None => self.memory.alloc(&self.stream, 0)?,
        };
        block.freeze_now().slice(0, self.len)
    }
}

fn bytes_of(block: &mut BufferMut) -> Result<&mut [u8]> {
    block
        .host_slice_mut()
        .ok_or_else(|| Error::internal("the host cannot reach the host memory that it allocated"))
}
