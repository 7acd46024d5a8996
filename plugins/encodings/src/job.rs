//! Gives decoders access to one node's decoded children, buffers and output memory.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_memory::{Buffer, HostView, Memory, Stream};
use crossdock_plugin_api::{EncodedNode, Error, Result, Validate};

use crate::node::Node;
use crate::validity::Validity;

/// The inputs of a decoder.
pub struct Job<'a> {
    /// The node to decode.
    pub node: Node<'a>,
    /// The descendants of the node in pre-order. An entry is `Some` if the node's plan requires
    /// that the descendant is decoded.
    pub below: Vec<Option<DeviceArray>>,
    pub memory: &'a Memory,
    /// The stream that device work runs on.
    pub stream: &'a Stream,
    /// Whether text is checked for valid UTF-8.
    pub validate: Validate,
}

impl Job<'_> {
    /// Creates a job for an array of `len` values of the node's type. The job has no decoded nodes.
    pub fn part(&self, len: usize) -> Self {
        let node = Node { raw: self.node.raw, field: self.node.field.clone(), len };
        Self { node, below: Vec::new(), ..*self }
    }

    /// Child `i`, decoded.
    pub fn child(&self, i: usize) -> Result<&DeviceArray> {
        self.decoded(self.node.raw.child(i)?)
    }

    /// Returns the decoded array of a node of the subtree.
    pub fn decoded(&self, node: EncodedNode<'_>) -> Result<&DeviceArray> {
        let at = node.index().checked_sub(self.node.raw.index() + 1);
        let array = at.and_then(|at| self.below.get(at)).and_then(Option::as_ref);
        array.ok_or_else(|| node.wrong("the node was not decoded before its parent"))
    }

    /// Takes buffer `i`. The result is aligned to `alignment` bytes; `None` if the buffer is empty.
    pub fn take_buffer(&self, i: usize, alignment: usize) -> Result<Option<Buffer>> {
        self.take_buffer_of(self.node.raw, i, alignment)
    }

    /// Takes buffer `i` of a node of the subtree that is not decoded separately.
    pub fn take_buffer_of(
        &self,
        node: EncodedNode<'_>,
        i: usize,
        alignment: usize,
    ) -> Result<Option<Buffer>> {
        // SAFETY: only the decoder of the node takes its buffers, on one thread; `EncodedArray`
        // requires that the buffers describe valid memory.
        let Some(buffer) = (unsafe { Buffer::from_encoded(node.take_buffer(i)?) }) else {
            return Ok(None);
        };
        if buffer.address().is_multiple_of(alignment as u64) {
            return Ok(Some(buffer));
        }
        self.copy(&buffer.host_view(self.stream)?).map(Some)
    }

    /// Allocates a buffer of `bytes` bytes and calls `fill` once to write it.
    // `fill` is `dyn`, as in `make_values`, because a generic function would be compiled for
    // hundreds of closures.
    pub fn make(&self, bytes: usize, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Buffer> {
        self.memory.alloc_with(self.stream, bytes, fill)?.freeze(self.stream)
    }

    /// Allocates a buffer with these bytes.
    pub fn copy(&self, bytes: &[u8]) -> Result<Buffer> {
        self.make(bytes.len(), &mut |to| {
            to.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Allocates a buffer of `len` values and calls `fill` once to write it.
    pub fn make_values<T: Plain>(
        &self,
        len: usize,
        fill: &mut dyn FnMut(&mut [T]) -> Result<()>,
    ) -> Result<Buffer> {
        let bytes = len.checked_mul(size_of::<T>());
        let bytes =
            bytes.ok_or_else(|| self.node.wrong("the size of the values exceeds the address space"))?;
        self.make(bytes, &mut |to| fill(values_mut(to)?))
    }

    /// Returns an error if `bytes` bytes are not available. Callers must call this function before
    /// they allocate memory that the host does not count against its budget.
    pub fn check_available(&self, bytes: usize) -> Result<()> {
        self.memory.alloc(self.stream, bytes).map(drop)
    }

    /// Builds an array of `data_type` without children. `values` are the buffers after the validity
    /// bitmap.
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

/// Types for which all bytes are valid values.
///
/// # Safety
/// Every bit pattern of the type must be a valid value, and the type must not have padding.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain { ($($t:ty),*) => { $(
    // SAFETY: integers, floats and arrays of them have no padding and no invalid bit patterns.
    unsafe impl Plain for $t {}
)* } }
plain!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, [u64; 4], [i128; 2], [u8; 16]);

/// Views bytes as values.
///
/// # Errors
/// Fails if the bytes are misaligned or their number is not a multiple of the size of `T`.
pub fn values<T: Plain>(bytes: &[u8]) -> Result<&[T]> {
    // SAFETY: `Plain` allows any bytes as values of `T`.
    let (before, values, after) = unsafe { bytes.align_to::<T>() };
    if before.is_empty() && after.is_empty() { Ok(values) } else { Err(misaligned::<T>(bytes)) }
}

/// Views bytes as mutable values.
pub fn values_mut<T: Plain>(bytes: &mut [u8]) -> Result<&mut [T]> {
    let error = misaligned::<T>(bytes);
    // SAFETY: `Plain` allows any bytes as values of `T`, and its values have no padding that a
    // write could leave undefined.
    let (before, values, after) = unsafe { bytes.align_to_mut::<T>() };
    if before.is_empty() && after.is_empty() { Ok(values) } else { Err(error) }
}

fn misaligned<T>(bytes: &[u8]) -> Error {
    Error::internal(format!(
        "{} bytes at {:p} are not aligned values of {} bytes",
        bytes.len(),
        bytes.as_ptr(),
        size_of::<T>()
    ))
}

/// The values buffer of an array on the host. The view begins at the array's offset.
pub struct Values<'a> {
    view: Option<HostView<'a>>,
    begin: usize,
    bytes: usize,
}

impl<'a> Values<'a> {
    /// The array's type must have a fixed width or be a view type.
    pub fn new(array: &'a DeviceArray, stream: &Stream) -> Result<Self> {
        let views = matches!(array.data_type(), DataType::Utf8View | DataType::BinaryView);
        let width = if views { Some(16) } else { array.data_type().primitive_width() };
        let width = width.ok_or_else(|| {
            Error::internal(format!("{} has no fixed width", crossdock_arrays::type_name(array.data_type())))
        })?;
        let (begin, bytes) = (array.offset() * width, array.len() * width);
        let buffer = array.buffers().get(1).and_then(Option::as_ref).filter(|_| bytes > 0);
        let view = buffer.map(|buffer| buffer.host_view(stream)).transpose()?;
        let available = view.as_ref().map_or(0, |view| view.len());
        if bytes > 0 && available < begin + bytes {
            return Err(Error::internal(format!(
                "the buffer of an array of {} values has only {available} bytes",
                array.len()
            )));
        }
        Ok(Self { view, begin, bytes })
    }

    /// The values as bytes.
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8] = self.view.as_ref().map_or(&[], |view| view);
        all.get(self.begin..self.begin + self.bytes).unwrap_or_default()
    }

    /// The values.
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
    fn values_of_array_begin_at_its_offset() {
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
            let values = Values::new(&array, &stream).unwrap();
            assert_eq!(values.get::<i32>().unwrap(), expected);
        }
    }
}
