//! A tree of buffers that forms one Arrow array.

use arrow_schema::DataType;
use crossdock_memory::{Buffer, Device, Error, Result};

use crate::layout::{Layout, layout};

/// An Arrow array whose buffers are on one device. It has `len` values of type `data_type`, and its
/// first value is at index `offset` of its buffers, as in the Arrow C data interface.
///
/// The buffers have the order of that interface. If the type can have a validity bitmap, entry 0 is
/// the bitmap or `None`. A view array has a validity bitmap, views and data buffers, but no buffer
/// with the sizes of its data buffers.
#[derive(Clone, Debug)]
pub struct DeviceArray {
    pub(crate) data_type: DataType,
    pub(crate) len: usize,
    pub(crate) offset: usize,
    pub(crate) null_count: Option<usize>,
    /// True if the producer declared 0 nulls, but passed a validity bitmap. The host then ignores
    /// the declared count, and counts the nulls when the number is needed.
    pub(crate) declares_no_nulls: bool,
    pub(crate) buffers: Vec<Option<Buffer>>,
    pub(crate) children: Vec<DeviceArray>,
    pub(crate) dictionary: Option<Box<DeviceArray>>,
    /// The producer's buffer with the sizes of a view array's data buffers; `None` if all these
    /// sizes are known.
    pub(crate) view_sizes: Option<Box<Buffer>>,
    /// Number of nesting levels. The array itself is level 1.
    pub(crate) depth: usize,
    /// The device of all buffers of the tree; `None` if there are no buffers.
    pub(crate) device: Option<Device>,
}

impl DeviceArray {
    /// Creates an array and checks everything that the host can check without reading contents: the
    /// number of buffers and children, lengths, types, depth, and that all buffers are on one
    /// device. `null_count` is `None` if it is unknown.
    ///
    /// A buffer of unknown length gets the length that the type and `len` imply. Buffers may be
    /// missing if `len` is 0.
    ///
    /// # Errors
    ///
    /// Returns an error if a check fails, or if a buffer is shorter than the type and `len` imply.
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
            declares_no_nulls: false,
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

    /// Creates an array with no values.
    pub fn empty(data_type: &DataType) -> Result<Self> {
        let layout = layout(data_type);
        let children = (0..layout.children.len()).filter_map(|i| layout.children.get(i));
        let children = children.map(|field| Self::empty(field.data_type())).collect::<Result<_>>()?;
        let dictionary = layout.dictionary.map(|(_, values)| Self::empty(values)).transpose()?;
        let buffers = vec![None; layout.n_buffers()];
        Self::try_new(data_type.clone(), 0, 0, Some(0), buffers, children, dictionary)
    }

    /// The data type.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The type's row in the layout table.
    pub fn layout(&self) -> Layout<'_> {
        layout(&self.data_type)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index of the array's first value in its buffers.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of null values according to the validity bitmap, or `None` if it has not been
    /// counted.
    pub fn null_count(&self) -> Option<usize> {
        self.null_count
    }

    /// The null count that the producer declared, including a count that the host ignores.
    pub(crate) fn declared_null_count(&self) -> Option<usize> {
        self.null_count.or(self.declares_no_nulls.then_some(0))
    }

    /// Whether the null counts of this array and of all its descendants are known.
    pub(crate) fn has_null_counts(&self) -> bool {
        let is_known = self.null_count.is_some() || !self.layout().has_validity;
        is_known && self.children.iter().chain(self.dictionary.as_deref()).all(Self::has_null_counts)
    }

    /// The device of all buffers; the CPU if there are none.
    pub fn device(&self) -> Device {
        self.device.unwrap_or(Device::CPU)
    }

    /// The buffers.
    pub fn buffers(&self) -> &[Option<Buffer>] {
        &self.buffers
    }

    /// The children. They are not sliced: `offset` selects the rows that belong to this array.
    pub fn children(&self) -> &[DeviceArray] {
        &self.children
    }

    /// The values that a dictionary array's keys point into.
    pub fn dictionary(&self) -> Option<&DeviceArray> {
        self.dictionary.as_deref()
    }

    /// Replaces the dictionary. The new dictionary must have the same values.
    pub(crate) fn with_dictionary(mut self, dictionary: DeviceArray) -> Self {
        self.dictionary = Some(Box::new(dictionary));
        self
    }

    /// Replaces the fields of a struct array by others of the same length.
    pub(crate) fn with_fields(mut self, data_type: DataType, children: Vec<DeviceArray>) -> Result<Self> {
        (self.data_type, self.children) = (data_type, children);
        (self.depth, self.device) = (1, None);
        self.checked()
    }

    /// Returns values `offset..offset + len` of the array, without copying their buffers.
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

    /// The null count of a slice of `len` values; `None` if the array's null count does not
    /// determine it.
    pub(crate) fn null_count_of(&self, len: usize) -> Option<usize> {
        match self.null_count {
            _ if len == 0 => Some(0),
            Some(n) if n == 0 || len == self.len => Some(n),
            Some(n) if n == self.len => Some(len),
            _ => None,
        }
    }

    /// The validity bitmap; `None` if no value is null.
    pub(crate) fn validity(&self) -> Option<&Buffer> {
        if self.null_count == Some(0) || !self.layout().has_validity {
            return None;
        }
        self.buffers.first().and_then(Option::as_ref)
    }

    /// Calls `f` for this array and all its descendants, in pre-order. The dictionary is visited
    /// after the children.
    pub(crate) fn walk<'a>(&'a self, f: &mut impl FnMut(&'a DeviceArray) -> Result<()>) -> Result<()> {
        f(self)?;
        self.children.iter().try_for_each(|child| child.walk(f))?;
        self.dictionary().map_or(Ok(()), |dictionary| dictionary.walk(f))
    }
}
