//! Tensors that an external library creates, and tensors that it receives from the host.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock::api::{Capsule, Options};
use crossdock::{Session, Table};
use crossdock_plugin_api::abi;
use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};

pub const INT64: DLDataType = DLDataType { code: DLDataTypeCode::INT, bits: 64, lanes: 1 };

/// The DLPack device for Arrow's device type and a device id.
pub const fn dl_device(kind: i32, id: i32) -> DLDevice {
    DLDevice { device_type: DLDeviceType(kind as u32), device_id: id }
}

pub const CUDA_0: DLDevice = dl_device(abi::DEVICE_CUDA, 0);

struct TensorOwner {
    managed: DLManagedTensorVersioned,
    shape: [i64; 1],
    strides: [i64; 1],
    deleted: Arc<AtomicUsize>,
}

/// A tensor of 64-bit integers with a stride in elements. The deleter increments a counter.
pub fn tensor(
    device: DLDevice,
    address: u64,
    (rows, stride): (usize, usize),
    deleted: &Arc<AtomicUsize>,
) -> Capsule {
    let tensor = DLTensor {
        data: address as *mut c_void,
        device,
        ndim: 1,
        dtype: INT64,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let owner = Box::into_raw(Box::new(TensorOwner {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion::CURRENT,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: DlpackFlags::empty(),
            dl_tensor: tensor,
        },
        shape: [rows as i64],
        strides: [stride as i64],
        deleted: deleted.clone(),
    }));
    // SAFETY: the box was leaked above, so the pointer is valid until the deleter frees it.
    unsafe {
        (*owner).managed.manager_ctx = owner.cast();
        (*owner).managed.dl_tensor.shape = (*owner).shape.as_mut_ptr();
        (*owner).managed.dl_tensor.strides = (*owner).strides.as_mut_ptr();
        Capsule::from_self_freeing(
            c"dltensor_versioned",
            NonNull::from(&mut (*owner).managed),
            |managed: NonNull<DLManagedTensorVersioned>| delete(managed.as_ptr()),
        )
    }
}

unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: `tensor` stored a boxed `TensorOwner` in `manager_ctx`; the deleter is called once.
    let owner = unsafe { Box::from_raw((*managed).manager_ctx.cast::<TensorOwner>()) };
    owner.deleted.fetch_add(1, Ordering::SeqCst);
}

/// Imports a tensor of the external library.
pub fn import(session: &Session, capsule: Capsule) -> crossdock::Result<Table> {
    let reader = session.read_capsules("dlpack", vec![capsule], None, &Options::new().with("names", "n"))?;
    Table::from_reader(session, reader)
}

/// Gathers at least 64 bytes on a device once, so that later launches do not wait. The first launch
/// loads the kernel's image, and the driver waits for the device during the load.
pub fn load_gather_kernel(session: &Session, device: DLDevice, address: u64) {
    drop(import(session, tensor(device, address, (4, 2), &Arc::default())).unwrap());
    session.stream().synchronize().unwrap();
}

/// A tensor that the host exported, and that the external library took out of its capsule. Dropping
/// this value calls the tensor's deleter.
pub struct ConsumedTensor(NonNull<DLManagedTensorVersioned>);

impl ConsumedTensor {
    pub fn take(capsule: Capsule) -> Self {
        Self(capsule.take_self_freeing(c"dltensor_versioned").unwrap().cast())
    }

    /// The DLPack device type and id.
    pub fn device(&self) -> (u32, i32) {
        // SAFETY: the managed tensor is alive until the drop.
        let device = unsafe { self.0.as_ref() }.dl_tensor.device;
        (device.device_type.0, device.device_id)
    }

    pub fn address(&self) -> u64 {
        // SAFETY: the managed tensor is alive until the drop.
        unsafe { self.0.as_ref() }.dl_tensor.data as u64
    }

    /// Whether the tensor has the flag IS_COPIED.
    pub fn is_copied(&self) -> bool {
        // SAFETY: the managed tensor is alive until the drop.
        unsafe { self.0.as_ref() }.flags.contains(DlpackFlags::IS_COPIED)
    }
}

impl Drop for ConsumedTensor {
    fn drop(&mut self) {
        // SAFETY: the tensor is alive, and only this drop calls its deleter.
        unsafe { (self.0.as_ref().deleter.unwrap())(self.0.as_ptr()) }
    }
}

/// The message of an error, followed by the messages of its sources.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
