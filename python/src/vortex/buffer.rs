//! Moves buffers out of and into the capsules of Vortex's protocol.

use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crossdock_plugin_api::{Device, Owned, abi, door};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::arrow::capsules::name_of;
use crate::runtime::errors::{Kind, raise, usage};
use crate::runtime::process::{generation, must_leak};

const NAME: &CStr = c"vortex_buffer_export";
/// The name of a capsule whose buffer was consumed.
const USED_NAME: &CStr = c"used_vortex_buffer_export";

/// `VortexBufferExport`, version 1.
#[repr(C)]
struct BufferExport {
    version: u32,
    /// 0: in host memory, 1: on a CUDA device.
    kind: u32,
    address: *const c_void,
    bytes: usize,
    alignment: usize,
    /// Index of the CUDA device; -1 for host memory.
    device_id: i32,
    sync_event: *mut c_void,
    private_data: *mut c_void,
    /// Releases the buffer, and frees this struct.
    release: Option<unsafe extern "C" fn(*mut BufferExport)>,
}

/// Moves the buffer out of a capsule: renames the capsule, and clears its destructor.
///
/// # Errors
/// TypeError if the object is not a capsule of this protocol; UsageError if it was consumed before,
/// or if its version or kind is unknown.
pub fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Owned<abi::EncodedBuffer>> {
    // SAFETY: `PyCapsule_IsValid` accepts any object. The other functions require a valid capsule,
    // which that check ensures. The interpreter's lock is held, so no other thread consumes the
    // capsule during this function. The protocol guarantees that the pointer under this name is a
    // `BufferExport` if the version is 1. The consumer owns it once the destructor is cleared.
    let (export, raw) = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
            return Err(misnamed(capsule)?);
        }
        let raw = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<BufferExport>();
        let Some(raw) = NonNull::new(raw) else { return Err(PyErr::fetch(capsule.py())) };
        let version = raw.cast::<u32>().read();
        if version != 1 {
            return Err(usage(format!("the buffer has protocol version {version}, expected 1")));
        }
        if ffi::PyCapsule_SetDestructor(capsule.as_ptr(), None) != 0
            || ffi::PyCapsule_SetName(capsule.as_ptr(), USED_NAME.as_ptr()) != 0
        {
            return Err(PyErr::fetch(capsule.py()));
        }
        (raw.read(), raw)
    };
    let device = match (export.kind, export.device_id) {
        (0, _) => Device::CPU,
        (_, id) => Device::cuda(id.into()),
    };
    let mut buffer = abi::EncodedBuffer::new();
    if export.bytes > 0 {
        let declared = export.alignment.max(1);
        // A slice of a bitmap may have a smaller alignment than it declares.
        let is_aligned = declared.is_power_of_two() && export.address.addr().is_multiple_of(declared);
        buffer.address = export.address;
        buffer.alignment = if is_aligned { declared as u64 } else { 1 };
    } else {
        buffer.alignment = 1;
    }
    buffer.bytes = export.bytes as u64;
    buffer.device = device;
    buffer.sync_event = export.sync_event;
    buffer.private_data = raw.as_ptr().cast();
    buffer.release = Some(release_imported);
    // SAFETY: all fields are set, and `release_imported` releases the export, which this function
    // owns.
    let buffer = unsafe { Owned::new(buffer) };
    match export.kind {
        0 | 1 => Ok(buffer),
        other => Err(usage(format!(
            "the buffer has memory kind {other}, expected 0 (host memory) or 1 (a CUDA device)"
        ))),
    }
}

/// Creates the error for an object that is not a capsule of an unconsumed buffer.
fn misnamed(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    Ok(match name_of(object).as_deref() {
        Some("used_vortex_buffer_export") => {
            usage("the buffer was already consumed: call the array's __vortex_array_metadata__() again")
        }
        Some(other) => PyTypeError::new_err(format!(
            "expected a capsule 'vortex_buffer_export', got a capsule '{other}'"
        )),
        None => PyTypeError::new_err(format!(
            "expected a capsule 'vortex_buffer_export', got {}",
            object.get_type().name()?
        )),
    })
}

