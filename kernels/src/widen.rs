//! Converts integers to another width.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::bits;
use crate::jobs::{JobArg, blocks};
use crate::rows::{NARROW, WIDEN};
use crate::steps::{self, Step};
use crate::{Checks, IntType, Numbers, Words};

/// Integers of any type in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Integers<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// The byte at which the integers begin.
    pub at: usize,
    /// The number of integers.
    pub len: usize,
    /// The type of the integers.
    pub of: IntType,
}

impl<'a> Integers<'a> {
    /// The integers as two arguments: bytes, and the type code of `widen.cuh`.
    pub(crate) fn args(self) -> [JobArg<'a>; 2] {
        let width = self.of.width_bytes;
        let code = 2 * width as u64 + u64::from(self.of.signed);
        [JobArg::Read(self.buffer, self.at, self.len.saturating_mul(width)), JobArg::Value(code)]
    }

    /// The integers as three arguments: bytes, width and signedness.
    pub(crate) fn args_by_width(self) -> Result<[JobArg<'a>; 3]> {
        let Self { buffer, at, len, of: IntType { width_bytes, signed } } = self;
        let [read, width] = Numbers { buffer, at, len, width_bytes }.args()?;
        Ok([read, width, JobArg::Value(signed.into())])
    }
}

impl IntType {
    /// The type of a kernel's argument.
    pub fn from_code(code: usize) -> Option<Self> {
        let of = Self { width_bytes: code / 2, signed: code % 2 == 1 };
        [1, 2, 4, 8, 16].contains(&of.width_bytes).then_some(of)
    }
}

impl<'a> Checks<'a> {
    /// Converts integers of 1, 2, 4 or 8 bytes to words of 1, 2, 4 or 8 bytes by sign extension or
    /// truncation, applies `steps`, and writes the words.
    pub fn widen(
        &mut self,
        from: Integers<'a>,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
    ) -> Result<()> {
        words.check(steps)?;
        if !from.of.is_word() || from.len < words.len {
            return Err(Error::internal(format!("{from:?} does not have {} words", words.len)));
        }
        self.push_widen(from, words.width_bytes, JobArg::write(to, words.at, words.bytes())?, steps)
    }

    /// Extends integers to 16 or 32 bytes (`to_width_bytes`), and writes them from byte `at` of
    /// `to` on. The integers have 1, 2, 4 or 8 bytes. Signed integers of 16 bytes can also be
    /// extended to 32 bytes.
    pub fn widen_long(
        &mut self,
        from: Integers<'a>,
        to: &mut BufferMut,
        at: usize,
        to_width_bytes: usize,
    ) -> Result<()> {
        let longer = to_width_bytes == 32 && from.of == (IntType { width_bytes: 16, signed: true });
        if ![16, 32].contains(&to_width_bytes) || !(from.of.is_word() || longer) {
            return Err(Error::internal(format!(
                "a kernel cannot convert {:?} to {to_width_bytes} bytes",
                from.of
            )));
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

    /// Writes the lower halves of `len` integers of 32 bytes, from byte `first` of `from` on. The
    /// returned cell has the first valid integer (`validity`: bitmap and its first bit) that does
    /// not fit into 16 bytes.
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
