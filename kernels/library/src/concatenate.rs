//! Concatenates byte ranges and bitmaps.

use crate::bits;
use crate::door::Args;

pub(crate) fn copy(args: Args<'_>) -> Option<()> {
    let (from, to) = (args.read(0)?, args.write(1)?);
    to.iter_mut().zip(from.iter().chain(std::iter::repeat(&0))).for_each(|(to, byte)| *to = *byte);
    Some(())
}

pub(crate) fn concatenate(args: Args<'_>) -> Option<()> {
    const FIRST: usize = 2;
    let (to, before) = (args.write(0)?, args.index(1)? % 8);
    bits::clear_after(to, before);
    let mut at = before;
    for i in (FIRST..args.len()).step_by(3) {
        let (source, first, len) = (args.read(i)?, args.index(i + 1)?, args.index(i + 2)?);
        // Processes the source byte by byte. Bits beyond the length are cleared. A source byte is
        // split if its bits belong to two bytes of the target.
        for (k, bit) in (0..len).step_by(8).enumerate() {
            let (skip, shift) = (first / 8, first % 8);
            let byte = if source.is_empty() { 0xff } else { bits::byte(source.get(skip..)?, shift, k) };
            let byte = if len - bit < 8 { byte & bits::low_bits(len - bit) } else { byte };
            let place = at + bit;
            let spread = u16::from(byte) << (place % 8);
            for (half, to) in spread.to_le_bytes().into_iter().zip(to.iter_mut().skip(place / 8)) {
                *to |= half;
            }
        }
        at += len;
    }
    Some(())
}
