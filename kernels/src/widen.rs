//! Whole numbers in another width, with the sign that they have.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::bits;
use crate::jobs::{JobArg, blocks};
use crate::rows::{NARROW, WIDEN};
use crate::steps::{self, Step};
use crate::{Checks, IntType, Numbers, Words};

/// Whole numbers of any type that lie in a buffer from byte `at` on.
#[derive(Clone, Copy, Debug)]
pub struct Integers<'a> {
    /// Where they are.
    pub buffer: &'a Buffer,
    /// The byte at which they begin.
    pub at: usize,
    /// How many.
    pub len: usize,
    /// Of which type.
    pub of: IntType,
}

impl<'a> Integers<'a> {
    /// Those, and their type as widen.cuh has it.
    pub(crate) fn args(self) -> [JobArg<'a>; 2] {
        let width = self.of.width_bytes;
        let code = 2 * width as u64 + u64::from(self.of.signed);
        [JobArg::Read(self.buffer, self.at, self.len.saturating_mul(width)), JobArg::Value(code)]
    }

    /// Those, their width and whether they have a sign, an argument each.
    pub(crate) fn args_by_width(self) -> Result<[JobArg<'a>; 3]> {
        let Self { buffer, at, len, of: IntType { width_bytes, signed } } = self;
        let [read, width] = Numbers { buffer, at, len, width_bytes }.args()?;
        Ok([read, width, JobArg::Value(signed.into())])
    }
}

impl IntType {
    /// The type that a kernel was given as this argument.
    pub fn of_code(code: usize) -> Option<Self> {
        let of = Self { width_bytes: code / 2, signed: code % 2 == 1 };
        [1, 2, 4, 8, 16].contains(&of.width_bytes).then_some(of)
    }
}

impl<'a> Checks<'a> {
    /// Writes numbers of 1, 2, 4 or 8 bytes as words of as many: with their sign where those are wider, without their upper bits
    /// where they are not; each through `steps`.
    pub fn widen(
        &mut self,
        from: Integers<'a>,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
    ) -> Result<()> {
        words.check(steps)?;
        if !from.of.is_word() || from.len < words.len {
            return Err(Error::internal(format!("{from:?} are no {} words", words.len)));
        }
        self.push_widen(from, words.width_bytes, JobArg::write(to, words.at, words.bytes())?, steps)
    }

    /// Writes numbers to byte `at` of a buffer, of 16 bytes or of 32 (`to_width_bytes`) with their sign. They have 1, 2, 4 or 8
    /// bytes, or 16 and a sign where they get 32.
    pub fn widen_long(
        &mut self,
        from: Integers<'a>,
        to: &mut BufferMut,
        at: usize,
        to_width_bytes: usize,
    ) -> Result<()> {
        let longer = to_width_bytes == 32 && from.of == (IntType { width_bytes: 16, signed: true });
        if ![16, 32].contains(&to_width_bytes) || !(from.of.is_word() || longer) {
            return Err(Error::internal(format!("{:?} was to be made {to_width_bytes} bytes wide", from.of)));
        }
        let target = JobArg::write(to, at, from.len.saturating_mul(to_width_bytes))?;
        self.push_widen(from, to_width_bytes, target, &[])
    }

    fn push_widen(
        &mut self,
        from: Integers<'a>,
        width: usize,
        target: JobArg<'a>,
        steps: &[Step],
    ) -> Result<()> {
        let [read, code] = from.args();
        let args = [read, code, target, JobArg::Value(width as u64)];
        let bytes = from.len.saturating_mul(width.max(from.of.width_bytes));
        self.push(&WIDEN, blocks(bytes), args.into_iter().chain(steps::args(steps)))
    }

    /// Writes the lower halves of `len` numbers of 32 bytes, from byte `first` of `from` on. The cell says which was the first
    /// that 16 bytes do not hold and that is not null (`validity`: bitmap and its first bit).
    pub fn narrow(
        &mut self,
        from: &'a Buffer,
        first: usize,
        len: usize,
        validity: Option<(&'a Buffer, usize)>,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<usize> {
        let [bits, shift] = bits::optional_args(validity, len, from);
        let target = JobArg::write(to, at, len.saturating_mul(16))?;
        let cell = self.cells(1);
        let read = JobArg::Read(from, first, len.saturating_mul(32));
        self.push(
            &NARROW,
            blocks(len.saturating_mul(16)),
            [read, bits, shift, target, JobArg::Cells(cell, 1)],
        )?;
        Ok(cell)
    }
}

impl IntType {
    fn is_word(self) -> bool {
        [1, 2, 4, 8].contains(&self.width_bytes)
    }
}
