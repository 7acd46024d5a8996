//! Reads the body of a message in jobs, which may run on any thread.

use std::sync::Arc;

use crossdock_memory::{Buffer, BufferMut, Copies, Device, LoadRange, Loader, Result, StoredSource, Stream};
use crossdock_plugin_api::{Call, CancelFlag, Error};

use super::waiting;

/// The bytes of a body: a range of a source that has not been read yet, or host memory.
#[derive(Clone)]
pub enum Bytes {
    /// A range of a source whose length is known.
    Stored { file: Arc<StoredSource>, start: u64, bytes: u64 },
    /// A block of host memory, and a stream of the CPU.
    InMemory { block: Buffer, stream: Stream },
}

impl Bytes {
    /// Returns the `bytes` bytes of `file` that begin at `start`. Returns an error if the file is
    /// shorter.
    pub fn stored(file: &Arc<StoredSource>, start: u64, bytes: u64) -> Result<Self> {
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
            Self::Stored { file, start, bytes } if device == Device::CPU => file.in_place(*start, *bytes),
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
        Self::load_all([(self, ranges)], loader, cancel, to, stream)
    }

    /// Like [`load`](Self::load), for the ranges of several bodies. Those of one source are loaded
    /// together.
    pub fn load_all<'a>(
        bodies: impl IntoIterator<Item = (&'a Self, &'a [LoadRange])>,
        loader: &Loader,
        cancel: &CancelFlag,
        to: &mut BufferMut,
        stream: &Stream,
    ) -> Result<()> {
        let mut stored: Vec<(&Arc<StoredSource>, Vec<LoadRange>)> = Vec::new();
        for (body, ranges) in bodies {
            match body {
                Self::Stored { file, start, .. } => {
                    let ranges = ranges.iter().map(|range| LoadRange { from: start + range.from, ..*range });
                    match stored.last_mut() {
                        Some((last, all)) if Arc::ptr_eq(last, file) => all.extend(ranges),
                        _ => stored.push((file, ranges.collect())),
                    }
                }
                Self::InMemory { block, .. } => {
                    let mut copies = Copies::new();
                    for range in ranges {
                        copies.push(to, range.to, block, to_offset(range.from)?, range.bytes)?;
                    }
                    copies.submit(stream)?;
                }
            }
        }
        for (file, ranges) in stored {
            let load = |call: &Call<'_>| loader.load(call, file.source(), to, &ranges, stream);
            waiting::with_settings(stream.device(), cancel, load)?;
        }
        Ok(())
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
