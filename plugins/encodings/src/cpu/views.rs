//! Arrow's views: 16 bytes a value, which hold a short value themselves and say of a long one where it lies.
//!
//! A view is its length (4 bytes, signed), then a value of at most 12 bytes, filled up with zeros, or else the value's
//! first 4 bytes, the number of its data buffer and the offset there (4 bytes each).

use std::ops::Range;

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::utf8::{invalid, outside};
use super::words::{Index, same_len};

/// A view.
pub type View = [u8; 16];

/// Bytes of the longest value that a view holds itself.
pub const IN_PLACE: usize = 12;

/// Bytes of the largest data buffer: offsets are signed numbers of 32 bits.
pub const MOST_BYTES: usize = i32::MAX as usize;

/// Writes the views of values that lie one after the other, of `lengths` bytes each, and are all of `data`.
///
/// Answers the data buffers that the views refer to, as ranges of `data`: all of it, several parts where that is too large,
/// none where all views hold their values themselves.
pub fn from_lengths<L: Index>(lengths: &[L], data: &[u8], views: &mut [View]) -> Result<Vec<Range<usize>>> {
    let mut end = 0usize;
    let ranges = lengths.iter().map(|length| {
        let begin = end;
        end = end.saturating_add(length.index());
        begin..end
    });
    let buffers = write(ranges, lengths.len(), data, MOST_BYTES, views)?;
    same_len("bytes of all values", end, data.len())?;
    Ok(buffers)
}

/// Writes the views of values that lie between offsets into `data`. Answers the data buffers, as [`from_lengths`] does:
/// the bytes stay where they are.
pub fn from_offsets<O: Index>(offsets: &[O], data: &[u8], views: &mut [View]) -> Result<Vec<Range<usize>>> {
    same_len("offsets of values, and one more", views.len() + 1, offsets.len())?;
    let ranges = offsets.windows(2).map(|pair| pair[0].index()..pair[1].index());
    write(ranges, views.len(), data, MOST_BYTES, views)
}

fn write(
    ranges: impl Iterator<Item = Range<usize>>,
    count: usize,
    data: &[u8],
    most: usize,
    views: &mut [View],
) -> Result<Vec<Range<usize>>> {
    same_len("views", count, views.len())?;
    let ranges = ranges.zip(views).enumerate();
    if data.len() > most {
        return write_in_parts(ranges, data, most);
    }
    let longest = write_in_one(ranges, data)?;
    Ok(if longest > IN_PLACE { vec![0..data.len(); 1] } else { Vec::new() })
}

