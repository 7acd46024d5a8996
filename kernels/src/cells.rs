//! Where kernels put what the host wants to know.

use crossdock_memory::{BufferMut, Error, Result, Stream, WriteRange};

/// A number on the stream's device for each of several jobs, in one allocation, read back together.
///
/// A cell begins with all bits set. A check lowers it to the first index at which something is wrong; a count adds to
/// it, so that it holds one less than the count; a number replaces it.
pub(crate) struct Cells {
    buffer: BufferMut,
    n: usize,
}

const BYTES: usize = 8;

impl Cells {
    /// `n` untouched cells.
    pub(crate) fn new(stream: &Stream, n: usize) -> Result<Self> {
        let mut buffer = stream.memory().alloc(stream, n * BYTES)?;
        stream.fill(&mut buffer, 0, n * BYTES, 0xff)?;
        Ok(Self { buffer, n })
    }

    /// Some, as a range that a kernel changes.
    pub(crate) fn range(&mut self, first: usize, n: usize) -> Result<WriteRange> {
        if first.checked_add(n).is_none_or(|end| end > self.n) {
            return Err(Error::internal(format!("cells {first}..+{n} of {} were asked for", self.n)));
        }
        self.buffer.write_range(first * BYTES, n * BYTES)
    }

    /// All of them, in one copy. Blocks until the launches have run.
    pub(crate) fn read(self, stream: &Stream) -> Result<Findings> {
        let frozen = self.buffer.freeze(stream)?;
        let view = frozen.host_view(stream)?;
        let cells = view
            .chunks_exact(BYTES)
            .map(|cell| <[u8; 8]>::try_from(cell).map_or(u64::MAX, u64::from_ne_bytes));
        Ok(Findings(cells.collect()))
    }
}

/// The answers of [`Checks`](crate::Checks), by the numbers of their cells.
#[derive(Default)]
pub struct Findings(Vec<u64>);

impl Findings {
    /// The `i`-th as a count.
    pub fn count(&self, i: usize) -> u64 {
        self.0.get(i).map_or(0, |cell| cell.wrapping_add(1))
    }

    /// The index at which check `i` found something wrong first.
    pub fn first_wrong(&self, i: usize) -> Option<u64> {
        self.0.get(i).copied().filter(|cell| *cell != u64::MAX)
    }

    /// The `i`-th as a number that was read.
    pub fn number(&self, i: usize) -> i64 {
        self.0.get(i).map_or(0, |cell| *cell as i64)
    }
}
