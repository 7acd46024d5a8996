//! Compares values with a literal.

use std::cmp::Ordering;
use std::ops::Range;

use crossdock_kernels::limits::VIEW_BYTES;
use crossdock_kernels::{Accept, ComparedType, NumberType};

use crate::bits;
use crate::door::Args;
use crate::half::half_to_f64;
use crate::threads::{self, FirstWrong};
use crate::words::with_offset_type;

/// The greatest length of a value that is stored in its view.
const MAX_INLINE: usize = 12;

/// Packs the bits of `rows`. The unused bits become 0.
fn pack(to: &mut [u8], mut rows: Range<usize>, bit: impl Fn(usize) -> bool) {
    for byte in to {
        let first = rows.start;
        rows.start = rows.end.min(first + 8);
        *byte = (first..rows.start).rfold(0, |byte, row| byte << 1 | u8::from(bit(row)));
    }
}

/// Writes the bits of values, part by part.
fn write_bits<T: Sync>(to: &mut [u8], values: &[T], accepts: impl Fn(&T) -> bool + Sync) -> Option<()> {
    let rows = threads::part_rows();
    threads::for_each(to.chunks_mut(rows / 8).enumerate(), |(part, to)| {
        let values = values.get(part * rows..).unwrap_or(&[]);
        let (eights, rest) = values.as_chunks::<8>();
        let (whole, others) = to.split_at_mut(eights.len().min(to.len()));
        for (to, values) in whole.iter_mut().zip(eights) {
            // The product has the lowest bit of byte `i` at bit `56 + i`. The compiler can
            // vectorize this, but not a loop over bits.
            let bytes = values.each_ref().map(|value| u8::from(accepts(value)));
            *to = (u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
        }
        pack(others, 0..rest.len(), |i| rest.get(i).is_some_and(&accepts));
    })
}

pub(crate) fn numbers(args: Args<'_>) -> Option<()> {
    let (from, code) = (args.read(0)?, args.value(1)?);
    let of = ComparedType::all().find(|of| of.code() == code)?;
    let mut literal = [0; 4];
    for (i, word) in literal.iter_mut().enumerate() {
        *word = args.value(2 + i)?;
    }
    let (accept, to) = (Accept::from_bits(args.value(6)?), args.write(7)?);
    let [low, ..] = literal;
    /// Compares the numbers of a type after converting them to the type of the literal.
    macro_rules! compare {
        ($t:ty, $literal:expr) => {{
            let literal = $literal;
            let [less, equal, greater, unordered] =
                [Accept::LESS, Accept::EQUAL, Accept::GREATER, Accept::UNORDERED]
                    .map(|of| accept.includes(of));
            // Without branches, which could not be predicted.
            write_bits(to, from.as_chunks().0, |bytes: &[u8; size_of::<$t>()]| {
                let value = <$t>::from_ne_bytes(*bytes).wide_to(&literal);
                let (is_less, is_equal, is_greater) = (value < literal, value == literal, value > literal);
                let is_unordered = !(is_less | is_equal | is_greater);
                is_less & less | is_equal & equal | is_greater & greater | is_unordered & unordered
            })
        }};
    }
    match of {
        ComparedType::Number(NumberType::Int8) => compare!(i8, low as i64),
        ComparedType::Number(NumberType::Int16) => compare!(i16, low as i64),
        ComparedType::Number(NumberType::Int32) => compare!(i32, low as i64),
        ComparedType::Number(NumberType::Int64) => compare!(i64, low as i64),
        ComparedType::Number(NumberType::UInt8) => compare!(u8, low),
        ComparedType::Number(NumberType::UInt16) => compare!(u16, low),
        ComparedType::Number(NumberType::UInt32) => compare!(u32, low),
        ComparedType::Number(NumberType::UInt64) => compare!(u64, low),
        ComparedType::Number(NumberType::Float32) => compare!(f32, f64::from_bits(low)),
        ComparedType::Number(NumberType::Float64) => compare!(f64, f64::from_bits(low)),
        ComparedType::Number(NumberType::Float16) => {
            let literal = f64::from_bits(low);
            let value = |bytes: &[u8; 2]| half_to_f64(u16::from_ne_bytes(*bytes));
            let accepts = |bytes: &[u8; 2]| accept.accepts(value(bytes).partial_cmp(&literal));
            write_bits(to, from.as_chunks().0, accepts)
        }
        ComparedType::Int128 => wide::<16, 2>(from, literal, accept, to),
        ComparedType::Int256 => wide::<32, 4>(from, literal, accept, to),
    }
}

/// Converts a number to the type of the literal.
trait WideTo<T> {
    fn wide_to(self, literal: &T) -> T;
}

macro_rules! wide_to {
    ($($t:ty => $wide:ty),*) => { $(
        impl WideTo<$wide> for $t {
            #[inline]
            fn wide_to(self, _: &$wide) -> $wide {
                self.into()
            }
        }
    )* };
}

wide_to!(i8 => i64, i16 => i64, i32 => i64, i64 => i64, u8 => u64, u16 => u64, u32 => u64, u64 => u64, f32 => f64, f64 => f64);

/// Compares signed integers of `N` bytes, which are `WORDS` words, the lowest word first.
fn wide<const N: usize, const WORDS: usize>(
    from: &[u8],
    literal: [u64; 4],
    accept: Accept,
    to: &mut [u8],
) -> Option<()> {
    let order = |bytes: &[u8; N]| {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut order = Ordering::Equal;
        for (i, (word, literal)) in words.zip(literal).enumerate() {
            let of_word = match i + 1 == WORDS {
                true => word.cast_signed().cmp(&literal.cast_signed()),
                false => word.cmp(&literal),
            };
            order = of_word.then(order);
        }
        accept.accepts(Some(order))
    };
    write_bits(to, from.as_chunks().0, order)
}

pub(crate) fn bytes(args: Args<'_>) -> Option<()> {
    let (offsets, width, size, len) = (args.read(0)?, args.index(1)?, args.index(2)?, args.index(3)?);
    let (data, validity, first) = (args.read(4)?, args.read(5)?, args.index(6)?);
    let (accept, to, wrong) = (accepts_bytes(&args, 7)?, args.write(9)?, FirstWrong::none());
    let rows = threads::part_rows();
    let accepts = |i: usize, value: Option<&[u8]>| {
        if value.is_none() && bits::is_set(validity, first + i) {
            wrong.note(i);
        }
        value.is_some_and(&accept)
    };
    let parts = to.chunks_mut(rows / 8).enumerate();
    let parts = parts.map(|(part, to)| (part * rows..len.min((part + 1) * rows), to));
    if width == 0 {
        let value = |i: usize| data.get(i.checked_mul(size)?..(i + 1).checked_mul(size)?);
        threads::for_each(parts, |(rows, to)| pack(to, rows, |i| accepts(i, value(i))))?;
    } else {
        with_offset_type!(width, T => {
            let offsets = offsets.as_chunks().0.get(..=len)?;
            // A negative offset becomes a large one, which is outside of the data.
            let of = |i: usize| offsets.get(i).map_or(usize::MAX, |offset| T::from_ne_bytes(*offset) as usize);
            threads::for_each(parts, |(rows, to)| pack(to, rows, |i| accepts(i, data.get(of(i)..of(i + 1)))))
        })??;
    }
    args.report_wrong(10, wrong.get())
}

/// Whether bytes are accepted: the literal is argument `at`, and the accepted results are the next.
fn accepts_bytes<'a>(args: &Args<'a>, at: usize) -> Option<impl Fn(&[u8]) -> bool + Sync + use<'a>> {
    let (literal, accept) = (args.read(at)?, Accept::from_bits(args.value(at + 1)?));
    let [less, equal, greater] = [Accept::LESS, Accept::EQUAL, Accept::GREATER].map(|of| accept.includes(of));
    Some(move |value: &[u8]| {
        // Values of another length differ, so their bytes need not be read.
        if less == greater {
            if value == literal { equal } else { less }
        } else {
            accept.accepts(Some(value.cmp(literal)))
        }
    })
}

