//! Result cells, in which kernels return numbers to the host.

use crossdock_memory::{Buffer, BufferMut, Device, Error, Result, Stream, WriteRange};

/// Numbers on the stream's device, one or more for each job, in one allocation that is read at
/// once.
///
/// Initially, all bits of a cell are set. A check lowers its cell to the first index with an error.
/// A kernel that counts adds to its cell with wrapping, so the cell contains the count minus one. A
/// kernel that reads a number stores the number in its cell.
pub(crate) struct Cells {
    buffer: BufferMut,
    n: usize,
}

const BYTES: usize = 8;

impl Cells {
    /// Allocates `n` cells.
    pub(crate) fn new(stream: &Stream, n: usize) -> Result<Self> {
        let mut buffer = stream.memory().alloc(stream, n * BYTES)?;
        stream.fill(&mut buffer, 0, n * BYTES, 0xff)?;
        Ok(Self { buffer, n })
    }

    /// A range of cells, for a kernel to write.
    pub(crate) fn range(&mut self, first: usize, n: usize) -> Result<WriteRange> {
        if first.checked_add(n).is_none_or(|end| end > self.n) {
            return Err(Error::internal(format!("cells {first}..+{n} do not exist: there are {}", self.n)));
        }
        self.buffer.write_range(first * BYTES, n * BYTES)
    }

    /// Copies all cells to the host at once. Blocks until the launches have finished.
    pub(crate) fn read(self, stream: &Stream) -> Result<Findings> {
        Findings::read(&self.buffer.freeze(stream)?, stream)
    }

    /// Begins to copy all cells to the host. The result is ready when the launches have finished.
    pub(crate) fn start_read(self, stream: &Stream) -> Result<Buffer> {
        let (bytes, cells) = (self.n * BYTES, self.buffer.freeze(stream)?);
        if stream.device() == Device::CPU {
            return Ok(cells);
        }
        let mut copy = stream.memory().alloc_pinned(bytes)?;
        stream.copy(&mut copy, 0, &cells, 0, bytes)?;
        copy.freeze(stream)
    }
}

/// The results of [`Checks`](crate::Checks), by cell.
#[derive(Default)]
pub struct Findings(Vec<u64>);

impl Findings {
    /// Reads cells. Blocks until they are ready.
    pub(crate) fn read(cells: &Buffer, stream: &Stream) -> Result<Self> {
        let view = cells.host_view(stream)?;
        let cells = view
            .chunks_exact(BYTES)
            .map(|cell| <[u8; 8]>::try_from(cell).map_or(u64::MAX, u64::from_ne_bytes));
        Ok(Self(cells.collect()))
    }

    /// The count in cell `i`.
    pub fn count(&self, i: usize) -> u64 {
        self.0.get(i).map_or(0, |cell| cell.wrapping_add(1))
    }

    /// The first index with an error according to cell `i`; `None` without an error.
    pub fn first_wrong(&self, i: usize) -> Option<u64> {
        self.0.get(i).copied().filter(|cell| *cell != u64::MAX)
    }

    /// The number read into cell `i`.
    pub fn number(&self, i: usize) -> i64 {
        self.0.get(i).map_or(0, |cell| *cell as i64)
    }
}
