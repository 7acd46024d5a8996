//! Loads rows of columns to a device.

use std::ops::Range;

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_kernels::{Accept, ComparedType, Jobs, NumberType, Source};
use crossdock_memory::{
    ALIGNMENT, Buffer, BufferMut, Device, Error, LoadRange, Loader, Memory, Result, StoredSource, Stream,
};
use crossdock_plugin_api::Call;

use crate::crc::Crc32;
use crate::element::Element;
use crate::tensor::{Column, Data};
use crate::text;
use crate::zip::{Inflater, Member, check_crc};

/// The number of bytes between two checks whether the call is cancelled.
const PIECE_BYTES: usize = 4 << 20;

/// A column, and the state of its decompression.
pub struct Loading {
    pub column: Column,
    /// `None` until the first rows of a compressed column are read.
    pub inflater: Option<Inflater>,
}

/// The file and the device of a load.
pub struct Target<'a> {
    pub call: &'a Call<'a>,
    pub memory: &'a Memory,
    pub loader: &'a Loader,
    pub file: &'a StoredSource,
    pub stream: &'a Stream,
}

/// Loads rows of all columns. On the CPU, mapped bytes are used in place. On a device, all bytes
/// that need no conversion are loaded together.
pub fn load(target: &Target<'_>, columns: &mut [Loading], rows: &Range<u64>) -> Result<Vec<DeviceArray>> {
    let len = usize::try_from(rows.end - rows.start)
        .map_err(|_| Error::out_of_memory("a batch has too many rows"))?;
    let mut buffers: Vec<Option<Buffer>> = vec![None; columns.len()];
    let (mut missing, mut ranges, mut end) = (Vec::new(), Vec::new(), 0usize);
    for (i, (Loading { column, .. }, buffer)) in columns.iter().zip(&mut buffers).enumerate() {
        let (Some(offset), bytes) = (column.plain_offset(rows.start), len * column.shape.row_bytes()) else {
            continue;
        };
        if bytes == 0 {
            continue;
        }
        if target.stream.device() == Device::CPU {
            let in_place = target.file.in_place(offset, bytes as u64);
            let alignment = column.element.alignment() as u64;
            *buffer = in_place.filter(|buffer| buffer.address().is_multiple_of(alignment));
        }
        if buffer.is_none() {
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
            if let Some(buffer) = buffers.get_mut(*i) {
                *buffer = Some(block.slice(range.to, range.bytes)?);
            }
        }
    }
    let arrays = columns.iter_mut().zip(buffers).map(|(loading, buffer)| {
        let name = loading.column.field.name().clone();
        target
            .array(loading, buffer, rows, len)
            .map_err(|error| error.context(format_args!("tensor '{name}'")))
    });
    arrays.collect()
}

impl Column {
    /// The offset of a row's elements in the file. `None` if the elements are converted on the
    /// host: decompressed, changed to little-endian order, or decoded.
    fn plain_offset(&self, row: u64) -> Option<u64> {
        match &self.data {
            Data::Plain { offset, .. } if !self.is_converted() => {
                Some(offset + row * self.shape.row_bytes() as u64)
            }
            _ => None,
        }
    }

    fn is_converted(&self) -> bool {
        self.is_swapped() || matches!(self.element, Element::Text(_))
    }

    /// Whether the bytes of each number are reversed.
    fn is_swapped(&self) -> bool {
        self.is_big_endian && self.element.alignment() > 1
    }

    /// The zip member with all elements, if it is not compressed.
    pub fn stored_member(&self) -> Option<&Member> {
        match &self.data {
            Data::Plain { member, .. } => member.as_ref(),
            Data::Deflated { .. } => None,
        }
    }
}

