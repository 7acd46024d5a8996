//! `crossdock.host.kernels/1` over the library: what every host does with the arguments of `find`.

use std::ffi::{CStr, c_char};

use crossdock_memory::{Device, Error, Result};
use crossdock_plugin_api::abi;

/// Does what `crossdock_host_kernels.find` promises the plugin `caller`, whose name errors begin with.
///
/// # Errors
/// Those of [`find`](crate::find), and `INVALID_ARGUMENT` for a null pointer.
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
        let message = format!("{caller}: 'find' was given a NULL name, arguments or result");
        return Err(Error::invalid_argument(message));
    }
    // SAFETY: not null, and NUL-terminated by the caller's word.
    let (name, arguments) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(arguments)) };
    let kernel = crate::find(device, name, arguments).map_err(|error| error.context(caller))?;
    // SAFETY: not null, and valid by the caller's word.
    unsafe { out.write(kernel.as_abi()) };
    Ok(())
}
