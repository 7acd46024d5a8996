//! DLPack tensors that the suite makes: tensors of every layout, and malformed tensors.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{RecordBatch, make_array};
use arrow_buffer::Buffer as HostBuffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema};
use crossdock::Session;
use crossdock::api::{Capsule, Format, Result};
use crossdock_memory::Buffer;
use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPackVersion, DLTensor,
};

use super::counted_objects::{ReleaseCount, ReleaseCounts};
use super::leak::leak;
use super::malformed::{Malformation, invalid, unusual};
use super::random::Random;

/// The two structs in which DLPack passes a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorStruct {
    Legacy,
    Versioned,
}

impl TensorStruct {
    const ALL: [TensorStruct; 2] = [TensorStruct::Legacy, TensorStruct::Versioned];

    fn name(self) -> &'static CStr {
        match self {
            TensorStruct::Legacy => c"dltensor",
            TensorStruct::Versioned => c"dltensor_versioned",
        }
    }

    /// The structs that a format accepts.
    pub fn of(format: &Format) -> impl Iterator<Item = Self> {
        let is_accepted =
            |kind: &Self| format.capsules.iter().any(|name| name.as_bytes() == kind.name().to_bytes());
        Self::ALL.into_iter().filter(is_accepted)
    }
}

/// DLPack's element types that Arrow also has.
pub const NUMBERS: [(DLDataTypeCode, u8, DataType); 11] = [
    (DLDataTypeCode::INT, 8, DataType::Int8),
    (DLDataTypeCode::INT, 16, DataType::Int16),
    (DLDataTypeCode::INT, 32, DataType::Int32),
    (DLDataTypeCode::INT, 64, DataType::Int64),
    (DLDataTypeCode::UINT, 8, DataType::UInt8),
    (DLDataTypeCode::UINT, 16, DataType::UInt16),
    (DLDataTypeCode::UINT, 32, DataType::UInt32),
    (DLDataTypeCode::UINT, 64, DataType::UInt64),
    (DLDataTypeCode::FLOAT, 16, DataType::Float16),
    (DLDataTypeCode::FLOAT, 32, DataType::Float32),
    (DLDataTypeCode::FLOAT, 64, DataType::Float64),
];

/// The layout of a tensor's elements in memory.
pub struct Layout {
    pub name: &'static str,
    pub shape: &'static [i64],
    /// The strides in elements. `None` stands for a NULL pointer, which means row-major order and
    /// is allowed only in the legacy struct.
    pub strides: Option<&'static [i64]>,
    /// The offset of `data`, in bytes, from an address that is aligned for every element type.
    pub lead: usize,
    pub byte_offset: usize,
}

const PLAIN: Layout = Layout { name: "plain", shape: &[7], strides: Some(&[1]), lead: 0, byte_offset: 0 };

/// The layouts that cases try.
pub const LAYOUTS: [Layout; 14] = [
    PLAIN,
    Layout { name: "one element", shape: &[1], ..PLAIN },
    Layout { name: "no element", shape: &[0], ..PLAIN },
    Layout { name: "with a byte offset", byte_offset: 24, ..PLAIN },
    Layout { name: "at an odd address", lead: 1, ..PLAIN },
    Layout { name: "with an odd byte offset", byte_offset: 3, ..PLAIN },
    Layout { name: "stride 3", strides: Some(&[3]), ..PLAIN },
    Layout { name: "stride -1", strides: Some(&[-1]), ..PLAIN },
    Layout { name: "stride 0", strides: Some(&[0]), ..PLAIN },
    Layout { name: "row-major", shape: &[5, 3], strides: Some(&[3, 1]), ..PLAIN },
    Layout { name: "row-major, without strides", shape: &[5, 3], strides: None, ..PLAIN },
    Layout { name: "column-major", shape: &[5, 3], strides: Some(&[1, 5]), ..PLAIN },
    Layout { name: "rows without elements", shape: &[4, 0], strides: Some(&[1, 1]), ..PLAIN },
    Layout {
        name: "three dimensions, one with a negative stride",
        shape: &[2, 3, 2],
        strides: Some(&[1, -4, 2]),
        ..PLAIN
    },
];

