//! Converts integers to another width.

use crossdock_kernels::{IntType, Step};

use crate::bits;
use crate::door::Args;
use crate::steps::{self, Stepped, with_word};

/// Reads integers of any type.
pub(crate) fn integers(bytes: &[u8], of: IntType) -> Option<impl Iterator<Item = i128> + '_> {
    let number = move |bytes: &[u8]| {
        let sign = of.signed && bytes.last().is_some_and(|byte| byte >> 7 == 1);
        let mut number = [if sign { 0xff } else { 0 }; 16];
        number.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        i128::from_le_bytes(number)
    };
    (of.width_bytes > 0).then(|| bytes.chunks_exact(of.width_bytes).map(number))
}

pub(crate) fn widen(args: Args<'_>) -> Option<()> {
    let (from, of) = (args.read(0)?, IntType::from_code(args.index(1)?)?);
    let (to, width, steps) = (args.write(2)?, args.index(3)?, steps::from_args(&args, 4)?);
    if from.len() / of.width_bytes < to.len().checked_div(width)? {
        return None;
    }
    let numbers = integers(from, of)?;
    if ![16, 32].contains(&width) {
        return with_word!(width, T => each_stepped::<T>(numbers, to, &steps));
    }
    for (to, number) in to.chunks_exact_mut(width).zip(numbers) {
        let (low, high) = to.split_at_mut_checked(16)?;
        low.copy_from_slice(&number.to_ne_bytes());
        high.fill(if number < 0 { 0xff } else { 0 });
    }
    Some(())
}

fn each_stepped<T: Stepped>(
    numbers: impl Iterator<Item = i128>,
    to: &mut [u8],
    steps: &[Step],
) -> Option<()> {
    for (to, number) in to.chunks_exact_mut(size_of::<T>()).zip(numbers) {
        to.copy_from_slice(T::low(number as u64).steps(steps)?.store().as_ref());
    }
    Some(())
}

pub(crate) fn narrow(args: Args<'_>) -> Option<()> {
    let (from, validity, first) = (args.read(0)?, args.read(1)?, args.index(2)?);
    let to = args.write(3)?.as_chunks_mut::<16>().0.iter_mut();
    let mut first_wrong = None;
    for (i, (to, from)) in to.zip(from.as_chunks::<32>().0).enumerate() {
        let (low, high) = from.split_first_chunk::<16>()?;
        *to = *low;
        let sign = if i128::from_ne_bytes(*low) < 0 { 0xff } else { 0 };
        let fits = high.iter().all(|byte| *byte == sign);
        first_wrong = first_wrong.or((!fits && bits::is_set(validity, first + i)).then_some(i));
    }
    args.report_wrong(4, first_wrong)
}
