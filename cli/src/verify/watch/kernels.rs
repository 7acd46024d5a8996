//! The function of `crossdock.host.kernels/1`: finds the host's own kernels.

use std::ffi::c_char;

use crossdock::api::{Device, abi};
use crossdock_kernel_library::find_for;

use super::Shared;

pub(super) unsafe extern "C" fn find(
    this: *const abi::HostKernels,
    device: Device,
    name: *const c_char,
    arguments: *const c_char,
    out: *mut *const abi::Kernel,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `this` is the interface of a `Shared`, whose `private_data` is the `Shared`, which is
    // never freed.
    let shared = unsafe { &*(*this).private_data.cast::<Shared>() };
    let result = shared.may_fail("find").and_then(|()| {
        // SAFETY: the plugin passes NUL-terminated strings and an out parameter that are valid for
        // the call.
        unsafe { find_for("the plugin", device, name, arguments, out) }
    });
    match result {
        Ok(()) => abi::OK,
        // SAFETY: `err` is NULL or the plugin's error struct.
        Err(error) => unsafe { error.write_to(err) },
    }
}