unsafe extern "C" fn release_imported(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: only `take` sets this function, and stores the export that it owns in `private_data`.
    // `release` is cleared, so the export is released once. The release function also frees the
    // export.
    unsafe {
        (*buffer).release = None;
        let export = (*buffer).private_data.cast::<BufferExport>();
        door::run_release(|| {
            if let Some(release) = (*export).release {
                release(export);
            }
        });
    }
}

/// The memory that an exported capsule's pointer refers to.
#[repr(C)]
struct Exported {
    // This must be the first field, because the capsule's pointer is used both as its address and
    // as the address of the whole struct.
    export: BufferExport,
    generation: u32,
    buffer: ManuallyDrop<Owned<abi::EncodedBuffer>>,
}

/// Creates a capsule of the buffer. Its destructor releases the buffer if no consumer has moved it
/// out.
///
/// # Errors
/// UnsupportedError if the buffer is neither in host memory nor on a CUDA device.
pub fn new_capsule(py: Python<'_>, buffer: Owned<abi::EncodedBuffer>) -> PyResult<Bound<'_, PyAny>> {
    let device = Device::from_arrow(buffer.device.r#type, buffer.device.id);
    let (kind, device_id) = match (device.r#type, i32::try_from(device.id)) {
        (abi::DEVICE_CPU, _) => (0, -1),
        (abi::DEVICE_CUDA, Ok(id)) => (1, id),
        _ => {
            let message = format!(
                "a buffer is on {device}, expected host memory or a CUDA device for Vortex's protocol"
            );
            return Err(raise(Kind::Unsupported, message));
        }
    };
    let bytes = usize::try_from(buffer.bytes)
        .map_err(|_| usage(format!("a buffer of {} bytes is too large", buffer.bytes)))?;
    let export = BufferExport {
        version: 1,
        kind,
        address: if bytes == 0 { std::ptr::null() } else { buffer.address },
        bytes,
        alignment: usize::try_from(buffer.alignment).unwrap_or(1),
        device_id,
        sync_event: buffer.sync_event,
        private_data: std::ptr::null_mut(),
        release: Some(release_exported),
    };
    let exported = Exported { export, generation: generation(), buffer: ManuallyDrop::new(buffer) };
    let raw = Box::into_raw(Box::new(exported));
    // SAFETY: `Exported` is `repr(C)` and begins with a `BufferExport`. The name is static.
    let capsule = unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), NAME.as_ptr(), Some(destroy));
        Bound::from_owned_ptr_or_err(py, capsule)
    };
    if capsule.is_err() {
        // SAFETY: `raw` came from `Box::into_raw`, and no capsule owns it.
        unsafe { release_exported(raw.cast()) };
    }
    capsule
}

/// # Safety
/// `capsule` was created by `new_capsule`, and its buffer was not consumed. A consumer clears this
/// destructor.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: this function requires a capsule of `new_capsule`, whose pointer is an `Exported`
    // that the capsule owns.
    unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr());
        if raw.is_null() {
            return ffi::PyErr_Clear();
        }
        release_exported(raw.cast());
    }
}

/// # Safety
/// `export` was created by `new_capsule`, and is released once.
unsafe extern "C" fn release_exported(export: *mut BufferExport) {
    // SAFETY: `new_capsule` boxed an `Exported`, which begins with the export.
    let mut exported = unsafe { Box::from_raw(export.cast::<Exported>()) };
    if !must_leak(exported.generation) {
        // SAFETY: `exported` is freed at the end of this function, so its buffer is dropped once.
        door::run_release(|| unsafe { ManuallyDrop::drop(&mut exported.buffer) });
    }
}
