//! Kernels that the host owns, found by name.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crossdock_plugin_api::{Device, Error, Host, Result, abi};

/// One of the host's kernels as its caller declares it: a static, which takes a place in each memory's table of found
/// kernels when it is first launched.
pub struct HostKernel {
    name: &'static CStr,
    arguments: &'static CStr,
    /// Its place in [`Found`], counted from 1; 0 until it has one.
    place: AtomicUsize,
}

impl HostKernel {
    /// How many kernels of one plugin are found once and then remembered. Further ones are asked for at each launch.
    pub const REMEMBERED: usize = 128;

    /// The kernel `name`, to which `arguments` will be passed after a job's head, written as
    /// `crossdock_host_kernels.find` takes them: "rvwv(vv)".
    pub const fn new(name: &'static CStr, arguments: &'static CStr) -> Self {
        Self { name, arguments, place: AtomicUsize::new(0) }
    }

    /// The arguments as the host is told of them.
    pub fn arguments(&self) -> &'static CStr {
        self.arguments
    }

    /// Its index in each memory's table.
    fn place(&self) -> usize {
        /// The number of kernels of this plugin that have a place.
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        match self.place.load(Ordering::Relaxed) {
            0 => {
                let new = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
                match self.place.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => new - 1,
                    // Another thread was first; the place that was taken here stays empty.
                    Err(theirs) => theirs - 1,
                }
            }
            place => place - 1,
        }
    }
}

/// The types of device for which kernels are remembered, each with its part of the table.
const DEVICE_TYPES: [i32; 4] =
    [abi::DEVICE_CPU, abi::DEVICE_CUDA, abi::DEVICE_CUDA_HOST, abi::DEVICE_EXT_DEV];

/// The kernels that one memory's host has given. They belong to that host: the plugin's statics serve other hosts too.
pub(crate) struct Found {
    /// The interface, and as much of it as both sides know; `None` if the host does not offer it.
    interface: Option<(NonNull<abi::HostKernels>, abi::HostKernels)>,
    /// For each device type, a kernel for each place; null until it has been found.
    kernels: [Box<[AtomicPtr<abi::Kernel>]>; DEVICE_TYPES.len()],
}

impl Found {
    pub(crate) fn new(host: &Host) -> Self {
        // SAFETY: `abi::HostKernels` is what the header defines for this id.
        Self::of(unsafe { host.interface::<abi::HostKernels>(abi::HOST_KERNELS_ID) })
    }

    fn of(interface: Option<(NonNull<abi::HostKernels>, abi::HostKernels)>) -> Self {
        let empty = || (0..HostKernel::REMEMBERED).map(|_| AtomicPtr::default()).collect();
        Self { interface, kernels: DEVICE_TYPES.map(|_| empty()) }
    }

    /// The kernel for devices of that type: remembered, or found now.
    pub(crate) fn kernel(&self, kernel: &'static HostKernel, device: Device) -> Result<NonNull<abi::Kernel>> {
        let of_type = DEVICE_TYPES.iter().zip(&self.kernels).find(|(of, _)| **of == device.r#type);
        let entry = of_type.and_then(|(_, kernels)| kernels.get(kernel.place()));
        // Acquire: pairs with the release below, so that the kernel's own fields are seen.
        if let Some(found) = entry.and_then(|entry| NonNull::new(entry.load(Ordering::Acquire))) {
            return Ok(found);
        }
        let found = self.find(kernel, device)?;
        if let Some(entry) = entry {
            entry.store(found.as_ptr(), Ordering::Release);
        }
        Ok(found)
    }

    /// Whether the host offers the interface, whole.
    pub(crate) fn is_offered(&self) -> bool {
        matches!(&self.interface, Some((_, abi::HostKernels { find: Some(_), .. })))
    }

    fn find(&self, kernel: &HostKernel, device: Device) -> Result<NonNull<abi::Kernel>> {
        let missing = || {
            Error::version(format!(
                "the host offers no 'crossdock.host.kernels/1', by which the kernel '{}' is launched: {ADVICE}",
                kernel.name.to_string_lossy()
            ))
        };
        let (object, table) = self.interface.as_ref().ok_or_else(missing)?;
        let find = table.find.ok_or_else(missing)?;
        let mut out = std::ptr::null();
        // SAFETY: the host's own function on its own object; the texts are static, the place is a local's.
        Error::check(|err| unsafe {
            find(object.as_ptr(), device, kernel.name.as_ptr(), kernel.arguments.as_ptr(), &mut out, err)
        })?;
        let found = NonNull::new(out.cast_mut());
        found.ok_or_else(|| Error::internal("the host found a kernel and gave none"))
    }
}

/// What to do where a host lacks the interface.
pub(crate) const ADVICE: &str = "use a newer host, or a build of the plugin for this one";

#[cfg(test)]
mod tests {
    use std::ffi::c_char;

    use super::*;

    static ASKED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn find(
        _: *const abi::HostKernels,
        _: Device,
        _: *const c_char,
        _: *const c_char,
        out: *mut *const abi::Kernel,
        _: *mut abi::Error,
    ) -> abi::Code {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's place; nobody looks at the kernel.
        unsafe { out.write(std::ptr::dangling()) };
        abi::OK
    }

    #[test]
    fn kernels_beyond_those_that_are_remembered_are_asked_for_at_each_launch() {
        let mut table = abi::HostKernels { find: Some(find), ..abi::HostKernels::new() };
        let found = Found::of(Some((NonNull::from(&mut table), table)));
        static KERNELS: [HostKernel; HostKernel::REMEMBERED + 3] =
            [const { HostKernel::new(c"any", c"w") }; HostKernel::REMEMBERED + 3];
        for asked in [KERNELS.len(), KERNELS.len() + 3] {
            KERNELS.iter().for_each(|kernel| assert!(found.kernel(kernel, Device::CPU).is_ok()));
            assert_eq!(ASKED.load(Ordering::Relaxed), asked);
        }
    }
}
