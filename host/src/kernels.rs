//! Implements `crossdock.host.kernels/1`: plugins find the host's kernels by name. Runs the host's
//! own kernels on the threads of a session.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crossdock_kernel_library::{Threads, find_for};
use crossdock_memory_backend::{Account, InstanceTasks};
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Device, Error, abi};

/// The interface of one instance. `abi` is the first field, so that a pointer to this struct is a
/// pointer to a `crossdock_host_kernels`.
#[repr(C)]
pub(crate) struct HostKernels {
    abi: abi::HostKernels,
    account: Arc<Account>,
    caller: String,
}

// SAFETY: the raw pointer inside is null, the function pointer is to a function of this file, which
// any thread may call, and the other fields are Send and Sync.
unsafe impl Send for HostKernels {}
// SAFETY: the raw pointer is null and is never written, and the other fields are Sync.
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
        // SAFETY: `this` is null or the first field of a `HostKernels`, which lives as long as the
        // host object. The plugin's reference keeps the host object alive.
        let this = unsafe { this.cast::<HostKernels>().as_ref() };
        let this = this.ok_or_else(|| Error::invalid_argument("find: the kernels' object is NULL"))?;
        // SAFETY: the contract of `find`: the strings and `out` are null or valid during the call.
        this.account.trace_plugin_call("kernels.find", || unsafe {
            find_for(&this.caller, device, name, arguments, out)
        })
    };
    // SAFETY: the contract of `find`: `err` is null or a valid error struct.
    unsafe { Poison::for_host().enter(err, body) }
}

/// The threads of a session, for CPU implementations of kernels.
pub(crate) struct KernelThreads(pub InstanceTasks);

impl Threads for KernelThreads {
    fn run(&self, n: usize, f: &(dyn Fn() + Sync)) -> bool {
        let once = || {
            f();
            false
        };
        self.0.share(n.min(self.0.width()), &once).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_memory_backend::TaskPool;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn kernel_runs_once_on_each_thread_of_the_session() {
        for (width, n, expected) in [(3, 5, 3), (3, 2, 2), (1, 5, 1)] {
            let threads = KernelThreads(TaskPool::new(width).for_instance());
            let (barrier, count) = (Barrier::new(expected), AtomicUsize::new(0));
            let run = || {
                count.fetch_add(1, Ordering::Relaxed);
                barrier.wait();
            };
            assert!(threads.run(n, &run));
            assert_eq!(count.into_inner(), expected, "{n} calls with {width} threads");
        }
    }

    #[test]
    fn panic_of_another_thread_is_reported() {
        let threads = KernelThreads(TaskPool::new(2).for_instance());
        let (caller, barrier) = (std::thread::current().id(), Barrier::new(2));
        let run = || {
            barrier.wait();
            assert_eq!(std::thread::current().id(), caller, "another thread");
        };
        assert!(!threads.run(2, &run));
    }
}
