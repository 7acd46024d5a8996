//! Values that lie in parts: sums of whole numbers times factors, and floats cut in two.

use crossdock_kernels::IntType;
use crossdock_kernels::limits::{MOST_FACTOR, MOST_LEFTS};

use crate::bits;
use crate::door::Args;
use crate::widen::integers;

pub(crate) fn sum(args: Args<'_>) -> Option<()> {
    const FIRST: usize = 4;
    let (to, validity, first) = (args.write(0)?.as_chunks_mut::<8>().0, args.read(1)?, args.index(2)?);
    let mut sums = vec![0i128; to.len()];
    for i in (FIRST..args.len()).step_by(3) {
        let (from, of) = (args.read(i)?, IntType::of_code(args.index(i + 1)?)?);
        let factor = args.value(i + 2).filter(|factor| *factor < MOST_FACTOR)?;
        if of.width_bytes > 8 || from.len() / of.width_bytes < to.len() {
            return None;
        }
        for (sum, number) in sums.iter_mut().zip(integers(from, of)?) {
            *sum = sum.wrapping_add(number.wrapping_mul(factor.into()));
        }
    }
    to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = (*sum as i64).to_ne_bytes());
    let wrong =
        |(i, sum): &(usize, &i128)| i64::try_from(**sum).is_err() && bits::is_set(validity, first + i);
    args.found(3, sums.iter().enumerate().find(wrong).map(|(i, _)| i))
}

pub(crate) fn join(args: Args<'_>) -> Option<()> {
    const FIRST: usize = 9;
    let (codes, validity, first) = (args.read(0)?.as_chunks::<2>().0, args.read(1)?, args.index(2)?);
    let (rights, right_bits, named) = (args.read(3)?, args.value(4)? as u32, args.value(5)? != 0);
    let (to, width) = (args.write(6)?, args.index(7)?);
    let lefts: Vec<u64> = (FIRST..args.len()).map(|i| args.value(i)).collect::<Option<_>>()?;
    let n = to.len().checked_div(width)?;
    let left_bits = (8 * width as u32).checked_sub(right_bits)?;
    if ![4, 8].contains(&width) || codes.len() < n || rights.len() / width < n || lefts.len() > MOST_LEFTS {
        return None;
    }
    let limit = if named { lefts.len() as u64 } else { 1u64.checked_shl(left_bits)? };
    let mut found = None;
    let pairs = codes.iter().zip(rights.chunks_exact(width));
    for (i, (to, (code, right))) in to.chunks_exact_mut(width).zip(pairs).enumerate() {
        let code = u64::from(u16::from_ne_bytes(*code));
        let left = if named { lefts.get(code as usize % MOST_LEFTS).copied().unwrap_or(0) } else { code };
        let mut word = [0; 8];
        word.iter_mut().zip(right).for_each(|(to, from)| *to = *from);
        let joined = left.checked_shl(right_bits)? | u64::from_le_bytes(word) & ((1 << right_bits) - 1);
        to.copy_from_slice(joined.to_le_bytes().get(..width)?);
        found = found.or((code >= limit && bits::is_set(validity, first + i)).then_some(i));
    }
    args.found(8, found)
}
