//! Bit-packed integers in the FastLanes layout, each through steps: alone, with others in the places of some, or as the numbers
//! of values.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::door::Args;
use crate::jobs::{JobArg, warps};
use crate::steps::{self, Step, Stepped, with_word};
use crate::table::kernel;
use crate::take::{numbers, put, take_each};
use crate::{Checks, Patches, Source, Words, bits};

kernel!(
    UNPACK,
    c"crossdock_unpack",
    (packed: Read, bits: Value, first: Value, to: Write, width: Value),
    [step: Value, operand: Value],
    unpack
);

/// One kernel for each width of words.
macro_rules! unpack_patched {
    ($row:ident, $name:literal, $word:ty) => {
        kernel!(
            $row,
            $name,
            (
                packed: Read, bits: Value, first: Value, to: Write, indices: Read, index_width: Value,
                first_index: Value, values: Read, stepped: Value, cell: Write
            ),
            [step: Value, operand: Value],
            unpack_patched::<$word>
        );
    };
}
unpack_patched!(UNPACK_PATCHED_1, c"crossdock_unpack_patched_1", u8);
unpack_patched!(UNPACK_PATCHED_2, c"crossdock_unpack_patched_2", u16);
unpack_patched!(UNPACK_PATCHED_4, c"crossdock_unpack_patched_4", u32);
unpack_patched!(UNPACK_PATCHED_8, c"crossdock_unpack_patched_8", u64);

kernel!(
    TAKE_PACKED,
    c"crossdock_take_packed",
    (
        packed: Read, bits: Value, first: Value, code_width: Value, validity: Read, first_bit: Value, values: Read,
        to: Write, width: Value, cell: Write
    ),
    [step: Value, operand: Value],
    take_packed
);

/// Values of a block.
const BLOCK: usize = 1024;
/// Bytes of a row of words.
const ROW: usize = 128;

/// Words in the FastLanes layout: a block of 1024 is `bits` rows of 128 bytes, one word for each of its lanes, and the `r`-th
/// value of lane `l` is value `ORDER[r / 8] * 16 + r % 8 * 128 + l`, with the order 0, 4, 2, 6, 1, 5, 3, 7.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// The blocks.
    pub buffer: &'a Buffer,
    /// Of each value.
    pub bits: u32,
    /// The first value of the first block that is meant.
    pub first: usize,
}

impl<'a> Packed<'a> {
    /// The first three arguments, for `len` words of `width` bytes.
    fn args(self, len: usize, width: usize) -> Result<[JobArg<'a>; 3]> {
        let bytes = blocks_of(self.first, len).saturating_mul(ROW).saturating_mul(self.bits as usize);
        if self.first >= BLOCK || self.bits as usize > 8 * width {
            return Err(Error::internal(format!(
                "a kernel was asked for {} bits in words of {width} bytes, from value {} on",
                self.bits, self.first
            )));
        }
        Ok([
            if bytes == 0 { JobArg::NoBytes } else { JobArg::Read(self.buffer, 0, bytes) },
            JobArg::Value(self.bits.into()),
            JobArg::Value(self.first as u64),
        ])
    }

    fn blocks(self, len: usize, for_each: usize) -> u32 {
        warps(blocks_of(self.first, len), for_each)
    }
}

impl<'a> Checks<'a> {
    /// Unpacks words, each through `steps`.
    pub fn unpack(
        &mut self,
        packed: Packed<'a>,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
    ) -> Result<()> {
        words.check(steps)?;
        let [read, bits, first] = packed.args(words.len, words.width_bytes)?;
        let width = JobArg::Value(words.width_bytes as u64);
        let args = [read, bits, first, JobArg::write(to, words.at, words.bytes())?, width];
        self.push(&UNPACK, packed.blocks(words.len, 4), args.into_iter().chain(steps::args(steps)))
    }

    /// The same with `patches` in their places, which go through the steps too if they are `stepped`. The cell says which index was
    /// the first that does not rise or names no place; then some patches may be missing.
    pub fn unpack_patched(
        &mut self,
        packed: Packed<'a>,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
        patches: Patches<'a>,
        stepped: bool,
    ) -> Result<usize> {
        words.check(steps)?;
        let [read, bits, first] = packed.args(words.len, words.width_bytes)?;
        let [indices, index_width] = patches.indices.args()?;
        let cell = self.cells(1);
        let args = [
            read,
            bits,
            first,
            JobArg::write(to, words.at, words.bytes())?,
            indices,
            index_width,
            JobArg::Value(patches.first),
            patches.values.arg(words.width_bytes),
            JobArg::Value(stepped.into()),
            JobArg::Cells(cell, 1),
        ];
        // Several times as many blocks as there is room for at once even out that some take longer; but each warp searches for
        // its patches.
        let row = match words.width_bytes {
            1 => &UNPACK_PATCHED_1,
            2 => &UNPACK_PATCHED_2,
            4 => &UNPACK_PATCHED_4,
            _ => &UNPACK_PATCHED_8,
        };
        self.push(row, packed.blocks(words.len, 8), args.into_iter().chain(steps::args(steps)))?;
        Ok(cell)
    }

