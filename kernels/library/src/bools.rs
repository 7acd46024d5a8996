//! Converts booleans between one bit per value, as in Arrow, and one byte per value, as in DLPack.

use crate::door::Args;

pub(crate) fn unpack(args: Args<'_>) -> Option<()> {
    let (from, first, invert, to) = (args.read(0)?, args.index(1)?, args.value(2)?, args.write(3)?);
    let invert = if invert == 0 { 0 } else { 0xff };
    // Converts the bits before the first whole byte one by one, and the other bits eight at a time.
    let (head, rest) = to.split_at_mut(to.len().min((8 - first % 8) % 8));
    for (i, to) in head.iter_mut().enumerate() {
        *to = (from.get((first + i) / 8)? ^ invert) >> ((first + i) % 8) & 1;
    }
    let from = from.get((first + head.len()) / 8..)?;
    for (to, byte) in rest.chunks_mut(8).zip(from) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = (byte ^ invert) >> i & 1;
        }
    }
    Some(())
}

pub(crate) fn pack(args: Args<'_>) -> Option<()> {
    let (from, invert, to) = (args.read(0)?, args.value(1)? != 0, args.write(2)?);
    let byte = |values: &[u8]| {
        values.iter().enumerate().fold(0, |byte, (i, value)| byte | u8::from((*value != 0) != invert) << i)
    };
    let eights = from.chunks_exact(8);
    let last = eights.remainder();
    for (to, values) in to.iter_mut().zip(eights) {
        *to = byte(values);
    }
    if let ([.., to], false) = (to, last.is_empty()) {
        *to = byte(last);
    }
    Some(())
}
