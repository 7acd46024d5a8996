//! Where runs end.

use crossdock_memory::{Arg, Buffer, Error, Result, Stream};

use crate::Cells;
use crate::door::{Args, grid, kernel};
use crate::words::Word;

kernel!(CHECK_RUN_ENDS, c"crossdock_check_run_ends", check);

/// Finds the first of `len` run ends, from entry `first` on, that is not above the one before it (or above 0), or `len`
/// if the last is below `covered`, the end of the values that the runs must cover.
#[allow(clippy::too_many_arguments)]
pub fn check_run_ends(
    stream: &Stream,
    ends: &Buffer,
    width_bytes: usize,
    first: usize,
    len: usize,
    covered: u64,
    cells: &mut Cells,
    at: usize,
) -> Result<()> {
    if ![2, 4, 8].contains(&width_bytes) {
        return Err(Error::internal(format!("a kernel was asked for run ends of {width_bytes} bytes")));
    }
    let range = (first.saturating_mul(width_bytes), len.saturating_mul(width_bytes));
    let mut args = [
        Arg::Read { buffer: ends, offset: range.0, bytes: range.1 },
        Arg::Value(width_bytes as u64),
        Arg::Value(covered),
        cells.arg(at)?,
    ];
    // SAFETY: run ends, width, covered, cell: as `check` reads them.
    unsafe { stream.launch(&CHECK_RUN_ENDS, grid(len), &mut args) }
}

fn check(args: Args<'_>) -> Option<()> {
    let (ends, width, covered) = (args.read(0)?, args.value(1)?, args.value(2)?);
    let covered = i64::try_from(covered).unwrap_or(i64::MAX);
    let found = match width {
        2 => first_wrong::<i16>(ends, covered),
        4 => first_wrong::<i32>(ends, covered),
        8 => first_wrong::<i64>(ends, covered),
        _ => return None,
    };
    args.found(3, found)
}

fn first_wrong<T: Word>(ends: &[u8], covered: i64) -> Option<usize> {
    let mut before = 0;
    for (i, end) in T::all(ends).enumerate() {
        if end.wide() <= before {
            return Some(i);
        }
        before = end.wide();
    }
    (before < covered).then(|| T::all(ends).len())
}
