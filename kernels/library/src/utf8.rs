//! Checks that text is UTF-8.

use crate::bits;
use crate::door::Args;
use crate::words::{Word, with_offset_type};

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    let (bytes, width, data) = (args.read(0)?, args.index(1)?, args.read(2)?);
    let (validity, first) = (args.read(3)?, args.index(4)?);
    if args.cell(5)? != u64::MAX {
        return Some(());
    }
    let is_valid = |i| bits::is_set(validity, first + i);
    args.report_wrong(6, with_offset_type!(width, T => find_wrong::<T>(bytes, data, is_valid))?)
}

fn find_wrong<T: Word>(offsets: &[u8], data: &[u8], is_valid: impl Fn(usize) -> bool) -> Option<usize> {
    let at = |offset: T| usize::try_from(offset.wide()).unwrap_or(usize::MAX);
    let all = T::all(offsets);
    let (Some(first), Some(last)) = (all.clone().next(), all.clone().next_back()) else { return None };
    if let Some(text) = data.get(at(first)..at(last)) {
        if text.is_ascii() {
            return None;
        }
        // If the whole text is valid UTF-8 and no value begins within a character, each value is
        // valid UTF-8.
        let begins = |offset: usize| data.get(offset).is_none_or(|byte| byte & 0xc0 != 0x80);
        if std::str::from_utf8(text).is_ok() && all.clone().all(|offset| begins(at(offset))) {
            return None;
        }
    }
    let values = all.clone().zip(all.skip(1)).enumerate();
    values
        .filter(|(i, _)| is_valid(*i))
        .find(|(_, (begin, end))| {
            data.get(at(*begin)..at(*end)).is_some_and(|value| std::str::from_utf8(value).is_err())
        })
        .map(|(i, _)| i)
}
