//! Where kernels put what the host wants to know.

use crossdock_memory::{Arg, BufferMut, Error, Result, Stream};

/// A number on the stream's device for each of several launches, read back together.
///
/// A cell begins with all bits set. A check lowers it to the first index at which something is wrong; a count adds to
/// it, so that it holds one less than the count.
pub struct Cells {
    buffer: BufferMut,
    n: usize,
}

const BYTES: usize = 8;

impl Cells {
    /// `n` untouched cells.
    pub fn new(stream: &Stream, n: usize) -> Result<Self> {
        let mut buffer = stream.memory().alloc(stream, n * BYTES)?;
        stream.fill(&mut buffer, 0, n * BYTES, 0xff)?;
        Ok(Self { buffer, n })
    }

    /// The `i`-th, as an argument that a kernel changes.
    pub(crate) fn arg(&mut self, i: usize) -> Result<Arg<'_>> {
        if i >= self.n {
            return Err(Error::internal(format!("cell {i} of {} was asked for", self.n)));
        }
        Ok(Arg::Write { buffer: &mut self.buffer, offset: i * BYTES, bytes: BYTES })
    }

    /// All of them, in one copy. Blocks until the launches have run.
    pub fn read(self, stream: &Stream) -> Result<Findings> {
        let frozen = self.buffer.freeze(stream)?;
        let view = frozen.host_view(stream)?;
        let cells = view
            .chunks_exact(BYTES)
            .map(|cell| <[u8; 8]>::try_from(cell).map_or(u64::MAX, u64::from_ne_bytes));
        Ok(Findings(cells.collect()))
    }
}

/// What [`Cells`] held.
pub struct Findings(Vec<u64>);

impl Findings {
    /// The cells as counts.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|cell| cell.wrapping_add(1))
    }

    /// The `i`-th cell as a count.
    pub fn count(&self, i: usize) -> u64 {
        self.0.get(i).map_or(0, |cell| cell.wrapping_add(1))
    }

    /// The index at which check `i` found something wrong first.
    pub fn first_wrong(&self, i: usize) -> Option<u64> {
        self.0.get(i).copied().filter(|cell| *cell != u64::MAX)
    }
}
