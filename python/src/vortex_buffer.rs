//! Buffers as Vortex's protocol has them in capsules, in and out.

use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crossdock_plugin_api::{Device, Owned, abi, door};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::capsules::name_of;
use crate::errors::{Kind, raise, usage};
use crate::process::{generation, is_over};

const NAME: &CStr = c"vortex_buffer_export";
/// What a capsule is called whose buffer has been taken.
const USED: &CStr = c"used_vortex_buffer_export";

/// `VortexBufferExport`, version 1.
#[repr(C)]
struct BufferExport {
    version: u32,
    /// 0: in host memory, 1: on a CUDA device.
    kind: u32,
    address: *const c_void,
    bytes: usize,
    alignment: usize,
    /// -1 in host memory.
    device_id: i32,
    sync_event: *mut c_void,
    private_data: *mut c_void,
    /// Frees the struct itself too.
    release: Option<unsafe extern "C" fn(*mut BufferExport)>,
}

/// Takes the buffer out of a capsule, which is renamed, and whose destructor has nothing to do any more.
pub fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Owned<abi::EncodedBuffer>> {
    // SAFETY: any object may be asked; the interpreter's lock is held, so that nobody else takes it meanwhile. Under the name
    // the pointer is to such a struct, which is the consumer's once the destructor is gone.
    let (export, raw) = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
            return Err(misnamed(capsule)?);
        }
        let raw = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<BufferExport>();
        let Some(raw) = NonNull::new(raw) else { return Err(PyErr::fetch(capsule.py())) };
        let version = raw.cast::<u32>().read();
        if version != 1 {
            return Err(usage(format!(
                "a buffer of version {version}, expected 1: what it holds is not known"
            )));
        }
        if ffi::PyCapsule_SetDestructor(capsule.as_ptr(), None) != 0
            || ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) != 0
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
        let told = export.alignment.max(1);
        // A slice of bits may begin anywhere, whatever alignment is told of it.
        let kept = told.is_power_of_two() && export.address.addr().is_multiple_of(told);
        buffer.address = export.address;
        buffer.alignment = if kept { told as u64 } else { 1 };
    } else {
        buffer.alignment = 1;
    }
    buffer.bytes = export.bytes as u64;
    buffer.device = device;
    buffer.sync_event = export.sync_event;
    buffer.private_data = raw.as_ptr().cast();
    buffer.release = Some(release_taken);
    // SAFETY: complete, and nobody else's.
    let buffer = unsafe { Owned::new(buffer) };
    match export.kind {
        0 | 1 => Ok(buffer),
        other => {
            Err(usage(format!("a buffer of kind {other}, expected 0 (in host memory) or 1 (on a device)")))
        }
    }
}

fn misnamed(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    Ok(match name_of(object).as_deref() {
        Some("used_vortex_buffer_export") => {
            usage("a buffer has been taken already: ask the array for its metadata again")
        }
        Some(other) => {
            PyTypeError::new_err(format!("expected a capsule 'vortex_buffer_export', got one of '{other}'"))
        }
        None => PyTypeError::new_err(format!(
            "expected a capsule 'vortex_buffer_export', got a {}",
            object.get_type().name()?
        )),
    })
}

unsafe extern "C" fn release_taken(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: set by `take` only, with the export that it took; released once because `release` is cleared. The export is
    // gone after its own release.
    unsafe {
        (*buffer).release = None;
        let export = (*buffer).private_data.cast::<BufferExport>();
        door::leave(|| {
            if let Some(release) = (*export).release {
                release(export);
            }
        });
    }
}

/// A buffer that is given out: what a capsule points at, and what keeps the bytes.
#[repr(C)]
struct Given {
    export: BufferExport,
    generation: u32,
    buffer: ManuallyDrop<Owned<abi::EncodedBuffer>>,
}

/// A capsule of the buffer, which is released with it unless a consumer takes it.
///
/// # Errors
/// Unsupported for what lies neither in host memory nor on a CUDA device.
pub fn give(py: Python<'_>, buffer: Owned<abi::EncodedBuffer>) -> PyResult<Bound<'_, PyAny>> {
    let device = Device::from_arrow(buffer.device.r#type, buffer.device.id);
    let (kind, device_id) = match (device.r#type, i32::try_from(device.id)) {
        (abi::DEVICE_CPU, _) => (0, -1),
        (abi::DEVICE_CUDA, Ok(id)) => (1, id),
        _ => {
            let words = format!("a buffer on {device}: Vortex's protocol has host memory and CUDA devices");
            return Err(raise(Kind::Unsupported, words));
        }
    };
    let bytes =
        usize::try_from(buffer.bytes).map_err(|_| usage(format!("a buffer of {} bytes", buffer.bytes)))?;
    let export = BufferExport {
        version: 1,
        kind,
        address: if bytes == 0 { std::ptr::null() } else { buffer.address },
        bytes,
        alignment: usize::try_from(buffer.alignment).unwrap_or(1),
        device_id,
        sync_event: buffer.sync_event,
        private_data: std::ptr::null_mut(),
        release: Some(release_given),
    };
    let given = Given { export, generation: generation(), buffer: ManuallyDrop::new(buffer) };
    let raw = Box::into_raw(Box::new(given));
    // SAFETY: what was boxed here begins with such a struct; the name is static.
    let capsule = unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), NAME.as_ptr(), Some(destroy));
        Bound::from_owned_ptr_or_err(py, capsule)
    };
    if capsule.is_err() {
        // SAFETY: no capsule took it.
        unsafe { release_given(raw.cast()) };
    }
    capsule
}

/// # Safety
/// A capsule that `give` made, whose buffer nobody took: who takes it clears this destructor.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: by this function's own contract.
    unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr());
        if raw.is_null() {
            return ffi::PyErr_Clear();
        }
        release_given(raw.cast());
    }
}

/// # Safety
/// `export` is one of `give`'s, and is released once.
unsafe extern "C" fn release_given(export: *mut BufferExport) {
    // SAFETY: it lies at the beginning of what `give` boxed.
    let mut given = unsafe { Box::from_raw(export.cast::<Given>()) };
    if !is_over(given.generation) {
        // SAFETY: dropped once, here.
        door::leave(|| unsafe { ManuallyDrop::drop(&mut given.buffer) });
    }
}
