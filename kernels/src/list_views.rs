//! List-views: where each value lies in the child.

use crossdock_memory::{Arg, Buffer, Result, Stream};

use crate::Cells;
use crate::door::{Args, grid, kernel};
use crate::words::{Word, check_offset_width, with_offset_type};

kernel!(CHECK_LIST_VIEWS, c"crossdock_check_list_views", check);

/// Finds the first of `len` values, from value `first` on, whose offset or size is negative or that ends beyond `limit`.
/// Arrow asks this of null values too.
#[allow(clippy::too_many_arguments)]
pub fn check_list_views(
    stream: &Stream,
    offsets: &Buffer,
    sizes: &Buffer,
    width_bytes: usize,
    first: usize,
    len: usize,
    limit: u64,
    cells: &mut Cells,
    at: usize,
) -> Result<()> {
    check_offset_width(width_bytes)?;
    let (offset, bytes) = (first.saturating_mul(width_bytes), len.saturating_mul(width_bytes));
    let mut args = [
        Arg::Read { buffer: offsets, offset, bytes },
        Arg::Read { buffer: sizes, offset, bytes },
        Arg::Value(width_bytes as u64),
        Arg::Value(limit),
        cells.arg(at)?,
    ];
    // SAFETY: offsets, sizes, width, limit, cell: as `check` reads them.
    unsafe { stream.launch(&CHECK_LIST_VIEWS, grid(len), &mut args) }
}

fn check(args: Args<'_>) -> Option<()> {
    let (offsets, sizes, width, limit) = (args.read(0)?, args.read(1)?, args.index(2)?, args.value(3)?);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    args.found(4, with_offset_type!(width, T => first_wrong::<T>(offsets, sizes, limit))?)
}

fn first_wrong<T: Word>(offsets: &[u8], sizes: &[u8], limit: i64) -> Option<usize> {
    let in_child = |(offset, size): (T, T)| {
        let (offset, size) = (offset.wide(), size.wide());
        offset >= 0 && size >= 0 && offset.checked_add(size).is_some_and(|end| end <= limit)
    };
    T::all(offsets).zip(T::all(sizes)).position(|value| !in_child(value))
}