pub(crate) fn views(args: Args<'_>) -> Option<()> {
    const DATA: usize = 9;
    let (views, validity, first) = (args.read(0)?, args.read(1)?, args.index(2)?);
    let accepts = accepts_bytes(&args, 3)?;
    let (n_data, window, to) = (args.index(5)?, args.index(6)?, args.write(7)?);
    let data: Vec<&[u8]> = (DATA..args.len()).map(|i| args.read(i)).collect::<Option<_>>()?;
    let mut first_wrong = None;
    for (i, view) in views.as_chunks::<VIEW_BYTES>().0.iter().enumerate() {
        let word = |k: usize| view.as_chunks::<4>().0.get(k).map_or(0, |word| u32::from_ne_bytes(*word));
        let (len, buffer, offset) = (word(0).cast_signed(), word(2) as usize, word(3) as usize);
        let value = match usize::try_from(len) {
            Ok(len) if len <= MAX_INLINE => {
                if window != 0 {
                    continue;
                }
                view.get(4..4 + len)
            }
            Ok(len) if buffer < n_data => match buffer.checked_sub(window).and_then(|k| data.get(k)) {
                Some(data) => data.get(offset..offset + len),
                None => continue,
            },
            _ => None,
        };
        if value.is_none() && bits::is_set(validity, first + i) {
            first_wrong = first_wrong.or(Some(i));
        }
        let is_accepted = value.is_some_and(&accepts);
        if let Some(byte) = to.get_mut(i / 8) {
            *byte |= u8::from(is_accepted) << (i % 8);
        }
    }
    args.report_wrong(8, first_wrong)
}
