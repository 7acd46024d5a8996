//! Differences in the FastLanes layout, summed up.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::door::Args;
use crate::jobs::{JobArg, tile_blocks};
use crate::steps::{Stepped, with_word};
use crate::table::kernel;
use crate::{Checks, Words};

kernel!(
    SUM_LANES,
    c"crossdock_sum_lanes",
    (bases: Read, deltas: Read, first: Value, to: Write, width: Value),
    sum_lanes
);

/// Values of a block, and bytes of a word of each of its lanes.
const BLOCK: usize = 1024;
const LINE: usize = 128;

/// Blocks of 1024 differences, and the bases of their lanes, 1024 bits' worth a block.
#[derive(Clone, Copy, Debug)]
pub struct Deltas<'a> {
    /// Where the bases are, and the byte at which they begin.
    pub bases: (&'a Buffer, usize),
    /// Where the differences are, and the byte at which they begin.
    pub deltas: (&'a Buffer, usize),
    /// How many blocks.
    pub blocks: usize,
    /// The value of the first block that is the first wanted, below 1024.
    pub first: usize,
}

impl<'a> Checks<'a> {
    /// Writes sums: each lane runs on from its base, and a block's values are transposed then, as FastLanes has it. They wrap.
    pub fn sum_lanes(&mut self, from: Deltas<'a>, to: &mut BufferMut, words: Words) -> Result<()> {
        words.check(&[])?;
        let there = from.blocks.saturating_mul(BLOCK);
        if from.first >= BLOCK || from.first.saturating_add(words.len) > there {
            return Err(Error::internal(format!("{from:?} are no {} sums", words.len)));
        }
        let args = [
            JobArg::Read(from.bases.0, from.bases.1, from.blocks.saturating_mul(LINE)),
            JobArg::Read(from.deltas.0, from.deltas.1, there.saturating_mul(words.width_bytes)),
            JobArg::Value(from.first as u64),
            JobArg::write(to, words.at, words.bytes())?,
            JobArg::Value(words.width_bytes as u64),
        ];
        self.push(&SUM_LANES, tile_blocks(words.bytes()), args)
    }
}

fn sum_lanes(args: Args<'_>) -> Option<()> {
    let (bases, deltas, first) = (args.read(0)?, args.read(1)?, args.index(2)?);
    let (to, width) = (args.write(3)?, args.index(4)?);
    with_word!(width, T => each_block::<T>(bases, deltas, first, to))
}

/// Rows of eight bits' numbers go by groups in this order, and come back by the same.
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
