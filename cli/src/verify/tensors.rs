//! Tensors of the suite's own making, in DLPack's structs: of every kind of layout, and lies.

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

use super::kept::keep;
use super::lent::{Count, Counts};
use super::lies::{Lie, nonsense, unusual};
use super::random::Random;

/// The two structs that a tensor travels in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Legacy,
    Versioned,
}

impl Form {
    const ALL: [Form; 2] = [Form::Legacy, Form::Versioned];

    fn name(self) -> &'static CStr {
        match self {
            Form::Legacy => c"dltensor",
            Form::Versioned => c"dltensor_versioned",
        }
    }

    /// Those that a format takes.
    pub fn of(format: &Format) -> impl Iterator<Item = Self> {
        let is_taken =
            |form: &Self| format.capsules.iter().any(|name| name.as_bytes() == form.name().to_bytes());
        Self::ALL.into_iter().filter(is_taken)
    }
}

/// The element types of DLPack that are numbers of Arrow's too.
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

/// How the elements lie.
pub struct Layout {
    pub name: &'static str,
    pub shape: &'static [i64],
    /// In elements; none: side by side, which the legacy form alone may leave to be guessed.
    pub strides: Option<&'static [i64]>,
    /// Bytes that `data` lies behind an address that any element may have.
    pub lead: usize,
    pub byte_offset: usize,
}

const PLAIN: Layout = Layout { name: "plain", shape: &[7], strides: Some(&[1]), lead: 0, byte_offset: 0 };

/// Each once.
pub const LAYOUTS: [Layout; 14] = [
    PLAIN,
    Layout { name: "one element", shape: &[1], ..PLAIN },
    Layout { name: "no element", shape: &[0], ..PLAIN },
    Layout { name: "with a byte offset", byte_offset: 24, ..PLAIN },
    Layout { name: "at an odd address", lead: 1, ..PLAIN },
    Layout { name: "with an odd byte offset", byte_offset: 3, ..PLAIN },
    Layout { name: "every third", strides: Some(&[3]), ..PLAIN },
    Layout { name: "backwards", strides: Some(&[-1]), ..PLAIN },
    Layout { name: "one for all", strides: Some(&[0]), ..PLAIN },
    Layout { name: "of rows", shape: &[5, 3], strides: Some(&[3, 1]), ..PLAIN },
    Layout { name: "of rows that tells no strides", shape: &[5, 3], strides: None, ..PLAIN },
    Layout { name: "of columns", shape: &[5, 3], strides: Some(&[1, 5]), ..PLAIN },
    Layout { name: "of rows without elements", shape: &[4, 0], strides: Some(&[1, 1]), ..PLAIN },
    Layout {
        name: "in three dimensions, one backwards",
        shape: &[2, 3, 2],
        strides: Some(&[1, -4, 2]),
        ..PLAIN
    },
];

impl Layout {
    /// Whether it may be told in this form: later versions of DLPack have strides always.
    pub fn fits(&self, form: Form) -> bool {
        self.strides.is_some() || form == Form::Legacy
    }

    /// Where each element lies, in elements from the first, row by row.
    fn places(&self) -> Vec<i64> {
        let mut places = vec![0];
        for (i, size) in self.shape.iter().enumerate() {
            let side_by_side = || self.shape.get(i + 1..).unwrap_or_default().iter().product();
            let stride =
                self.strides.and_then(|strides| strides.get(i).copied()).unwrap_or_else(side_by_side);
            places = places.iter().flat_map(|at| (0..*size).map(move |step| at + step * stride)).collect();
        }
        places
    }
}

/// A tensor, and what it holds.
pub struct Made {
    tensor: DLTensor,
    version: DLPackVersion,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    /// What its elements lie in, on the host or a device.
    bytes: Vec<u64>,
    buffer: Option<Buffer>,
    /// The elements, row by row.
    values: Vec<u8>,
    data_type: DataType,
}

