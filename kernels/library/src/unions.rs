//! Checks type ids and offsets of unions.

use crossdock_kernels::limits::NO_CHILD;

use crate::door::Args;
use crate::words::Word;

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    const LENS: usize = 3;
    let (ids, offsets) = (args.read(0)?, args.read(1)?);
    let mut lens = [NO_CHILD; 256];
    for (i, slot) in (LENS..args.len()).zip(&mut lens) {
        *slot = args.value(i)?;
    }
    let len_of = |id: u8| lens.get(usize::from(id)).copied().filter(|len| *len != NO_CHILD);
    let first_wrong = if offsets.is_empty() {
        ids.iter().position(|id| len_of(*id).is_none())
    } else {
        let in_child = |(id, offset): (&u8, i32)| {
            len_of(*id).is_some_and(|len| u64::try_from(offset).is_ok_and(|offset| offset < len))
        };
        ids.iter().zip(i32::all(offsets)).position(|value| !in_child(value))
    };
    args.report_wrong(2, first_wrong)
}
