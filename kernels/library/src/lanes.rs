//! Sums differences in the FastLanes layout.

use crossdock_kernels::limits::{FASTLANES_BLOCK as BLOCK, FASTLANES_ROW_BYTES as LINE};

use crate::door::Args;
use crate::steps::{Stepped, with_word};

pub(crate) fn sum_lanes(args: Args<'_>) -> Option<()> {
    let (bases, deltas, first) = (args.read(0)?, args.read(1)?, args.index(2)?);
    let (to, width) = (args.write(3)?, args.index(4)?);
    with_word!(width, T => each_block::<T>(bases, deltas, first, to))
}

/// The order of groups of eight rows. This permutation is its own inverse.
const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

fn each_block<T: Stepped>(bases: &[u8], deltas: &[u8], first: usize, to: &mut [u8]) -> Option<()> {
    let (width, lanes) = (size_of::<T>(), LINE / size_of::<T>());
    if deltas.len() / width < first + to.len() / width || bases.len() / LINE < deltas.len() / (BLOCK * width)
    {
        return None;
    }
    let mut out = to.chunks_exact_mut(width);
    let mut skip = first;
    for (deltas, bases) in deltas.chunks_exact(BLOCK * width).zip(bases.chunks_exact(LINE)) {
        let mut sums = bases.chunks_exact(width).map(T::load).collect::<Option<Vec<T>>>()?;
        let mut transposed = vec![0u64; BLOCK];
        for row in 0..8 * width {
            let begin = ORDER.get(row / 8)? * 16 + row % 8 * 128;
            let row = deltas.get(begin * width..(begin + lanes) * width)?.chunks_exact(width);
            for ((sum, delta), to) in sums.iter_mut().zip(row).zip(transposed.get_mut(begin..)?) {
                *sum = T::low(sum.wide().wrapping_add(T::load(delta)?.wide()));
                *to = sum.wide();
            }
        }
        for i in skip..BLOCK {
            let Some(out) = out.next() else { return Some(()) };
            let from = i % 8 * 128 + ORDER.get(i / 8 % 8)? * 16 + i / 64;
            out.copy_from_slice(T::low(*transposed.get(from)?).store().as_ref());
        }
        skip = 0;
    }
    Some(())
}
