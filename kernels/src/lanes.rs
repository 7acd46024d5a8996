//! Sums differences in the FastLanes layout.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, tile_blocks};
use crate::limits::{FASTLANES_BLOCK as BLOCK, FASTLANES_ROW_BYTES as LINE};
use crate::rows::SUM_LANES;
use crate::{Checks, Words};

/// Blocks of 1024 differences. Each block has 1024 bits of bases, one base for each lane.
#[derive(Clone, Copy, Debug)]
pub struct Deltas<'a> {
    /// The buffer of bases, and the byte at which the bases begin.
    pub bases: (&'a Buffer, usize),
    /// The buffer of differences, and the byte at which the differences begin.
    pub deltas: (&'a Buffer, usize),
    /// The number of blocks.
    pub blocks: usize,
    /// The position in the first block of the first value to decode, below 1024.
    pub first: usize,
}

impl<'a> Checks<'a> {
    /// Writes the running sums of each lane, which start with the lane's base. The sums have the
    /// order that the values had before the transposition of FastLanes. Sums wrap.
    pub fn sum_lanes(&mut self, from: Deltas<'a>, to: &mut BufferMut, words: Words) -> Result<()> {
        words.check(&[])?;
        let available = from.blocks.saturating_mul(BLOCK);
        if from.first >= BLOCK || from.first.saturating_add(words.len) > available {
            return Err(Error::internal(format!("{from:?} does not have {} sums", words.len)));
        }
        let args = [
            JobArg::Read(from.bases.0, from.bases.1, from.blocks.saturating_mul(LINE)),
            JobArg::Read(from.deltas.0, from.deltas.1, available.saturating_mul(words.width_bytes)),
            JobArg::Value(from.first as u64),
            JobArg::write(to, words.at, words.bytes())?,
            JobArg::Value(words.width_bytes as u64),
        ];
        self.push(&SUM_LANES, tile_blocks(words.bytes()), args)
    }
}
