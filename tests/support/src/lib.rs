//! A host for tests: a real memory backend behind a real `crossdock_host`, and no loader, for the crates that the
//! host crate stands on. Its ledger must be empty when a test ends: [`TestHost::assert_nothing_leaked`].
//!
//! And what tests of all crates share: the devices that they run on, random numbers, which part of many similar checks a run
//! makes, and how a failed test is repeated.

mod device_list;
mod noting;
mod random;
#[cfg(test)]
mod random_tests;
pub mod replay;
pub mod sample;

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use crossdock_kernel_library::find_for;
use crossdock_memory::{Device, Host, Memory, Stream};
use crossdock_memory_backend::{Account, Backend, Faults};
use crossdock_plugin_api::abi;

pub use device_list::{DEVICES, device_pairs, devices};
pub use noting::NotingHost;
pub use random::Random;

/// A backend with the devices `cpu` and `untouchable`, and a host object over it.
pub struct TestHost {
    backend: Backend,
    object: Arc<Object>,
}

#[repr(C)]
struct Object {
    table: abi::Host,
    kernels: abi::HostKernels,
    account: Arc<Account>,
}

// SAFETY: the table is constant data; its functions below only touch the count of the Arc.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Default for TestHost {
    fn default() -> Self {
        Self::new()
    }
}

impl TestHost {
    /// With no limit and no faults.
    pub fn new() -> Self {
        Self::over(Backend::builder().untouchable(true).build())
    }

    /// With operations that fail.
    pub fn with_faults(faults: Faults) -> Self {
        Self::over(Backend::builder().untouchable(true).faults(faults).build())
    }

    /// Over a backend of one's own.
    pub fn over(backend: Backend) -> Self {
        let table = abi::Host {
            abi_major: abi::ABI_MAJOR,
            abi_minor: abi::ABI_MINOR,
            retain: Some(retain),
            release: Some(release),
            get_interface: Some(get_interface),
            ..abi::Host::new()
        };
        let kernels = abi::HostKernels { find: Some(find_kernel), ..abi::HostKernels::new() };
        let object = Arc::new(Object { table, kernels, account: backend.account("test") });
        Self { backend, object }
    }

    /// The bare object, for a plugin's `create`. Alive as long as `self` or a reference.
    pub fn raw(&self) -> *const abi::Host {
        Arc::as_ptr(&self.object).cast()
    }

    /// A reference to the object, as a plugin holds it.
    #[allow(clippy::expect_used)]
    pub fn host(&self) -> Host {
        // SAFETY: alive, and with both counting functions.
        unsafe { Host::retain(self.raw()) }.expect("the test host's own object")
    }

    /// Its memory.
    #[allow(clippy::expect_used)]
    pub fn memory(&self) -> Memory {
        Memory::from_host(&self.host()).expect("the test host offers memory")
    }

    /// The default stream of a device.
    #[allow(clippy::expect_used)]
    pub fn stream(&self, device: Device) -> Stream {
        self.memory().default_stream(device).expect("the device is there")
    }

    /// The backend, for its ledger.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Fails the test if a block, a stream or an event is still alive, once the devices are done with what was dropped.
    pub fn assert_nothing_leaked(&self) {
        self.backend.settle();
        let leaks: Vec<String> = self.backend.leaks().iter().map(ToString::to_string).collect();
        assert!(leaks.is_empty(), "leaked: {}", leaks.join("; "));
    }
}

unsafe extern "C" fn retain(host: *const abi::Host) {
    // SAFETY: the table is the first field of an `Object` in an Arc with at least one count.
    unsafe { Arc::increment_strong_count(host.cast::<Object>()) };
}

unsafe extern "C" fn release(host: *const abi::Host) {
    // SAFETY: as above; gives back one count.
    unsafe { Arc::decrement_strong_count(host.cast::<Object>()) };
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    if id.is_null() {
        return std::ptr::null();
    }
    // SAFETY: a live object, and a NUL-terminated id.
    let (object, id) = unsafe { (&*host.cast::<Object>(), CStr::from_ptr(id)) };
    if id == abi::HOST_MEMORY_ID {
        object.account.memory().cast()
    } else if id == abi::HOST_KERNELS_ID {
        (&raw const object.kernels).cast()
    } else {
        std::ptr::null()
    }
}

/// The host's kernels, for any host of a test.
///
/// # Safety
/// As `crossdock_host_kernels.find`; `kernels` is not looked at.
pub unsafe extern "C" fn find_kernel(
    _kernels: *const abi::HostKernels,
    device: Device,
    name: *const c_char,
    arguments: *const c_char,
    out: *mut *const abi::Kernel,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller's words and place.
    match unsafe { find_for("test", device, name, arguments, out) } {
        Ok(()) => abi::OK,
        // SAFETY: the caller's error struct.
        Err(error) => unsafe { error.write_to(err) },
    }
}
