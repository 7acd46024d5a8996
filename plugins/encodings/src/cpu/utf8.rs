//! Checks that each value is valid UTF-8, which is stricter than checking all bytes together.

use std::ops::Range;

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::words::Index;

/// Checks contiguous values of `lengths` bytes each, which cover `data`. Nulls may have any bytes.
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

/// Checks values between offsets into `data`. Nulls, and bytes outside of all values, may be any
/// bytes.
pub fn by_offsets<O: Index>(offsets: &[O], data: &[u8], validity: Option<Bits<'_>>) -> Result<()> {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::bad_data("0 offsets, expected at least 1"));
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
        validity.expect_len("validity of texts", count)?;
    }
    let text = data.get(all).unwrap_or_default();
    let is_within = |range: Range<usize>| range.start <= range.end && range.end <= data.len();
    // If all bytes together are valid UTF-8, a value is valid if the value and the next value begin
    // at the first byte of a character. In ASCII, every byte is a character.
    let begins = |range: &Range<usize>| data.get(range.start).is_none_or(|byte| byte & 0xc0 != 0x80);
    let is_valid = match text.is_ascii() {
        // The loop has no early exit, so that the compiler can vectorize it.
        true => ranges().fold(true, |valid, range| valid & is_within(range)),
        false => {
            std::str::from_utf8(text).is_ok() && ranges().all(|range| begins(&range) && is_within(range))
        }
    };
    if is_valid {
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

/// The error for a value that is not UTF-8.
#[cold]
pub(crate) fn invalid(i: usize, error: std::str::Utf8Error) -> Error {
    Error::bad_data(format!("value {i} is not valid UTF-8: {error}"))
}

/// The error for a value outside of the data.
#[cold]
pub(crate) fn outside(i: usize, range: Range<usize>, bytes: usize) -> Error {
    Error::bad_data(format!(
        "value {i} spans {}..{}, expected a range within {bytes} bytes",
        range.start, range.end
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(result: Result<()>) -> String {
        result.unwrap_err().message().to_owned()
    }

    #[test]
    fn accepts_values_of_whole_characters() {
        let data = "abcäß€𝄞".as_bytes();
        by_lengths(&[3u8, 0, 2, 2, 3, 4, 0], data, None).unwrap();
        by_offsets(&[3i32, 5, 7, 7], &[data, &[0xff]].concat(), None).unwrap();
        by_lengths::<u8>(&[], &[], None).unwrap();
        by_offsets(&[0i64], &[], None).unwrap();
    }

    #[test]
    fn rejects_values_that_split_a_character() {
        let data = "abcä".as_bytes();
        assert!(
            message_of(by_lengths(&[4u8, 1], data, None))
                .starts_with("value 0 is not valid UTF-8: incomplete")
        );
        assert!(
            message_of(by_offsets(&[0u32, 3, 4, 5], data, None)).starts_with("value 1 is not valid UTF-8")
        );
        assert!(message_of(by_offsets(&[0u32, 3, 4], data, None)).starts_with("value 1 is not valid UTF-8"));
    }

    #[test]
    fn ignores_bytes_of_nulls() {
        let data = [b'a', 0xff, b'b'];
        let valid = |bits: &'static [u8]| Bits::new(bits, 0, 3).ok();
        assert!(by_lengths(&[1u8, 1, 1], &data, valid(&[0b101])).is_ok());
        assert!(message_of(by_lengths(&[1u8, 1, 1], &data, valid(&[0b110]))).starts_with("value 1 is not"));
        assert!(by_lengths(&[3u8], &data, valid(&[0])).is_err());
    }

    #[test]
    fn rejects_values_outside_of_the_data() {
        let expected = "value 1 spans 1..4, expected a range within 3 bytes";
        assert_eq!(message_of(by_lengths(&[1u8, 3], b"abc", None)), expected);
        assert_eq!(message_of(by_offsets(&[0u8, 1, 4], b"abc", None)), expected);
        assert!(message_of(by_offsets(&[2u8, 1, 3], b"abc", None)).starts_with("value 0 spans 2..1"));
        assert!(message_of(by_offsets(&[-1i32, 3], b"abc", None)).contains("18446744073709551615..3"));
        assert!(by_lengths(&[1u64, u64::MAX, u64::MAX], b"abc", None).is_err());
        assert!(by_offsets::<u8>(&[], b"abc", None).is_err());
    }
}
