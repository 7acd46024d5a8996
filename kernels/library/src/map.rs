//! Applies steps to words and to arithmetic sequences.

use crossdock_kernels::Step;

use crate::door::Args;
use crate::steps::{self, Stepped, with_word};

pub(crate) fn map(args: Args<'_>) -> Option<()> {
    let (from, to, width, steps) =
        (args.read(0)?, args.write(1)?, args.index(2)?, steps::from_args(&args, 3)?);
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

pub(crate) fn sequence(args: Args<'_>) -> Option<()> {
    let (base, step) = (args.value(0)?, args.value(1)?);
    let (to, width, steps) = (args.write(2)?, args.index(3)?, steps::from_args(&args, 4)?);
    with_word!(width, T => write_sequence::<T>(base, step, to, &steps))
}

fn write_sequence<T: Stepped>(base: u64, step: u64, to: &mut [u8], steps: &[Step]) -> Option<()> {
    for (i, to) in (0u64..).zip(to.chunks_exact_mut(size_of::<T>())) {
        let word = T::low(base.wrapping_add(step.wrapping_mul(i)));
        to.copy_from_slice(word.steps(steps)?.store().as_ref());
    }
    Some(())
}
