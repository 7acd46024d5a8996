//! Takes values by code, where each block of 1024 codes has its own dictionary.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, blocks};
use crate::limits::FASTLANES_BLOCK as BLOCK;
use crate::rows::TAKE_BLOCKS;
use crate::{Checks, Integers, Source, Words, bits};

/// Codes and the dictionaries that they index.
#[derive(Clone, Copy, Debug)]
pub struct BlockCodes<'a> {
    /// One code for each value to decode.
    pub codes: Integers<'a>,
    /// The position of the first code in its block, below 1024.
    pub first: usize,
    /// For each block, the index in `values` at which the block's dictionary begins, plus a
    /// constant. The constant is the first entry, so the first dictionary begins at index 0. A
    /// dictionary ends where the next dictionary begins.
    pub begins: Integers<'a>,
    /// The dictionaries of all blocks, concatenated.
    pub values: Source<'a>,
}

impl<'a> Checks<'a> {
    /// Writes for each code its value in the block's dictionary. If a dictionary has only one
    /// value, the codes of its block are ignored, and all of them mean this value.
    ///
    /// The returned cell has the first valid code (`validity`: bitmap and its first bit) that is
    /// out of range, or the first code whose dictionary is not within the values. For such codes,
    /// the kernel writes zeros.
    pub fn take_blocks(
        &mut self,
        from: BlockCodes<'a>,
        validity: Option<(&'a Buffer, usize)>,
        to: &mut BufferMut,
        words: Words,
    ) -> Result<usize> {
        words.check(&[])?;
        let BlockCodes { codes, first, begins, values } = from;
        let last = first.saturating_add(words.len);
        let have_valid_widths = [codes, begins].iter().all(|of| [1, 2, 4, 8].contains(&of.of.width_bytes));
        if first >= BLOCK
            || codes.len < words.len
            || last > begins.len.saturating_mul(BLOCK)
            || !have_valid_widths
        {
            return Err(Error::internal(format!("{from:?} does not have {} codes", words.len)));
        }
        let [bits, shift] = bits::optional_args(validity, words.len, codes.buffer);
        let ([codes, code_type], [begins, begin_type]) = (codes.args(), begins.args());
        let target = JobArg::write(to, words.at, words.bytes())?;
        let cell = self.cells(1);
        let args = [
            codes,
            code_type,
            bits,
            shift,
            begins,
            begin_type,
            values.arg(words.width_bytes),
            JobArg::Value(first as u64),
            target,
            JobArg::Value(words.width_bytes as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&TAKE_BLOCKS, blocks(words.len.saturating_mul(4)), args)?;
        Ok(cell)
    }
}
