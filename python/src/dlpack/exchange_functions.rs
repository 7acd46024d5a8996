//! Implements the DLPack C exchange API: columns as tensors and tensors as columns, without a
//! Python call.
//!
//! The current work stream of this library is CUDA's legacy default stream: exported tensors are
//! ready on this stream, and imported tensors must be ready on it. The session's streams are
//! internal.

use std::ffi::{CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_memory::Buffer;
use crossdock_memory_backend::ProcessWide;
use crossdock_plugin_api::Device;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::dlpack::abi::{
    self as dlpack_abi, DeviceType, ExchangeHeader, ExchangeTable, SetError, Tensor, VersionedTensor,
};
use crate::dlpack::exchange_api::CAPSULE;
use crate::dlpack::export::{CopyPolicy, ExportRequest, tensor};
use crate::dlpack::import::column_of;
use crate::dlpack::producer::{ImportedTensor, LEGACY_STREAM};
use crate::dlpack::tensor::{Form, Managed, VERSION, cuda_device};
use crate::objects::column::Column;
use crate::objects::session::{Session, Shared};
use crate::runtime::errors::{Kind, OrRaise, raise, usage};
use crate::runtime::process::begin;

struct Table(ExchangeTable);

// SAFETY: the table has function pointers and numbers, and is never modified.
unsafe impl Sync for Table {}

/// `dltensor_from_py_object_no_sync` is NULL, because a `DLTensor` has no flags and could not be
/// marked as read-only.
static TABLE: Table = Table(ExchangeTable {
    header: ExchangeHeader {
        version: dlpack_abi::Version { major: VERSION.0, minor: VERSION.1 },
        prev_api: std::ptr::null_mut(),
    },
    managed_tensor_allocator: Some(allocate),
    managed_tensor_from_py_object_no_sync: Some(from_column),
    managed_tensor_to_py_object_no_sync: Some(to_column),
    dltensor_from_py_object_no_sync: None,
    current_work_stream: Some(work_stream),
});

/// Creates the value of `Column.__dlpack_c_exchange_api__`.
pub fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the table and the name are static, so the capsule needs no destructor.
    unsafe {
        let table = (&raw const TABLE.0).cast_mut().cast::<c_void>();
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(table, CAPSULE.as_ptr(), None))
    }
}

/// The FFI door of this file: stops panics, sets the exception, and returns the status.
fn enter(py: Python<'_>, body: impl FnOnce() -> PyResult<()>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        Err(raise(Kind::Plugin, "crossdock panicked, which is a bug: please report the message on stderr"))
    });
    match result {
        Ok(()) => 0,
        Err(error) => {
            error.restore(py);
            -1
        }
    }
}

unsafe extern "C" fn from_column(object: *mut c_void, out: *mut *mut VersionedTensor) -> c_int {
    // SAFETY: DLPack requires callers to hold the interpreter's lock.
    let py = unsafe { Python::assume_attached() };
    enter(py, || {
        // SAFETY: DLPack requires an object that is alive for the call.
        let object = unsafe { Bound::from_borrowed_ptr(py, object.cast()) };
        let column = object.cast::<Column>().map_err(|_| {
            PyTypeError::new_err("managed_tensor_from_py_object_no_sync: expected a crossdock.Column")
        })?;
        let column = column.get();
        let to = crate::objects::table_rows::device_of(column.table()?);
        let consumer = Some(LEGACY_STREAM);
        let request = ExportRequest { form: Form::Versioned, copy: CopyPolicy::Needed, to, consumer };
        let (_, raw) = tensor(py, column, request)?.into_parts();
        // SAFETY: DLPack requires `out` to be valid for a write.
        unsafe { out.write(raw.as_ptr().cast()) };
        Ok(())
    })
}

