//! Converts integers to another unit, and decimals to floats.

use crossdock_kernels::Rescale;

use crate::bits;
use crate::door::Args;
use crate::threads::{self, FirstWrong};

pub(crate) fn run(args: Args<'_>) -> Option<()> {
    match (args.index(1)?, args.index(7)?) {
        (4, 4) => rescale::<i32, i32>(&args),
        (4, 8) => rescale::<i32, i64>(&args),
        (8, 4) => rescale::<i64, i32>(&args),
        (8, 8) => rescale::<i64, i64>(&args),
        _ => None,
    }
}

/// A signed integer in a buffer.
trait Integer: Copy + Send + Sync {
    type Bytes: Copy + Send + Sync;
    fn load(bytes: Self::Bytes) -> i64;
    /// The lowest bytes of a number, and whether they represent it.
    fn store(number: i64) -> (Self::Bytes, bool);
    fn split(bytes: &[u8]) -> &[Self::Bytes];
    fn split_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Integer for $t {
            type Bytes = [u8; size_of::<$t>()];
            fn load(bytes: Self::Bytes) -> i64 {
                <$t>::from_ne_bytes(bytes).into()
            }
            fn store(number: i64) -> (Self::Bytes, bool) {
                ((number as $t).to_ne_bytes(), <$t>::try_from(number).is_ok())
            }
            fn split(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            fn split_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
        }
    )* };
}

integers!(i32, i64);

fn rescale<F: Integer, T: Integer>(args: &Args<'_>) -> Option<()> {
    let (from, validity, first) = (F::split(args.read(0)?), args.read(2)?, args.index(3)?);
    let (factor, mode) = (args.value(4)?.cast_signed(), Rescale::from_code(args.value(5)?)?);
    if factor <= 0 {
        return None;
    }
    let (to, wrong, rows) = (T::split_mut(args.write(6)?), FirstWrong::none(), threads::part_rows());
    let parts: Vec<_> = to.chunks_mut(rows).zip(from.chunks(rows)).enumerate().collect();
    threads::for_each(parts.into_iter(), |(part, (to, from))| {
        for (i, (to, from)) in to.iter_mut().zip(from).enumerate() {
            let (number, is_exact) = rescaled(F::load(*from), factor, mode);
            let (bytes, fits) = T::store(number);
            *to = bytes;
            if !(is_exact && fits) && bits::is_set(validity, first + part * rows + i) {
                wrong.note(part * rows + i);
            }
        }
    })?;
    args.report_wrong(8, wrong.get())
}

/// Returns the number in the other unit, and whether the conversion is allowed and fits.
fn rescaled(value: i64, factor: i64, mode: Rescale) -> (i64, bool) {
    match mode {
        Rescale::Multiply => (value.wrapping_mul(factor), value.checked_mul(factor).is_some()),
        Rescale::Divide => (value / factor, value % factor == 0),
        Rescale::Floor => (value.div_euclid(factor), true),
    }
}

pub(crate) fn decimal_to_float(args: Args<'_>) -> Option<()> {
    match args.index(1)? {
        4 => decimals::<4>(&args),
        8 => decimals::<8>(&args),
        16 => decimals::<16>(&args),
        32 => decimals::<32>(&args),
        _ => None,
    }
}

fn decimals<const N: usize>(args: &Args<'_>) -> Option<()> {
    let (from, factor, scale_up) = (args.read(0)?, f64::from_bits(args.value(2)?), args.value(3)? != 0);
    for (to, from) in args.write(4)?.as_chunks_mut().0.iter_mut().zip(from.as_chunks::<N>().0) {
        let value = to_float(from);
        *to = f64::to_ne_bytes(if scale_up { value * factor } else { value / factor });
    }
    Some(())
}

/// The float of a signed integer of at most 32 bytes, the lowest byte first.
fn to_float(bytes: &[u8]) -> f64 {
    let is_negative = bytes.last().is_some_and(|byte| byte >> 7 == 1);
    let mut extended = [if is_negative { 0xff } else { 0 }; 32];
    extended.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    let mut carry = is_negative;
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(extended.as_chunks::<8>().0) {
        let bits = u64::from_le_bytes(*bytes);
        (*word, carry) = if is_negative { (!bits).overflowing_add(carry.into()) } else { (bits, false) };
    }
    let value =
        words.iter().rev().fold(0.0, |value, word| value * 18_446_744_073_709_551_616.0 + *word as f64);
    if is_negative { -value } else { value }
}