impl Layout {
    /// Returns whether the struct can express the layout. The versioned struct requires strides.
    pub fn fits(&self, kind: TensorStruct) -> bool {
        self.strides.is_some() || kind == TensorStruct::Legacy
    }

    /// Returns the position of each element, in row-major order. A position is the distance from
    /// the first element, in elements.
    fn positions(&self) -> Vec<i64> {
        let mut positions = vec![0];
        for (i, size) in self.shape.iter().enumerate() {
            let row_major = || self.shape.get(i + 1..).unwrap_or_default().iter().product();
            let stride = self.strides.and_then(|strides| strides.get(i).copied()).unwrap_or_else(row_major);
            positions =
                positions.iter().flat_map(|at| (0..*size).map(move |step| at + step * stride)).collect();
        }
        positions
    }
}

/// A tensor, its memory, and its expected values.
pub struct TestTensor {
    tensor: DLTensor,
    version: DLPackVersion,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    /// The elements' memory on the host, in words.
    bytes: Vec<u64>,
    /// The elements' memory on a device.
    buffer: Option<Buffer>,
    /// The elements in row-major order.
    values: Vec<u8>,
    data_type: DataType,
}

impl TestTensor {
    /// A tensor of the `number`th element type, on the host.
    pub fn new(random: &mut Random, number: usize, layout: &Layout) -> Self {
        let (code, bits, data_type) = NUMBERS[number % NUMBERS.len()].clone();
        let (width, positions) = (usize::from(bits) / 8, layout.positions());
        let low = positions.iter().min().map_or(0, |low| low.unsigned_abs() as usize);
        let high = positions.iter().max().map_or(0, |high| *high as usize + 1);
        let first = layout.lead + layout.byte_offset + low * width;
        // Without the two highest bits, no float is a NaN.
        let content: Vec<u8> = random.bytes(first + high * width).iter().map(|byte| byte & 0x3f).collect();
        let values = positions.iter().flat_map(|at| {
            let start = (first as i64 + at * width as i64) as usize;
            content[start..start + width].to_vec()
        });
        let values = values.collect();
        let mut bytes = vec![0u64; content.len() / 8 + 1];
        let start = bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: `bytes` has at least `content.len()` bytes, and is a new allocation.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), start, content.len()) };
        let data = start.wrapping_add(first - layout.byte_offset).cast();
        let tensor = DLTensor {
            data: if positions.is_empty() { std::ptr::null_mut() } else { data },
            device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
            ndim: layout.shape.len() as i32,
            dtype: DLDataType { code, bits, lanes: 1 },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: layout.byte_offset as u64,
        };
        let (shape, strides) = (layout.shape.to_vec(), layout.strides.map(<[i64]>::to_vec));
        let version = DLPackVersion { major: 1, minor: 1 };
        Self { tensor, version, shape, strides, bytes, buffer: None, values, data_type }
    }

    /// Moves the tensor to a CUDA device.
    pub fn on_device(mut self, session: &Session) -> Result<Self> {
        let (stream, from) = (session.stream(), self.bytes.as_ptr().cast::<u8>());
        let n = 8 * self.bytes.len();
        let copy = |to: &mut [u8]| {
            // SAFETY: `from` is valid for the `n` bytes of `self.bytes`, and `to` is a new buffer
            // of `n` bytes.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), n) };
            Ok(())
        };
        let buffer = session.memory().alloc_with(stream, n, copy)?.freeze(stream)?;
        buffer.mark_exported();
        stream.synchronize()?;
        if !self.tensor.data.is_null() {
            let offset = self.tensor.data as usize - from as usize;
            self.tensor.data = (buffer.address() as usize + offset) as *mut c_void;
        }
        let id = i32::try_from(session.device().id).unwrap_or(0);
        self.tensor.device = DLDevice { device_type: DLDeviceType::CUDA, device_id: id };
        self.buffer = Some(buffer);
        Ok(self)
    }

    /// The number of values in a row, and their type. The plugin chooses how it nests lists.
    pub fn row(&self) -> (i64, DataType) {
        (self.shape.iter().skip(1).product(), self.data_type.clone())
    }

    /// The number of values in a row of a column, and their type.
    pub fn row_of(data_type: &DataType) -> (i64, DataType) {
        match data_type {
            DataType::FixedSizeList(item, n) => {
                let (item_len, leaf) = Self::row_of(item.data_type());
                (i64::from(*n) * item_len, leaf)
            }
            leaf => (1, leaf.clone()),
        }
    }

    /// The expected column, with the nesting of `field`.
    pub fn column(&self, field: Field) -> Option<RecordBatch> {
        let rows = self.shape.first().map_or(0, |rows| *rows as usize);
        let mut levels = vec![(field.data_type().clone(), rows)];
        while let Some((DataType::FixedSizeList(item, n), len)) = levels.last() {
            levels.push((item.data_type().clone(), len * usize::try_from(*n).ok()?));
        }
        let (leaf, len) = levels.pop()?;
        let values = HostBuffer::from_slice_ref(self.values.as_slice());
        let mut array = ArrayData::builder(leaf).len(len).add_buffer(values).build().ok()?;
        for (list, len) in levels.into_iter().rev() {
            array = ArrayData::builder(list).len(len).add_child_data(array).build().ok()?;
        }
        RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![make_array(array)]).ok()
    }

    /// Puts the tensor into a capsule. The memory of its structs is never freed, so that a second
    /// call of the deleter is counted and has no other effect.
    pub fn capsule(self, kind: TensorStruct, counts: &ReleaseCounts) -> Capsule {
        let count = counts.add("a tensor");
        let counted = leak(CountedTensor { tensor: self, count, legacy: None, versioned: None });
        let tensor = &mut counted.tensor;
        if tensor.tensor.shape.is_null() && !tensor.shape.is_empty() {
            tensor.tensor.shape = tensor.shape.as_mut_ptr();
        }
        if let (true, Some(strides)) = (tensor.tensor.strides.is_null(), &mut tensor.strides) {
            tensor.tensor.strides = strides.as_mut_ptr();
        }
        let (dl_tensor, version) = (tensor.tensor, tensor.version);
        let manager_ctx = std::ptr::from_mut(counted).cast();
        match kind {
            TensorStruct::Legacy => {
                let deleter = Some(delete_legacy as unsafe extern "C" fn(_));
                let managed = counted.legacy.insert(DLManagedTensor { dl_tensor, manager_ctx, deleter });
                // SAFETY: `kind` is `Legacy`, so the name stands for a `DLManagedTensor`, which is
                // leaked and therefore stays valid. Its deleter may be called on any thread,
                // because `CountedTensor` is `Send`.
                unsafe { Capsule::from_self_freeing(kind.name(), NonNull::from(managed), free_legacy) }
            }
            TensorStruct::Versioned => {
                let deleter = Some(delete_versioned as unsafe extern "C" fn(_));
                let managed = DLManagedTensorVersioned {
                    version,
                    manager_ctx,
                    deleter,
                    flags: DlpackFlags::empty(),
                    dl_tensor,
                };
                let managed = counted.versioned.insert(managed);
                // SAFETY: `kind` is `Versioned`, so the name stands for a
                // `DLManagedTensorVersioned`, which is leaked and therefore stays valid. Its
                // deleter may be called on any thread, because `CountedTensor` is `Send`.
                unsafe { Capsule::from_self_freeing(kind.name(), NonNull::from(managed), free_versioned) }
            }
        }
    }
}