unsafe extern "C" fn to_column(tensor: *mut VersionedTensor, out: *mut *mut c_void) -> c_int {
    // SAFETY: DLPack requires callers to hold the interpreter's lock.
    let py = unsafe { Python::assume_attached() };
    enter(py, || {
        let tensor = NonNull::new(tensor)
            .ok_or_else(|| usage("managed_tensor_to_py_object_no_sync: the tensor is NULL"))?;
        let (tensor, is_owned) = BorrowedTensor::managed(tensor);
        let device = tensor.tensor().map(|tensor| tensor.device);
        let device = device.and_then(|device| cuda_device(device, Device::CPU)).unwrap_or(Device::CPU);
        let shared = session_on(py, device)?;
        let imported = if device == Device::CPU {
            ImportedTensor::ready_now(tensor)
        } else {
            // SAFETY: the legacy default stream exists as long as its context.
            unsafe { ImportedTensor::after(tensor, &shared, device, LEGACY_STREAM) }?
        };
        let column = Bound::new(py, column_of(py, shared, imported)?)?;
        // DLPack passes ownership only on success. After a failure the caller calls the deleter.
        is_owned.store(true, Ordering::Release);
        // SAFETY: DLPack requires `out` to be valid for a write.
        unsafe { out.write(column.into_ptr().cast()) };
        Ok(())
    })
}

/// A tensor of the caller, which this library owns only once the import has succeeded.
struct BorrowedTensor {
    original: NonNull<VersionedTensor>,
    is_owned: Arc<AtomicBool>,
}

// SAFETY: DLPack allows calling a deleter on any thread.
unsafe impl Send for BorrowedTensor {}

impl BorrowedTensor {
    /// Returns a copy of the struct, and a flag. The copy's deleter calls the original's deleter
    /// only if the flag is set.
    fn managed(original: NonNull<VersionedTensor>) -> (Managed, Arc<AtomicBool>) {
        let is_owned = Arc::new(AtomicBool::new(false));
        // SAFETY: DLPack requires a live versioned tensor. The import rejects a tensor of another
        // major version, and reads only its version.
        let mut copy = unsafe { original.read() };
        copy.manager_ctx =
            Box::into_raw(Box::new(BorrowedTensor { original, is_owned: is_owned.clone() })).cast();
        copy.deleter = Some(delete_borrowed);
        let raw = NonNull::from(Box::leak(Box::new(copy)));
        // SAFETY: `raw` is a live versioned tensor that only this `Managed` owns.
        (unsafe { Managed::new(Form::Versioned, raw.cast()) }, is_owned)
    }
}

unsafe extern "C" fn delete_borrowed(tensor: *mut VersionedTensor) {
    // SAFETY: `BorrowedTensor::managed` boxed the tensor and its context. DLPack calls a deleter
    // once.
    unsafe {
        let tensor = Box::from_raw(tensor);
        let borrowed = Box::from_raw(tensor.manager_ctx.cast::<BorrowedTensor>());
        if borrowed.is_owned.load(Ordering::Acquire) {
            drop(Managed::new(Form::Versioned, borrowed.original.cast()));
        }
    }
}

/// Returns the default session if it is on the device, else a cached or new session on the device.
fn session_on(py: Python<'_>, device: Device) -> PyResult<Arc<Shared>> {
    let _call = begin(py);
    static SESSIONS: ProcessWide<Vec<(Device, Py<Session>)>> = ProcessWide::new();
    let module = py.import("crossdock")?;
    let default = module.call_method0("default_session")?;
    let shared = default.cast::<Session>()?.get().shared()?;
    if shared.session.device() == device {
        return Ok(shared);
    }
    let cached = {
        let sessions = SESSIONS.lock();
        sessions.iter().find(|(key, _)| *key == device).map(|(_, session)| session.clone_ref(py))
    };
    // In a forked child, using the parent's session returns an error, and the session is replaced.
    if let Some(Ok(shared)) = cached.map(|session| session.get().shared()) {
        return Ok(shared);
    }
    let session = module.getattr("Session")?.call1((device.to_string(),))?.cast_into::<Session>()?;
    let shared = session.get().shared()?;
    SESSIONS.lock().push((device, session.unbind()));
    Ok(shared)
}

unsafe extern "C" fn work_stream(_: DeviceType, _: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: DLPack requires `out` to be valid for a write. NULL is the legacy default stream.
    unsafe { out.write(std::ptr::null_mut()) };
    0
}

