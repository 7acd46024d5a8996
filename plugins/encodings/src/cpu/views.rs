//! Writes and checks Arrow's views of text and bytes.
//!
//! A view has 16 bytes and begins with the value's length (4 bytes, signed). If the value has at
//! most 12 bytes, the value follows, padded with zeros. Otherwise, the value's first 4 bytes, the
//! index of its data buffer and its offset in this buffer follow (4 bytes each).

use std::ops::Range;

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::utf8::{invalid, outside};
use super::words::{Index, check_len};

/// A view.
pub type View = [u8; 16];

/// Maximum size of an inline value.
pub const MAX_INLINE_BYTES: usize = 12;

/// Maximum size of a data buffer: offsets are signed 32-bit integers.
pub const MAX_BUFFER_BYTES: usize = i32::MAX as usize;

/// Writes the views of contiguous values of `lengths` bytes each, which cover `data`.
///
/// Returns the data buffers of the views as ranges of `data`: one range, or several ranges if
/// `data` is too large for one data buffer, or none if all values are inline.
pub fn from_lengths<L: Index>(lengths: &[L], data: &[u8], views: &mut [View]) -> Result<Vec<Range<usize>>> {
    let mut end = 0usize;
    let ranges = lengths.iter().map(|length| {
        let begin = end;
        end = end.saturating_add(length.index());
        begin..end
    });
    let buffers = write(ranges, lengths.len(), data, MAX_BUFFER_BYTES, views)?;
    check_len("bytes of all values", end, data.len())?;
    Ok(buffers)
}

/// Writes the views of values between offsets into `data`. Returns the data buffers like
/// [`from_lengths`].
pub fn from_offsets<O: Index>(offsets: &[O], data: &[u8], views: &mut [View]) -> Result<Vec<Range<usize>>> {
    check_len("offsets, one per value and one more", views.len() + 1, offsets.len())?;
    let ranges = offsets.windows(2).map(|pair| pair[0].index()..pair[1].index());
    write(ranges, views.len(), data, MAX_BUFFER_BYTES, views)
}

/// Writes the views of values that each follow their length (4 bytes). Nulls are not stored; their
/// views are empty. Returns the data buffers like [`from_lengths`].
pub fn from_prefixed(data: &[u8], valid: Option<Bits<'_>>, views: &mut [View]) -> Result<Vec<Range<usize>>> {
    let mut end = 0usize;
    let range = |i: usize| {
        if valid.as_ref().is_some_and(|valid| !valid.get(i)) {
            return end..end;
        }
        let rest = data.get(end..).unwrap_or_default();
        // If the length is missing, the range is outside of the data, which is an error.
        let length = rest.first_chunk::<4>().map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        let begin = end.saturating_add(4);
        end = begin.saturating_add(length);
        begin..end
    };
    let buffers = write((0..views.len()).map(range), views.len(), data, MAX_BUFFER_BYTES, views)?;
    check_len("bytes of all values", end, data.len())?;
    Ok(buffers)
}

fn write(
    ranges: impl Iterator<Item = Range<usize>>,
    count: usize,
    data: &[u8],
    max_buffer_bytes: usize,
    views: &mut [View],
) -> Result<Vec<Range<usize>>> {
    check_len("views", count, views.len())?;
    let ranges = ranges.zip(views).enumerate();
    if data.len() > max_buffer_bytes {
        return write_in_parts(ranges, data, max_buffer_bytes);
    }
    let longest = write_in_one(ranges, data)?;
    Ok(if longest > MAX_INLINE_BYTES { vec![0..data.len(); 1] } else { Vec::new() })
}

