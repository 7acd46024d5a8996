//! How many values are null.

use crossdock_memory::{Buffer, Result, Stream};

use crate::door::{Args, grid, kernel};
use crate::{Cells, bits};

kernel!(NULL_COUNT, c"crossdock_null_count", twin);

/// Counts the zero bits among bits `first..first + len` of a validity bitmap into cell `at`.
pub fn null_count(
    stream: &Stream,
    validity: &Buffer,
    first: usize,
    len: usize,
    cells: &mut Cells,
    at: usize,
) -> Result<()> {
    let [bits, shift] = bits::args(validity, first, len);
    let mut args = [bits, shift, crossdock_memory::Arg::Value(len as u64), cells.arg(at)?];
    // SAFETY: bitmap, first bit, length, cell: as `twin` reads them.
    unsafe { stream.launch(&NULL_COUNT, grid(len.div_ceil(64)), &mut args) }
}

fn twin(args: Args<'_>) -> Option<()> {
    let (bits, first, len) = (args.read(0)?, args.index(1)?, args.index(2)?);
    args.add(3, len as u64 - bits::count_ones(bits, first, len))
}
