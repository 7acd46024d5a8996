//! Values by their numbers, of which every 1024 number those of a part of their own.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::door::Args;
use crate::jobs::{JobArg, blocks};
use crate::table::kernel;
use crate::widen::integers;
use crate::{Checks, IntType, Integers, Source, Words, bits};

kernel!(
    TAKE_BLOCKS,
    c"crossdock_take_blocks",
    (
        codes: Read, code_type: Value, validity: Read, first_bit: Value, begins: Read, begin_type: Value,
        values: Read, first: Value, to: Write, width: Value, cell: Write
    ),
    take
);

/// Codes in a block.
const BLOCK: usize = 1024;

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

fn take(args: Args<'_>) -> Option<()> {
    let (codes, code) = (args.read(0)?, IntType::of_code(args.index(1)?)?);
    let (validity, first_bit) = (args.read(2)?, args.index(3)?);
    let begins: Vec<i128> = integers(args.read(4)?, IntType::of_code(args.index(5)?)?)?.collect();
    let (values, first, to, width) = (args.read(6)?, args.index(7)?, args.write(8)?, args.index(9)?);
    if ![1, 2, 4, 8].contains(&width) || codes.len() / code.width_bytes < to.len() / width {
        return None;
    }
    let (n_values, zero) = ((values.len() / width) as i128, begins.first().copied().unwrap_or(0));
    let mut found = None;
    for (i, (to, code)) in to.chunks_exact_mut(width).zip(integers(codes, code)?).enumerate() {
        let block = (first + i) / BLOCK;
        let from = begins.get(block)? - zero;
        let end = begins.get(block + 1).map_or(n_values, |end| end - zero);
        let is_part = 0 <= from && from <= end && end <= n_values;
        let code = if end - from == 1 { 0 } else { code };
        if is_part && 0 <= code && code < end - from {
            let at = (from + code) as usize * width;
            to.copy_from_slice(values.get(at..at + width)?);
        } else {
            to.fill(0);
            found = found.or((!is_part || bits::is_set(validity, first_bit + i)).then_some(i));
        }
    }
    args.found(10, found)
}
