//! A host for tests of crates on which the host crate depends. The host is a `crossdock_host`
//! object with a real memory backend, and without a loader. [`TestHost::assert_nothing_leaked`]
//! checks that the host's ledger is empty at the end of a test.
//!
//! The crate also contains code that tests of all crates share: the list of devices, random
//! numbers, the selection of a sample of similar checks, the command that repeats a failed test,
//! and files in flight.

mod device_list;
mod in_flight;
mod random;
#[cfg(test)]
mod random_tests;
mod recording;
pub mod replay;
pub mod sample;

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crossdock_kernel_library::find_for;
use crossdock_memory::{Device, Host, Memory, Stream};
use crossdock_memory_backend::{Account, Backend, Faults, Loader, TaskPool, Tasks};
use crossdock_plugin_api::abi;

pub use device_list::{DEVICES, device_pairs, devices};
pub use in_flight::FilesInFlight;
pub use random::Random;
pub use recording::RecordingHost;

/// A backend with the devices `cpu` and `untouchable`, and a host object that uses it.
pub struct TestHost {
    backend: Backend,
    object: Arc<Object>,
}

#[repr(C)]
struct Object {
    table: abi::Host,
    kernels: abi::HostKernels,
    log: abi::HostLog,
    loader: Loader,
    tasks: Tasks,
    account: Arc<Account>,
    log_lines: Mutex<Vec<(i32, String)>>,
}

// SAFETY: the tables are constant, and the account is an `Arc` of a type that is `Send` and `Sync`.
unsafe impl Send for Object {}
// SAFETY: the tables are constant, the account is `Sync`, and a mutex guards the log lines.
unsafe impl Sync for Object {}

impl Default for TestHost {
    fn default() -> Self {
        Self::new()
    }
}

impl TestHost {
    /// A host with no limit and no faults.
    pub fn new() -> Self {
        Self::over(Backend::builder().untouchable(true).build())
    }

    /// A host whose memory operations fail according to `faults`.
    pub fn with_faults(faults: Faults) -> Self {
        Self::over(Backend::builder().untouchable(true).faults(faults).build())
    }

    /// A host that uses an existing backend.
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
        let account = backend.account("test");
        let object = Arc::new_cyclic(|object: &Weak<Object>| {
            let log = abi::HostLog {
                private_data: object.as_ptr().cast_mut().cast(),
                write: Some(write_log),
                ..abi::HostLog::new()
            };
            let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
            let tasks = TaskPool::new(threads).for_instance();
            let loader = Loader::new(account.clone(), tasks.clone());
            let tasks = Tasks::new(tasks, account.clone());
            Object { table, kernels, log, loader, tasks, account, log_lines: Mutex::default() }
        });
        Self { backend, object }
    }

    /// The host object that is passed to a plugin's `create`. It lives as long as `self` or any
    /// counted reference.
    pub fn raw(&self) -> *const abi::Host {
        Arc::as_ptr(&self.object).cast()
    }

    /// A counted reference to the host object.
    #[allow(clippy::expect_used)]
    pub fn host(&self) -> Host {
        // SAFETY: `self` keeps the object alive, and its table has both counting functions.
        unsafe { Host::retain(self.raw()) }.expect("a host object with both counting functions")
    }

    /// The memory interface.
    #[allow(clippy::expect_used)]
    pub fn memory(&self) -> Memory {
        Memory::from_host(&self.host()).expect("the test host offers memory")
    }

    /// The default stream of a device.
    #[allow(clippy::expect_used)]
    pub fn stream(&self, device: Device) -> Stream {
        self.memory().default_stream(device).expect("a device of the test host")
    }

    /// The levels and messages that were logged since the last call.
    pub fn take_log(&self) -> Vec<(i32, String)> {
        std::mem::take(&mut *self.object.log_lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The backend, for its ledger.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Waits until all devices have released dropped objects. Then fails the test if a block, a
    /// stream or an event is still alive.
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
    // SAFETY: the table is the first field of an `Object` in an Arc, and the caller owns one count.
    unsafe { Arc::decrement_strong_count(host.cast::<Object>()) };
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    if id.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller passes a live host object and a NUL-terminated id.
    let (object, id) = unsafe { (&*host.cast::<Object>(), CStr::from_ptr(id)) };
    if id == abi::HOST_MEMORY_ID {
        object.account.memory().cast()
    } else if id == abi::HOST_KERNELS_ID {
        (&raw const object.kernels).cast()
    } else if id == abi::HOST_LOG_ID {
        (&raw const object.log).cast()
    } else if id == abi::HOST_LOADER_ID {
        object.loader.as_ptr().cast()
    } else if id == abi::HOST_TASKS_ID {
        object.tasks.as_ptr().cast()
    } else {
        std::ptr::null()
    }
}

unsafe extern "C" fn write_log(log: *const abi::HostLog, level: i32, message: abi::Str) {
    // SAFETY: `private_data` of the log in a live `Object` points to that object.
    let object = unsafe { &*(*log).private_data.cast::<Object>() };
    // SAFETY: a plugin passes a message of `bytes` bytes at `data`, valid during the call.
    let message = unsafe { std::slice::from_raw_parts(message.data.cast::<u8>(), message.bytes) };
    let line = (level, String::from_utf8_lossy(message).into_owned());
    object.log_lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}

/// Finds a kernel in the host's kernel library. Test hosts use it as the function `find` of
/// `crossdock_host_kernels`.
///
/// # Safety
/// The requirements of `crossdock_host_kernels.find` apply. `kernels` is ignored.
pub unsafe extern "C" fn find_kernel(
    _kernels: *const abi::HostKernels,
    device: Device,
    name: *const c_char,
    arguments: *const c_char,
    out: *mut *const abi::Kernel,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the strings are NUL-terminated and `out` is valid by the contract of `find`.
    match unsafe { find_for("test", device, name, arguments, out) } {
        Ok(()) => abi::OK,
        // SAFETY: `err` is null or valid by the contract of `find`.
        Err(error) => unsafe { error.write_to(err) },
    }
}
