//! Selects the rows of a batch by a column of booleans.

use arrow_schema::DataType;
use crossdock_kernels::{Jobs, SelectedRows};
use crossdock_memory::{Error, Result, Stream};

use super::aligned;
use crate::filter::select;
use crate::nulls::stream_on;
use crate::numbers::{self, Numbers};
use crate::take::{byte_aligned_bits, merge_validity};
use crate::{DeviceArray, DeviceBatch};

/// Returns the rows whose value in `mask` is true; a null selects no row. `None` if there are no
/// such rows. Blocks until the host knows the number of rows.
///
/// # Errors
/// Returns an error unless `mask` is a column of booleans with one value for each row.
pub fn filter_rows(batch: &DeviceBatch, mask: &DeviceArray, stream: &Stream) -> Result<Option<DeviceBatch>> {
    if *mask.data_type() != DataType::Boolean || mask.len() != batch.len() {
        return Err(Error::invalid_argument(format!(
            "expected {} booleans, one for each row, got {} values of type {}",
            batch.len(),
            mask.len(),
            crate::type_name(mask.data_type())
        )));
    }
    let stream = &stream_on(batch.device(), stream)?;
    let Some(bits) = mask.buffers().get(1).cloned().flatten().filter(|_| !batch.is_empty()) else {
        return Ok(None);
    };
    let both = merge_validity(stream, Some((bits, mask.offset())), mask.validity_bits(), batch.len())?;
    match aligned(stream, both, batch.len())? {
        Some(bits) => select(batch, &bits, stream),
        None => Ok(None),
    }
}

/// The index of the first true value of a column of booleans without nulls; `None` if there is
/// none. Blocks until the host has read it.
///
/// # Errors
/// Returns an error unless the array has booleans.
pub(super) fn first_true(mask: &DeviceArray, stream: &Stream) -> Result<Option<u64>> {
    let (stream, len) = (&stream_on(mask.device(), stream)?, mask.len());
    if *mask.data_type() != DataType::Boolean {
        return Err(Error::invalid_argument(format!(
            "expected booleans, got {}",
            crate::type_name(mask.data_type())
        )));
    }
    let Some(bits) = mask.buffers().get(1).and_then(Option::as_ref).filter(|_| len > 0) else {
        return Ok(None);
    };
    let bits = byte_aligned_bits(stream, bits, mask.offset(), len)?;
    let rows = SelectedRows { bits: &bits, len };
    let selected = rows.count(stream)?;
    if selected.n == 0 {
        return Ok(None);
    }
    let mut to = stream.memory().alloc(stream, selected.n.saturating_mul(8))?;
    let mut jobs = Jobs::new();
    jobs.place_bits(rows, &selected, &mut to, 0, 8)?;
    jobs.launch(stream)?;
    let to = to.freeze(stream)?;
    let first = numbers::read(&[Numbers { source: &to, at: 0, n: 1, width: 8 }], stream)?;
    Ok(first.first().map(|row| row.cast_unsigned()))
}