    /// Writes for each packed code, a word of `code_width` (1 or 2) bytes that goes through `steps`, the value that it numbers.
    /// The cell says which was the first that is not null (`validity`: bitmap and its first bit) and numbers none; for those,
    /// zeros are written.
    #[allow(clippy::too_many_arguments)]
    pub fn take_packed(
        &mut self,
        codes: Packed<'a>,
        code_width: usize,
        steps: &[Step],
        validity: Option<(&'a Buffer, usize)>,
        values: Source<'a>,
        to: &mut BufferMut,
        words: Words,
    ) -> Result<usize> {
        words.check(&[])?;
        if ![1, 2].contains(&code_width) || steps.iter().any(|step| !step.takes(code_width)) {
            return Err(Error::internal(format!(
                "codes of {code_width} bytes are not taken through {steps:?}"
            )));
        }
        let [read, bits, first] = codes.args(words.len, code_width)?;
        let [valid, first_bit] = bits::optional_args(validity, words.len, codes.buffer);
        let cell = self.cells(1);
        let args = [
            read,
            bits,
            first,
            JobArg::Value(code_width as u64),
            valid,
            first_bit,
            values.arg(words.width_bytes),
            JobArg::write(to, words.at, words.bytes())?,
            JobArg::Value(words.width_bytes as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&TAKE_PACKED, codes.blocks(words.len, 4), args.into_iter().chain(steps::args(steps)))?;
        Ok(cell)
    }
}

/// Blocks of values that `len` ones from value `first` of the first on lie in.
fn blocks_of(first: usize, len: usize) -> usize {
    if len == 0 { 0 } else { first.saturating_add(len).div_ceil(BLOCK) }
}

fn unpack(args: Args<'_>) -> Option<()> {
    let (packed, bits, first) = (args.read(0)?, args.index(1)?, args.index(2)?);
    let (to, width, steps) = (args.write(3)?, args.index(4)?, steps::of(&args, 5)?);
    with_word!(width, T => unpack_words::<T>(packed, bits, first, to, &steps))
}

fn unpack_patched<T: Stepped>(args: Args<'_>) -> Option<()> {
    let (packed, bits, first) = (args.read(0)?, args.index(1)?, args.index(2)?);
    let (to, steps) = (args.write(3)?, steps::of(&args, 10)?);
    let (indices, index_width, first_index) = (args.read(4)?, args.index(5)?, args.value(6)?);
    let values = args.read(7)?;
    let through = if args.value(8)? != 0 { steps.as_slice() } else { &[] };
    unpack_words::<T>(packed, bits, first, to, &steps)?;
    args.found(9, put::<T>(numbers(indices, index_width)?, first_index, values, to, through)?)
}

fn take_packed(args: Args<'_>) -> Option<()> {
    let (packed, bits, first, code_width) = (args.read(0)?, args.index(1)?, args.index(2)?, args.index(3)?);
    let (validity, first_bit, values) = (args.read(4)?, args.index(5)?, args.read(6)?);
    let (to, width, steps) = (args.write(7)?, args.index(8)?, steps::of(&args, 10)?);
    let mut codes = vec![0; to.len().checked_div(width)? * code_width];
    with_word!(code_width, T => unpack_words::<T>(packed, bits, first, &mut codes, &steps))?;
    args.found(9, take_each(numbers(&codes, code_width)?, validity, first_bit, values, to, width)?)
}

fn unpack_words<T: Stepped>(
    packed: &[u8],
    bits: usize,
    first: usize,
    to: &mut [u8],
    steps: &[Step],
) -> Option<()> {
    let (width, word_bits) = (size_of::<T>(), 8 * size_of::<T>());
    let lanes = ROW / width;
    let blocks = blocks_of(first, to.len() / width);
    if bits > word_bits || first >= BLOCK || packed.len() < blocks * ROW * bits {
        return None;
    }
    let word = |block: usize, row: usize, lane: usize| {
        let at = (block * bits + row) * ROW + lane * width;
        T::load(packed.get(at..at + width)?).map(T::wide)
    };
    for (i, out) in to.chunks_exact_mut(width).enumerate() {
        let (block, value) = ((first + i) / BLOCK, (first + i) % BLOCK);
        let (row, lane) = row_and_lane(value, lanes);
        let (begin, mut got) = (row * bits, 0u64);
        if bits > 0 {
            let shift = begin % word_bits;
            got = word(block, begin / word_bits, lane)? >> shift;
            if shift + bits > word_bits {
                got |= word(block, begin / word_bits + 1, lane)? << (word_bits - shift);
            }
            got &= u64::MAX >> (64 - bits);
        }
        out.copy_from_slice(T::low(got).steps(steps)?.store().as_ref());
    }
    Some(())
}

/// In which row and lane a value of a block is.
fn row_and_lane(value: usize, lanes: usize) -> (usize, usize) {
    // Groups of eight rows lie in the order of their numbers' three bits, reversed, each a row's lanes wide.
    let place = value % 128 / lanes * lanes / 16;
    let group = place.reverse_bits() >> (usize::BITS - 3);
    (group * 8 + value / 128, value % lanes)
}
