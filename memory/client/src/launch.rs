//! Launches kernels.

use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::host_kernels::HostKernel;
use crate::memory::call;
use crate::owner::Owner;
use crate::{Buffer, BufferMut, Stream};

/// A kernel: its name, its CPU implementation, and its CUDA image if it has one.
#[derive(Clone)]
pub struct Kernel(abi::Kernel);

// SAFETY: the pointers are to static, immutable data.
unsafe impl Send for Kernel {}

/// The CPU implementation of a kernel. Its arguments hold addresses that the host can dereference;
/// see [`bytes_of_host_arg`].
pub type CpuImplementation = unsafe extern "C" fn(*const abi::Arg, usize) -> abi::Code;

impl Kernel {
    /// Creates a kernel that has a CPU implementation and no CUDA image.
    pub const fn host(name: &'static CStr, cpu_implementation: CpuImplementation) -> Self {
        Self(abi::Kernel {
            struct_size: size_of::<abi::Kernel>(),
            name: name.as_ptr(),
            host_function: Some(cpu_implementation),
            image: std::ptr::null(),
            image_bytes: 0,
            flags: 0,
            reserved: 0,
        })
    }

    /// Adds a CUDA image.
    pub const fn with_image(mut self, image: &'static [u8]) -> Self {
        self.0.image = image.as_ptr().cast();
        self.0.image_bytes = image.len();
        self
    }

    /// Declares that the CUDA kernel reads its arguments from `all_args` if there are more than
    /// [`abi::MAX_KERNEL_ARGS`], so that a launch may have any number of arguments.
    pub const fn with_many_args(mut self) -> Self {
        self.0.flags |= abi::KERNEL_MANY_ARGS;
        self
    }

    /// The C struct.
    pub const fn as_abi(&self) -> &abi::Kernel {
        &self.0
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: `Kernel::host` took the name from a `CStr`, so that it is NUL-terminated.
        let name = unsafe { CStr::from_ptr(self.0.name) };
        f.debug_tuple("Kernel").field(&name).finish()
    }
}

/// The size of a launch. Host devices ignore it.
#[derive(Clone, Copy)]
pub struct LaunchSize(abi::Launch);

impl LaunchSize {
    /// Blocks and threads per block in one dimension.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self::in_three_dimensions([blocks, 1, 1], [threads, 1, 1])
    }

    /// Blocks and threads per block in the dimensions x, y and z.
    pub const fn in_three_dimensions(blocks: [u32; 3], threads: [u32; 3]) -> Self {
        Self(abi::Launch {
            struct_size: size_of::<abi::Launch>(),
            blocks,
            threads,
            cluster: [0; 3],
            shared_bytes: 0,
            flags: 0,
            reserved: 0,
        })
    }

    /// Sets the number of blocks per cluster, which requires compute capability 9.0 on CUDA
    /// devices.
    pub const fn with_cluster(mut self, blocks: [u32; 3]) -> Self {
        self.0.cluster = blocks;
        self
    }

    /// Sets the number of bytes of dynamic shared memory of each block.
    pub const fn with_shared_bytes(mut self, bytes: u32) -> Self {
        self.0.shared_bytes = bytes;
        self
    }

    /// The C struct.
    pub const fn as_abi(&self) -> &abi::Launch {
        &self.0
    }
}

impl fmt::Debug for LaunchSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let abi::Launch { blocks, threads, cluster, shared_bytes, .. } = self.0;
        write!(
            f,
            "{blocks:?} blocks of {threads:?} threads, clusters {cluster:?}, {shared_bytes} shared bytes"
        )
    }
}

