//! Values by their numbers, of which every 1024 number those of a part of their own.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, blocks};
use crate::limits::FASTLANES_BLOCK as BLOCK;
use crate::rows::TAKE_BLOCKS;
use crate::{Checks, Integers, Source, Words, bits};

/// Codes, and what they number.
#[derive(Clone, Copy, Debug)]
pub struct BlockCodes<'a> {
    /// One for each value that is wanted.
    pub codes: Integers<'a>,
    /// The place of the first of them in its block, below 1024.
    pub first: usize,
    /// Where the part of each block begins, counted from where the first one's does; it ends where the next one's begins.
    pub begins: Integers<'a>,
    /// All parts, one after the other.
    pub values: Source<'a>,
}

impl<'a> Checks<'a> {
    /// Writes for each code the value of its block's part that it numbers, or the only one there is. The cell says which was the
    /// first that numbers none and is not null (`validity`: bitmap and its first bit), or whose part is not among the values;
    /// for those, zeros are written.
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
        let are_words = [codes, begins].iter().all(|of| [1, 2, 4, 8].contains(&of.of.width_bytes));
        if first >= BLOCK || codes.len < words.len || last > begins.len.saturating_mul(BLOCK) || !are_words {
            return Err(Error::internal(format!("{from:?} are no {} codes", words.len)));
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
