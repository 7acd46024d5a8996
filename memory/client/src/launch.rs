//! Kernels.

use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::host_kernels::HostKernel;
use crate::memory::call;
use crate::owner::Owner;
use crate::{Buffer, BufferMut, Stream};

/// A kernel: its name, what runs on host devices, and the image for CUDA where there is one.
#[derive(Clone)]
pub struct Kernel(abi::Kernel);

// SAFETY: its pointers are to data that is static and not changed.
unsafe impl Send for Kernel {}

/// What runs on host devices, with addresses that it may dereference; see [`bytes_of_host_arg`].
pub type HostTwin = unsafe extern "C" fn(*const abi::Arg, usize) -> abi::Code;

impl Kernel {
    /// A kernel that host devices run.
    pub const fn host(name: &'static CStr, twin: HostTwin) -> Self {
        Self(abi::Kernel {
            struct_size: size_of::<abi::Kernel>(),
            name: name.as_ptr(),
            host_twin: Some(twin),
            image: std::ptr::null(),
            image_bytes: 0,
        })
    }

    /// The same with a CUDA image.
    pub const fn with_image(mut self, image: &'static [u8]) -> Self {
        self.0.image = image.as_ptr().cast();
        self.0.image_bytes = image.len();
        self
    }

    /// The struct that crosses the boundary.
    pub const fn as_abi(&self) -> &abi::Kernel {
        &self.0
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: `host` got a NUL-terminated name.
        let name = unsafe { CStr::from_ptr(self.0.name) };
        f.debug_tuple("Kernel").field(&name).finish()
    }
}

/// One argument of a launch.
#[allow(missing_docs)]
pub enum Arg<'a> {
    /// A number, or a float's bits.
    Value(u64),
    /// `bytes` bytes from `offset` on, read.
    Read { buffer: &'a Buffer, offset: usize, bytes: usize },
    /// No bytes, where a kernel takes some to read.
    ReadNothing,
    /// `bytes` bytes from `offset` on, written.
    Write { buffer: &'a mut BufferMut, offset: usize, bytes: usize },
    /// The same, of a buffer that is named many times in one launch.
    WriteTo(&'a WriteRange),
}

/// Bytes of a buffer that is being filled, for a launch that writes many ranges of it. Keeps the memory alive without
/// borrowing the buffer, which is to be frozen only after the launch.
#[derive(Clone)]
pub struct WriteRange {
    owner: Arc<Owner>,
    device: Device,
    address: u64,
    bytes: usize,
}

impl BufferMut {
    /// Its bytes `offset..offset + bytes`, as one of the ranges that a launch writes.
    pub fn write_range(&mut self, offset: usize, bytes: usize) -> Result<WriteRange> {
        check_written(self, offset, bytes)?;
        let address = self.address() + offset as u64;
        Ok(WriteRange { owner: self.owner().clone(), device: self.device(), address, bytes })
    }
}

fn check_written(buffer: &BufferMut, offset: usize, bytes: usize) -> Result<()> {
    if offset.checked_add(bytes).is_none_or(|end| end > buffer.len()) {
        return Err(Error::internal(format!(
            "a kernel's output, bytes {offset}..+{bytes}, lies outside a buffer of {} bytes",
            buffer.len()
        )));
    }
    Ok(())
}

impl Stream {
    /// Runs `kernel` with `args`, after what it reads is ready. Ranges are checked here; that the kernel stays within
    /// the ranges that it is given is its own duty.
    ///
    /// # Safety
    /// The arguments are those that the kernel declares, in order, number and meaning; and no [`WriteRange`] among them
    /// overlaps another argument, or is of a buffer that was frozen.
    pub unsafe fn launch(
        &self,
        kernel: &'static Kernel,
        grid: abi::Grid,
        args: &mut [Arg<'_>],
    ) -> Result<()> {
        // SAFETY: a static kernel; the rest is the caller's word.
        unsafe { self.launch_raw(&kernel.0, grid, args) }
    }

    /// Runs one of the host's kernels, as [`launch`](Self::launch) runs a kernel of the plugin's own.
    ///
    /// # Errors
    /// Those of a launch; `VERSION` where the host has no such kernel, or one with other arguments.
    ///
    /// # Safety
    /// `args` is a list of jobs, each with its head, as the header says of `crossdock_host_kernels`, whose arguments
    /// mean what the kernel's name stands for; and as [`launch`](Self::launch).
    pub unsafe fn launch_by_name(
        &self,
        kernel: &'static HostKernel,
        grid: abi::Grid,
        args: &mut [Arg<'_>],
    ) -> Result<()> {
        let found = self.memory().0.found.kernel(kernel, self.device())?;
        // SAFETY: the host's kernels live until the process ends; the rest is the caller's word.
        unsafe { self.launch_raw(found.as_ptr(), grid, args) }
    }

    /// # Safety
    /// As [`launch`](Self::launch), and `kernel` points at a whole `crossdock_kernel` that lives until the process ends.
    unsafe fn launch_raw(
        &self,
        kernel: *const abi::Kernel,
        grid: abi::Grid,
        args: &mut [Arg<'_>],
    ) -> Result<()> {
        self.refuse_capture("a launch")?;
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
        let enqueued = call!(self.memory(), launch, self.raw(), kernel, grid, raw.as_ptr(), raw.len());
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
            "a kernel on {} was given a buffer on {device}: move it first",
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

/// In a host twin: the bytes of an argument that it reads.
///
/// # Safety
/// `arg` was handed to the twin by a host's launch, and the slice is not used after the twin returns.
pub unsafe fn bytes_of_host_arg<'a>(arg: &abi::Arg) -> &'a [u8] {
    if arg.bytes == 0 {
        return &[];
    }
    // SAFETY: a launch gives READ arguments as host addresses of that many bytes.
    unsafe { std::slice::from_raw_parts(arg.value as *const u8, arg.bytes as usize) }
}

/// In a host twin: the bytes of an argument that it writes.
///
/// # Safety
/// As [`bytes_of_host_arg`]; and the arguments of the launch do not overlap.
pub unsafe fn bytes_of_host_arg_mut<'a>(arg: &abi::Arg) -> &'a mut [u8] {
    if arg.bytes == 0 {
        return &mut [];
    }
    // SAFETY: a launch gives WRITE arguments as host addresses of that many bytes, borrowed mutably for the launch.
    unsafe { std::slice::from_raw_parts_mut(arg.value as *mut u8, arg.bytes as usize) }
}
