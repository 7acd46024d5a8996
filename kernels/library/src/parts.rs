//! Combines values that are stored in parts: sums of integers times factors, and floats split into
//! two parts.

use crossdock_kernels::IntType;
use crossdock_kernels::limits::{FACTOR_LIMIT, MAX_LEFT_PARTS};

use crate::bits;
use crate::door::Args;
use crate::widen::integers;

pub(crate) fn sum(args: Args<'_>) -> Option<()> {
    const FIRST: usize = 4;
    let (to, validity, first) = (args.write(0)?.as_chunks_mut::<8>().0, args.read(1)?, args.index(2)?);
    let mut sums = vec![0i128; to.len()];
    for i in (FIRST..args.len()).step_by(3) {
        let (from, of) = (args.read(i)?, IntType::from_code(args.index(i + 1)?)?);
        let factor = args.value(i + 2).filter(|factor| *factor < FACTOR_LIMIT)?;
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
    args.report_wrong(3, sums.iter().enumerate().find(wrong).map(|(i, _)| i))
}

pub(crate) fn join(args: Args<'_>) -> Option<()> {
    const FIRST: usize = 9;
    let (codes, validity, first) = (args.read(0)?.as_chunks::<2>().0, args.read(1)?, args.index(2)?);
    let (rights, right_bits, has_dictionary) = (args.read(3)?, args.value(4)? as u32, args.value(5)? != 0);
    let (to, width) = (args.write(6)?, args.index(7)?);
    let lefts: Vec<u64> = (FIRST..args.len()).map(|i| args.value(i)).collect::<Option<_>>()?;
    let n = to.len().checked_div(width)?;
    let left_bits = (8 * width as u32).checked_sub(right_bits)?;
    if ![4, 8].contains(&width) || codes.len() < n || rights.len() / width < n || lefts.len() > MAX_LEFT_PARTS
    {
        return None;
    }
    let limit = if has_dictionary { lefts.len() as u64 } else { 1u64.checked_shl(left_bits)? };
    let mut first_wrong = None;
    let pairs = codes.iter().zip(rights.chunks_exact(width));
    for (i, (to, (code, right))) in to.chunks_exact_mut(width).zip(pairs).enumerate() {
        let code = u64::from(u16::from_ne_bytes(*code));
        let left = if has_dictionary {
            lefts.get(code as usize % MAX_LEFT_PARTS).copied().unwrap_or(0)
        } else {
            code
        };
        let mut word = [0; 8];
        word.iter_mut().zip(right).for_each(|(to, from)| *to = *from);
        let joined = left.checked_shl(right_bits)? | u64::from_le_bytes(word) & ((1 << right_bits) - 1);
        to.copy_from_slice(joined.to_le_bytes().get(..width)?);
        first_wrong = first_wrong.or((code >= limit && bits::is_set(validity, first + i)).then_some(i));
    }
    args.report_wrong(8, first_wrong)
}
