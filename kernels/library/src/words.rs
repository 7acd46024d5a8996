//! Reads integers from buffers: native byte order, any alignment.

/// An integer type in a buffer.
pub(crate) trait Word: Copy + Ord + 'static {
    /// All complete integers in `bytes`.
    fn all(bytes: &[u8]) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone + '_;
    /// Converts to `i64`; a greater value becomes `i64::MAX`.
    fn wide(self) -> i64;
}

macro_rules! words {
    ($($t:ty),*) => { $(
        impl Word for $t {
            #[inline]
            fn all(bytes: &[u8]) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone + '_ {
                bytes.as_chunks::<{ size_of::<$t>() }>().0.iter().map(|word| <$t>::from_ne_bytes(*word))
            }
            #[inline]
            fn wide(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )* };
}

words!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Evaluates `$body` with `$t` as the signed type of `$width` bytes, 4 or 8; `None` for other
/// widths.
macro_rules! with_offset_type {
    ($width:expr, $t:ident => $body:expr) => {
        match $width {
            4 => {
                type $t = i32;
                Some($body)
            }
            8 => {
                type $t = i64;
                Some($body)
            }
            _ => None,
        }
    };
}

pub(crate) use with_offset_type;

/// Reads integers of any type; see [`Word::wide`].
pub(crate) fn integers(bytes: &[u8], width: usize, signed: bool) -> Option<Vec<i64>> {
    let mut all = vec![0; bytes.len().checked_div(width)?];
    read_integers(bytes, width, signed, &mut all)?;
    Some(all)
}

/// Like [`integers`], for as many integers as `to` has.
pub(crate) fn read_integers(bytes: &[u8], width: usize, signed: bool, to: &mut [i64]) -> Option<()> {
    fn all<T: Word>(bytes: &[u8], to: &mut [i64]) {
        to.iter_mut().zip(T::all(bytes)).for_each(|(to, word)| *to = word.wide());
    }
    match (width, signed) {
        (1, true) => all::<i8>(bytes, to),
        (2, true) => all::<i16>(bytes, to),
        (4, true) => all::<i32>(bytes, to),
        (8, true) => all::<i64>(bytes, to),
        (1, false) => all::<u8>(bytes, to),
        (2, false) => all::<u16>(bytes, to),
        (4, false) => all::<u32>(bytes, to),
        (8, false) => all::<u64>(bytes, to),
        _ => return None,
    }
    Some(())
}
