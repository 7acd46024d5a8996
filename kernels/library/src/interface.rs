//! Implements `crossdock_host_kernels.find`.

use std::ffi::{CStr, c_char};

use crossdock_memory::{Device, Error, Result};
use crossdock_plugin_api::abi;

/// Finds a kernel for the plugin `caller`, whose name precedes error messages.
///
/// # Errors
/// The errors of [`find`](crate::find), and `INVALID_ARGUMENT` for a null pointer.
///
/// # Safety
/// `name` and `arguments` are null or NUL-terminated; `out` is null or valid for a write.
pub unsafe fn find_for(
    caller: &str,
    device: Device,
    name: *const c_char,
    arguments: *const c_char,
    out: *mut *const abi::Kernel,
) -> Result<()> {
    if name.is_null() || arguments.is_null() || out.is_null() {
        let message = format!("{caller}: 'find' got NULL as the name, the arguments or the result");
        return Err(Error::invalid_argument(message));
    }
    // SAFETY: neither pointer is null, so by this function's contract both strings are
    // NUL-terminated.
    let (name, arguments) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(arguments)) };
    let kernel = crate::find(device, name, arguments).map_err(|error| error.context(caller))?;
    // SAFETY: `out` is not null, so by this function's contract it is valid for a write.
    unsafe { out.write(kernel.as_abi()) };
    Ok(())
}
