//! The one way into a twin: arguments checked, panics caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_memory::{bytes_of_host_arg, bytes_of_host_arg_mut};
use crossdock_plugin_api::abi;

/// The arguments of one launch on a host device.
pub(crate) struct Args<'a>(&'a [abi::Arg]);

impl<'a> Args<'a> {
    fn of(&self, i: usize, kind: u32) -> Option<&'a abi::Arg> {
        self.0.get(i).filter(|arg| arg.kind == kind)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A number.
    pub(crate) fn value(&self, i: usize) -> Option<u64> {
        self.of(i, abi::ARG_VALUE).map(|arg| arg.value)
    }

    /// A number that counts something in memory.
    pub(crate) fn index(&self, i: usize) -> Option<usize> {
        usize::try_from(self.value(i)?).ok()
    }

    /// Bytes to read.
    pub(crate) fn read(&self, i: usize) -> Option<&'a [u8]> {
        // SAFETY: `door` was called by a host's launch, and `'a` ends before it returns.
        self.of(i, abi::ARG_READ).map(|arg| unsafe { bytes_of_host_arg(arg) })
    }

    /// Bytes to write. Each argument is taken once.
    pub(crate) fn write(&self, i: usize) -> Option<&'a mut [u8]> {
        // SAFETY: as for `read`; the launchers pass each written range once.
        self.of(i, abi::ARG_WRITE).map(|arg| unsafe { bytes_of_host_arg_mut(arg) })
    }

    /// Lowers a cell to `index`, if there is one.
    pub(crate) fn found(&self, cell: usize, index: Option<usize>) -> Option<()> {
        let cell = <&mut [u8; 8]>::try_from(self.write(cell)?).ok()?;
        if let Some(index) = index {
            *cell = u64::from_ne_bytes(*cell).min(index as u64).to_ne_bytes();
        }
        Some(())
    }

    /// Adds to a cell.
    pub(crate) fn add(&self, cell: usize, n: u64) -> Option<()> {
        let cell = <&mut [u8; 8]>::try_from(self.write(cell)?).ok()?;
        *cell = u64::from_ne_bytes(*cell).wrapping_add(n).to_ne_bytes();
        Some(())
    }
}

/// Runs a twin's body; `None` from it means that the arguments are not the kernel's.
///
/// # Safety
/// `args` are the `n` arguments that a host's launch gave.
pub(crate) unsafe fn door(
    args: *const abi::Arg,
    n: usize,
    body: impl FnOnce(Args<'_>) -> Option<()>,
) -> abi::Code {
    // SAFETY: by the caller's word; a launch without arguments may give no list.
    let args = if n == 0 || args.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(args, n) } };
    match catch_unwind(AssertUnwindSafe(|| body(Args(args)))) {
        Ok(Some(())) => abi::OK,
        Ok(None) => abi::INVALID_ARGUMENT,
        Err(payload) => {
            std::mem::forget(payload);
            abi::PANICKED
        }
    }
}

/// Declares a kernel: its static, its name, and the body of its twin.
macro_rules! kernel {
    ($kernel:ident, $name:literal, $body:path) => {
        static $kernel: crossdock_memory::Kernel = {
            unsafe extern "C" fn entry(
                args: *const crossdock_plugin_api::abi::Arg,
                n: usize,
            ) -> crossdock_plugin_api::abi::Code {
                // SAFETY: only a host's launch calls the twin.
                unsafe { crate::door::door(args, n, $body) }
            }
            crossdock_memory::Kernel::host($name, entry)
        };
    };
}
pub(crate) use kernel;

/// The grid for `items` pieces of work, one a thread, which a kernel strides over if they are more.
pub(crate) fn grid(items: usize) -> abi::Grid {
    const THREADS: usize = 256;
    const MOST_BLOCKS: usize = 4096;
    let blocks = items.div_ceil(THREADS).clamp(1, MOST_BLOCKS) as u32;
    abi::Grid { blocks, threads: THREADS as u32, shared_bytes: 0, reserved: 0 }
}
