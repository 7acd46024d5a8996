//! Checks dictionary keys.

use crate::bits;
use crate::door::Args;
use crate::words::Word;

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    let (keys, width, signed) = (args.read(0)?, args.value(1)?, args.value(2)?);
    let (validity, first, limit) = (args.read(3)?, args.index(4)?, args.value(5)?);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let is_valid = |i| bits::is_set(validity, first + i);
    let first_wrong = match (width, signed != 0) {
        (1, true) => find_wrong::<i8>(keys, limit, is_valid),
        (2, true) => find_wrong::<i16>(keys, limit, is_valid),
        (4, true) => find_wrong::<i32>(keys, limit, is_valid),
        (8, true) => find_wrong::<i64>(keys, limit, is_valid),
        (1, false) => find_wrong::<u8>(keys, limit, is_valid),
        (2, false) => find_wrong::<u16>(keys, limit, is_valid),
        (4, false) => find_wrong::<u32>(keys, limit, is_valid),
        (8, false) => find_wrong::<u64>(keys, limit, is_valid),
        _ => return None,
    };
    args.report_wrong(6, first_wrong)
}

fn find_wrong<T: Word>(keys: &[u8], limit: i64, is_valid: impl Fn(usize) -> bool) -> Option<usize> {
    let wrong = |key: T| key.wide() < 0 || key.wide() >= limit;
    // The loop has no early exit, so that the compiler can vectorize it.
    if !T::all(keys).fold(false, |bad, key| bad | wrong(key)) {
        return None;
    }
    T::all(keys).enumerate().find(|(i, key)| wrong(*key) && is_valid(*i)).map(|(i, _)| i)
}