impl Target<'_> {
    fn freeze(&self, buffer: BufferMut) -> Result<Buffer> {
        if self.stream.device() == Device::CPU { Ok(buffer.freeze_now()) } else { buffer.freeze(self.stream) }
    }

    /// The array of `len` rows, whose elements are in `buffer` unless they are converted.
    fn array(
        &self,
        loading: &mut Loading,
        buffer: Option<Buffer>,
        rows: &Range<u64>,
        len: usize,
    ) -> Result<DeviceArray> {
        let (field, row_len) = (loading.column.field.clone(), loading.column.shape.row_len());
        let n = len * row_len;
        let bytes = len * loading.column.shape.row_bytes();
        let is_text = matches!(loading.column.element, Element::Text(_));
        let values = match buffer {
            _ if n == 0 => DeviceArray::empty(&loading.column.element.data_type())?,
            None if is_text => {
                let stream = self.memory.default_stream(Device::CPU)?;
                let mut raw = self.memory.alloc(&stream, bytes)?;
                let to =
                    raw.host_slice_mut().ok_or_else(|| Error::internal("host memory is not accessible"))?;
                self.convert(loading, rows, to)?;
                text::decode(to, n, rows.start, self.memory, self.stream)?
            }
            None => {
                let fill = |to: &mut [u8]| self.convert(loading, rows, to);
                let buffer = self.memory.alloc_with(self.stream, bytes, fill)?;
                self.values(&loading.column.element, self.freeze(buffer)?, n)?
            }
            Some(buffer) => self.values(&loading.column.element, buffer, n)?,
        };
        match field.data_type() {
            DataType::FixedSizeList(..) => DeviceArray::try_new(
                field.data_type().clone(),
                len,
                0,
                Some(0),
                vec![None],
                vec![values],
                None,
            ),
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

    /// Fills `to` with the elements of rows, in the order of bytes of this machine.
    fn convert(&self, loading: &mut Loading, rows: &Range<u64>, to: &mut [u8]) -> Result<()> {
        let Loading { column, inflater } = loading;
        let first = rows.start * column.shape.row_bytes() as u64;
        match &column.data {
            Data::Plain { offset, .. } => {
                let mut at = offset + first;
                for piece in to.chunks_mut(PIECE_BYTES) {
                    self.call.check_cancelled()?;
                    self.file.read(at, piece)?;
                    at += piece.len() as u64;
                }
            }
            Data::Deflated { member, skip } => {
                let inflater = inflater.get_or_insert_with(|| Inflater::new(member));
                let unread = (skip + first).checked_sub(inflater.position());
                let unread = unread.ok_or_else(|| Error::internal("rows were read twice"))?;
                let read = inflater.skip(self.call, self.file, unread);
                read.and_then(|()| inflater.read(self.call, self.file, to))
                    .map_err(|error| error.or_offset(member.offset))?;
            }
        }
        if column.is_swapped() {
            swap(to, column.element.alignment());
        }
        Ok(())
    }
}

/// Reverses the bytes of each number.
fn swap(bytes: &mut [u8], width: usize) {
    match width {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|number| number.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|number| number.reverse()),
        _ => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|number| number.reverse()),
    }
}

/// Checks the CRC-32 of a member that is not compressed.
pub fn check_stored(call: &Call<'_>, file: &StoredSource, member: &Member) -> Result<()> {
    let mut crc = Crc32::new();
    let bytes = usize::try_from(member.bytes).map_err(|_| Error::out_of_memory("a member is too long"))?;
    file.in_pieces(member.offset, bytes, PIECE_BYTES, &mut |bytes| {
        bytes.chunks(PIECE_BYTES).try_for_each(|piece| {
            call.check_cancelled()?;
            crc.add(piece);
            Ok(())
        })
    })?;
    check_crc(crc, member).map_err(|error| error.or_offset(member.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_reverses_each_number() {
        let swapped = |width| {
            let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
            swap(&mut bytes, width);
            bytes
        };
        assert_eq!(swapped(2), [2, 1, 4, 3, 6, 5, 8, 7]);
        assert_eq!(swapped(4), [4, 3, 2, 1, 8, 7, 6, 5]);
        assert_eq!(swapped(8), [8, 7, 6, 5, 4, 3, 2, 1]);
    }
}
