//! A union's type ids, and a dense one's offsets.

use crossdock_memory::{Buffer, Error, Result};

use crate::Checks;
use crate::door::Args;
use crate::jobs::{JobArg, long_blocks};
use crate::table::kernel;
use crate::words::Word;

kernel!(
    CHECK_UNION,
    c"crossdock_check_union",
    (ids: Read, offsets: Read, cell: Write),
    [len: Value],
    check
);

/// Type ids go from 0 to 127.
const IDS: usize = 128;

/// The length of a child that there is not.
const NO_CHILD: u64 = u64::MAX;

impl<'a> Checks<'a> {
    /// Finds the first of `len` values, from value `first` on, whose type id is none of `children` (id, length), or in a
    /// dense union (`offsets`) whose offset lies outside that child.
    pub fn union(
        &mut self,
        type_ids: &'a Buffer,
        offsets: Option<&'a Buffer>,
        first: usize,
        len: usize,
        children: &[(i8, usize)],
    ) -> Result<usize> {
        let mut lens = [NO_CHILD; IDS];
        let mut ids = 0;
        for (id, len) in children {
            let id = usize::try_from(*id).map_err(|_| {
                Error::bad_data(format!("a union's type id is {id}, expected 0 to {}", IDS - 1))
            })?;
            if let Some(slot) = lens.get_mut(id) {
                *slot = *len as u64;
            }
            ids = ids.max(id + 1);
        }
        let cell = self.cells(1);
        let offsets = match offsets {
            Some(buffer) => JobArg::Read(buffer, first.saturating_mul(4), len.saturating_mul(4)),
            None => JobArg::Read(type_ids, 0, 0),
        };
        let args = [JobArg::Read(type_ids, first, len), offsets, JobArg::Cells(cell, 1)];
        let lens = lens.iter().take(ids).map(|len| JobArg::Value(*len));
        self.push(&CHECK_UNION, long_blocks(len.saturating_mul(4)), args.into_iter().chain(lens))?;
        Ok(cell)
    }
}

fn check(args: Args<'_>) -> Option<()> {
    const LENS: usize = 3;
    let (ids, offsets) = (args.read(0)?, args.read(1)?);
    let mut lens = [NO_CHILD; 256];
    for (i, slot) in (LENS..args.len()).zip(&mut lens) {
        *slot = args.value(i)?;
    }
    let len_of = |id: u8| lens.get(usize::from(id)).copied().filter(|len| *len != NO_CHILD);
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
