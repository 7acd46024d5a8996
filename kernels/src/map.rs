//! Applies steps to words and to arithmetic sequences.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::Checks;
use crate::jobs::{JobArg, blocks, half_wave_blocks};
use crate::rows::{MAP, SEQUENCE};
use crate::steps::{self, Step};

/// A range of words in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The byte at which the words begin.
    pub at: usize,
    /// The number of words.
    pub len: usize,
    /// Bytes per word: 1, 2, 4 or 8.
    pub width_bytes: usize,
}

impl Words {
    pub(crate) fn bytes(self) -> usize {
        self.len.saturating_mul(self.width_bytes)
    }

    pub(crate) fn check(self, steps: &[Step]) -> Result<()> {
        let width = self.width_bytes;
        match steps.iter().find(|step| !step.applies_to(width)) {
            _ if ![1, 2, 4, 8].contains(&width) => {
                Err(Error::internal(format!("a kernel cannot process words of {width} bytes")))
            }
            Some(step) => {
                Err(Error::internal(format!("the step {step:?} does not apply to words of {width} bytes")))
            }
            None => Ok(()),
        }
    }
}

impl<'a> Checks<'a> {
    /// Applies `steps` to the words from byte `at` of `from` on, and writes them.
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

    /// Computes `base + i * step` for each `i`, applies `steps` to the sums, and writes the
    /// results. Sums and products wrap.
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
        self.push(&SEQUENCE, half_wave_blocks(words.bytes()), args.into_iter().chain(steps::args(steps)))
    }
}
