//! Reads an array's values on the host.

use crate::layout::{BufferKind, ChildRule, Layout, layout};
use crate::{DeviceArray, Error};
use arrow_schema::DataType;
use crossdock_memory::{HostView, Result, Stream};

use super::bits::bit;

/// An array whose buffers the host can read. The contents are not trusted: the functions return an
/// error if an index is out of range.
pub struct HostArray<'a> {
    pub(super) array: &'a DeviceArray,
    pub(super) layout: Layout<'a>,
    buffers: Vec<Option<HostView<'a>>>,
    pub(super) children: Vec<HostArray<'a>>,
    pub(super) dictionary: Option<Box<HostArray<'a>>>,
}

impl<'a> HostArray<'a> {
    /// Makes an array's buffers readable by the host. All lengths must be known.
    pub fn new(array: &'a DeviceArray, stream: &Stream) -> Result<Self> {
        let view = |buffer: &'a Option<_>| {
            buffer.as_ref().map(|b: &'a crossdock_memory::Buffer| b.host_view(stream)).transpose()
        };
        Ok(Self {
            array,
            layout: layout(array.data_type()),
            buffers: array.buffers().iter().map(view).collect::<Result<_>>()?,
            children: array.children().iter().map(|child| Self::new(child, stream)).collect::<Result<_>>()?,
            dictionary: array.dictionary().map(|d| Self::new(d, stream).map(Box::new)).transpose()?,
        })
    }

