//! Words that are there, and words that count up, each through steps.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::Checks;
use crate::door::Args;
use crate::jobs::{JobArg, blocks, half_wave_blocks};
use crate::steps::{self, Step, Stepped, with_word};
use crate::table::kernel;

kernel!(MAP, c"crossdock_map", (from: Read, to: Write, width: Value), [step: Value, operand: Value], map);
kernel!(
    SEQUENCE,
    c"crossdock_sequence",
    (base: Value, step: Value, to: Write, width: Value),
    [step: Value, operand: Value],
    sequence
);

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

    pub(crate) fn check(self, steps: &[Step]) -> Result<()> {
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

impl<'a> Checks<'a> {
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
        self.push(&SEQUENCE, half_wave_blocks(words.bytes()), args.into_iter().chain(steps::args(steps)))
    }
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
