//! Combines timestamps from days, seconds and subseconds.

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::wide::{self, Work};
use super::words::check_len;

/// Seconds per day.
pub const SECONDS_PER_DAY: i64 = 86_400;

/// Number of timestamps that are combined at a time, so that they stay in the nearest cache.
const CHUNK: usize = 1024;

macro_rules! parts {
    ($($name:ident $t:ty),*) => {
        /// One part of each timestamp, as integers of any type.
        #[derive(Clone, Copy, Debug)]
        pub enum Part<'a> {
            $(
                #[doc = concat!("As `", stringify!($t), "`.")]
                $name(&'a [$t]),
            )*
        }

        impl Part<'_> {
            fn expect_len(self, len: usize) -> Result<()> {
                match self {
                    $( Part::$name(values) => check_len("timestamps: values of a part", len, values.len()), )*
                }
            }

            /// The minimum and maximum of `len` values from `from` on.
            fn bounds(self, from: usize, len: usize) -> (i128, i128) {
                match self {
                    $( Part::$name(values) => {
                        wide::run(Bounds, &values[from..from + len], &mut [])
                    } )*
                }
            }

            /// Multiplies the values from `from` on by `ticks`, and adds the products to the output
            /// modulo 2^64.
            fn add(self, from: usize, ticks: i64, out: &mut [i64]) {
                match self {
                    $( Part::$name(values) => wide::run(Ticks(ticks), &values[from..from + out.len()], out), )*
                }
            }
        }

        $(
            impl<'a> From<&'a [$t]> for Part<'a> {
                fn from(values: &'a [$t]) -> Self {
                    Part::$name(values)
                }
            }

            impl Work<$t, i64> for Ticks {
                #[inline(always)]
                fn run(self, part: &[$t], out: &mut [i64]) {
                    for (part, out) in part.iter().zip(out) {
                        *out = out.wrapping_add((*part as i64).wrapping_mul(self.0));
                    }
                }
            }

            impl Work<$t, (), (i128, i128)> for Bounds {
                #[inline(always)]
                fn run(self, part: &[$t], _: &mut [()]) -> (i128, i128) {
                    let (mut least, mut most) = (<$t>::MAX, <$t>::MIN);
                    for part in part {
                        (least, most) = (least.min(*part), most.max(*part));
                    }
                    (least.into(), most.into())
                }
            }
        )*
    };
}
parts!(I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64);

/// Ticks per unit of a part.
struct Ticks(i64);

/// Work that computes the minimum and maximum of a part.
struct Bounds;

