//! Finds the positions of the set bits of a bitmap.

use crate::bits;
use crate::door::Args;
use crate::words::with_offset_type;

/// The bits per chunk, and the number of bits of the bitmap.
fn chunks(args: &Args<'_>) -> Option<(usize, usize)> {
    let (len, shift) = (args.index(1)?, args.value(2)?);
    (10..=40).contains(&shift).then_some((1 << shift, len))
}

pub(crate) fn count(args: Args<'_>) -> Option<()> {
    let (bits, (chunk, len)) = (args.read(0)?, chunks(&args)?);
    for (i, size) in args.write(3)?.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let first = i.saturating_mul(chunk);
        let n = bits::count_ones(bits, first, chunk.min(len.saturating_sub(first)));
        *size = n.to_ne_bytes();
    }
    Some(())
}

pub(crate) fn place(args: Args<'_>) -> Option<()> {
    let (bits, (_, len), to, width) = (args.read(0)?, chunks(&args)?, args.write(4)?, args.index(5)?);
    with_offset_type!(width, T => positions::<{ size_of::<T>() }>(bits, len, to))
}

fn positions<const N: usize>(bits: &[u8], len: usize, to: &mut [u8]) {
    let mut places = to.as_chunks_mut::<N>().0.iter_mut();
    let (words, rest) = bits.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    for (i, word) in words.iter().chain([&last]).enumerate() {
        let mut word = u64::from_le_bytes(*word);
        while word != 0 {
            let position = i * 64 + word.trailing_zeros() as usize;
            word &= word - 1;
            if position >= len {
                return;
            }
            let (Some(to), Some(low)) =
                (places.next(), (position as u64).to_le_bytes().first_chunk().copied())
            else {
                return;
            };
            *to = low;
        }
    }
}
