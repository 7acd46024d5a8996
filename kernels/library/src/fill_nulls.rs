//! Replaces nulls by a value.

use crate::bits;
use crate::door::Args;
use crate::threads;

pub(crate) fn run(args: Args<'_>) -> Option<()> {
    let (from, validity, first) = (args.read(0)?, args.read(1)?, args.index(2)?);
    let words = [args.value(3)?, args.value(4)?, args.value(5)?, args.value(6)?];
    let (to, width) = (args.write(7)?, args.index(8)?);
    let null = words.map(u64::to_ne_bytes);
    let null = null.as_flattened();
    match width {
        1 => fill::<1>(from, validity, first, null, to),
        2 => fill::<2>(from, validity, first, null, to),
        4 => fill::<4>(from, validity, first, null, to),
        8 => fill::<8>(from, validity, first, null, to),
        16 => fill::<16>(from, validity, first, null, to),
        32 => fill::<32>(from, validity, first, null, to),
        _ => None,
    }
}

/// Values of 1 to 8 bytes are the lowest bytes of the first word, so `null` begins with them.
fn fill<const N: usize>(
    from: &[u8],
    validity: &[u8],
    first: usize,
    null: &[u8],
    to: &mut [u8],
) -> Option<()> {
    let null = *null.first_chunk::<N>()?;
    let rows = threads::part_rows();
    let parts = to.as_chunks_mut::<N>().0.chunks_mut(rows).zip(from.as_chunks::<N>().0.chunks(rows));
    let parts: Vec<_> = parts.enumerate().collect();
    threads::for_each(parts.into_iter(), |(part, (to, from))| {
        let begin = first + part * rows;
        for (i, (to, from)) in to.iter_mut().zip(from).enumerate() {
            *to = if bits::is_set(validity, begin + i) { *from } else { null };
        }
    })
}
