//! Checks run ends.

use crate::door::Args;
use crate::words::Word;

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    let (ends, width, covered) = (args.read(0)?, args.value(1)?, args.value(2)?);
    let covered = i64::try_from(covered).unwrap_or(i64::MAX);
    let first_wrong = match width {
        2 => find_wrong::<i16>(ends, covered),
        4 => find_wrong::<i32>(ends, covered),
        8 => find_wrong::<i64>(ends, covered),
        _ => return None,
    };
    args.report_wrong(3, first_wrong)
}

fn find_wrong<T: Word>(ends: &[u8], covered: i64) -> Option<usize> {
    let mut before = 0;
    for (i, end) in T::all(ends).enumerate() {
        if end.wide() <= before {
            return Some(i);
        }
        before = end.wide();
    }
    (before < covered).then(|| T::all(ends).len())
}
