//! Copies bitmaps to begin at bit 0.

use crate::bits;
use crate::door::Args;

pub(crate) fn run(args: Args<'_>) -> Option<()> {
    let (from, shift, len, to) = (args.read(0)?, args.index(1)? % 8, args.index(2)?, args.write(3)?);
    for (i, to) in to.iter_mut().enumerate() {
        *to = bits::byte(from, shift, i);
    }
    bits::clear_after(to, len);
    Some(())
}
