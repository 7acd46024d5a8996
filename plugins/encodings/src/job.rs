//! Decoding one node: its children, its buffers, and memory for what becomes of it.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_memory::{Buffer, HostView, Memory, Stream};
use crossdock_plugin_api::{EncodedNode, Error, Result, Validate};

use crate::node::Node;
use crate::validity::Validity;

/// What a decoder works with.
pub struct Job<'a> {
    /// The node.
    pub node: Node<'a>,
    /// The nodes below it, in pre-order, where they were asked for decoded.
    pub below: Vec<Option<DeviceArray>>,
    /// Where memory comes from.
    pub memory: &'a Memory,
    /// Where work goes.
    pub stream: &'a Stream,
    /// Whether text is to be looked at.
    pub validate: Validate,
}

impl Job<'_> {
    /// The same work for another number of values of the node's type; nothing below it is at hand.
    pub fn part(&self, len: usize) -> Self {
        let node = Node { raw: self.node.raw, field: self.node.field.clone(), len };
        Self { node, below: Vec::new(), ..*self }
    }

    /// Child `i`, decoded.
    pub fn child(&self, i: usize) -> Result<&DeviceArray> {
        self.decoded(self.node.raw.child(i)?)
    }

    /// A node below it, decoded.
    pub fn decoded(&self, node: EncodedNode<'_>) -> Result<&DeviceArray> {
        let at = node.index().checked_sub(self.node.raw.index() + 1);
        let array = at.and_then(|at| self.below.get(at)).and_then(Option::as_ref);
        array.ok_or_else(|| node.wrong("it was not decoded before the node above it"))
    }

    /// Takes buffer `i`: an address that suits values of `alignment` bytes. `None` where it has no bytes.
    pub fn take_buffer(&self, i: usize, alignment: usize) -> Result<Option<Buffer>> {
        self.take_buffer_of(self.node.raw, i, alignment)
    }

    /// The same of a node below it that is left as it is.
    pub fn take_buffer_of(
        &self,
        node: EncodedNode<'_>,
        i: usize,
        alignment: usize,
    ) -> Result<Option<Buffer>> {
        // SAFETY: this is who decodes the node, on one thread; who made the array vouches for its buffers.
        let Some(buffer) = (unsafe { Buffer::of_encoded(node.take_buffer(i)?) }) else {
            return Ok(None);
        };
        if buffer.address().is_multiple_of(alignment as u64) {
            return Ok(Some(buffer));
        }
        self.copy(&buffer.host_view(self.stream)?).map(Some)
    }

    /// A new buffer of `bytes` bytes that `fill`, which is called once, writes.
    // Neither this nor `make_values` is compiled again for each closure: there are hundreds.
    pub fn make(&self, bytes: usize, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Buffer> {
        self.memory.alloc_with(self.stream, bytes, fill)?.freeze(self.stream)
    }

    /// A new buffer with these bytes.
    pub fn copy(&self, bytes: &[u8]) -> Result<Buffer> {
        self.make(bytes.len(), &mut |to| {
            to.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// A new buffer of `len` values that `fill`, which is called once, writes.
    pub fn make_values<T: Plain>(
        &self,
        len: usize,
        fill: &mut dyn FnMut(&mut [T]) -> Result<()>,
    ) -> Result<Buffer> {
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| self.node.wrong("its values are more than there can be"))?;
        self.make(bytes, &mut |to| fill(values_mut(to)?))
    }

    /// Whether there is memory for so many bytes, which somebody else will allocate.
    pub fn afford(&self, bytes: usize) -> Result<()> {
        self.memory.alloc(self.stream, bytes).map(drop)
    }

    /// The array of `data_type` without children: values after their validity.
    pub fn array(
        &self,
        data_type: &DataType,
        validity: Validity,
        values: Vec<Option<Buffer>>,
    ) -> Result<DeviceArray> {
        let mut buffers = Vec::with_capacity(1 + values.len());
        buffers.push(validity.bits);
        buffers.extend(values);
        DeviceArray::try_new(
            data_type.clone(),
            self.node.len,
            0,
            validity.null_count,
            buffers,
            Vec::new(),
            None,
        )
    }
}

/// Numbers of which any bytes are one.
///
/// # Safety
/// Every pattern of bits is a value, and there is no padding.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain { ($($t:ty),*) => { $(
    // SAFETY: a number.
    unsafe impl Plain for $t {}
)* } }
plain!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, [u64; 4], [i128; 2], [u8; 16]);

