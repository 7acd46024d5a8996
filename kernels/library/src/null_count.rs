//! Counts nulls.

use crate::bits;
use crate::door::Args;

pub(crate) fn run(args: Args<'_>) -> Option<()> {
    let (bits, first, len) = (args.read(0)?, args.index(1)?, args.index(2)?);
    args.add(3, len as u64 - bits::count_ones(bits, first, len))
}