    /// Like [`Self::new`], but leaves out the dictionary of a dictionary array.
    pub fn keys(array: &'a DeviceArray, stream: &Stream) -> Result<Self> {
        let view = |buffer: &'a Option<crossdock_memory::Buffer>| {
            buffer.as_ref().map(|buffer| buffer.host_view(stream)).transpose()
        };
        Ok(Self {
            array,
            layout: layout(array.data_type()),
            buffers: array.buffers().iter().map(view).collect::<Result<_>>()?,
            children: Vec::new(),
            dictionary: None,
        })
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.array.is_empty()
    }

    /// The data type.
    pub fn data_type(&self) -> &'a DataType {
        self.array.data_type()
    }

    /// Buffer `i` of the layout, not counting the validity bitmap. Empty if the buffer is missing.
    pub(super) fn buffer(&self, i: usize) -> &[u8] {
        let i = i + usize::from(self.layout.has_validity);
        self.buffers.get(i).and_then(Option::as_deref).unwrap_or(&[])
    }

    /// The validity bitmap; `None` if no value is null.
    pub(super) fn validity(&self) -> Option<&[u8]> {
        let may_have_nulls = self.layout.has_validity && self.array.null_count() != Some(0);
        may_have_nulls.then(|| self.buffers.first()?.as_deref()).flatten()
    }

    /// Whether value `i` is null according to the bitmap.
    pub(super) fn is_null(&self, i: usize) -> bool {
        self.layout.all_null || self.validity().is_some_and(|bits| !bit(bits, self.array.offset() + i))
    }

    /// Returns bytes `start..start + n` of buffer `i`.
    pub(super) fn range(&self, i: usize, start: usize, n: usize) -> Result<&[u8]> {
        let end = start.checked_add(n);
        end.and_then(|end| self.buffer(i).get(start..end)).ok_or_else(|| {
            self.wrong(format!("bytes {start}..+{n} lie outside a buffer of {} bytes", self.buffer(i).len()))
        })
    }

    /// Returns entry `at` of buffer `i`, a non-negative little-endian integer of `width` bytes.
    pub(super) fn index(&self, i: usize, width: usize, at: usize) -> Result<usize> {
        let bytes = self.range(i, at.saturating_mul(width), width)?;
        let value = signed(bytes);
        usize::try_from(value).map_err(|_| self.wrong(format!("offset {at} is {value}, expected 0 or more")))
    }

    /// Returns the dictionary key of value `i`.
    pub(super) fn dictionary_key(&self, i: usize) -> Result<usize> {
        let width = self.key_width()?;
        let bytes = self.range(0, (self.array.offset() + i).saturating_mul(width), width)?;
        let unsigned = matches!(self.layout.dictionary, Some((keys, _)) if keys.is_unsigned_integer());
        let key = if unsigned { i128::from(unsigned_value(bytes)) } else { i128::from(signed(bytes)) };
        usize::try_from(key)
            .map_err(|_| self.wrong(format!("dictionary key {i} is {key}, expected 0 or more")))
    }

    pub(super) fn key_width(&self) -> Result<usize> {
        match self.layout.buffers() {
            [BufferKind::Fixed { bytes }] => Ok(*bytes),
            _ => Err(Error::internal(format!("{} has no keys", crate::type_name(self.data_type())))),
        }
    }

    /// Returns the begin and the end of value `i` according to the offsets.
    pub(super) fn extent(&self, width: usize, i: usize) -> Result<(usize, usize)> {
        let at = self.array.offset() + i;
        let (begin, end) = (self.index(0, width, at)?, self.index(0, width, at + 1)?);
        if begin > end {
            return Err(self.wrong(format!("value {i} ends at {end}, expected {begin} or more")));
        }
        Ok((begin, end))
    }

    /// Returns the bytes of view `i`, which are in the view itself or in a data buffer.
    pub(super) fn view(&self, i: usize) -> Result<&[u8]> {
        let at = (self.array.offset() + i).saturating_mul(16);
        let view = self.range(0, at, 16)?;
        let word = |from: usize| signed(view.get(from..from + 4).unwrap_or_default());
        let n = usize::try_from(word(0))
            .map_err(|_| self.wrong(format!("view {i} has length {}, expected 0 or more", word(0))))?;
        if n <= 12 {
            return self.range(0, at + 4, n);
        }
        match (usize::try_from(word(8)), usize::try_from(word(12))) {
            (Ok(buffer), Ok(start)) => self.range(1 + buffer, start, n),
            _ => Err(self.wrong(format!(
                "view {i} refers to data buffer {} at byte {}, which does not exist",
                word(8),
                word(12)
            ))),
        }
    }

    /// Returns the index of the child that holds value `i` of a union, and the row in that child.
    pub(super) fn member(&self, i: usize) -> Result<(usize, usize)> {
        let at = self.array.offset() + i;
        let id = self.range(0, at, 1)?.first().map_or(-1, |b| *b as i8);
        let child = match self.data_type() {
            DataType::Union(fields, _) => fields.iter().position(|(known, _)| known == id),
            _ => None,
        };
        let child = child.ok_or_else(|| self.wrong(format!("value {i} has the unknown type id {id}")))?;
        let row = if self.layout.child_rule == ChildRule::Dense { self.index(1, 4, at)? } else { at };
        Ok((child, row))
    }

    /// Returns the index of the run that contains value `i`, and the number of values from `i` to
    /// the end of the run.
    pub(super) fn run(&self, i: usize) -> Result<(usize, usize)> {
        let [ends, _] = self.children.as_slice() else {
            return Err(Error::internal("runs without children"));
        };
        let [BufferKind::Fixed { bytes: width }] = *ends.layout.buffers() else {
            return Err(Error::internal("run ends are not integers"));
        };
        let at = self.array.offset() + i;
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if ends.index(0, width, ends.array.offset() + middle)? > at {
                high = middle
            } else {
                low = middle + 1
            }
        }
        if low == ends.len() {
            return Err(self.wrong(format!("value {i} lies after the last run")));
        }
        Ok((low, ends.index(0, width, ends.array.offset() + low)? - at))
    }

    pub(super) fn wrong(&self, what: String) -> Error {
        Error::bad_data(format!("an array of type {}: {what}", crate::type_name(self.data_type())))
    }
}

/// A little-endian signed integer of up to 8 bytes.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let shift = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned_value(bytes) << shift) as i64 >> shift
}

/// A little-endian unsigned integer of up to 8 bytes.
pub(super) fn unsigned_value(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