/// The same with all of `data`, or of what it is the beginning of, as the one data buffer. Answers the greatest length.
pub(super) fn write_in_one<'a>(
    ranges: impl Iterator<Item = (usize, (Range<usize>, &'a mut View))>,
    data: &[u8],
) -> Result<usize> {
    let mut longest = 0;
    for (i, (Range { start, end }, view)) in ranges {
        let value = data.get(start..end).ok_or_else(|| outside(i, start..end, data.len()))?;
        longest = longest.max(value.len());
        *view = of(value, first(data, start), (start as u64) << 32);
    }
    Ok(longest)
}

/// The same for more bytes than offsets reach: in several data buffers, each of whole values.
fn write_in_parts<'a>(
    ranges: impl Iterator<Item = (usize, (Range<usize>, &'a mut View))>,
    data: &[u8],
    most: usize,
) -> Result<Vec<Range<usize>>> {
    let mut buffers: Vec<Range<usize>> = Vec::new();
    for (i, (range, view)) in ranges {
        let value = data.get(range.clone()).ok_or_else(|| outside(i, range.clone(), data.len()))?;
        let mut place = 0;
        if value.len() > most {
            return Err(Error::unsupported(format!(
                "value {i} has {} bytes, and a view can say where up to {most} lie",
                value.len()
            )));
        }
        if value.len() > IN_PLACE {
            match buffers.last_mut() {
                Some(last) if range.start >= last.start && range.end - last.start <= most => {
                    last.end = last.end.max(range.end);
                }
                _ => buffers.push(range.clone()),
            }
            let number = buffers.len() - 1;
            place = number as u64 | ((range.start - buffers[number].start) as u64) << 32;
        }
        *view = of(value, first(data, range.start), place);
    }
    Ok(buffers)
}

/// The bytes from `at` on, as many as views hold, and zeros after the last: the first 4, and the 8 after them. (As numbers from
/// the start: of an array in between the compiler puts them together byte by byte.)
#[inline(always)]
fn first(data: &[u8], at: usize) -> (u32, u64) {
    let words = |bytes: &[u8; IN_PLACE]| {
        let (prefix, rest) = bytes.split_first_chunk()?;
        Some((u32::from_le_bytes(*prefix), u64::from_le_bytes(*rest.first_chunk()?)))
    };
    if let Some(words) = data.get(at..).and_then(<[u8]>::first_chunk).and_then(words) {
        return words;
    }
    let rest = data.get(at..).unwrap_or_default();
    let mut bytes = [0; IN_PLACE];
    bytes[..rest.len()].copy_from_slice(rest);
    words(&bytes).unwrap_or_default()
}

/// What of a value of so many bytes is in its view: which of its first 4 bytes, which of the 8 after them, and which of its
/// place. (A table, because lengths vary, and nobody can foretell which values fit into their views.)
const PARTS: [[u64; 3]; IN_PLACE + 2] = {
    let mut parts = [[0; 3]; IN_PLACE + 2];
    let mut n = 1;
    while n <= IN_PLACE {
        let [low, high, _] = parts[n - 1];
        parts[n] = if n <= 4 { [low << 8 | 0xff, 0, 0] } else { [low, high << 8 | 0xff, 0] };
        n += 1;
    }
    parts[n] = [0xffff_ffff, 0, u64::MAX];
    parts
};

/// The view of a value that begins with these bytes, and which lies, if it is long, at this place.
#[inline(always)]
fn of(value: &[u8], (prefix, rest): (u32, u64), place: u64) -> View {
    let length = value.len();
    let [low, high, far] = PARTS[length.min(IN_PLACE + 1)];
    let start = length as u64 | (u64::from(prefix) & low) << 32;
    (u128::from(start) | u128::from(rest & high | place & far) << 64).to_le_bytes()
}

/// The view of a value that stands alone, as constants do: with the value itself as its data buffer, if it is too long to be
/// held by the view.
pub fn of_one(value: &[u8]) -> Result<(View, Option<&[u8]>)> {
    let mut view = [[0; 16]];
    let buffers = from_lengths(&[value.len() as u64], value, &mut view)?;
    Ok((view[0], (!buffers.is_empty()).then_some(value)))
}

/// Checks views that come from outside, against the data buffers that they refer to; and that their values are UTF-8, where
/// they have to be. What a null's view says does not matter.
pub fn check(views: &[View], data: &[&[u8]], validity: Option<Bits<'_>>, utf8: bool) -> Result<()> {
    if let Some(validity) = validity {
        validity.must_be("validity of views", views.len())?;
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

/// The value that a view stands for.
pub fn value<'a>(view: &'a View, data: &[&'a [u8]]) -> Result<&'a [u8]> {
    let word = |i: usize| i32::from_le_bytes([view[i], view[i + 1], view[i + 2], view[i + 3]]);
    let (length, prefix, buffer, offset) = (word(0), &view[4..8], word(8), word(12));
    let bytes = usize::try_from(length)
        .map_err(|_| Error::bad_data(format!("a length of {length}, expected 0 to {}", i32::MAX)))?;
    if let (0..=IN_PLACE, Some((value, padding))) = (bytes, view[4..].split_at_checked(bytes)) {
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Error::bad_data(format!(
                "bytes after its {bytes} that are not zero, expected zeros"
            )));
        }
        return Ok(value);
    }
    let found = usize::try_from(buffer)
        .ok()
        .and_then(|i| data.get(i))
        .ok_or_else(|| Error::bad_data(format!("data buffer {buffer}, expected one of {}", data.len())))?;
    let begin = usize::try_from(offset).ok();
    let found = begin.and_then(|begin| found.get(begin..)?.get(..bytes)).ok_or_else(|| {
        Error::bad_data(format!(
            "{bytes} bytes from {offset} on, and data buffer {buffer} has {} bytes",
            found.len()
        ))
    })?;
    if !found.starts_with(prefix) {
        return Err(Error::bad_data(format!(
            "a prefix of {prefix:?}, expected {:?}, the first bytes of its value",
            &found[..4]
        )));
    }
    Ok(found)
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
