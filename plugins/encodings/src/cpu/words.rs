//! Abstracts over integer types: unsigned words for values, and indices of any integer type.

use crossdock_plugin_api::{Error, Result};

/// Bytes of a row in the FastLanes layout, for words of every width.
pub(crate) const ROW_BYTES: usize = 128;

/// An unsigned integer. Signed values are handled as words of their width. All arithmetic wraps.
pub trait Word:
    Copy
    + Eq
    + Ord
    + Default
    + std::fmt::Debug
    + std::ops::Shl<u32, Output = Self>
    + std::ops::Shr<u32, Output = Self>
    + std::ops::BitAnd<Output = Self>
    + std::ops::BitOr<Output = Self>
    + std::ops::BitXor<Output = Self>
    + std::ops::Not<Output = Self>
    + Send
    + Sync
    + 'static
{
    /// The width in bits.
    const BITS: u32;
    /// Words per row of the FastLanes layout.
    const LANES: usize = ROW_BYTES / size_of::<Self>();
    /// The number 1.
    const ONE: Self;
    /// The sum modulo 2^BITS.
    fn plus(self, other: Self) -> Self;
    /// The difference modulo 2^BITS.
    fn minus(self, other: Self) -> Self;
    /// The product modulo 2^BITS.
    fn times(self, other: Self) -> Self;
    /// Truncates a number.
    fn low(of: u64) -> Self;
    /// Zero-extends to 64 bits.
    fn wide(self) -> u64;
    /// The number of bits without leading zeros.
    fn bits(self) -> u32 {
        u64::BITS - self.wide().leading_zeros()
    }
    /// Calls `visit` with each lane and its word. The row may be misaligned.
    fn each(row: &[u8; ROW_BYTES], visit: impl FnMut(usize, Self));
    /// [`each`](Self::each) for two rows at once.
    fn each_pair(row: &[u8; ROW_BYTES], next: &[u8; ROW_BYTES], visit: impl FnMut(usize, Self, Self));

    /// A word with its `width` lowest bits set. If `width` exceeds the width of the word, all bits
    /// are set.
    #[inline]
    fn mask(width: u32) -> Self {
        if width >= Self::BITS { !Self::default() } else { (Self::ONE << width).minus(Self::ONE) }
    }
}

macro_rules! words {
    ($($t:ty),*) => { $(
        impl Word for $t {
            const BITS: u32 = <$t>::BITS;
            const ONE: Self = 1;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn low(of: u64) -> Self {
                of as Self
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn each(row: &[u8; ROW_BYTES], mut visit: impl FnMut(usize, Self)) {
                let row = row.as_chunks().0;
                for lane in 0..Self::LANES {
                    visit(lane, Self::from_le_bytes(row[lane]));
                }
            }
            #[inline(always)]
            fn each_pair(
                row: &[u8; ROW_BYTES],
                next: &[u8; ROW_BYTES],
                mut visit: impl FnMut(usize, Self, Self),
            ) {
                let (row, next) = (row.as_chunks().0, next.as_chunks().0);
                for lane in 0..Self::LANES {
                    visit(lane, Self::from_le_bytes(row[lane]), Self::from_le_bytes(next[lane]));
                }
            }
        }
    )* };
}
words!(u8, u16, u32, u64);

/// An integer that counts or refers to values: a code, an index, the end of a run.
pub trait Index: Copy + Ord + Default + std::fmt::Display + Send + Sync + 'static {
    /// The value as an index. A negative or too large value becomes `usize::MAX`, which is never a
    /// valid index.
    fn index(self) -> usize;
    /// The value if `keep`, else 0.
    fn keep_if(self, keep: bool) -> Self;

    /// The greatest index; 0 for an empty slice.
    #[inline]
    fn greatest(of: &[Self]) -> usize {
        // The comparison uses the narrow type, because a vector has more lanes of a narrow type. A
        // negative value counts as `usize::MAX`.
        let zero = Self::default();
        let (min, max) = of.iter().fold((zero, zero), |(min, max), i| (min.min(*i), max.max(*i)));
        min.index().max(max.index())
    }
}

macro_rules! indices {
    ($($t:ty),*) => { $(
        impl Index for $t {
            #[inline(always)]
            fn index(self) -> usize {
                usize::try_from(self).unwrap_or(usize::MAX)
            }
            #[inline(always)]
            fn keep_if(self, keep: bool) -> Self {
                // The code has no branch, because the processor cannot predict validity well.
                self & Self::from(keep).wrapping_neg()
            }
        }
    )* };
}
indices!(u8, u16, u32, u64, i8, i16, i32, i64);

/// Fails if two lengths differ.
pub(crate) fn check_len(what: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::bad_data(format!("{what}: expected {expected}, got {got}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_index_becomes_the_largest_usize() {
        assert_eq!((-1i8).index(), usize::MAX);
        assert_eq!(i64::MIN.index(), usize::MAX);
        assert_eq!(200u8.index(), 200);
        assert_eq!(
            [i8::greatest(&[3, -1, 4]), i8::greatest(&[3, 4, 1]), u64::greatest(&[])],
            [usize::MAX, 4, 0]
        );
    }

    #[test]
    fn mask_has_at_most_the_bits_of_the_type() {
        assert_eq!([u8::mask(0), u8::mask(3), u8::mask(8), u8::mask(9)], [0, 7, 255, 255]);
        assert_eq!([u64::mask(1), u64::mask(63), u64::mask(64)], [1, u64::MAX >> 1, u64::MAX]);
    }
}
