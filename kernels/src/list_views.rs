//! List-views: where each value lies in the child.

use crossdock_memory::{Buffer, Result};

use crate::Checks;
use crate::door::Args;
use crate::jobs::{JobArg, long_blocks};
use crate::table::kernel;
use crate::words::{Word, check_offset_width, with_offset_type};

kernel!(
    CHECK_LIST_VIEWS,
    c"crossdock_check_list_views",
    (offsets: Read, sizes: Read, width: Value, limit: Value, cell: Write),
    check
);

impl<'a> Checks<'a> {
    /// Finds the first of `len` values, from value `first` on, whose offset or size is negative or that ends beyond
    /// `limit`. Arrow asks this of null values too.
    pub fn list_views(
        &mut self,
        offsets: &'a Buffer,
        sizes: &'a Buffer,
        width_bytes: usize,
        first: usize,
        len: usize,
        limit: u64,
    ) -> Result<usize> {
        check_offset_width(width_bytes)?;
        let cell = self.cells(1);
        let (offset, bytes) = (first.saturating_mul(width_bytes), len.saturating_mul(width_bytes));
        let args = [
            JobArg::Read(offsets, offset, bytes),
            JobArg::Read(sizes, offset, bytes),
            JobArg::Value(width_bytes as u64),
            JobArg::Value(limit),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_LIST_VIEWS, long_blocks(bytes), args)?;
        Ok(cell)
    }
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
