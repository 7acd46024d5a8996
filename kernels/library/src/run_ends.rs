//! Where runs end.

use crate::door::Args;
use crate::words::Word;

pub(crate) fn check(args: Args<'_>) -> Option<()> {
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
