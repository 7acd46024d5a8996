//! DLPack's C structs (dlpack.h 1.3), and a constructor of managed tensors.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;

pub const MAJOR: u32 = 1;
pub const MINOR: u32 = 3;

/// DLPACK_FLAG_BITMASK_READ_ONLY.
pub const READ_ONLY: u64 = 1;
/// DLPACK_FLAG_BITMASK_IS_COPIED: the producer copied the data for this tensor.
pub const IS_COPIED: u64 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceType(pub u32);

impl DeviceType {
    pub const CPU: Self = Self(1);
    pub const CUDA: Self = Self(2);
    pub const CUDA_MANAGED: Self = Self(13);
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub device_type: DeviceType,
    pub device_id: i32,
}

#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8);

impl Code {
    pub const INT: Self = Self(0);
    pub const UINT: Self = Self(1);
    pub const FLOAT: Self = Self(2);
    pub const COMPLEX: Self = Self(5);
    pub const BOOL: Self = Self(6);
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    pub code: Code,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DataType,
    /// `ndim` sizes.
    pub shape: *mut i64,
    /// `ndim` strides in elements. NULL for a compact row-major tensor.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// `DLManagedTensor`, used before version 1.0.
#[repr(C)]
pub struct ManagedTensor {
    pub tensor: Tensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned`. The offsets of the fields up to `flags` are the same in every
/// version.
#[repr(C)]
pub struct VersionedTensor {
    pub version: Version,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut VersionedTensor)>,
    pub flags: u64,
    pub tensor: Tensor,
}

/// `DLPackExchangeAPIHeader`: the first field of a `DLPackExchangeAPI` of any version.
#[repr(C)]
pub struct ExchangeHeader {
    pub version: Version,
    pub prev_api: *mut ExchangeHeader,
}

pub type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

#[repr(C)]
pub struct ExchangeTable {
    pub header: ExchangeHeader,
    pub managed_tensor_allocator: Option<
        unsafe extern "C" fn(*mut Tensor, *mut *mut VersionedTensor, *mut c_void, Option<SetError>) -> c_int,
    >,
    pub managed_tensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut VersionedTensor) -> c_int>,
    pub managed_tensor_to_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut VersionedTensor, *mut *mut c_void) -> c_int>,
    pub dltensor_from_py_object_no_sync: Option<unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int>,
    pub current_work_stream: Option<unsafe extern "C" fn(DeviceType, i32, *mut *mut c_void) -> c_int>,
}

// The layout of dlpack.h on 64-bit machines.
const _: () = {
    assert!(size_of::<Device>() == 8 && size_of::<DataType>() == 4 && size_of::<Version>() == 8);
    assert!(size_of::<Tensor>() == 48 && align_of::<Tensor>() == 8);
    assert!(offset_of!(Tensor, device) == 8 && offset_of!(Tensor, ndim) == 16);
    assert!(offset_of!(Tensor, dtype) == 20 && offset_of!(Tensor, shape) == 24);
    assert!(offset_of!(Tensor, strides) == 32 && offset_of!(Tensor, byte_offset) == 40);
    assert!(size_of::<ManagedTensor>() == 64 && offset_of!(ManagedTensor, manager_ctx) == 48);
    assert!(offset_of!(ManagedTensor, deleter) == 56);
    assert!(size_of::<VersionedTensor>() == 80 && offset_of!(VersionedTensor, manager_ctx) == 8);
    assert!(offset_of!(VersionedTensor, deleter) == 16 && offset_of!(VersionedTensor, flags) == 24);
    assert!(offset_of!(VersionedTensor, tensor) == 32);
    assert!(size_of::<ExchangeTable>() == 56 && offset_of!(ExchangeTable, managed_tensor_allocator) == 16);
    assert!(offset_of!(ExchangeTable, managed_tensor_from_py_object_no_sync) == 24);
    assert!(offset_of!(ExchangeTable, managed_tensor_to_py_object_no_sync) == 32);
    assert!(offset_of!(ExchangeTable, dltensor_from_py_object_no_sync) == 40);
    assert!(offset_of!(ExchangeTable, current_work_stream) == 48);
};

/// A tensor, the arrays that it points to, and the owner of its data.
#[repr(C)]
struct OwnedTensor<T> {
    // This must be the first field, because the deleter uses the address of this field as the
    // address of the whole struct.
    tensor: VersionedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _owner: T,
}

/// Creates a tensor that keeps `owner` alive until its deleter is called, on any thread. `strides`
/// are in elements.
pub fn new_tensor<T: Send>(
    owner: T,
    data: *mut c_void,
    device: Device,
    dtype: DataType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    flags: u64,
) -> NonNull<VersionedTensor> {
    let ndim = shape.len().min(strides.len()).min(i32::MAX as usize) as i32;
    let (none, byte_offset) = (std::ptr::null_mut(), 0);
    let tensor = Tensor { data, device, ndim, dtype, shape: none, strides: none, byte_offset };
    let tensor = VersionedTensor {
        version: Version { major: MAJOR, minor: MINOR },
        manager_ctx: std::ptr::null_mut(),
        deleter: Some(delete::<T>),
        flags,
        tensor,
    };
    let owned = Box::leak(Box::new(OwnedTensor { tensor, shape, strides, _owner: owner }));
    owned.tensor.tensor.shape = owned.shape.as_mut_ptr();
    owned.tensor.tensor.strides = owned.strides.as_mut_ptr();
    NonNull::from(owned).cast()
}

unsafe extern "C" fn delete<T>(tensor: *mut VersionedTensor) {
    // SAFETY: `new_tensor` boxed an `OwnedTensor<T>`, which begins with the tensor. DLPack calls a
    // deleter once.
    drop(unsafe { Box::from_raw(tensor.cast::<OwnedTensor<T>>()) });
}