/// One argument of a launch.
#[allow(missing_docs)]
pub enum Arg<'a> {
    /// An integer, or the bits of a float.
    Value(u64),
    /// `bytes` bytes of `buffer`, beginning at `offset`, that the kernel reads.
    Read { buffer: &'a Buffer, offset: usize, bytes: usize },
    /// An empty range, for an argument that the kernel reads.
    ReadNothing,
    /// `bytes` bytes of `buffer`, beginning at `offset`, that the kernel writes.
    Write { buffer: &'a mut BufferMut, offset: usize, bytes: usize },
    /// A range that the kernel writes, for launches that write several ranges of the same buffer.
    WriteTo(&'a WriteRange),
}

/// A range of a mutable buffer, for a launch that writes several ranges of the same buffer. The
/// range keeps the memory alive without borrowing the buffer. The buffer must not be frozen before
/// the launch.
#[derive(Clone)]
pub struct WriteRange {
    owner: Arc<Owner>,
    device: Device,
    address: u64,
    bytes: usize,
}

impl BufferMut {
    /// Returns the range `offset..offset + bytes` as an argument for a launch.
    pub fn write_range(&mut self, offset: usize, bytes: usize) -> Result<WriteRange> {
        check_written(self, offset, bytes)?;
        let address = self.address() + offset as u64;
        Ok(WriteRange { owner: self.owner().clone(), device: self.device(), address, bytes })
    }
}

fn check_written(buffer: &BufferMut, offset: usize, bytes: usize) -> Result<()> {
    if offset.checked_add(bytes).is_none_or(|end| end > buffer.len()) {
        return Err(Error::internal(format!(
            "the output of a kernel, bytes {offset}..+{bytes}, lies outside a buffer of {} bytes",
            buffer.len()
        )));
    }
    Ok(())
}

impl Stream {
    /// Enqueues `kernel` with `args`, after the events of the buffers that it reads. This function
    /// checks that each range is within its buffer. The kernel itself must stay within the ranges.
    ///
    /// # Safety
    /// `args` match the kernel's declaration in order, number and meaning. No [`WriteRange`] among
    /// them overlaps another argument or belongs to a frozen buffer.
    pub unsafe fn launch(
        &self,
        kernel: &'static Kernel,
        size: &LaunchSize,
        args: &mut [Arg<'_>],
    ) -> Result<()> {
        // SAFETY: `kernel` is static; `args` match it by this function's contract.
        unsafe { self.launch_raw(&kernel.0, size, args) }
    }

    /// Enqueues one of the host's kernels, as [`launch`](Self::launch) does for a kernel of the
    /// plugin.
    ///
    /// # Errors
    /// The errors of `launch`. `VERSION` if the host has no kernel with this name, or if the host's
    /// kernel has other arguments.
    ///
    /// # Safety
    /// `args` is a list of jobs as the header documents for `crossdock_host_kernels`. Each job
    /// consists of its head and the arguments that the named kernel expects. The requirements of
    /// [`launch`](Self::launch) apply as well.
    pub unsafe fn launch_by_name(
        &self,
        kernel: &'static HostKernel,
        size: &LaunchSize,
        args: &mut [Arg<'_>],
    ) -> Result<()> {
        let kernel = self.memory().0.host_kernels.kernel(kernel, self.device())?;
        // SAFETY: the host's kernels live until the process ends; `args` match by this function's
        // contract.
        unsafe { self.launch_raw(kernel.as_ptr(), size, args) }
    }

    /// # Safety
    /// The requirements of [`launch`](Self::launch), and `kernel` points to a complete
    /// `crossdock_kernel` that lives until the process ends.
    unsafe fn launch_raw(
        &self,
        kernel: *const abi::Kernel,
        size: &LaunchSize,
        args: &mut [Arg<'_>],
    ) -> Result<()> {
        self.reject_capture("a launch")?;
        let mut raw = Vec::with_capacity(args.len());
        for arg in args.iter() {
            raw.push(match arg {
                Arg::Value(value) => abi::Arg { value: *value, bytes: 0, kind: abi::ARG_VALUE, reserved: 0 },
                Arg::ReadNothing => range(abi::ARG_READ, 0, 0, 0),
                Arg::Read { buffer, offset, bytes } => {
                    buffer.check(*offset, *bytes)?;
                    self.check_device(buffer.device())?;
                    range(abi::ARG_READ, buffer.address(), *offset, *bytes)
                }
                Arg::Write { buffer, offset, bytes } => {
                    self.check_device(buffer.device())?;
                    check_written(buffer, *offset, *bytes)?;
                    range(abi::ARG_WRITE, buffer.address(), *offset, *bytes)
                }
                Arg::WriteTo(to) => {
                    self.check_device(to.device)?;
                    range(abi::ARG_WRITE, to.address, 0, to.bytes)
                }
            });
        }
        self.wait_each(args.iter().filter_map(|arg| match arg {
            Arg::Read { buffer, .. } => Some(buffer.ready()),
            _ => None,
        }))?;
        let enqueued = call!(self.memory(), launch, self.raw(), kernel, &size.0, raw.as_ptr(), raw.len());
        self.note_uses(enqueued, || {
            args.iter().filter_map(|arg| match arg {
                Arg::Value(_) | Arg::ReadNothing => None,
                Arg::Read { buffer, .. } => Some(buffer.owner()),
                Arg::Write { buffer, .. } => Some(&**buffer.owner()),
                Arg::WriteTo(to) => Some(&*to.owner),
            })
        })
    }

    fn check_device(&self, device: Device) -> Result<()> {
        if device == self.device() {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "a kernel on {} cannot use a buffer on {device}: move the buffer first",
            self.device()
        )))
    }
}

fn range(kind: u32, address: u64, offset: usize, bytes: usize) -> abi::Arg {
    abi::Arg {
        value: if bytes == 0 { 0 } else { address + offset as u64 },
        bytes: bytes as u64,
        kind,
        reserved: 0,
    }
}

/// Returns the bytes of an argument that the kernel reads. For use in CPU implementations.
///
/// # Safety
/// `arg` is an argument of a CPU implementation that the host is running, and the slice is not used
/// after the implementation returns.
pub unsafe fn bytes_of_host_arg<'a>(arg: &abi::Arg) -> &'a [u8] {
    if arg.bytes == 0 {
        return &[];
    }
    // SAFETY: for a READ argument, `launch` passes a host address of `bytes` readable bytes.
    unsafe { std::slice::from_raw_parts(arg.value as *const u8, arg.bytes as usize) }
}

/// Returns the bytes of an argument that the kernel writes. For use in CPU implementations.
///
/// # Safety
/// The requirements of [`bytes_of_host_arg`]. In addition, the arguments of the launch do not
/// overlap.
pub unsafe fn bytes_of_host_arg_mut<'a>(arg: &abi::Arg) -> &'a mut [u8] {
    if arg.bytes == 0 {
        return &mut [];
    }
    // SAFETY: for a WRITE argument, `launch` passes a host address of `bytes` writable bytes,
    // mutably borrowed for the launch.
    unsafe { std::slice::from_raw_parts_mut(arg.value as *mut u8, arg.bytes as usize) }
}
