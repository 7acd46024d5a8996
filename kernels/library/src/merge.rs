//! Merges two bitmaps.

use crate::bits;
use crate::door::Args;

pub(crate) fn run(args: Args<'_>) -> Option<()> {
    let (a, first_a, b, first_b) = (args.read(0)?, args.index(1)? % 8, args.read(2)?, args.index(3)? % 8);
    let (len, to) = (args.index(4)?, args.write(5)?);
    for (i, to) in to.iter_mut().enumerate() {
        *to = bits::byte(a, first_a, i) & bits::byte(b, first_b, i);
    }
    bits::clear_after(to, len);
    Some(())
}