/// Computes each timestamp as the sum of its parts, each multiplied by the number of ticks per unit
/// of the part. With `n` ticks per second, a day has `SECONDS_PER_DAY * n` ticks, a second has `n`,
/// and a subsecond is one tick.
///
/// # Errors
/// Returns an error if the sum of a non-null timestamp does not fit into an `i64`.
pub fn combine(parts: &[(Part<'_>, i64)], valid: Option<Bits<'_>>, out: &mut [i64]) -> Result<()> {
    for (part, _) in parts {
        part.expect_len(out.len())?;
    }
    if let Some(valid) = valid {
        valid.expect_len("timestamps: validity bits", out.len())?;
    }
    for (i, out) in out.chunks_mut(CHUNK).enumerate() {
        let from = i * CHUNK;
        let bounds = sums(parts, from, out.len());
        // The bounds include nulls, which may have any value. So if the bounds overflow, each sum
        // is checked individually.
        if !fits(bounds.0) || !fits(bounds.1) {
            for i in (from..from + out.len()).filter(|i| valid.is_none_or(|valid| valid.get(*i))) {
                let (sum, _) = sums(parts, i, 1);
                if !fits(sum) {
                    let text = format!("timestamps: the sum at index {i} does not fit into 64 bits: {sum}");
                    return Err(Error::bad_data(text));
                }
            }
        }
        out.fill(0);
        parts.iter().for_each(|(part, ticks)| part.add(from, *ticks, out));
    }
    Ok(())
}

/// Bounds of the sums of `len` values from `from` on.
fn sums(parts: &[(Part<'_>, i64)], from: usize, len: usize) -> (i128, i128) {
    parts.iter().fold((0i128, 0i128), |sum, (part, ticks)| {
        let ends = part.bounds(from, len);
        let ends = (ends.0.saturating_mul((*ticks).into()), ends.1.saturating_mul((*ticks).into()));
        (sum.0.saturating_add(ends.0.min(ends.1)), sum.1.saturating_add(ends.0.max(ends.1)))
    })
}

fn fits(sum: i128) -> bool {
    i64::try_from(sum).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn combines_the_parts_of_timestamps(
            stamps in proptest::collection::vec(any::<i64>(), 0..50), unit in 0usize..4
        ) {
            let second = [1, 1_000, 1_000_000, 1_000_000_000][unit];
            let day = SECONDS_PER_DAY * second;
            let days: Vec<i64> = stamps.iter().map(|t| t / day).collect();
            let seconds: Vec<i32> = stamps.iter().map(|t| (t % day / second) as i32).collect();
            let rest: Vec<i64> = stamps.iter().map(|t| t % day % second).collect();
            let mut out = vec![1; stamps.len()];
            combine(&[(days[..].into(), day), (seconds[..].into(), second), (rest[..].into(), 1)], None, &mut out).unwrap();
            prop_assert_eq!(out, stamps);
        }
    }

    #[test]
    fn adds_parts_of_every_type() {
        let mut out = [0; 2];
        let parts = [
            (Part::I8(&[-1, 1]), 1),
            (Part::I16(&[-2, 2]), 10),
            (Part::I32(&[-3, 3]), 100),
            (Part::I64(&[-4, 4]), 1_000),
            (Part::U8(&[200, 5]), 10_000),
            (Part::U16(&[40_000, 6]), 10_000_000),
            (Part::U32(&[3_000_000_000, 7]), 1_000_000_000),
            (Part::U64(&[0, 8]), 10_000_000_000),
            (Part::I64(&[9, 9]), 100_000_000_000),
        ];
        combine(&parts, None, &mut out).unwrap();
        let first =
            -4321 + 200 * 10_000 + 40_000 * 10_000_000 + 3_000_000_000 * 1_000_000_000 + 900_000_000_000;
        assert_eq!(out, [first, 987_060_054_321]);
    }

    #[test]
    fn rejects_overflowing_sums_unless_null() {
        let day = SECONDS_PER_DAY * 1_000_000_000;
        let days: &[i64] = &[1, 106_752, -3];
        let error =
            |parts: &[_], len| combine(parts, None, &mut vec![0; len]).unwrap_err().message().to_owned();
        let expected = format!(
            "timestamps: the sum at index 1 does not fit into 64 bits: {}",
            106_752 * i128::from(day)
        );
        assert_eq!(error(&[(days.into(), day)], 3), expected);
        let mut out = [0; 3];
        combine(&[(days.into(), day)], Some(Bits::new(&[0b101], 0, 3).unwrap()), &mut out).unwrap();
        assert_eq!([out[0], out[2]], [day, -3 * day]);
        let ends = [(Part::I64(&[i64::MAX]), 1), (Part::U8(&[1]), 1)];
        assert_eq!(
            error(&ends, 1),
            format!("timestamps: the sum at index 0 does not fit into 64 bits: {}", 1i128 << 63)
        );
        error(&[(Part::U64(&[u64::MAX]), 1)], 1);
        error(&[(Part::U64(&[u64::MAX]), i64::MAX); 5], 1);
        error(&[(Part::I64(&[i64::MIN]), -1)], 1);
        error(&[(Part::I64(&[0, i64::MIN]), 2)], 2);
        combine(&[(Part::I64(&[i64::MIN]), 1), (Part::I64(&[0]), i64::MAX)], None, &mut [0]).unwrap();
    }

    #[test]
    fn validity_applies_to_the_value_of_the_same_index() {
        let mut days: Vec<i64> = (0..3000).collect();
        let mut out = vec![0; 3000];
        days[2500] = i64::MAX;
        let parts = [(Part::I64(&days), 2)];
        let mut valid = vec![0xff; 375];
        assert!(combine(&parts, Some(Bits::new(&valid, 0, 3000).unwrap()), &mut vec![0; 3000]).is_err());
        valid[2500 / 8] = !(1 << (2500 % 8));
        combine(&parts, Some(Bits::new(&valid, 0, 3000).unwrap()), &mut out).unwrap();
        assert!((0..3000).all(|i| i == 2500 || out[i] == 2 * i as i64));
    }

    #[test]
    fn rejects_mismatched_lengths() {
        let part = [(Part::U8(&[0; 2]), 1)];
        assert!(combine(&part, None, &mut [0; 3]).is_err());
        assert!(combine(&part, Some(Bits::new(&[0], 0, 3).unwrap()), &mut [0; 2]).is_err());
    }
}
