//! Looks up the host's kernels by name.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crossdock_plugin_api::{Device, Error, Host, Result, abi};

/// A kernel of the host, which the plugin declares as a static and launches by name. Its first
/// launch assigns it an index into the kernel cache of every `Memory`.
pub struct HostKernel {
    name: &'static CStr,
    arguments: &'static CStr,
    /// The index into [`HostKernelCache`] plus 1; 0 until the first launch.
    slot: AtomicUsize,
}

impl HostKernel {
    /// Maximum number of kernels of one plugin that are cached. Further kernels are looked up at
    /// each launch.
    pub const MAX_CACHED: usize = 128;

    /// Declares the kernel `name`. `arguments` describes the arguments after the head of a job, in
    /// the notation of `crossdock_host_kernels.find`, such as "rvwv(vv)".
    pub const fn new(name: &'static CStr, arguments: &'static CStr) -> Self {
        Self { name, arguments, slot: AtomicUsize::new(0) }
    }

    /// The description of the arguments.
    pub fn arguments(&self) -> &'static CStr {
        self.arguments
    }

    /// Returns the index of this kernel in every cache. The first call assigns the index.
    fn slot(&self) -> usize {
        /// Number of indices assigned so far in this plugin.
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        match self.slot.load(Ordering::Relaxed) {
            0 => {
                let new = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
                match self.slot.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => new - 1,
                    // Another thread assigned an index first, so that `new` stays unused.
                    Err(current) => current - 1,
                }
            }
            slot => slot - 1,
        }
    }
}

/// The device types whose kernels are cached, in the order of [`HostKernelCache::kernels`].
const DEVICE_TYPES: [i32; 4] =
    [abi::DEVICE_CPU, abi::DEVICE_CUDA, abi::DEVICE_CUDA_HOST, abi::DEVICE_EXT_DEV];

/// Caches the kernels of one host. Each `Memory` has its own cache, because several hosts share the
/// statics of the plugin.
pub(crate) struct HostKernelCache {
    /// The host's object, and a copy of the functions that both sides have. `None` if the host does
    /// not offer the interface.
    interface: Option<(NonNull<abi::HostKernels>, abi::HostKernels)>,
    /// For each device type, the kernels by index. An entry is NULL until its kernel has been
    /// looked up.
    kernels: [Box<[AtomicPtr<abi::Kernel>]>; DEVICE_TYPES.len()],
}

impl HostKernelCache {
    pub(crate) fn new(host: &Host) -> Self {
        // SAFETY: `abi::HostKernels` is what the header defines for this id.
        Self::from_interface(unsafe { host.interface::<abi::HostKernels>(abi::HOST_KERNELS_ID) })
    }

    fn from_interface(interface: Option<(NonNull<abi::HostKernels>, abi::HostKernels)>) -> Self {
        let empty = || (0..HostKernel::MAX_CACHED).map(|_| AtomicPtr::default()).collect();
        Self { interface, kernels: DEVICE_TYPES.map(|_| empty()) }
    }

    /// Returns the kernel for the type of `device`. Looks it up unless it is cached.
    pub(crate) fn kernel(&self, kernel: &'static HostKernel, device: Device) -> Result<NonNull<abi::Kernel>> {
        let of_type = DEVICE_TYPES.iter().zip(&self.kernels).find(|(of, _)| **of == device.r#type);
        let entry = of_type.and_then(|(_, kernels)| kernels.get(kernel.slot()));
        // Acquire pairs with the Release store below, so that the fields of the kernel are visible.
        if let Some(cached) = entry.and_then(|entry| NonNull::new(entry.load(Ordering::Acquire))) {
            return Ok(cached);
        }
        let pointer = self.find(kernel, device)?;
        if let Some(entry) = entry {
            entry.store(pointer.as_ptr(), Ordering::Release);
        }
        Ok(pointer)
    }

    /// Whether the host offers the complete interface.
    pub(crate) fn is_available(&self) -> bool {
        matches!(&self.interface, Some((_, abi::HostKernels { find: Some(_), .. })))
    }

    fn find(&self, kernel: &HostKernel, device: Device) -> Result<NonNull<abi::Kernel>> {
        let missing = || {
            Error::version(format!(
                "the host offers no 'crossdock.host.kernels/1', which the kernel '{}' needs: {ADVICE}",
                kernel.name.to_string_lossy()
            ))
        };
        let (object, table) = self.interface.as_ref().ok_or_else(missing)?;
        let find = table.find.ok_or_else(missing)?;
        let mut out = std::ptr::null();
        // SAFETY: `find` of the host's table is called with the host's object; the strings are
        // static, and `out` is a local.
        Error::check(|err| unsafe {
            find(object.as_ptr(), device, kernel.name.as_ptr(), kernel.arguments.as_ptr(), &mut out, err)
        })?;
        let kernel = NonNull::new(out.cast_mut());
        kernel.ok_or_else(|| Error::internal("the host returned success and a NULL kernel"))
    }
}

/// Advice in errors about hosts that lack the interface.
pub(crate) const ADVICE: &str = "use a newer host, or a build of the plugin for this one";

#[cfg(test)]
mod tests {
    use std::ffi::c_char;

    use super::*;

    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn find(
        _: *const abi::HostKernels,
        _: Device,
        _: *const c_char,
        _: *const c_char,
        out: *mut *const abi::Kernel,
        _: *mut abi::Error,
    ) -> abi::Code {
        LOOKUPS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `out` is the caller's out parameter. The kernel is never dereferenced.
        unsafe { out.write(std::ptr::dangling()) };
        abi::OK
    }

    #[test]
    fn looks_up_kernels_beyond_the_cache_at_each_launch() {
        let mut table = abi::HostKernels { find: Some(find), ..abi::HostKernels::new() };
        let cache = HostKernelCache::from_interface(Some((NonNull::from(&mut table), table)));
        static KERNELS: [HostKernel; HostKernel::MAX_CACHED + 3] =
            [const { HostKernel::new(c"any", c"w") }; HostKernel::MAX_CACHED + 3];
        for lookups in [KERNELS.len(), KERNELS.len() + 3] {
            KERNELS.iter().for_each(|kernel| assert!(cache.kernel(kernel, Device::CPU).is_ok()));
            assert_eq!(LOOKUPS.load(Ordering::Relaxed), lookups);
        }
    }
}
