//! Whether texts are UTF-8: every value by itself, for they are handed out as texts one by one.

use std::ops::Range;

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::words::Index;

/// Checks values that lie one after the other, of `lengths` bytes each, and are all of `data`. Nulls may hold anything.
pub fn by_lengths<L: Index>(lengths: &[L], data: &[u8], validity: Option<Bits<'_>>) -> Result<()> {
    let ranges = || {
        lengths.iter().scan(0usize, |end, length| {
            let begin = *end;
            *end = begin.saturating_add(length.index());
            Some(begin..*end)
        })
    };
    check(ranges, lengths.len(), 0..data.len(), data, validity)
}

/// Checks values that lie between offsets into `data`. Nulls, and what lies outside of all values, may hold anything.
pub fn by_offsets<O: Index>(offsets: &[O], data: &[u8], validity: Option<Bits<'_>>) -> Result<()> {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::bad_data("no offsets, expected one at least"));
    };
    let ranges = || offsets.windows(2).map(|pair| pair[0].index()..pair[1].index());
    check(ranges, offsets.len() - 1, first.index()..last.index(), data, validity)
}

fn check<R: Iterator<Item = Range<usize>>>(
    ranges: impl Fn() -> R,
    count: usize,
    all: Range<usize>,
    data: &[u8],
    validity: Option<Bits<'_>>,
) -> Result<()> {
    if let Some(validity) = validity {
        validity.must_be("validity of texts", count)?;
    }
    let text = data.get(all).unwrap_or_default();
    let is_within = |range: Range<usize>| range.start <= range.end && range.end <= data.len();
    // If all bytes together are, then each value is that begins with a character: the one before it ends there. Of ASCII each
    // byte is one.
    let begins = |range: &Range<usize>| data.get(range.start).is_none_or(|byte| byte & 0xc0 != 0x80);
    let is_fine = match text.is_ascii() {
        // Without an early end, so that the compiler takes many at once.
        true => ranges().fold(true, |fine, range| fine & is_within(range)),
        false => {
            std::str::from_utf8(text).is_ok() && ranges().all(|range| begins(&range) && is_within(range))
        }
    };
    if is_fine {
        return Ok(());
    }
    for (i, range) in ranges().enumerate() {
        let value = data.get(range.clone()).ok_or_else(|| outside(i, range, data.len()))?;
        if validity.is_none_or(|validity| validity.get(i))
            && let Err(e) = std::str::from_utf8(value)
        {
            return Err(invalid(i, e));
        }
    }
    Ok(())
}

/// A value is not UTF-8.
#[cold]
pub(crate) fn invalid(i: usize, error: std::str::Utf8Error) -> Error {
    Error::bad_data(format!("value {i} is not valid UTF-8: {error}"))
}

/// A value lies outside of its bytes.
#[cold]
pub(crate) fn outside(i: usize, range: Range<usize>, bytes: usize) -> Error {
    Error::bad_data(format!("value {i} lies at {}..{}, of {bytes} bytes", range.start, range.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(result: Result<()>) -> String {
        result.unwrap_err().message().to_owned()
    }

    #[test]
    fn texts_of_whole_characters_are_utf8() {
        let data = "abcäß€𝄞".as_bytes();
        by_lengths(&[3u8, 0, 2, 2, 3, 4, 0], data, None).unwrap();
        by_offsets(&[3i32, 5, 7, 7], &[data, &[0xff]].concat(), None).unwrap();
        by_lengths::<u8>(&[], &[], None).unwrap();
        by_offsets(&[0i64], &[], None).unwrap();
    }

    #[test]
    fn values_that_share_a_character_are_not() {
        let data = "abcä".as_bytes();
        assert!(
            refusal(by_lengths(&[4u8, 1], data, None)).starts_with("value 0 is not valid UTF-8: incomplete")
        );
        assert!(refusal(by_offsets(&[0u32, 3, 4, 5], data, None)).starts_with("value 1 is not valid UTF-8"));
        assert!(refusal(by_offsets(&[0u32, 3, 4], data, None)).starts_with("value 1 is not valid UTF-8"));
    }

    #[test]
    fn nulls_may_hold_anything() {
        let data = [b'a', 0xff, b'b'];
        let valid = |bits: &'static [u8]| Bits::new(bits, 0, 3).ok();
        assert!(by_lengths(&[1u8, 1, 1], &data, valid(&[0b101])).is_ok());
        assert!(refusal(by_lengths(&[1u8, 1, 1], &data, valid(&[0b110]))).starts_with("value 1 is not"));
        assert!(by_lengths(&[3u8], &data, valid(&[0])).is_err());
    }

    #[test]
    fn values_outside_of_their_bytes_are_refused() {
        let expected = "value 1 lies at 1..4, of 3 bytes";
        assert_eq!(refusal(by_lengths(&[1u8, 3], b"abc", None)), expected);
        assert_eq!(refusal(by_offsets(&[0u8, 1, 4], b"abc", None)), expected);
        assert!(refusal(by_offsets(&[2u8, 1, 3], b"abc", None)).starts_with("value 0 lies at 2..1"));
        assert!(refusal(by_offsets(&[-1i32, 3], b"abc", None)).contains("18446744073709551615..3"));
        assert!(by_lengths(&[1u64, u64::MAX, u64::MAX], b"abc", None).is_err());
        assert!(by_offsets::<u8>(&[], b"abc", None).is_err());
    }
}
