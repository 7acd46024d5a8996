//! Loads rows of columns to a device.

use std::ops::Range;

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_kernels::{Accept, ComparedType, Jobs, NumberType, Source};
use crossdock_memory::{ALIGNMENT, Buffer, Device, Error, LoadRange, Result};

use crate::convert::convert;
use crate::element::Element;
use crate::target::{Elements, Loading, Target, in_tensor};
use crate::tensor::{Column, Data};

/// Loads rows of all columns. On the CPU, mapped bytes are used in place. On a device, all bytes
/// that need no conversion are loaded together. The other columns are converted by the threads of
/// the session.
pub fn load(target: &Target<'_>, columns: &mut [Loading], rows: &Range<u64>) -> Result<Vec<DeviceArray>> {
    let len = target.len(rows)?;
    let mut elements: Vec<Option<Elements>> = columns.iter().map(|_| None).collect();
    let (mut missing, mut ranges, mut end) = (Vec::new(), Vec::new(), 0usize);
    let mut converted = Vec::new();
    for (i, (Loading { column, .. }, elements)) in columns.iter().zip(&mut elements).enumerate() {
        let bytes = len * column.shape.row_bytes();
        if bytes == 0 {
            continue;
        }
        let Some(offset) = column.plain_offset(rows.start) else {
            converted.push(i);
            continue;
        };
        if target.stream.device() == Device::CPU {
            let in_place = target.file.in_place(offset, bytes as u64);
            let alignment = column.element.alignment() as u64;
            let in_place = in_place.filter(|buffer| buffer.address().is_multiple_of(alignment));
            *elements = in_place.map(Elements::Plain);
        }
        if elements.is_none() {
            missing.push(i);
            ranges.push(LoadRange { from: offset, to: end, bytes });
            end = bytes
                .checked_next_multiple_of(ALIGNMENT)
                .and_then(|bytes| end.checked_add(bytes))
                .ok_or_else(|| Error::out_of_memory("the tensors exceed the address space"))?;
        }
    }
    if !ranges.is_empty() {
        let mut block = target.memory.alloc(target.stream, end)?;
        target.loader.load(target.call, target.file.source(), &mut block, &ranges, target.stream)?;
        let block = target.freeze(block)?;
        for (i, range) in missing.iter().zip(&ranges) {
            if let Some(elements) = elements.get_mut(*i) {
                *elements = Some(Elements::Plain(block.slice(range.to, range.bytes)?));
            }
        }
    }
    // More columns at a time would need more memory for the bytes before the conversion.
    for some in converted.chunks(target.tasks.width().max(1)) {
        for (i, done) in convert(target, columns, some, rows)? {
            if let Some(elements) = elements.get_mut(i) {
                *elements = Some(done);
            }
        }
    }
    let arrays = columns.iter().zip(elements).map(|(Loading { column, .. }, elements)| {
        target.array(column, elements, len).map_err(|error| in_tensor(&error, column))
    });
    arrays.collect()
}

impl Column {
    /// The offset of a row's elements in the file. `None` if the elements are converted on the
    /// host.
    fn plain_offset(&self, row: u64) -> Option<u64> {
        match &self.data {
            Data::Plain { offset, .. } if !self.is_swapped() && !self.element.is_decoded() => {
                Some(offset + row * self.shape.row_bytes() as u64)
            }
            _ => None,
        }
    }
}

impl Target<'_> {
    /// The array of `len` rows. `elements` is `None` if they have no bytes.
    fn array(&self, column: &Column, elements: Option<Elements>, len: usize) -> Result<DeviceArray> {
        let element = &column.element;
        let values = match elements {
            None => DeviceArray::empty(&element.data_type())?,
            Some(Elements::Decoded(values)) => values,
            Some(Elements::Plain(buffer)) => self.values(element, buffer, len * column.shape.row_len())?,
        };
        match column.field.data_type() {
            list @ DataType::FixedSizeList(..) => {
                DeviceArray::try_new(list.clone(), len, 0, Some(0), vec![None], vec![values], None)
            }
            _ => Ok(values),
        }
    }

    /// The array of `n` elements of fixed width. NumPy's NaT, the least number, becomes null.
    fn values(&self, element: &Element, buffer: Buffer, n: usize) -> Result<DeviceArray> {
        let validity = match element {
            Element::Time(_) => {
                let mut bits = self.memory.alloc(self.stream, n.div_ceil(8))?;
                let mut jobs = Jobs::new();
                let from = Source { buffer: Some(&buffer), at: 0, len: n };
                let nat = [i64::MIN as u64, u64::MAX, u64::MAX, u64::MAX];
                let of = ComparedType::Number(NumberType::Int64);
                jobs.compare_numbers(from, of, nat, Accept::GREATER, &mut bits, 0)?;
                jobs.launch(self.stream)?;
                Some(self.freeze(bits)?)
            }
            _ => None,
        };
        let null_count = if validity.is_some() { None } else { Some(0) };
        let buffers = vec![validity, Some(buffer)];
        DeviceArray::try_new(element.data_type(), n, 0, null_count, buffers, Vec::new(), None)
    }
}
