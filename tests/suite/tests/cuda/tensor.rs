//! The stranger's tensors, and ours as it sees them.

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

/// Where a tensor says that it lies: Arrow's number of the kind, and the device's.
pub const fn lies_on(kind: i32, id: i32) -> DLDevice {
    DLDevice { device_type: DLDeviceType(kind as u32), device_id: id }
}

pub const CUDA_0: DLDevice = lies_on(abi::DEVICE_CUDA, 0);

struct Kept {
    managed: DLManagedTensorVersioned,
    shape: [i64; 1],
    strides: [i64; 1],
    deleted: Arc<AtomicUsize>,
}

/// 64-bit integers, `stride` elements from one to the next. Counts its deletion.
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
    let kept = Box::into_raw(Box::new(Kept {
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
    // SAFETY: a box of ours, which the deleter frees.
    unsafe {
        (*kept).managed.manager_ctx = kept.cast();
        (*kept).managed.dl_tensor.shape = (*kept).shape.as_mut_ptr();
        (*kept).managed.dl_tensor.strides = (*kept).strides.as_mut_ptr();
        Capsule::of_self_freeing(
            c"dltensor_versioned",
            NonNull::from(&mut (*kept).managed),
            |managed: NonNull<DLManagedTensorVersioned>| delete(managed.as_ptr()),
        )
    }
}

unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: made by `tensor`, and called once.
    let kept = unsafe { Box::from_raw((*managed).manager_ctx.cast::<Kept>()) };
    kept.deleted.fetch_add(1, Ordering::SeqCst);
}

/// A table of the stranger's tensor.
pub fn import(session: &Session, capsule: Capsule) -> crossdock::Result<Table> {
    let reader = session.read_capsules("dlpack", vec![capsule], None, &Options::new().with("names", "n"))?;
    Table::from_reader(session, reader)
}

/// Gathers once on a device, of memory there of 64 bytes and more: to load a kernel's image, which happens at its first
/// launch, the driver waits for what the device is at.
pub fn load_what_gathers(session: &Session, device: DLDevice, address: u64) {
    drop(import(session, tensor(device, address, (4, 2), &Arc::default())).unwrap());
    session.stream().synchronize().unwrap();
}

/// A tensor of ours, taken out of its capsule by the stranger; deleted when it is dropped.
pub struct Taken(NonNull<DLManagedTensorVersioned>);

impl Taken {
    pub fn take(capsule: Capsule) -> Self {
        Self(capsule.take_self_freeing(c"dltensor_versioned").unwrap().cast())
    }

    /// Device type and number, as DLPack has them.
    pub fn device(&self) -> (u32, i32) {
        // SAFETY: a managed tensor, alive until the drop.
        let device = unsafe { self.0.as_ref() }.dl_tensor.device;
        (device.device_type.0, device.device_id)
    }

    pub fn address(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.dl_tensor.data as u64
    }

    /// Whether nobody else sees what is written there.
    pub fn is_copied(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.flags.contains(DlpackFlags::IS_COPIED)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: taken once, deleted once.
        unsafe { (self.0.as_ref().deleter.unwrap())(self.0.as_ptr()) }
    }
}

/// An error with all that it comes from.
pub fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