/// The bytes as values.
///
/// # Errors
/// They are not aligned for it, or no whole number of them.
pub fn values<T: Plain>(bytes: &[u8]) -> Result<&[T]> {
    // SAFETY: any bytes are values of `T`, and none of them is padding.
    let (before, values, after) = unsafe { bytes.align_to::<T>() };
    if before.is_empty() && after.is_empty() { Ok(values) } else { Err(askew::<T>(bytes)) }
}

/// The same to write to.
pub fn values_mut<T: Plain>(bytes: &mut [u8]) -> Result<&mut [T]> {
    let error = askew::<T>(bytes);
    // SAFETY: as above.
    let (before, values, after) = unsafe { bytes.align_to_mut::<T>() };
    if before.is_empty() && after.is_empty() { Ok(values) } else { Err(error) }
}

fn askew<T>(bytes: &[u8]) -> Error {
    Error::internal(format!(
        "{} bytes at {:p} are no values of {} bytes each",
        bytes.len(),
        bytes.as_ptr(),
        size_of::<T>()
    ))
}

/// An array's buffer of values, on the host, from its offset on.
pub struct Values<'a> {
    view: Option<HostView<'a>>,
    begin: usize,
    bytes: usize,
}

impl<'a> Values<'a> {
    /// Of an array of a type of fixed width, or of views.
    pub fn of(array: &'a DeviceArray, stream: &Stream) -> Result<Self> {
        let views = matches!(array.data_type(), DataType::Utf8View | DataType::BinaryView);
        let width = if views { Some(16) } else { array.data_type().primitive_width() };
        let width =
            width.ok_or_else(|| Error::internal(format!("{} has no fixed width", array.data_type())))?;
        let (begin, bytes) = (array.offset() * width, array.len() * width);
        let buffer = array.buffers().get(1).and_then(Option::as_ref).filter(|_| bytes > 0);
        let view = buffer.map(|buffer| buffer.host_view(stream)).transpose()?;
        let there = view.as_ref().map_or(0, |view| view.len());
        if bytes > 0 && there < begin + bytes {
            return Err(Error::internal(format!("an array of {} values has {there} bytes", array.len())));
        }
        Ok(Self { view, begin, bytes })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8] = self.view.as_ref().map_or(&[], |view| view);
        all.get(self.begin..self.begin + self.bytes).unwrap_or_default()
    }

    /// As numbers.
    pub fn get<T: Plain>(&self) -> Result<&[T]> {
        values(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_memory::Device;
    use crossdock_test_support::TestHost;

    #[test]
    fn values_are_those_from_the_offset_on() {
        let host = TestHost::new();
        let stream = host.stream(Device::CPU);
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&[1i32, 2, 3, 4].map(i32::to_ne_bytes).concat());
            Ok(())
        };
        let buffer = host.memory().alloc_with(&stream, 16, fill).unwrap().freeze(&stream).unwrap();
        let array = |offset, len| {
            let buffers = vec![None, Some(buffer.clone())];
            DeviceArray::try_new(DataType::Int32, len, offset, Some(0), buffers, vec![], None).unwrap()
        };
        for (offset, expected) in [(0, &[1i32, 2, 3, 4][..]), (2, &[3, 4]), (3, &[4]), (4, &[])] {
            let array = array(offset, expected.len());
            let values = Values::of(&array, &stream).unwrap();
            assert_eq!(values.get::<i32>().unwrap(), expected);
        }
    }
}
