//! Whole numbers of buffers: unsigned words that carry values, and indices of any integer type.

use crossdock_plugin_api::{Error, Result};

/// A row of words in the FastLanes layout, whatever their width.
pub(crate) const ROW_BYTES: usize = 128;

/// An unsigned integer. Signed values are worked on as the words of their width: all arithmetic here wraps.
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
    /// Its width.
    const BITS: u32;
    /// How many of them a row of the FastLanes layout holds.
    const LANES: usize = ROW_BYTES / size_of::<Self>();
    /// 1.
    const ONE: Self;
    /// The sum modulo 2^BITS.
    fn plus(self, other: Self) -> Self;
    /// The difference modulo 2^BITS.
    fn minus(self, other: Self) -> Self;
    /// The product modulo 2^BITS.
    fn times(self, other: Self) -> Self;
    /// The lowest bits of a number.
    fn low(of: u64) -> Self;
    /// The same number.
    #[cfg(test)]
    fn wide(self) -> u64;
    /// Visits the words of a row, which may lie at any address, with their lanes.
    fn each(row: &[u8; ROW_BYTES], visit: impl FnMut(usize, Self));
    /// The same for two rows at once.
    fn each_pair(row: &[u8; ROW_BYTES], next: &[u8; ROW_BYTES], visit: impl FnMut(usize, Self, Self));

    /// A word whose `width` lowest bits are set; all, where there are no more.
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
            #[cfg(test)]
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

/// An integer that counts or names something: a code, an index, the end of a run.
pub trait Index: Copy + Ord + Default + std::fmt::Display + Send + Sync + 'static {
    /// Its value; the greatest where it is negative or too great, which nothing has so many of.
    fn index(self) -> usize;
    /// The same, or 0 where `keep` is false.
    fn if_kept(self, keep: bool) -> Self;

    /// The greatest value of some, 0 of none.
    #[inline]
    fn greatest(of: &[Self]) -> usize {
        // In their own type, of which a vector holds most; one that is negative counts as the greatest there is.
        let zero = Self::default();
        let (least, most) = of.iter().fold((zero, zero), |(least, most), i| (least.min(*i), most.max(*i)));
        least.index().max(most.index())
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
            fn if_kept(self, keep: bool) -> Self {
                // No branch: what is null comes as it will.
                self & Self::from(keep).wrapping_neg()
            }
        }
    )* };
}
indices!(u8, u16, u32, u64, i8, i16, i32, i64);

/// Refuses two things that must be equally long and are not.
pub(crate) fn same_len(what: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::bad_data(format!("{what}: expected {expected}, got {got}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_is_negative_names_nothing() {
        assert_eq!((-1i8).index(), usize::MAX);
        assert_eq!(i64::MIN.index(), usize::MAX);
        assert_eq!(200u8.index(), 200);
        assert_eq!(
            [i8::greatest(&[3, -1, 4]), i8::greatest(&[3, 4, 1]), u64::greatest(&[])],
            [usize::MAX, 4, 0]
        );
    }

    #[test]
    fn a_mask_has_as_many_bits_as_asked_for_and_no_more_than_there_are() {
        assert_eq!([u8::mask(0), u8::mask(3), u8::mask(8), u8::mask(9)], [0, 7, 255, 255]);
        assert_eq!([u64::mask(1), u64::mask(63), u64::mask(64)], [1, u64::MAX >> 1, u64::MAX]);
    }
}
