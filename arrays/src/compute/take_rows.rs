//! Takes rows at indices, which may be null.

use arrow_schema::DataType;
use crossdock_kernels::{Checks, IntType, Jobs, NumberType, Source};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::{aligned, with_validity};
use crate::DeviceArray;
use crate::nulls::stream_on;
use crate::take::{
    Validity, can_take, from_plain, merge_validity, numbers, plain_type, take, take_in_range, to_plain,
};

/// Indices of rows, each of which is null or less than the number of rows.
pub struct RowIndices {
    /// The indices without nulls, 4 or 8 bytes each.
    buffer: Option<Buffer>,
    width: usize,
    len: usize,
    validity: Option<Validity>,
    /// The indices with nulls.
    array: DeviceArray,
    stream: Stream,
}

impl RowIndices {
    /// Checks that the indices are integers, and null or less than `rows`. Blocks until the host
    /// has read the result.
    ///
    /// # Errors
    /// Returns an error that names the first wrong index.
    pub fn new(indices: &DeviceArray, rows: usize, stream: &Stream) -> Result<Self> {
        let data_type = indices.data_type();
        if !data_type.is_integer() {
            return Err(Error::invalid_argument(format!(
                "expected integers, got {}",
                crate::type_name(data_type)
            )));
        }
        let stream = stream_on(indices.device(), stream)?;
        let nulls = indices.count_nulls(&stream)?;
        let validity = if nulls > 0 { indices.validity_bits() } else { None };
        let len = indices.len();
        let new = |buffer, width| Self {
            buffer,
            width,
            len,
            validity: validity.clone(),
            array: indices.clone(),
            stream: stream.clone(),
        };
        let Some(all) = numbers(indices) else { return Ok(new(None, 4)) };
        let width = all.width_bytes;
        let of = IntType { width_bytes: width, signed: data_type.is_signed_integer() };
        let valid = validity.as_ref().map(|(bits, first)| (bits, *first));
        let mut checks = Checks::new();
        let cell = checks.indices(all.buffer, of, indices.offset(), len, valid, rows as u64)?;
        if let Some(at) = checks.run(&stream)?.first_wrong(cell) {
            return Err(
                Error::invalid_argument(format!("an index is out of range for {rows} rows")).with_row(at)
            );
        }
        let mut buffer = all.buffer.slice(all.at, len * width)?;
        if let Some(valid) = valid {
            let mut to = stream.memory().alloc(&stream, len * width)?;
            let mut jobs = Jobs::new();
            jobs.fill_nulls(Source { buffer: Some(&buffer), at: 0, len }, width, valid, [0; 4], &mut to, 0)?;
            jobs.launch(&stream)?;
            buffer = to.freeze(&stream)?;
        }
        if width >= 4 {
            return Ok(new(Some(buffer), width));
        }
        let narrow = if width == 1 { NumberType::UInt8 } else { NumberType::UInt16 };
        let mut to = stream.memory().alloc(&stream, len * 4)?;
        let mut checks = Checks::new();
        checks.cast(&buffer, 0, narrow, len, &mut to, 0, NumberType::UInt32)?;
        checks.run(&stream)?;
        Ok(new(Some(to.freeze(&stream)?), 4))
    }

    /// The number of indices.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no indices.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the rows of a column, which is on the device of the indices. The row of a null index
    /// is null.
    ///
    /// # Errors
    /// Returns an error if an index is null, and the type has no nulls.
    pub fn take(&self, array: &DeviceArray) -> Result<DeviceArray> {
        let (stream, data_type) = (&self.stream, array.data_type());
        let Some(buffer) = &self.buffer else { return DeviceArray::empty(data_type) };
        if self.validity.is_some() && !array.layout().has_validity && *data_type != DataType::Null {
            return Err(Error::unsupported(format!(
                "a value of type {} cannot be null, and an index is null: fill or drop the null indices",
                crate::type_name(data_type)
            )));
        }
        if array.is_empty() {
            // All indices are null.
            let plain = plain_type(data_type);
            if !can_take(&plain) {
                return Err(Error::unsupported(format!(
                    "cannot take null rows of an empty column of {}",
                    crate::type_name(data_type)
                )));
            }
            let taken = take(stream, &to_plain(array, stream)?, &self.array)?;
            let taken = taken.map_err(|at| Error::internal(format!("index {at} is out of range")))?;
            return from_plain(&taken, data_type, stream);
        }
        let taken = take_in_range(stream, array, buffer, self.len, self.width)?;
        if self.validity.is_none() || *data_type == DataType::Null {
            return Ok(taken);
        }
        let both = merge_validity(stream, taken.validity_bits(), self.validity.clone(), self.len)?;
        with_validity(&taken, aligned(stream, both, self.len)?)
    }
}
