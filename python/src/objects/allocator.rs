//! Allocators that a session uses instead of its own pool.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;

use crossdock::memory::{Allocator, AllocatorFunctions};
use crossdock_plugin_api::Device;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::runtime::errors::usage;

/// The name of a capsule with [`AllocatorFunctions`], and its name after a session took them over.
const NAME: &CStr = c"crossdock_allocator";
const USED: &CStr = c"used_crossdock_allocator";

/// Converts the argument `allocator`: an object with `__crossdock_allocator__`, or an allocator
/// that `crossdock._allocators` knows.
pub fn allocator(obj: &Bound<'_, PyAny>, device: Device) -> PyResult<Allocator> {
    if device.r#type != crossdock_plugin_api::abi::DEVICE_CUDA {
        return Err(usage(format!("allocator: expected a session on a CUDA device, got {device}")));
    }
    if let Some(method) = obj.getattr_opt("__crossdock_allocator__")? {
        return from_capsule(&method.call0()?);
    }
    let functions = obj.py().import("crossdock._allocators")?.call_method1("functions", (obj, device.id))?;
    let functions: Functions = functions.cast::<PyTuple>()?.extract()?;
    let context = Box::into_raw(Box::new(functions)).cast();
    let functions = AllocatorFunctions {
        struct_size: size_of::<AllocatorFunctions>() as u32,
        reserved: 0,
        context,
        allocate,
        deallocate,
        release: Some(release),
    };
    // SAFETY: the functions may be called on any thread until `release`, which frees the context.
    Ok(unsafe { Allocator::new(functions) })
}

/// Moves the functions out of a capsule.
fn from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Allocator> {
    let expected = size_of::<AllocatorFunctions>();
    // SAFETY: `PyCapsule_IsValid` accepts any object, and ensures that the other calls get a
    // capsule of this name. By the protocol it points to a struct that begins with its size.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
            return Err(usage(
                "__crossdock_allocator__: expected a capsule 'crossdock_allocator' that was not used before",
            ));
        }
        let from = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr());
        let bytes = from.cast::<u32>().read_unaligned() as usize;
        if bytes < expected {
            return Err(usage(format!(
                "__crossdock_allocator__: expected a struct of at least {expected} bytes, got {bytes}"
            )));
        }
        let mut functions = MaybeUninit::<AllocatorFunctions>::uninit();
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), functions.as_mut_ptr().cast(), expected);
        if ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        Ok(Allocator::new(functions.assume_init()))
    }
}

/// `allocate(nbytes, stream) -> address` and `deallocate(address, nbytes, stream)`.
type Functions = (Py<PyAny>, Py<PyAny>);

/// # Safety
/// `context` is a boxed [`Functions`], and `address` is valid for writes.
unsafe extern "C" fn allocate(
    context: *mut c_void,
    bytes: u64,
    stream: *mut c_void,
    address: *mut u64,
) -> i32 {
    // SAFETY: `context` is live by this function's contract.
    let (allocate, _) = unsafe { &*context.cast::<Functions>() };
    let result = Python::try_attach(|py| {
        let allocated =
            allocate.call1(py, (bytes, stream as usize)).and_then(|address| address.extract::<u64>(py));
        allocated.map_err(|error| tracing::warn!("the session's allocator failed: {error}"))
    });
    match result {
        Some(Ok(allocated)) => {
            // SAFETY: `address` is valid for writes by this function's contract.
            unsafe { address.write(allocated) };
            0
        }
        // The interpreter ends, so that no Python code can run.
        None => -1,
        Some(Err(())) => 1,
    }
}

/// # Safety
/// `context` is a boxed [`Functions`].
unsafe extern "C" fn deallocate(context: *mut c_void, address: u64, bytes: u64, stream: *mut c_void) {
    // SAFETY: `context` is live by this function's contract.
    let (_, deallocate) = unsafe { &*context.cast::<Functions>() };
    // If the interpreter ends, the memory is freed with the process.
    Python::try_attach(|py| {
        if let Err(error) = deallocate.call1(py, (address, bytes, stream as usize)) {
            tracing::warn!("the session's allocator could not free {bytes} bytes: {error}");
        }
    });
}

/// # Safety
/// `context` is a boxed [`Functions`], and is not used any more.
unsafe extern "C" fn release(context: *mut c_void) {
    let context = context.cast::<Functions>();
    // Without an interpreter, the objects cannot be released.
    // SAFETY: `context` is a box by this function's contract.
    Python::try_attach(|_| drop(unsafe { Box::from_raw(context) }));
}
