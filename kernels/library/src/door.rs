//! FFI door of the CPU implementations: checks arguments and stops panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_memory::{bytes_of_host_arg, bytes_of_host_arg_mut};
use crossdock_plugin_api::abi;

/// The arguments of one job on a host device, without its head.
pub(crate) struct Args<'a>(&'a [abi::Arg]);

impl<'a> Args<'a> {
    fn of(&self, i: usize, kind: u32) -> Option<&'a abi::Arg> {
        self.0.get(i).filter(|arg| arg.kind == kind)
    }

    /// The number of arguments.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Argument `i` as a number.
    pub(crate) fn value(&self, i: usize) -> Option<u64> {
        self.of(i, abi::ARG_VALUE).map(|arg| arg.value)
    }

    /// Argument `i` as a number of bytes or elements.
    pub(crate) fn index(&self, i: usize) -> Option<usize> {
        usize::try_from(self.value(i)?).ok()
    }

    /// Argument `i` as bytes to read.
    pub(crate) fn read(&self, i: usize) -> Option<&'a [u8]> {
        // SAFETY: `door` requires the arguments of a launch on a host device, so the range is
        // readable until `door` returns, and `'a` ends before.
        self.of(i, abi::ARG_READ).map(|arg| unsafe { bytes_of_host_arg(arg) })
    }

    /// Argument `i` as bytes to write. Must be called once per argument.
    pub(crate) fn write(&self, i: usize) -> Option<&'a mut [u8]> {
        // SAFETY: `door` requires the arguments of a launch on a host device, so the range is
        // writable until `door` returns. A launch passes each written range once.
        self.of(i, abi::ARG_WRITE).map(|arg| unsafe { bytes_of_host_arg_mut(arg) })
    }

    /// The content of a cell.
    pub(crate) fn cell(&self, cell: usize) -> Option<u64> {
        let cell = <&[u8; 8]>::try_from(&*self.write(cell)?).ok()?;
        Some(u64::from_ne_bytes(*cell))
    }

    /// Sets the cell to the minimum of its value and `index`. `None` leaves the cell unchanged.
    pub(crate) fn report_wrong(&self, cell: usize, index: Option<usize>) -> Option<()> {
        let cell = <&mut [u8; 8]>::try_from(self.write(cell)?).ok()?;
        if let Some(index) = index {
            *cell = u64::from_ne_bytes(*cell).min(index as u64).to_ne_bytes();
        }
        Some(())
    }

    /// Adds `n` to a cell.
    pub(crate) fn add(&self, cell: usize, n: u64) -> Option<()> {
        let cell = <&mut [u8; 8]>::try_from(self.write(cell)?).ok()?;
        *cell = u64::from_ne_bytes(*cell).wrapping_add(n).to_ne_bytes();
        Some(())
    }
}

/// Runs the body of a CPU implementation for each job. The body returns `None` if the arguments do
/// not match the kernel's row in the table.
///
/// # Safety
/// `args` are the `n` arguments of a launch on a host device, which are valid until this function
/// returns.
pub(crate) unsafe fn door(
    args: *const abi::Arg,
    n: usize,
    body: impl Fn(Args<'_>) -> Option<()>,
) -> abi::Code {
    // SAFETY: the caller guarantees `n` arguments. A launch without arguments may pass a null list.
    let args = if n == 0 || args.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(args, n) } };
    match catch_unwind(AssertUnwindSafe(|| for_each_job(args, body))) {
        Ok(Some(())) => abi::OK,
        Ok(None) => abi::INVALID_ARGUMENT,
        Err(payload) => {
            std::mem::forget(payload);
            abi::PANICKED
        }
    }
}

/// The upper half of a job's head contains the number of the job's arguments, including the head.
/// The lower half numbers CUDA blocks and is ignored here.
fn for_each_job(mut args: &[abi::Arg], body: impl Fn(Args<'_>) -> Option<()>) -> Option<()> {
    while let Some(head) = args.first().filter(|head| head.kind == abi::ARG_VALUE) {
        let n = usize::try_from(head.value >> 32).ok()?;
        let (job, rest) = args.split_at_checked(n)?;
        body(Args(job.get(1..)?))?;
        args = rest;
    }
    args.is_empty().then_some(())
}
