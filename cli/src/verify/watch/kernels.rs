//! The function of `crossdock.host.kernels/1`: the host's own kernels, as a session's plugin gets them.

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
    // SAFETY: the plugin calls this on what it was given, whose `private_data` is its object; that lives for ever.
    let shared = unsafe { &*(*this).private_data.cast::<Shared>() };
    let found = shared.may_fail("find").and_then(|()| {
        // SAFETY: the plugin's words and place, alive for the call.
        unsafe { find_for("the plugin", device, name, arguments, out) }
    });
    match found {
        Ok(()) => abi::OK,
        // SAFETY: the plugin's error struct.
        Err(error) => unsafe { error.write_to(err) },
    }
}
