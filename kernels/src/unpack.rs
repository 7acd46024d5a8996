//! Bit-packed integers in the FastLanes layout, words that are there, and words that count up, each through steps.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::Checks;
use crate::door::Args;
use crate::jobs::{JobArg, blocks, long_blocks, parts};
use crate::steps::{self, Step, Stepped, with_word};
use crate::table::kernel;

kernel!(
    UNPACK,
    c"crossdock_unpack",
    (packed: Read, bits: Value, first: Value, to: Write, width: Value),
    [step: Value, operand: Value],
    unpack
);
kernel!(MAP, c"crossdock_map", (from: Read, to: Write, width: Value), [step: Value, operand: Value], map);
kernel!(
    SEQUENCE,
    c"crossdock_sequence",
    (base: Value, step: Value, to: Write, width: Value),
    [step: Value, operand: Value],
    sequence
);

/// Values of a block.
const BLOCK: usize = 1024;
/// Bytes of a row of words.
const ROW: usize = 128;
/// Blocks that one of the device's unpacks in a step.
const BLOCKS_AT_ONCE: usize = 32;

/// Words that a buffer holds, or will: where they begin, in bytes, how many they are, and of how many bytes each.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The byte at which they begin.
    pub at: usize,
    /// How many.
    pub len: usize,
    /// 1, 2, 4 or 8.
    pub width_bytes: usize,
}

impl Words {
    pub(crate) fn bytes(self) -> usize {
        self.len.saturating_mul(self.width_bytes)
    }

    fn check(self, steps: &[Step]) -> Result<()> {
        let width = self.width_bytes;
        match steps.iter().find(|step| !step.takes(width)) {
            _ if ![1, 2, 4, 8].contains(&width) => {
                Err(Error::internal(format!("a kernel was asked for words of {width} bytes")))
            }
            Some(step) => Err(Error::internal(format!("words of {width} bytes have no step {step:?}"))),
            None => Ok(()),
        }
    }
}

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
    fn args(self, to: &mut BufferMut, words: Words, steps: &[Step]) -> Result<[JobArg<'a>; 5]> {
        words.check(steps)?;
        let n_blocks = blocks_of(self.first, words.len);
        let bytes = n_blocks.saturating_mul(ROW).saturating_mul(self.bits as usize);
        if self.first >= BLOCK || self.bits as usize > 8 * words.width_bytes {
            return Err(Error::internal(format!(
                "a kernel was asked for {} bits in words of {} bytes, from value {} on",
                self.bits, words.width_bytes, self.first
            )));
        }
        Ok([
            if bytes == 0 { JobArg::NoBytes } else { JobArg::Read(self.buffer, 0, bytes) },
            JobArg::Value(self.bits.into()),
            JobArg::Value(self.first as u64),
            JobArg::write(to, words.at, words.bytes())?,
            JobArg::Value(words.width_bytes as u64),
        ])
    }

    fn blocks_at_once(self, words: Words) -> u32 {
        parts(blocks_of(self.first, words.len), BLOCKS_AT_ONCE)
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
        let args = packed.args(to, words, steps)?;
        self.push(&UNPACK, packed.blocks_at_once(words), args.into_iter().chain(steps::args(steps)))
    }

    /// Writes the words from byte `at` of `from` on, each through `steps`.
    pub fn map(
        &mut self,
        from: &'a Buffer,
        at: usize,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
    ) -> Result<()> {
        words.check(steps)?;
        let args = [
            JobArg::Read(from, at, words.bytes()),
            JobArg::write(to, words.at, words.bytes())?,
            JobArg::Value(words.width_bytes as u64),
        ];
        self.push(&MAP, blocks(words.bytes()), args.into_iter().chain(steps::args(steps)))
    }

    /// Writes `base + i * step` for each `i`, each through `steps`; sums and products wrap.
    pub fn sequence(
        &mut self,
        base: u64,
        step: u64,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
    ) -> Result<()> {
        words.check(steps)?;
        let args = [
            JobArg::Value(base),
            JobArg::Value(step),
            JobArg::write(to, words.at, words.bytes())?,
            JobArg::Value(words.width_bytes as u64),
        ];
        self.push(&SEQUENCE, long_blocks(words.bytes()), args.into_iter().chain(steps::args(steps)))
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

fn map(args: Args<'_>) -> Option<()> {
    let (from, to, width, steps) = (args.read(0)?, args.write(1)?, args.index(2)?, steps::of(&args, 3)?);
    with_word!(width, T => map_words::<T>(from, to, &steps))
}

fn map_words<T: Stepped>(from: &[u8], to: &mut [u8], steps: &[Step]) -> Option<()> {
    let width = size_of::<T>();
    if from.len() < to.len() {
        return None;
    }
    for (to, from) in to.chunks_exact_mut(width).zip(from.chunks_exact(width)) {
        to.copy_from_slice(T::load(from)?.steps(steps)?.store().as_ref());
    }
    Some(())
}

fn sequence(args: Args<'_>) -> Option<()> {
    let (base, step) = (args.value(0)?, args.value(1)?);
    let (to, width, steps) = (args.write(2)?, args.index(3)?, steps::of(&args, 4)?);
    with_word!(width, T => count::<T>(base, step, to, &steps))
}

fn count<T: Stepped>(base: u64, step: u64, to: &mut [u8], steps: &[Step]) -> Option<()> {
    for (i, to) in (0u64..).zip(to.chunks_exact_mut(size_of::<T>())) {
        let word = T::low(base.wrapping_add(step.wrapping_mul(i)));
        to.copy_from_slice(word.steps(steps)?.store().as_ref());
    }
    Some(())
}
