//! Our own DLPack C exchange API: columns as tensors and tensors as columns, without a Python call.
//!
//! Work on CUDA devices is said to happen on the legacy default stream: what is given is made ready on it, and what comes is
//! taken to be ready on it. Our own streams are nobody's to work on.

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

use crate::column::Column;
use crate::dlpack_abi::{self, DeviceType, ExchangeHeader, ExchangeTable, SetError, Tensor, VersionedTensor};
use crate::dlpack_in::column_of;
use crate::dlpack_in_producer::{Asked, LEGACY_STREAM};
use crate::dlpack_out::{Copying, Wanted, tensor};
use crate::dlpack_tensor::{Form, Managed, VERSION, cuda_device};
use crate::errors::{Kind, OrRaise, raise, usage};
use crate::exchange_api::CAPSULE;
use crate::process::begin;
use crate::session::{Session, Shared};

struct Table(ExchangeTable);

// SAFETY: functions and numbers, which nobody changes.
unsafe impl Sync for Table {}

/// There is no function for tensors that are not owned: they have no flags, so that nobody could be told to read only.
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

/// What `Column.__dlpack_c_exchange_api__` is.
pub fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the table and the name are static; nothing has to be freed.
    unsafe {
        let table = (&raw const TABLE.0).cast_mut().cast::<c_void>();
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(table, CAPSULE.as_ptr(), None))
    }
}

/// The one door: no panic leaves, and what is raised is left for the caller to find.
fn enter(py: Python<'_>, body: impl FnOnce() -> PyResult<()>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        Err(raise(Kind::Plugin, "crossdock panicked: this is a bug, what it printed says where"))
    });
    match done {
        Ok(()) => 0,
        Err(error) => {
            error.restore(py);
            -1
        }
    }
}

unsafe extern "C" fn from_column(object: *mut c_void, out: *mut *mut VersionedTensor) -> c_int {
    // SAFETY: callers hold the interpreter's lock.
    let py = unsafe { Python::assume_attached() };
    enter(py, || {
        // SAFETY: an object that is alive for the call.
        let object = unsafe { Bound::from_borrowed_ptr(py, object.cast()) };
        let column = object.cast::<Column>().map_err(|_| {
            PyTypeError::new_err("managed_tensor_from_py_object_no_sync: expected a crossdock.Column")
        })?;
        let column = column.get();
        let to = crate::table::device_of(column.table()?);
        let consumer = Some(LEGACY_STREAM);
        let wanted = Wanted { form: Form::Versioned, copying: Copying::Needed, to, consumer };
        let (_, raw) = tensor(py, column, wanted)?.into_parts();
        // SAFETY: the caller's place for it.
        unsafe { out.write(raw.as_ptr().cast()) };
        Ok(())
    })
}

unsafe extern "C" fn to_column(tensor: *mut VersionedTensor, out: *mut *mut c_void) -> c_int {
    // SAFETY: callers hold the interpreter's lock.
    let py = unsafe { Python::assume_attached() };
    enter(py, || {
        let tensor = NonNull::new(tensor).ok_or_else(|| usage("a NULL tensor was given"))?;
        let (lent, taken) = Lent::tensor_of(tensor);
        let place = lent.tensor().map(|tensor| tensor.device);
        let place = place.and_then(|device| cuda_device(device, Device::CPU)).unwrap_or(Device::CPU);
        let shared = session_on(py, place)?;
        let asked = if place == Device::CPU {
            Asked::at_once(lent)
        } else {
            // SAFETY: that stream is always there.
            unsafe { Asked::after(lent, &shared, place, LEGACY_STREAM) }?
        };
        let column = Bound::new(py, column_of(py, shared, asked)?)?;
        // What fails leaves the tensor with its owner, who calls its deleter; what succeeds has taken it.
        taken.store(true, Ordering::Release);
        // SAFETY: the caller's place for it.
        unsafe { out.write(column.into_ptr().cast()) };
        Ok(())
    })
}

/// A tensor that is ours only if nothing fails.
struct Lent {
    original: NonNull<VersionedTensor>,
    taken: Arc<AtomicBool>,
}

// SAFETY: a managed tensor may be deleted on any thread.
unsafe impl Send for Lent {}

impl Lent {
    /// The same tensor under a deleter that calls the original's if it has been taken.
    fn tensor_of(original: NonNull<VersionedTensor>) -> (Managed, Arc<AtomicBool>) {
        let taken = Arc::new(AtomicBool::new(false));
        // SAFETY: a live tensor, whose fields up to the version's own are where they always are; of another version it is
        // only handed on, to be refused.
        let mut copy = unsafe { original.read() };
        copy.manager_ctx = Box::into_raw(Box::new(Lent { original, taken: taken.clone() })).cast();
        copy.deleter = Some(delete_lent);
        let raw = NonNull::from(Box::leak(Box::new(copy)));
        // SAFETY: made above; nobody else has it.
        (unsafe { Managed::new(Form::Versioned, raw.cast()) }, taken)
    }
}

