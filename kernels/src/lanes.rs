//! Differences in the FastLanes layout, summed up.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, tile_blocks};
use crate::limits::{FASTLANES_BLOCK as BLOCK, FASTLANES_ROW_BYTES as LINE};
use crate::rows::SUM_LANES;
use crate::{Checks, Words};

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
