//! Reads an array's contents on the host, value by value. The contents are not trusted: a value
//! whose index is out of range is returned as [`Value::Malformed`].

use std::ops::Range;

use arrow_schema::DataType;
use crossdock_memory::{Buffer, HostView, Result, Stream};

use crate::DeviceArray;
use crate::layout::{BufferKind, ChildRule, Children, Layout};

/// An array whose buffers the host can read.
pub(crate) struct HostArray<'a> {
    array: &'a DeviceArray,
    layout: Layout<'a>,
    buffers: Vec<Option<HostView<'a>>>,
    children: Vec<HostArray<'a>>,
    dictionary: Option<Box<HostArray<'a>>>,
    validity: bool,
}

/// One value. Dictionary keys and runs are replaced by the values that they refer to.
pub(crate) enum Value<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// The bytes of a fixed-width or variable-length value, and the array that determines its type.
    Bytes(&'a HostArray<'a>, &'a [u8]),
    /// A list: the array of its elements, and the range of rows in that array.
    List(&'a HostArray<'a>, Range<usize>),
    /// A struct: its array, and the row in each child.
    Struct(&'a HostArray<'a>, usize),
    /// A value of a union: the array of the child, the type id, and the row in the child.
    Union(&'a HostArray<'a>, i8, usize),
    /// The contents refer to a value that does not exist, so there is no value.
    Malformed,
}

impl<'a> HostArray<'a> {
    /// Makes the buffers of an array readable by the host. Copies the buffers that the host cannot
    /// read. All sizes must be known.
    pub(crate) fn new(array: &'a DeviceArray, stream: &Stream) -> Result<Self> {
        let layout = array.layout();
        let validity = array.validity().is_some();
        let view =
            |slot: &'a Option<Buffer>| slot.as_ref().map(|buffer| buffer.host_view(stream)).transpose();
        let buffers = array.buffers().iter().map(view).collect::<Result<_>>()?;
        let children =
            array.children().iter().map(|child| Self::new(child, stream)).collect::<Result<_>>()?;
        let dictionary = array.dictionary().map(|d| Self::new(d, stream).map(Box::new)).transpose()?;
        Ok(Self { array, layout, buffers, children, dictionary, validity })
    }

    pub(crate) fn len(&self) -> usize {
        self.array.len()
    }

