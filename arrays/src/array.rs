//! One array: a tree over buffers.

use arrow_schema::DataType;
use crossdock_memory::{Buffer, Device, Error, Result};

use crate::layout::{Layout, layout};

/// An Arrow array whose buffers lie on some device: `len` values of `data_type`, beginning at value `offset` of its
/// buffers, as in the Arrow C data interface.
///
/// Buffers stand in that interface's order, the validity's slot included where the type has one; of the view types
/// it is validity, views and the variadic buffers, without the buffer of their sizes.
#[derive(Clone, Debug)]
pub struct DeviceArray {
    pub(crate) data_type: DataType,
    pub(crate) len: usize,
    pub(crate) offset: usize,
    pub(crate) null_count: Option<usize>,
    /// The producer passed a null count of 0 and a validity bitmap. The count is not trusted: the nulls are counted when
    /// needed.
    pub(crate) claims_no_nulls: bool,
    pub(crate) buffers: Vec<Option<Buffer>>,
    pub(crate) children: Vec<DeviceArray>,
    pub(crate) dictionary: Option<Box<DeviceArray>>,
    /// A stranger's buffer of the sizes of the variadic buffers, where those are not all known.
    pub(crate) view_sizes: Option<Box<Buffer>>,
    /// Levels, this one included.
    pub(crate) depth: usize,
    /// Where all buffers of the tree lie, if there are any.
    pub(crate) device: Option<Device>,
}

impl DeviceArray {
    /// An array of these parts, after the checks that the host can do without looking at contents: how many buffers and
    /// children, how long, which types, how deep, on one device. `null_count` is `None` where nobody knows.
    ///
    /// Buffers of unknown length get the length that the type and `len` imply; a buffer that is shorter than that is
    /// refused. Where there are no values, buffers may be missing.
    pub fn try_new(
        data_type: DataType,
        len: usize,
        offset: usize,
        null_count: Option<usize>,
        buffers: Vec<Option<Buffer>>,
        children: Vec<DeviceArray>,
        dictionary: Option<DeviceArray>,
    ) -> Result<Self> {
        let array = Self {
            data_type,
            len,
            offset,
            null_count,
            claims_no_nulls: false,
            buffers,
            children,
            dictionary: dictionary.map(Box::new),
            view_sizes: None,
            depth: 1,
            device: None,
        };
        array.check_types()?;
        array.checked()
    }

    /// An array without values.
    pub fn empty(data_type: &DataType) -> Result<Self> {
        let layout = layout(data_type);
        let children = (0..layout.children.len()).filter_map(|i| layout.children.get(i));
        let children = children.map(|field| Self::empty(field.data_type())).collect::<Result<_>>()?;
        let dictionary = layout.dictionary.map(|(_, values)| Self::empty(values)).transpose()?;
        let buffers = vec![None; layout.n_buffers()];
        Self::try_new(data_type.clone(), 0, 0, Some(0), buffers, children, dictionary)
    }

    /// The type.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The type's row in the layout table.
    pub fn layout(&self) -> Layout<'_> {
        layout(&self.data_type)
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many values of its buffers come before its first.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many values are null, as the validity bitmap says, or `None` where nobody has counted.
    pub fn null_count(&self) -> Option<usize> {
        self.null_count
    }

    /// How many values are null as its maker says, whether or not that is believed.
    pub(crate) fn claimed_null_count(&self) -> Option<usize> {
        self.null_count.or(self.claims_no_nulls.then_some(0))
    }

    /// Whether this array and all below it know how many of their values are null.
    pub(crate) fn tells_null_counts(&self) -> bool {
        let own = self.null_count.is_some() || !self.layout().has_validity;
        own && self.children.iter().chain(self.dictionary.as_deref()).all(Self::tells_null_counts)
    }

    /// Where all of its buffers lie; the CPU if it has none.
    pub fn device(&self) -> Device {
        self.device.unwrap_or(Device::CPU)
    }

    /// The buffers.
    pub fn buffers(&self) -> &[Option<Buffer>] {
        &self.buffers
    }

    /// The children, whole: a row of theirs belongs to a row of ours only after `offset` has been added.
    pub fn children(&self) -> &[DeviceArray] {
        &self.children
    }

    /// The values that a dictionary array's keys point into.
    pub fn dictionary(&self) -> Option<&DeviceArray> {
        self.dictionary.as_deref()
    }

    /// The same keys over a dictionary of the same values.
    pub(crate) fn with_dictionary(mut self, dictionary: DeviceArray) -> Self {
        self.dictionary = Some(Box::new(dictionary));
        self
    }

    /// `len` values from `offset` on, in the same buffers.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Self> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::invalid_argument(format!(
                "a slice of values {offset}..+{len} lies outside an array of {} values",
                self.len
            )));
        }
        let null_count = self.null_count_of(len);
        Ok(Self { offset: self.offset + offset, len, null_count, ..self.clone() })
    }

    /// What is known about the nulls of a part of `len` values.
    pub(crate) fn null_count_of(&self, len: usize) -> Option<usize> {
        match self.null_count {
            _ if len == 0 => Some(0),
            Some(n) if n == 0 || len == self.len => Some(n),
            Some(n) if n == self.len => Some(len),
            _ => None,
        }
    }

    /// The validity bitmap, unless it says nothing because no value is null.
    pub(crate) fn validity(&self) -> Option<&Buffer> {
        if self.null_count == Some(0) || !self.layout().has_validity {
            return None;
        }
        self.buffers.first().and_then(Option::as_ref)
    }

    /// Calls `f` for this array and all below it, in the order of the C interface: children, then the dictionary.
    pub(crate) fn walk<'a>(&'a self, f: &mut impl FnMut(&'a DeviceArray) -> Result<()>) -> Result<()> {
        f(self)?;
        self.children.iter().try_for_each(|child| child.walk(f))?;
        self.dictionary().map_or(Ok(()), |dictionary| dictionary.walk(f))
    }
}
