//! Decodes NumPy's strings, which have a fixed number of code points of 4 bytes.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_memory::{Buffer, BufferMut, Device, Error, Memory, Result, Stream};

/// Decodes `n` strings to an array on the stream's device. The zeros at the end of a string are no
/// part of it. `first_row` is the row of the first string, for errors.
pub fn decode(raw: &[u8], n: usize, first_row: u64, memory: &Memory, stream: &Stream) -> Result<DeviceArray> {
    let width = raw.len().checked_div(n).unwrap_or(0).max(4);
    let strings = || raw.chunks_exact(width).enumerate();
    let mut total = 0usize;
    for (i, string) in strings() {
        for char in chars(string) {
            total += char.map(char::len_utf8).map_err(|code| {
                let row = first_row + i as u64;
                Error::bad_data(format!("row {row} contains {code:#x}, expected a Unicode scalar value"))
                    .with_row(row)
            })?;
        }
    }
    if i32::try_from(total).is_err() {
        return Err(Error::unsupported(format!(
            "the strings have {total} bytes, expected at most {} in a batch: set the number of rows of a batch",
            i32::MAX
        )));
    }
    let offsets = memory.alloc_with(stream, (n + 1) * 4, |to| {
        let mut end = 0usize;
        let ends = strings().map(|(_, string)| {
            end += chars(string).flatten().map(char::len_utf8).sum::<usize>();
            end as i32
        });
        for (to, offset) in to.as_chunks_mut::<4>().0.iter_mut().zip(std::iter::once(0).chain(ends)) {
            *to = offset.to_ne_bytes();
        }
        Ok(())
    })?;
    let data = memory.alloc_with(stream, total, |to| {
        let mut rest = to;
        for char in strings().flat_map(|(_, string)| chars(string).flatten()) {
            let (written, after) = std::mem::take(&mut rest)
                .split_at_mut_checked(char.len_utf8())
                .ok_or_else(|| Error::internal("the strings have another size"))?;
            char.encode_utf8(written);
            rest = after;
        }
        Ok(())
    })?;
    let freeze = |buffer: BufferMut| -> Result<Buffer> {
        if stream.device() == Device::CPU { Ok(buffer.freeze_now()) } else { buffer.freeze(stream) }
    };
    let buffers = vec![None, Some(freeze(offsets)?), Some(freeze(data)?)];
    DeviceArray::try_new(DataType::Utf8, n, 0, Some(0), buffers, Vec::new(), None)
}

/// The code points of a string without the zeros at its end; an error with a number that is none.
fn chars(string: &[u8]) -> impl Iterator<Item = std::result::Result<char, u32>> {
    let codes = string.as_chunks::<4>().0;
    let len = codes.iter().rposition(|code| *code != [0; 4]).map_or(0, |last| last + 1);
    codes.iter().take(len).map(|code| {
        let code = u32::from_le_bytes(*code);
        char::from_u32(code).ok_or(code)
    })
}