/// Writes views whose values are in one data buffer. `data` contains the first bytes of this
/// buffer. Returns the length of the longest value.
pub(super) fn write_in_one<'a>(
    ranges: impl Iterator<Item = (usize, (Range<usize>, &'a mut View))>,
    data: &[u8],
) -> Result<usize> {
    let mut longest = 0;
    for (i, (Range { start, end }, view)) in ranges {
        let value = data.get(start..end).ok_or_else(|| outside(i, start..end, data.len()))?;
        longest = longest.max(value.len());
        *view = new_view(value, first(data, start), (start as u64) << 32);
    }
    Ok(longest)
}

/// Writes the views of data that is too large for one data buffer. The data is split into several
/// data buffers, each of which contains only whole values.
fn write_in_parts<'a>(
    ranges: impl Iterator<Item = (usize, (Range<usize>, &'a mut View))>,
    data: &[u8],
    max_buffer_bytes: usize,
) -> Result<Vec<Range<usize>>> {
    let mut buffers: Vec<Range<usize>> = Vec::new();
    for (i, (range, view)) in ranges {
        let value = data.get(range.clone()).ok_or_else(|| outside(i, range.clone(), data.len()))?;
        let mut location = 0;
        if value.len() > max_buffer_bytes {
            return Err(Error::unsupported(format!(
                "value {i} has {} bytes, expected at most {max_buffer_bytes} in a view",
                value.len()
            )));
        }
        if value.len() > MAX_INLINE_BYTES {
            match buffers.last_mut() {
                Some(last) if range.start >= last.start && range.end - last.start <= max_buffer_bytes => {
                    last.end = last.end.max(range.end);
                }
                _ => buffers.push(range.clone()),
            }
            let number = buffers.len() - 1;
            location = number as u64 | ((range.start - buffers[number].start) as u64) << 32;
        }
        *view = new_view(value, first(data, range.start), location);
    }
    Ok(buffers)
}

/// Returns the first 4 and the next 8 bytes from `at` on, padded with zeros. The bytes are loaded
/// as integers, because the compiler would copy an array byte by byte.
#[inline(always)]
fn first(data: &[u8], at: usize) -> (u32, u64) {
    let words = |bytes: &[u8; MAX_INLINE_BYTES]| {
        let (prefix, rest) = bytes.split_first_chunk()?;
        Some((u32::from_le_bytes(*prefix), u64::from_le_bytes(*rest.first_chunk()?)))
    };
    if let Some(words) = data.get(at..).and_then(<[u8]>::first_chunk).and_then(words) {
        return words;
    }
    let rest = data.get(at..).unwrap_or_default();
    let mut bytes = [0; MAX_INLINE_BYTES];
    bytes[..rest.len()].copy_from_slice(rest);
    words(&bytes).unwrap_or_default()
}

/// For each length of a value, a mask for its first 4 bytes, a mask for the next 8 bytes, and a
/// mask for its location in a data buffer. A table avoids branches on lengths, which are hard to
/// predict.
const VIEW_MASKS: [[u64; 3]; MAX_INLINE_BYTES + 2] = {
    let mut parts = [[0; 3]; MAX_INLINE_BYTES + 2];
    let mut n = 1;
    while n <= MAX_INLINE_BYTES {
        let [low, high, _] = parts[n - 1];
        parts[n] = if n <= 4 { [low << 8 | 0xff, 0, 0] } else { [low, high << 8 | 0xff, 0] };
        n += 1;
    }
    parts[n] = [0xffff_ffff, 0, u64::MAX];
    parts
};

/// The view of a value. It contains the first bytes of the value and, if the value is long, the
/// value's location in a data buffer.
#[inline(always)]
fn new_view(value: &[u8], (prefix, rest): (u32, u64), location: u64) -> View {
    let length = value.len();
    let [low, high, far] = VIEW_MASKS[length.min(MAX_INLINE_BYTES + 1)];
    let start = length as u64 | (u64::from(prefix) & low) << 32;
    (u128::from(start) | u128::from(rest & high | location & far) << 64).to_le_bytes()
}

/// Returns the view of a single value, such as a constant. If the value is too long for a view, it
/// is also returned as the data buffer.
pub fn single(value: &[u8]) -> Result<(View, Option<&[u8]>)> {
    let mut view = [[0; 16]];
    let buffers = from_lengths(&[value.len() as u64], value, &mut view)?;
    Ok((view[0], (!buffers.is_empty()).then_some(value)))
}

/// Checks external views against their data buffers. If `utf8` is set, also checks that the values
/// are UTF-8. Views of nulls are ignored.
pub fn check(views: &[View], data: &[&[u8]], validity: Option<Bits<'_>>, utf8: bool) -> Result<()> {
    if let Some(validity) = validity {
        validity.expect_len("validity of views", views.len())?;
    }
    for (i, view) in views.iter().enumerate() {
        if validity.is_some_and(|validity| !validity.get(i)) {
            continue;
        }
        let value = value(view, data).map_err(|e| e.context(format_args!("view {i}")))?;
        if utf8 && let Err(e) = std::str::from_utf8(value) {
            return Err(invalid(i, e));
        }
    }
    Ok(())
}

/// The value of a view.
pub fn value<'a>(view: &'a View, data: &[&'a [u8]]) -> Result<&'a [u8]> {
    let word = |i: usize| i32::from_le_bytes([view[i], view[i + 1], view[i + 2], view[i + 3]]);
    let (length, prefix, buffer, offset) = (word(0), &view[4..8], word(8), word(12));
    let bytes = usize::try_from(length)
        .map_err(|_| Error::bad_data(format!("a length of {length}, expected 0 to {}", i32::MAX)))?;
    if let (0..=MAX_INLINE_BYTES, Some((value, padding))) = (bytes, view[4..].split_at_checked(bytes)) {
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Error::bad_data(format!(
                "nonzero padding after a value of {bytes} bytes, expected zeros"
            )));
        }
        return Ok(value);
    }
    let target = usize::try_from(buffer).ok().and_then(|i| data.get(i)).ok_or_else(|| {
        Error::bad_data(format!(
            "data buffer {buffer} does not exist, expected an index below {}",
            data.len()
        ))
    })?;
    let begin = usize::try_from(offset).ok();
    let target = begin.and_then(|begin| target.get(begin..)?.get(..bytes)).ok_or_else(|| {
        Error::bad_data(format!(
            "{bytes} bytes from {offset} on, expected a range within the {} bytes of data buffer {buffer}",
            target.len()
        ))
    })?;
    if !target.starts_with(prefix) {
        return Err(Error::bad_data(format!(
            "a prefix of {prefix:?}, expected {:?}, the first bytes of the value",
            &target[..4]
        )));
    }
    Ok(target)
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