/// A tensor, its DLPack struct, and the count of its deletions.
struct CountedTensor {
    tensor: TestTensor,
    count: Arc<ReleaseCount>,
    legacy: Option<DLManagedTensor>,
    versioned: Option<DLManagedTensorVersioned>,
}

/// # Safety
/// `context` is the `manager_ctx` that `TestTensor::capsule` set.
unsafe fn delete(context: *mut c_void) {
    super::host_calls::on_call("deleter of a tensor", false);
    // SAFETY: the caller passes the address of a leaked `CountedTensor`.
    let counted = unsafe { &mut *context.cast::<CountedTensor>() };
    if counted.count.release() {
        counted.tensor.buffer = None;
        // The values are overwritten, so that a plugin that reads the memory after the deletion
        // gets wrong values.
        counted.tensor.bytes.fill(u64::MAX);
    }
}

unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: only `TestTensor::capsule` sets this deleter, and it also sets the `manager_ctx` of
    // the same struct.
    unsafe { delete((*tensor).manager_ctx) }
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: only `TestTensor::capsule` sets this deleter, and it also sets the `manager_ctx` of
    // the same struct.
    unsafe { delete((*tensor).manager_ctx) }
}

unsafe fn free_legacy(tensor: NonNull<DLManagedTensor>) {
    // SAFETY: the capsule calls this once, on the struct that `TestTensor::capsule` put into it.
    unsafe { delete_legacy(tensor.as_ptr()) }
}

