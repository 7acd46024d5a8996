//! Converts numbers between types.

use crossdock_kernels::NumberType;

use crate::door::Args;
use crate::half::{half_from_f64, half_to_f64};

/// The Rust type of each number type.
macro_rules! number_types {
    ($($variant:ident $t:ty),* $(,)?) => {
        fn convert(args: &Args<'_>, from: NumberType, to: NumberType) -> Option<()> {
            match from { $(NumberType::$variant => {
                let numbers = args.read(0)?.as_chunks().0.iter();
                write_as(args, numbers.map(|word| <$t as Number>::load(*word)), to)
            })* }
        }

        fn first_difference(a: &[u8], b: &[u8], of: NumberType) -> Option<usize> {
            match of { $(NumberType::$variant => {
                let (a, b) = (a.as_chunks().0.iter(), b.as_chunks().0.iter());
                a.zip(b).position(|(a, b)| !<$t as Number>::load(*a).equals(<$t as Number>::load(*b)))
            })* }
        }

        fn write_as(args: &Args<'_>, from: impl Iterator<Item = Any>, to: NumberType) -> Option<()> {
            match to { $(NumberType::$variant => {
                let mut first_wrong = None;
                let target = args.write(2)?.as_chunks_mut().0.iter_mut();
                for (i, (to, number)) in target.zip(from).enumerate() {
                    let (value, fits) = <$t as Number>::from_any(number);
                    *to = value.store();
                    first_wrong = first_wrong.or((!fits).then_some(i));
                }
                args.report_wrong(4, first_wrong)
            })* }
        }
    };
}

number_types!(
    Int8 i8,
    Int16 i16,
    Int32 i32,
    Int64 i64,
    UInt8 u8,
    UInt16 u16,
    UInt32 u32,
    UInt64 u64,
    Float16 Half,
    Float32 f32,
    Float64 f64,
);

pub(crate) fn run(args: Args<'_>) -> Option<()> {
    let number_type = |i: usize| NumberType::ALL.get(args.index(i)?).copied();
    convert(&args, number_type(1)?, number_type(3)?)
}

pub(crate) fn check_equal(args: Args<'_>) -> Option<()> {
    let of = *NumberType::ALL.get(args.index(2)?)?;
    args.report_wrong(3, first_difference(args.read(0)?, args.read(1)?, of))
}

/// A number of any type.
#[derive(Clone, Copy)]
enum Any {
    Integer(i128),
    Float(f64),
}

impl Any {
    /// Whether the numbers are equal: -0 equals 0, and NaN equals nothing.
    fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            _ => false,
        }
    }
}

/// The bits of a float of 2 bytes.
#[derive(Clone, Copy)]
struct Half(u16);

trait Number: Sized {
    type Bytes;
    fn load(bytes: Self::Bytes) -> Any;
    fn store(self) -> Self::Bytes;
    /// Converts a number. Also returns whether the target type can represent the number, apart from
    /// rounding.
    fn from_any(any: Any) -> (Self, bool);
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Number for $t {
            type Bytes = [u8; size_of::<$t>()];
            fn load(bytes: Self::Bytes) -> Any {
                Any::Integer(i128::from(<$t>::from_ne_bytes(bytes)))
            }
            fn store(self) -> Self::Bytes {
                self.to_ne_bytes()
            }
            fn from_any(any: Any) -> (Self, bool) {
                match any {
                    Any::Integer(n) => (n as $t, <$t>::try_from(n).is_ok()),
                    Any::Float(x) => (x as $t, x.trunc() >= <$t>::MIN as f64 && x.trunc() < above::<$t>()),
                }
            }
        }
        impl Above for $t {
            fn above() -> f64 {
                (<$t>::MAX as u128 + 1) as f64
            }
        }
    )* };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// One more than the maximum of an integer type. This bound is a power of two, so `f64` represents
/// it exactly.
trait Above {
    fn above() -> f64;
}

fn above<T: Above>() -> f64 {
    T::above()
}

/// Replaces every NaN by one quiet NaN, so that the result has the same bits on all devices.
fn quiet(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(0x7ff8 << 48) } else { x }
}

impl Number for f64 {
    type Bytes = [u8; 8];
    fn load(bytes: [u8; 8]) -> Any {
        Any::Float(quiet(f64::from_ne_bytes(bytes)))
    }
    fn store(self) -> [u8; 8] {
        self.to_ne_bytes()
    }
    fn from_any(any: Any) -> (Self, bool) {
        match any {
            Any::Integer(n) => (n as f64, true),
            Any::Float(x) => (x, true),
        }
    }
}

impl Number for f32 {
    type Bytes = [u8; 4];
    fn load(bytes: [u8; 4]) -> Any {
        Any::Float(quiet(f32::from_ne_bytes(bytes).into()))
    }
    fn store(self) -> [u8; 4] {
        self.to_ne_bytes()
    }
    fn from_any(any: Any) -> (Self, bool) {
        match any {
            Any::Integer(n) => (n as f32, true),
            Any::Float(x) if x.is_nan() => (f32::from_bits(0x7fc0 << 16), true),
            Any::Float(x) => (x as f32, (x as f32).is_infinite() == x.is_infinite()),
        }
    }
}

impl Number for Half {
    type Bytes = [u8; 2];
    fn load(bytes: [u8; 2]) -> Any {
        Any::Float(half_to_f64(u16::from_ne_bytes(bytes)))
    }
    fn store(self) -> [u8; 2] {
        self.0.to_ne_bytes()
    }
    fn from_any(any: Any) -> (Self, bool) {
        // `f64` rounds only integers that are far beyond the range of a half, so the result stays
        // correct.
        let (x, _) = f64::from_any(any);
        let half = half_from_f64(x);
        (Self(half), half & 0x7fff != 0x7c00 || x.is_infinite())
    }
}