unsafe extern "C" fn allocate(
    prototype: *mut Tensor,
    out: *mut *mut VersionedTensor,
    context: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    Python::attach(|py| {
        // SAFETY: DLPack requires a valid prototype.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { new_tensor(py, prototype) }));
        let error = match result {
            Ok(Ok(tensor)) => {
                // SAFETY: DLPack requires `out` to be valid for a write.
                unsafe { out.write(tensor) };
                return 0;
            }
            Ok(Err(error)) => error,
            Err(payload) => {
                std::mem::forget(payload);
                raise(Kind::Plugin, "crossdock panicked, which is a bug: please report the message on stderr")
            }
        };
        let kind = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        let c_string = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (kind, message) = (c_string(kind), c_string(error.value(py).to_string()));
        if let Some(set_error) = set_error {
            // SAFETY: the caller passed `set_error` with its `context`, and both strings live for
            // the call.
            unsafe { set_error(context, kind.as_ptr(), message.as_ptr()) };
        }
        -1
    })
}

/// Allocates a tensor with the dtype, shape and device of a prototype.
///
/// # Safety
/// `prototype` is NULL or a valid tensor. The tensor's data is not used.
unsafe fn new_tensor(py: Python<'_>, prototype: *mut Tensor) -> PyResult<*mut VersionedTensor> {
    // SAFETY: this function requires a valid pointer or NULL.
    let prototype = unsafe { prototype.as_ref() }.ok_or_else(|| usage("the prototype is NULL"))?;
    let ndim = usize::try_from(prototype.ndim)
        .map_err(|_| usage(format!("the prototype has {} dimensions, expected 0 or more", prototype.ndim)))?;
    let shape = match NonNull::new(prototype.shape).filter(|_| ndim > 0) {
        // SAFETY: the shape of a valid tensor has `ndim` sizes.
        Some(shape) => unsafe { std::slice::from_raw_parts(shape.as_ptr(), ndim) },
        None if ndim == 0 => &[],
        None => return Err(usage(format!("the prototype has {ndim} dimensions and a NULL shape"))),
    };
    let elements = shape.iter().try_fold(1usize, |n, size| n.checked_mul(usize::try_from(*size).ok()?));
    let bits = usize::from(prototype.dtype.bits) * usize::from(prototype.dtype.lanes);
    let bytes = elements.and_then(|n| n.checked_mul(bits)).map(|bits| bits.div_ceil(8));
    let bytes =
        bytes.ok_or_else(|| usage(format!("the prototype's shape {shape:?} is negative or too large")))?;
    let device = match prototype.device.device_type {
        DeviceType::CPU => Device::CPU,
        DeviceType::CUDA => Device::cuda(prototype.device.device_id.into()),
        other => {
            let message = format!("device type {}: expected 1 (CPU) or 2 (CUDA)", other.0);
            return Err(raise(Kind::Unsupported, message));
        }
    };
    let shared = session_on(py, device)?;
    let stream = shared.session.stream();
    let buffer = shared.session.memory().alloc(stream, bytes).or_raise()?;
    if device != Device::CPU {
        // SAFETY: the legacy default stream exists as long as its context.
        let legacy = unsafe { stream.memory().adopt_stream(device, LEGACY_STREAM as *mut c_void) };
        legacy.or_raise()?.wait(&stream.record().or_raise()?).or_raise()?;
    }
    // The consumer writes the memory on streams of its own, so the memory is freed after all work
    // in flight on the device.
    let buffer: Buffer = buffer.freeze_now();
    buffer.mark_exported();
    let mut strides = vec![1i64; ndim];
    let mut stride = 1i64;
    for (to, size) in strides.iter_mut().zip(shape).rev() {
        *to = stride;
        stride = stride.saturating_mul((*size).max(1));
    }
    let data = if bytes == 0 { std::ptr::null_mut() } else { buffer.address() as *mut c_void };
    let shape = shape.to_vec();
    let tensor = dlpack_abi::new_tensor(buffer, data, prototype.device, prototype.dtype, shape, strides, 0);
    Ok(tensor.as_ptr())
}
