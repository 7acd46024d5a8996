//! Checks list-views.

use crate::door::Args;
use crate::words::{Word, with_offset_type};

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    let (offsets, sizes, width, limit) = (args.read(0)?, args.read(1)?, args.index(2)?, args.value(3)?);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    args.report_wrong(4, with_offset_type!(width, T => find_wrong::<T>(offsets, sizes, limit))?)
}

fn find_wrong<T: Word>(offsets: &[u8], sizes: &[u8], limit: i64) -> Option<usize> {
    let in_child = |(offset, size): (T, T)| {
        let (offset, size) = (offset.wide(), size.wide());
        offset >= 0 && size >= 0 && offset.checked_add(size).is_some_and(|end| end <= limit)
    };
    T::all(offsets).zip(T::all(sizes)).position(|value| !in_child(value))
}
