//! Unpacks bit-packed integers in the FastLanes layout, optionally with patches or as codes of
//! values.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, warps};
use crate::limits::{FASTLANES_BLOCK as BLOCK, FASTLANES_ROW_BYTES as ROW, blocks_of};
use crate::rows::{
    TAKE_PACKED, UNPACK, UNPACK_PATCHED_1, UNPACK_PATCHED_2, UNPACK_PATCHED_4, UNPACK_PATCHED_8,
};
use crate::steps::{self, Step};
use crate::{Checks, Patches, Source, Words, bits};

/// Words in the FastLanes layout. A block of 1024 words is `bits` rows of 128 bytes with one word
/// for each lane. The `r`-th value of lane `l` is value `ORDER[r / 8] * 16 + r % 8 * 128 + l`, with
/// the order 0, 4, 2, 6, 1, 5, 3, 7.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// The blocks.
    pub buffer: &'a Buffer,
    /// Bits per value.
    pub bits: u32,
    /// The position in the first block of the first value to decode.
    pub first: usize,
}

impl<'a> Packed<'a> {
    /// The first three arguments of a job that unpacks `len` words of `width` bytes.
    fn args(self, len: usize, width: usize) -> Result<[JobArg<'a>; 3]> {
        let bytes = blocks_of(self.first, len).saturating_mul(ROW).saturating_mul(self.bits as usize);
        if self.first >= BLOCK || self.bits as usize > 8 * width {
            return Err(Error::internal(format!(
                "a kernel cannot unpack {} bits to words of {width} bytes, from value {} on",
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
    /// Unpacks words and applies `steps`.
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

    /// Like [`Self::unpack`], with `patches`. If `stepped` is set, `steps` are also applied to the
    /// patches. The returned cell has the position, in the list of indices, of the first invalid
    /// index. An index is invalid if it is out of range or not greater than the preceding index.
    /// After such an error, some patches may be missing.
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
        // There are a few more blocks than can run at the same time, which balances their run
        // times. There are not many more, because each warp must search for its first patch.
        let row = match words.width_bytes {
            1 => &UNPACK_PATCHED_1,
            2 => &UNPACK_PATCHED_2,
            4 => &UNPACK_PATCHED_4,
            _ => &UNPACK_PATCHED_8,
        };
        self.push(row, packed.blocks(words.len, 8), args.into_iter().chain(steps::args(steps)))?;
        Ok(cell)
    }

    /// Unpacks codes to words of `code_width` (1 or 2) bytes, applies `steps` to them, and writes
    /// the values that they refer to. The returned cell has the first valid code (`validity`:
    /// bitmap and its first bit) that is out of range; for codes out of range, zeros are written.
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
        if ![1, 2].contains(&code_width) || steps.iter().any(|step| !step.applies_to(code_width)) {
            return Err(Error::internal(format!(
                "the steps {steps:?} do not apply to codes of {code_width} bytes"
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
