//! A union's type ids, and a dense one's offsets.

use crossdock_memory::{Arg, Buffer, Result, Stream};

use crate::Cells;
use crate::door::{Args, grid, kernel};
use crate::words::Word;

kernel!(CHECK_UNION, c"crossdock_check_union", check);

/// Finds the first of `len` values, from value `first` on, whose type id is none of `children` (id, length), or in a
/// dense union (`offsets`) whose offset lies outside that child.
#[allow(clippy::too_many_arguments)]
pub fn check_union(
    stream: &Stream,
    type_ids: &Buffer,
    offsets: Option<&Buffer>,
    first: usize,
    len: usize,
    children: &[(i8, usize)],
    cells: &mut Cells,
    at: usize,
) -> Result<()> {
    let offsets = match offsets {
        Some(buffer) => Arg::Read { buffer, offset: first.saturating_mul(4), bytes: len.saturating_mul(4) },
        None => Arg::Read { buffer: type_ids, offset: 0, bytes: 0 },
    };
    let mut args = vec![Arg::Read { buffer: type_ids, offset: first, bytes: len }, offsets, cells.arg(at)?];
    for (id, len) in children {
        args.extend([Arg::Value(*id as u64), Arg::Value(*len as u64)]);
    }
    // SAFETY: type ids, offsets, cell, then id and length of each child: as `check` reads them.
    unsafe { stream.launch(&CHECK_UNION, grid(len), &mut args) }
}

fn check(args: Args<'_>) -> Option<()> {
    const CHILDREN: usize = 3;
    let (ids, offsets) = (args.read(0)?, args.read(1)?);
    let mut lens = [None; 256];
    for i in (CHILDREN..args.len()).step_by(2) {
        *lens.get_mut(usize::from(args.value(i)? as u8))? = Some(args.value(i + 1)?);
    }
    let len_of = |id: u8| lens.get(usize::from(id)).copied().flatten();
    let found = if offsets.is_empty() {
        ids.iter().position(|id| len_of(*id).is_none())
    } else {
        let in_child = |(id, offset): (&u8, i32)| {
            len_of(*id).is_some_and(|len| u64::try_from(offset).is_ok_and(|offset| offset < len))
        };
        ids.iter().zip(i32::all(offsets)).position(|value| !in_child(value))
    };
    args.found(2, found)
}