impl Made {
    /// A tensor of the `number`th type, on the host.
    pub fn new(random: &mut Random, number: usize, layout: &Layout) -> Self {
        let (code, bits, data_type) = NUMBERS[number % NUMBERS.len()].clone();
        let (width, places) = (usize::from(bits) / 8, layout.places());
        let low = places.iter().min().map_or(0, |low| low.unsigned_abs() as usize);
        let high = places.iter().max().map_or(0, |high| *high as usize + 1);
        let first = layout.lead + layout.byte_offset + low * width;
        // No byte of a float that is not a number.
        let some: Vec<u8> = random.bytes(first + high * width).iter().map(|byte| byte & 0x3f).collect();
        let values = places.iter().flat_map(|at| {
            let start = (first as i64 + at * width as i64) as usize;
            some[start..start + width].to_vec()
        });
        let values = values.collect();
        let mut bytes = vec![0u64; some.len() / 8 + 1];
        let start = bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: as many words as the bytes take.
        unsafe { std::ptr::copy_nonoverlapping(some.as_ptr(), start, some.len()) };
        let data = start.wrapping_add(first - layout.byte_offset).cast();
        let tensor = DLTensor {
            data: if places.is_empty() { std::ptr::null_mut() } else { data },
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

    /// The same on a CUDA device.
    pub fn on_device(mut self, session: &Session) -> Result<Self> {
        let (stream, from) = (session.stream(), self.bytes.as_ptr().cast::<u8>());
        let n = 8 * self.bytes.len();
        let copy = |to: &mut [u8]| {
            // SAFETY: the words are there, and the place is as long as they are.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), n) };
            Ok(())
        };
        let buffer = session.memory().alloc_with(stream, n, copy)?.freeze(stream)?;
        buffer.mark_lent();
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

    /// How many values a row has, and of which type. Whether they are lists of lists is the plugin's to choose.
    pub fn row(&self) -> (i64, DataType) {
        (self.shape.iter().skip(1).product(), self.data_type.clone())
    }

    /// The same of a column.
    pub fn row_of(data_type: &DataType) -> (i64, DataType) {
        match data_type {
            DataType::FixedSizeList(item, n) => {
                let (own, leaf) = Self::row_of(item.data_type());
                (i64::from(*n) * own, leaf)
            }
            leaf => (1, leaf.clone()),
        }
    }

    /// The column that it is to become, of a field with such rows.
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

    /// In a capsule. It is never freed, so that a second deletion is counted and harms nobody.
    pub fn capsule(self, form: Form, counts: &Counts) -> Capsule {
        let held = keep(Held { made: self, count: counts.add("a tensor"), bare: None, versioned: None });
        let made = &mut held.made;
        if made.tensor.shape.is_null() && !made.shape.is_empty() {
            made.tensor.shape = made.shape.as_mut_ptr();
        }
        if let (true, Some(strides)) = (made.tensor.strides.is_null(), &mut made.strides) {
            made.tensor.strides = strides.as_mut_ptr();
        }
        let (dl_tensor, version) = (made.tensor, made.version);
        let manager_ctx = std::ptr::from_mut(held).cast();
        match form {
            Form::Legacy => {
                let deleter = Some(delete_legacy as unsafe extern "C" fn(_));
                let bare = held.bare.insert(DLManagedTensor { dl_tensor, manager_ctx, deleter });
                // SAFETY: such a tensor is what the name says; its deleter may be called on any thread.
                unsafe { Capsule::of_self_freeing(form.name(), NonNull::from(bare), free_legacy) }
            }
            Form::Versioned => {
                let deleter = Some(delete_versioned as unsafe extern "C" fn(_));
                let own = DLManagedTensorVersioned {
                    version,
                    manager_ctx,
                    deleter,
                    flags: DlpackFlags::empty(),
                    dl_tensor,
                };
                let own = held.versioned.insert(own);
                // SAFETY: as above.
                unsafe { Capsule::of_self_freeing(form.name(), NonNull::from(own), free_versioned) }
            }
        }
    }
}

struct Held {
    made: Made,
    count: Arc<Count>,
    bare: Option<DLManagedTensor>,
    versioned: Option<DLManagedTensorVersioned>,
}

/// # Safety
/// `held` is what `Made::capsule` kept.
unsafe fn delete(held: *mut c_void) {
    super::inside::called("deleter of a tensor", false);
    // SAFETY: the caller's word; it lives for ever.
    let held = unsafe { &mut *held.cast::<Held>() };
    if held.count.release() {
        held.made.buffer = None;
        // Who reads on reads something else.
        held.made.bytes.fill(u64::MAX);
    }
}

unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: set by `Made::capsule` alone.
    unsafe { delete((*tensor).manager_ctx) }
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: as above.
    unsafe { delete((*tensor).manager_ctx) }
}

unsafe fn free_legacy(tensor: NonNull<DLManagedTensor>) {
    // SAFETY: called once, on the capsule's own.
    unsafe { delete_legacy(tensor.as_ptr()) }
}

unsafe fn free_versioned(tensor: NonNull<DLManagedTensorVersioned>) {
    // SAFETY: as above.
    unsafe { delete_versioned(tensor.as_ptr()) }
}

/// What a tensor says of itself that is not so.
pub type TensorLie = Lie<fn(&mut Made)>;

/// What lies about its struct as a whole, and only the versioned form has a place for.
pub const LATER_VERSION: TensorLie = nonsense("of a version to come", |made| made.version.major = 99);

pub const LIES: [TensorLie; 20] = [
    nonsense("of -1 dimensions", |made| made.tensor.ndim = -1),
    nonsense("of dimensions without number", |made| made.tensor.ndim = i32::MAX),
    nonsense("without a shape", |made| made.shape.clear()),
    nonsense("of -1 rows", |made| made.shape = vec![-1]),
    nonsense("of more elements than there can be", |made| made.reshaped(&[i64::MAX, 16], &[16, 1])),
    nonsense("of more bytes than there can be", |made| made.reshaped(&[i64::MAX / 2], &[1])),
    nonsense("that reaches beyond all addresses", |made| made.reshaped(&[4], &[i64::MAX / 2])),
    nonsense("that reaches before all addresses", |made| made.reshaped(&[4], &[i64::MIN / 2])),
    nonsense("of rows at NULL", |made| made.tensor.data = std::ptr::null_mut()),
    nonsense("whose offset has no end", |made| made.tensor.byte_offset = u64::MAX),
    nonsense("on a device that there is none of", |made| made.tensor.device.device_type = DLDeviceType(77)),
    nonsense("on the 99th CUDA device", |made| {
        made.tensor.device = DLDevice { device_type: DLDeviceType::CUDA, device_id: 99 };
    }),
    nonsense("of elements of no bits", |made| made.tensor.dtype.bits = 0),
    nonsense("of elements of no lanes", |made| made.tensor.dtype.lanes = 0),
    unusual("of vectors", |made| made.tensor.dtype.lanes = 2),
    unusual("of elements of 12 bits", |made| made.tensor.dtype.bits = 12),
    unusual("of complex numbers", |made| made.tensor.dtype.code = DLDataTypeCode::COMPLEX),
    unusual("of elements of an unknown kind", |made| made.tensor.dtype.code = DLDataTypeCode(200)),
    unusual("without a dimension", |made| (made.tensor.ndim, made.shape) = (0, Vec::new())),
    unusual("of a thousand dimensions", |made| {
        made.reshaped(&[1; 1000], &[1; 1000]);
        made.tensor.ndim = 1000;
    }),
];

impl Made {
    fn reshaped(&mut self, shape: &[i64], strides: &[i64]) {
        (self.shape, self.strides) = (shape.to_vec(), Some(strides.to_vec()));
        self.tensor.ndim = shape.len() as i32;
    }
}

// SAFETY: memory of its own and of the session's, which anybody may have on any thread.
unsafe impl Send for Held {}
// SAFETY: as above: nothing changes it but its deleter, and that once.
unsafe impl Sync for Held {}
