//! Builds arrays on the host from ranges of other arrays.

use crate::layout::{BufferKind, ChildRule, layout};
use crate::{DeviceArray, Error};
use arrow_schema::DataType;
use crossdock_memory::{Buffer, Result, Stream};

use super::bits::{Bits, count_set};
use super::view::HostArray;

/// Maximum number of values. An array without buffers can declare any length, but the builder
/// allocates a validity bit for each value.
const MAX_VALUES: usize = 1 << 30;

/// A growable array in host memory.
pub struct Builder {
    pub(super) data_type: DataType,
    pub(super) len: usize,
    nulls: usize,
    pub(super) validity: Bits,
    bits: Bits,
    /// The buffers of the layout, without the validity bitmap. For view types, a data buffer is
    /// added as the last entry.
    buffers: Vec<Vec<u8>>,
    pub(super) children: Vec<Builder>,
    /// The dictionaries to which the keys refer. The number next to a dictionary is added to each
    /// key that refers to this dictionary.
    dictionaries: Vec<(DeviceArray, usize)>,
}

impl Builder {
    /// Creates an empty builder.
    pub fn new(data_type: &DataType) -> Self {
        let row = layout(data_type);
        let n_buffers = row.buffers().len() + usize::from(row.variadic);
        let mut buffers = vec![Vec::new(); n_buffers];
        if let ([BufferKind::Offsets { width }, ..], Some(offsets)) = (row.buffers(), buffers.first_mut()) {
            offsets.resize(*width, 0);
        }
        Self {
            len: 0,
            nulls: 0,
            validity: Bits::default(),
            bits: Bits::default(),
            buffers,
            children: row.children.iter().map(|field| Self::new(field.data_type())).collect(),
            dictionaries: Vec::new(),
            data_type: data_type.clone(),
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends values `start..start + len` of `from`.
    pub fn append(&mut self, from: &HostArray<'_>, start: usize, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if start.checked_add(len).is_none_or(|end| end > from.len()) {
            return Err(from.wrong(format!("values {start}..+{len} lie outside the {} values", from.len())));
        }
        if self.len.saturating_add(len) > MAX_VALUES {
            return Err(Error::unsupported(format!(
                "cannot concatenate dictionaries of more than {MAX_VALUES} values"
            )));
        }
        let at = from.array.offset() + start;
        if from.layout.has_validity {
            match from.validity() {
                Some(bits) => {
                    self.nulls += len - count_set(bits, at, len);
                    self.validity.extend(bits, at, len);
                }
                None => self.validity.extend_set(len),
            }
        }
        match *from.layout.buffers() {
            [BufferKind::Bits] => self.bits.extend(from.buffer(0), at, len),
            [BufferKind::Fixed { bytes }] if from.layout.dictionary.is_some() => {
                self.append_keys(from, start, len, bytes)?;
            }
            [BufferKind::Fixed { bytes }] => self.append_bytes(from, at, len, bytes)?,
            [BufferKind::TypeIds] => self.append_bytes(from, at, len, 1)?,
            [BufferKind::Offsets { width }, BufferKind::Data] => {
                let (begin, end) = self.append_offsets(from, start, len, width)?;
                let data = from.range(1, begin, end - begin)?;
                self.buffer(1)?.extend_from_slice(data);
            }
            [BufferKind::Offsets { width }] => {
                let (begin, end) = self.append_offsets(from, start, len, width)?;
                self.append_child(from, 0, begin, end - begin)?;
            }
            [BufferKind::Views] => self.append_views(from, start, len)?,
            [BufferKind::ViewOffsets { width }, _] => self.append_list_views(from, start, len, width)?,
            [BufferKind::TypeIds, _] => self.append_dense(from, start, len)?,
            [] => {}
            _ => {
                return Err(Error::internal(format!("type {} has an unknown layout", self.data_type)));
            }
        }
        match from.layout.child_rule {
            ChildRule::SameRows => {
                (0..self.children.len()).try_for_each(|i| self.append_child(from, i, at, len))?
            }
            ChildRule::Times(n) => self.append_child(from, 0, at.saturating_mul(n), len.saturating_mul(n))?,
            ChildRule::Runs => self.append_runs(from, start, len)?,
            _ => {}
        }
        self.len += len;
        Ok(())
    }

    pub(super) fn buffer(&mut self, i: usize) -> Result<&mut Vec<u8>> {
        self.buffers.get_mut(i).ok_or_else(|| Error::internal("the layout has no such buffer"))
    }

    pub(super) fn append_bytes(
        &mut self,
        from: &HostArray<'_>,
        at: usize,
        len: usize,
        width: usize,
    ) -> Result<()> {
        let bytes = from.range(0, at.saturating_mul(width), len.saturating_mul(width))?;
        self.buffer(0)?.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn append_child(
        &mut self,
        from: &HostArray<'_>,
        i: usize,
        start: usize,
        len: usize,
    ) -> Result<()> {
        match (self.children.get_mut(i), from.children.get(i)) {
            (Some(child), Some(from)) => child.append(from, start, len),
            _ => Err(Error::internal("an array has a child that the layout does not have")),
        }
    }

    /// Appends `len` offsets, converted so that the new data begins at the end of this builder's
    /// data. Returns the range of the data of `from` that the values use.
    fn append_offsets(
        &mut self,
        from: &HostArray<'_>,
        start: usize,
        len: usize,
        width: usize,
    ) -> Result<(usize, usize)> {
        let (first, _) = from.extent(width, start)?;
        let mut last = first;
        let offsets = self.buffer(0)?;
        let base = offsets.len().checked_sub(width).and_then(|at| offsets.get(at..)).unwrap_or_default();
        let base = super::view::unsigned_value(base) as usize;
        for i in start..start + len {
            last = from.extent(width, i)?.1;
            super::append::put(offsets, base.saturating_add(last - first), width)?;
        }
        Ok((first, last))
    }

    fn append_keys(&mut self, from: &HostArray<'_>, start: usize, len: usize, width: usize) -> Result<()> {
        let dictionary = from.array.dictionary().ok_or_else(|| Error::internal("a dictionary is missing"))?;
        let known = self.dictionaries.iter().find(|(known, _)| same_buffers(known, dictionary));
        let base = match known {
            Some((_, base)) => *base,
            None => {
                let base = self.dictionaries.last().map_or(0, |(last, base)| base + last.len());
                self.dictionaries.push((dictionary.clone(), base));
                base
            }
        };
        if base == 0 {
            return self.append_bytes(from, from.array.offset() + start, len, width);
        }
        for i in start..start + len {
            let key = if from.is_null(i) { 0 } else { from.dictionary_key(i)?.saturating_add(base) };
            self.push_key(key, width)?;
        }
        Ok(())
    }

    fn push_key(&mut self, key: usize, width: usize) -> Result<()> {
        let max_key = match &self.data_type {
            DataType::Dictionary(keys, _) if keys.is_unsigned_integer() => u64::MAX >> (64 - 8 * width),
            _ => u64::MAX >> (65 - 8 * width),
        };
        if key as u64 > max_key {
            return Err(Error::unsupported(format!(
                "dictionary key {key} does not fit into an array of type {}",
                crate::type_name(&self.data_type)
            )));
        }
        self.buffer(0)?.extend(key.to_le_bytes().iter().take(width));
        Ok(())
    }

    /// Creates the array on the device of `stream`.
    pub fn finish(self, stream: &Stream) -> Result<DeviceArray> {
        let row = layout(&self.data_type);
        let mut buffers = Vec::new();
        if row.has_validity {
            let bits = self.validity.into_bytes();
            buffers.push(if self.nulls > 0 { upload(&bits, stream)? } else { None });
        }
        let bits = self.bits.into_bytes();
        for (i, bytes) in self.buffers.iter().enumerate() {
            let bytes = if row.buffers().get(i) == Some(&BufferKind::Bits) { &bits } else { bytes };
            let variadic = row.variadic && i == row.buffers().len();
            if !(variadic && bytes.is_empty()) {
                buffers.push(upload(bytes, stream)?);
            }
        }
        let children = self.children.into_iter().map(|child| child.finish(stream)).collect::<Result<_>>()?;
        let dictionary = match (row.dictionary, self.dictionaries.as_slice()) {
            (None, _) => None,
            (Some((_, values)), []) => Some(DeviceArray::empty(values)?),
            (Some(_), [(only, _)]) => Some(only.clone()),
            (Some((_, values)), several) => {
                let dictionaries: Vec<_> = several.iter().map(|(dictionary, _)| dictionary).collect();
                Some(super::concat(values, &dictionaries, stream)?)
            }
        };
        let nulls = if row.all_null { self.len } else { self.nulls };
        DeviceArray::try_new(self.data_type.clone(), self.len, 0, Some(nulls), buffers, children, dictionary)
    }
}

fn upload(bytes: &[u8], stream: &Stream) -> Result<Option<Buffer>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let buffer = stream.memory().alloc_with(stream, bytes.len(), |to| {
        to.copy_from_slice(bytes);
        Ok(())
    })?;
    buffer.freeze(stream).map(Some)
}

/// Whether two arrays use the same ranges of memory at all nesting levels, which implies that their
/// values are equal. Both arrays are alive, so equal addresses mean the same memory.
pub fn same_buffers(a: &DeviceArray, b: &DeviceArray) -> bool {
    let same = |a: &Option<Buffer>, b: &Option<Buffer>| match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.address() == b.address() && a.len() == b.len() && a.device() == b.device(),
        _ => false,
    };
    a.len() == b.len()
        && a.offset() == b.offset()
        && a.data_type() == b.data_type()
        && a.buffers().len() == b.buffers().len()
        && a.buffers().iter().zip(b.buffers()).all(|(a, b)| same(a, b))
        && a.children().len() == b.children().len()
        && a.children().iter().zip(b.children()).all(|(a, b)| same_buffers(a, b))
        && match (a.dictionary(), b.dictionary()) {
            (None, None) => true,
            (Some(a), Some(b)) => same_buffers(a, b),
            _ => false,
        }
}
