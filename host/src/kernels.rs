//! `crossdock.host.kernels/1`: the host's own kernels, which plugins launch by name.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crossdock_kernel_library::find_for;
use crossdock_memory_backend::Account;
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Device, Error, abi};

/// The interface as one instance sees it. Its address is the `crossdock_host_kernels`'s, so that comes first.
#[repr(C)]
pub(crate) struct HostKernels {
    abi: abi::HostKernels,
    account: Arc<Account>,
    caller: String,
}

// SAFETY: the pointer inside is null and the function is this file's, which any thread may call; the rest is Sync by
// itself.
unsafe impl Send for HostKernels {}
// SAFETY: as above.
unsafe impl Sync for HostKernels {}

impl HostKernels {
    pub(crate) fn new(plugin: &str, account: Arc<Account>) -> Self {
        let abi = abi::HostKernels { find: Some(find), ..abi::HostKernels::new() };
        Self { abi, account, caller: format!("plugin '{plugin}'") }
    }

    pub(crate) fn as_ptr(&self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }
}

unsafe extern "C" fn find(
    this: *const abi::HostKernels,
    device: Device,
    name: *const c_char,
    arguments: *const c_char,
    out: *mut *const abi::Kernel,
    err: *mut abi::Error,
) -> abi::Code {
    let body = || {
        // SAFETY: null, or the first field of a `HostKernels`, which lives as long as the host object, to which the plugin
        // holds a reference.
        let this = unsafe { this.cast::<HostKernels>().as_ref() };
        let this = this.ok_or_else(|| Error::invalid_argument("find: the kernels' object is NULL"))?;
        // SAFETY: the plugin's words and place, alive for the call.
        this.account
            .called("kernels.find", || unsafe { find_for(&this.caller, device, name, arguments, out) })
    };
    // SAFETY: the plugin's error struct.
    unsafe { Poison::of_host().enter(err, body) }
}