unsafe fn free_versioned(tensor: NonNull<DLManagedTensorVersioned>) {
    // SAFETY: the capsule calls this once, on the struct that `TestTensor::capsule` put into it.
    unsafe { delete_versioned(tensor.as_ptr()) }
}

/// A change that makes a tensor malformed or unusual.
pub type TensorMalformation = Malformation<fn(&mut TestTensor)>;

/// A version of DLPack that does not exist yet. It applies only to the versioned struct, because
/// the legacy struct has no version.
pub const LATER_VERSION: TensorMalformation = invalid("of version 99", |tensor| tensor.version.major = 99);

pub const MALFORMATIONS: [TensorMalformation; 20] = [
    invalid("with -1 dimensions", |t| t.tensor.ndim = -1),
    invalid("with 2^31 - 1 dimensions", |t| t.tensor.ndim = i32::MAX),
    invalid("without a shape", |t| t.shape.clear()),
    invalid("with -1 rows", |t| t.shape = vec![-1]),
    invalid("whose element count overflows", |t| t.reshape(&[i64::MAX, 16], &[16, 1])),
    invalid("whose size in bytes overflows", |t| t.reshape(&[i64::MAX / 2], &[1])),
    invalid("whose last address overflows", |t| t.reshape(&[4], &[i64::MAX / 2])),
    invalid("whose first address underflows", |t| t.reshape(&[4], &[i64::MIN / 2])),
    invalid("with rows at NULL", |t| t.tensor.data = std::ptr::null_mut()),
    invalid("whose byte offset overflows", |t| t.tensor.byte_offset = u64::MAX),
    invalid("on an unknown type of device", |t| t.tensor.device.device_type = DLDeviceType(77)),
    invalid("on CUDA device 99", |t| {
        t.tensor.device = DLDevice { device_type: DLDeviceType::CUDA, device_id: 99 };
    }),
    invalid("with elements of 0 bits", |t| t.tensor.dtype.bits = 0),
    invalid("with elements of 0 lanes", |t| t.tensor.dtype.lanes = 0),
    unusual("with elements of 2 lanes", |t| t.tensor.dtype.lanes = 2),
    unusual("with elements of 12 bits", |t| t.tensor.dtype.bits = 12),
    unusual("of complex numbers", |t| t.tensor.dtype.code = DLDataTypeCode::COMPLEX),
    unusual("with elements of an unknown type", |t| t.tensor.dtype.code = DLDataTypeCode(200)),
    unusual("with 0 dimensions", |t| (t.tensor.ndim, t.shape) = (0, Vec::new())),
    unusual("with 1000 dimensions", |t| {
        t.reshape(&[1; 1000], &[1; 1000]);
        t.tensor.ndim = 1000;
    }),
];

impl TestTensor {
    fn reshape(&mut self, shape: &[i64], strides: &[i64]) {
        (self.shape, self.strides) = (shape.to_vec(), Some(strides.to_vec()));
        self.tensor.ndim = shape.len() as i32;
    }
}

// SAFETY: the pointers inside refer to memory that the value owns, and its buffer may be released
// on any thread.
unsafe impl Send for CountedTensor {}
// SAFETY: after `capsule` only the deleter writes to the value, and only in its first call.
unsafe impl Sync for CountedTensor {}
