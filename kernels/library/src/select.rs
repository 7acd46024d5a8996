//! Finds the positions of the set bits of a bitmap.

use crate::bits;
use crate::door::Args;
use crate::threads;
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
    let (bits, (chunk, len), bases) = (args.read(0)?, chunks(&args)?, args.read(3)?.as_chunks::<8>().0);
    let (to, width) = (args.write(4)?, args.index(5)?);
    // The bits of a part, and the number of set bits before it.
    let step = (threads::part_rows() / chunk).max(1);
    let parts = bases.iter().step_by(step).map(|base| u64::from_ne_bytes(*base) as usize);
    with_offset_type!(width, T => {
        let parts = split(to.as_chunks_mut().0, parts).into_iter().enumerate();
        threads::for_each(parts, |(i, to)| {
            let first = (i * step).saturating_mul(chunk);
            let len = len.saturating_sub(first).min(step.saturating_mul(chunk));
            positions::<{ size_of::<T>() }>(bits.get(first / 8..).unwrap_or(&[]), first, len, to);
        })
    })?
}

/// Splits `all` at the ascending positions `begins`, of which the first is 0.
fn split<T>(mut all: &mut [T], begins: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let (mut parts, mut at) = (Vec::new(), 0);
    for begin in begins.skip(1) {
        let (part, rest) = all.split_at_mut(begin.saturating_sub(at).min(all.len()));
        at += part.len();
        parts.push(part);
        all = rest;
    }
    parts.push(all);
    parts
}

/// Writes the positions of the set bits among `len` bits. The position of the first bit is `first`.
fn positions<const N: usize>(bits: &[u8], first: usize, len: usize, to: &mut [[u8; N]]) {
    let words = bits.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        u64::from_le_bytes(word)
    });
    let number = |position: usize| (position as u64).to_le_bytes().first_chunk().copied().unwrap_or([0; N]);
    let mut places = to.iter_mut();
    for (begin, mut word) in (0..len).step_by(64).zip(words) {
        if len - begin < 64 {
            word &= (1 << (len - begin)) - 1;
        }
        if word == u64::MAX {
            let all = first + begin..first + begin + 64;
            all.zip(places.by_ref()).for_each(|(position, to)| *to = number(position));
            continue;
        }
        while word != 0 {
            let Some(to) = places.next() else { return };
            *to = number(first + begin + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}