    pub(crate) fn data_type(&self) -> &'a DataType {
        self.array.data_type()
    }

    pub(crate) fn children(&self) -> &[HostArray<'a>] {
        &self.children
    }

    /// The names of the children.
    pub(crate) fn child_names(&self) -> impl Iterator<Item = &'a str> {
        self.layout.children.iter().map(|field| field.name().as_str())
    }

    /// The bytes of buffer `i` of the layout, not counting the validity bitmap.
    fn bytes(&self, i: usize) -> &[u8] {
        self.buffer(i + usize::from(self.layout.has_validity))
    }

    fn buffer(&self, i: usize) -> &[u8] {
        self.buffers.get(i).and_then(Option::as_ref).map_or(&[], |view| view)
    }

    /// The bytes of all values of a fixed-width array without nulls; `None` for other arrays. These
    /// bytes can be compared without reading value by value.
    pub(crate) fn plain_bytes(&self) -> Option<&[u8]> {
        let [BufferKind::Fixed { bytes }] = self.layout.buffers() else { return None };
        if self.validity || self.dictionary.is_some() {
            return None;
        }
        let start = self.array.offset().checked_mul(*bytes)?;
        self.bytes(0).get(start..start.checked_add(self.len().checked_mul(*bytes)?)?)
    }

    /// Returns value `i`, where index 0 is the first value of the array.
    pub(crate) fn value(&'a self, i: usize) -> Value<'a> {
        if i >= self.len() {
            return Value::Malformed;
        }
        self.at(self.array.offset() + i).unwrap_or(Value::Malformed)
    }

    /// Returns value `i`, where index 0 is the start of the buffers.
    fn at(&'a self, i: usize) -> Option<Value<'a>> {
        if self.layout.all_null || (self.validity && !bit(self.buffer(0), i)?) {
            return Some(Value::Null);
        }
        if let Some(dictionary) = &self.dictionary {
            let BufferKind::Fixed { bytes } = self.layout.kind(1)? else { return None };
            let signed = self.layout.dictionary?.0.is_signed_integer();
            let key = integer(self.bytes(0), i, bytes, signed)?;
            return Some(dictionary.value(usize::try_from(key).ok()?));
        }
        match self.layout.child_rule {
            ChildRule::SameRows | ChildRule::Dense if matches!(self.layout.children, Children::Union(_)) => {
                self.union_value(i)
            }
            ChildRule::SameRows => Some(Value::Struct(self, i)),
            ChildRule::Times(n) => self.list(i.checked_mul(n)?, n),
            ChildRule::Offsets => {
                let range = self.range(i)?;
                self.list(range.start, range.len())
            }
            ChildRule::Views => {
                let width = self.layout.kind(1)?.width()?;
                let entry = |b| usize::try_from(integer(self.bytes(b), i, width, true)?).ok();
                self.list(entry(0)?, entry(1)?)
            }
            ChildRule::Runs => self.run_value(i),
            ChildRule::Dense => None,
            ChildRule::None => self.leaf(i),
        }
    }

    fn leaf(&'a self, i: usize) -> Option<Value<'a>> {
        let bytes = match *self.layout.buffers().first()? {
            BufferKind::Bits => return Some(Value::Bool(bit(self.bytes(0), i)?)),
            BufferKind::Fixed { bytes } => self.bytes(0).get(i * bytes..(i + 1) * bytes)?,
            BufferKind::Offsets { .. } => self.bytes(1).get(self.range(i)?)?,
            BufferKind::Views => self.view(i)?,
            _ => return None,
        };
        Some(Value::Bytes(self, bytes))
    }

    /// The range of bytes or child rows of value `i` according to the offsets.
    fn range(&self, i: usize) -> Option<Range<usize>> {
        let width = self.layout.buffers().first()?.width()?;
        let entry = |i| usize::try_from(integer(self.bytes(0), i, width, true)?).ok();
        let (begin, end) = (entry(i)?, entry(i + 1)?);
        (begin <= end).then_some(begin..end)
    }

    fn list(&'a self, first: usize, len: usize) -> Option<Value<'a>> {
        let child = self.children.first()?;
        let end = first.checked_add(len).filter(|end| *end <= child.len())?;
        Some(Value::List(child, first..end))
    }

    fn view(&self, i: usize) -> Option<&[u8]> {
        let view = self.bytes(0).get(i * 16..(i + 1) * 16)?;
        let word = |n| usize::try_from(integer(view, n, 4, true)?).ok();
        let len = word(0)?;
        if len <= 12 {
            return view.get(4..4 + len);
        }
        let offset = word(3)?;
        self.bytes(word(2)?.checked_add(1)?).get(offset..offset.checked_add(len)?)
    }

    fn union_value(&'a self, i: usize) -> Option<Value<'a>> {
        let id = *self.bytes(0).get(i)? as i8;
        let Children::Union(fields) = self.layout.children else { return None };
        let child = fields.iter().position(|(known, _)| known == id)?;
        let row = match self.layout.child_rule {
            ChildRule::Dense => usize::try_from(integer(self.bytes(1), i, 4, true)?).ok()?,
            _ => i,
        };
        Some(Value::Union(self.children.get(child)?, id, row))
    }

    fn run_value(&'a self, i: usize) -> Option<Value<'a>> {
        Some(self.children.get(1)?.value(self.run_of(i)?))
    }

    /// The index of the run that contains value `i`, where index 0 is the start of the buffers.
    fn run_of(&self, i: usize) -> Option<usize> {
        let ends = self.children.first()?;
        let width = ends.layout.buffers().first()?.width()?;
        let end = |run: usize| integer(ends.bytes(0), ends.array.offset() + run, width, true);
        // Searches for the first run that ends after `i`.
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if end(middle)? > i as i128 { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }

    /// The rows of child `index` that belong to row `row`; `None` if the child has no such rows, or
    /// if the contents are malformed.
    pub(crate) fn child_rows(&'a self, index: usize, row: usize) -> Option<Range<usize>> {
        if self.layout.child_rule == ChildRule::Runs {
            let run = self.run_of(self.array.offset() + row)?;
            return Some(run..run + 1);
        }
        match self.value(row) {
            Value::List(_, range) => Some(range),
            Value::Struct(_, i) => Some(i..i + 1),
            Value::Union(child, _, i) => std::ptr::eq(child, self.children.get(index)?).then_some(i..i + 1),
            _ => None,
        }
    }
}

fn bit(bits: &[u8], i: usize) -> Option<bool> {
    bits.get(i / 8).map(|byte| byte >> (i % 8) & 1 == 1)
}

/// Returns integer `i` of a buffer of integers, each `width` bytes wide (at most 8).
pub(crate) fn integer(bytes: &[u8], i: usize, width: usize, signed: bool) -> Option<i128> {
    let bytes = bytes.get(i.checked_mul(width)?..)?.get(..width)?;
    Some(match (bytes, signed) {
        (&[a], true) => i8::from_ne_bytes([a]).into(),
        (&[a], false) => a.into(),
        (&[a, b], true) => i16::from_ne_bytes([a, b]).into(),
        (&[a, b], false) => u16::from_ne_bytes([a, b]).into(),
        (&[a, b, c, d], true) => i32::from_ne_bytes([a, b, c, d]).into(),
        (&[a, b, c, d], false) => u32::from_ne_bytes([a, b, c, d]).into(),
        (&[a, b, c, d, e, f, g, h], true) => i64::from_ne_bytes([a, b, c, d, e, f, g, h]).into(),
        (&[a, b, c, d, e, f, g, h], false) => u64::from_ne_bytes([a, b, c, d, e, f, g, h]).into(),
        _ => return None,
    })
}