unsafe extern "C" fn delete_lent(tensor: *mut VersionedTensor) {
    // SAFETY: made by `Lent::tensor_of`, deleted once.
    unsafe {
        let tensor = Box::from_raw(tensor);
        let lent = Box::from_raw(tensor.manager_ctx.cast::<Lent>());
        if lent.taken.load(Ordering::Acquire) {
            drop(Managed::new(Form::Versioned, lent.original.cast()));
        }
    }
}

/// A session on the device: the default one where it is there, else one that is kept for this.
fn session_on(py: Python<'_>, device: Device) -> PyResult<Arc<Shared>> {
    let _call = begin(py);
    static KEPT: ProcessWide<Vec<(Device, Py<Session>)>> = ProcessWide::new();
    let module = py.import("crossdock")?;
    let default = module.call_method0("default_session")?;
    let shared = default.cast::<Session>()?.get().shared()?;
    if shared.session.device() == device {
        return Ok(shared);
    }
    let kept = {
        let kept = KEPT.lock();
        kept.iter().find(|(on, _)| *on == device).map(|(_, session)| session.clone_ref(py))
    };
    // One that was forked off is of no use.
    if let Some(Ok(shared)) = kept.map(|session| session.get().shared()) {
        return Ok(shared);
    }
    let session = module.getattr("Session")?.call1((device.to_string(),))?.cast_into::<Session>()?;
    let shared = session.get().shared()?;
    KEPT.lock().push((device, session.unbind()));
    Ok(shared)
}

unsafe extern "C" fn work_stream(_: DeviceType, _: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place for it. NULL is the legacy default stream.
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
        // SAFETY: the caller's prototype.
        let made = catch_unwind(AssertUnwindSafe(|| unsafe { allocated(py, prototype) }));
        let failed = match made {
            Ok(Ok(tensor)) => {
                // SAFETY: the caller's place for it.
                unsafe { out.write(tensor) };
                return 0;
            }
            Ok(Err(error)) => error,
            Err(payload) => {
                std::mem::forget(payload);
                raise(Kind::Plugin, "crossdock panicked: this is a bug, what it printed says where")
            }
        };
        let kind = failed.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        let words = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (kind, message) = (words(kind), words(failed.value(py).to_string()));
        if let Some(set_error) = set_error {
            // SAFETY: the caller's function on its context; both texts live for the call.
            unsafe { set_error(context, kind.as_ptr(), message.as_ptr()) };
        }
        -1
    })
}

/// # Safety
/// A prototype: its dtype, shape and device count.
unsafe fn allocated(py: Python<'_>, prototype: *mut Tensor) -> PyResult<*mut VersionedTensor> {
    // SAFETY: by this function's own contract.
    let prototype = unsafe { prototype.as_ref() }.ok_or_else(|| usage("a NULL prototype was given"))?;
    let ndim =
        usize::try_from(prototype.ndim).map_err(|_| usage("a prototype of less than no dimensions"))?;
    let shape = match NonNull::new(prototype.shape).filter(|_| ndim > 0) {
        // SAFETY: as many sizes as dimensions.
        Some(shape) => unsafe { std::slice::from_raw_parts(shape.as_ptr(), ndim) },
        None if ndim == 0 => &[],
        None => return Err(usage("a prototype without a shape")),
    };
    let elements = shape.iter().try_fold(1usize, |n, size| n.checked_mul(usize::try_from(*size).ok()?));
    let bits = usize::from(prototype.dtype.bits) * usize::from(prototype.dtype.lanes);
    let bytes = elements.and_then(|n| n.checked_mul(bits)).map(|bits| bits.div_ceil(8));
    let bytes =
        bytes.ok_or_else(|| usage(format!("a prototype of shape {shape:?}: no memory is so large")))?;
    let device = match prototype.device.device_type {
        DeviceType::CPU => Device::CPU,
        DeviceType::CUDA => Device::cuda(prototype.device.device_id.into()),
        other => {
            let what = format!("device type {}: expected 1, the cpu, or 2, CUDA", other.0);
            return Err(raise(Kind::Unsupported, what));
        }
    };
    let shared = session_on(py, device)?;
    let stream = shared.session.stream();
    let buffer = shared.session.memory().alloc(stream, bytes).or_raise()?;
    if device != Device::CPU {
        // SAFETY: that stream is always there.
        let theirs = unsafe { stream.memory().adopt_stream(device, LEGACY_STREAM as *mut c_void) };
        theirs.or_raise()?.wait(&stream.record().or_raise()?).or_raise()?;
    }
    // Whoever gets it writes it; for us it is done with, and goes back after everything that uses it.
    let buffer: Buffer = buffer.freeze_now();
    buffer.mark_lent();
    let mut strides = vec![1i64; ndim];
    let mut stride = 1i64;
    for (to, size) in strides.iter_mut().zip(shape).rev() {
        *to = stride;
        stride = stride.saturating_mul((*size).max(1));
    }
    let data = if bytes == 0 { std::ptr::null_mut() } else { buffer.address() as *mut c_void };
    let shape = shape.to_vec();
    let tensor = dlpack_abi::owned(buffer, data, prototype.device, prototype.dtype, shape, strides, 0);
    Ok(tensor.as_ptr())
}
