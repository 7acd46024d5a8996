//! Decodes NumPy's dates, which are numbers of 8 bytes.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_memory::{Buffer, BufferMut, Device, Error, Memory, Result, Stream};

/// Decodes days to an array on the stream's device. NumPy's NaT becomes null. `first` is the first
/// row and `row_len` the number of days of a row, for errors.
///
/// # Errors
/// Unsupported, with the row, if a day does not fit into 4 bytes.
pub fn decode(
    raw: &[u8],
    (first, row_len): (u64, usize),
    memory: &Memory,
    stream: &Stream,
) -> Result<DeviceArray> {
    let days = || raw.as_chunks::<8>().0.iter().map(|day| i64::from_le_bytes(*day));
    let (mut n, mut nulls) = (0usize, 0usize);
    for day in days() {
        if day == i64::MIN {
            nulls += 1;
        } else if i32::try_from(day).is_err() {
            let row = first + n.checked_div(row_len).unwrap_or(0) as u64;
            return Err(Error::unsupported(format!(
                "row {row} is {day} days from 1970-01-01, expected {} to {}, which Arrow's Date32 can store: cast the \
                 array to datetime64[s] first",
                i32::MIN,
                i32::MAX
            ))
            .with_row(row));
        }
        n += 1;
    }
    let values = memory.alloc_with(stream, n * 4, |to| {
        for (to, day) in to.as_chunks_mut::<4>().0.iter_mut().zip(days()) {
            // NaT has no days. Its slot is zero.
            *to = i32::try_from(day).unwrap_or(0).to_ne_bytes();
        }
        Ok(())
    })?;
    let freeze = |buffer: BufferMut| -> Result<Buffer> {
        if stream.device() == Device::CPU { Ok(buffer.freeze_now()) } else { buffer.freeze(stream) }
    };
    let validity = if nulls == 0 {
        None
    } else {
        let bits = memory.alloc_with(stream, n.div_ceil(8), |to| {
            to.fill(0);
            for (i, _) in days().enumerate().filter(|(_, day)| *day != i64::MIN) {
                if let Some(byte) = to.get_mut(i / 8) {
                    *byte |= 1 << (i % 8);
                }
            }
            Ok(())
        })?;
        Some(freeze(bits)?)
    };
    let buffers = vec![validity, Some(freeze(values)?)];
    DeviceArray::try_new(DataType::Date32, n, 0, Some(nulls), buffers, Vec::new(), None)
}
