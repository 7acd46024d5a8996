//! Implements copies, fills and launches.

use std::ffi::c_void;

use crossdock_plugin_api::flags::{reject_reserved, reject_unknown};
use crossdock_plugin_api::{Error, Result, abi};

use super::{Account, Block, MIN_ALIGNMENT};
use crate::device::{DeviceBackend, Stream, Transfer, kernel_name};
use crate::fault::Operation;
use crate::read_at::{LoadPiece, ReadAt};
use crate::tasks::InstanceTasks;
use crate::vtable::Call;

impl Account {
    /// # Safety
    /// `stream` is NULL or a live stream of a backend. The source and the target of each copy are
    /// memory of the devices that the copy names, and stay allocated until the copies have run.
    pub(crate) unsafe fn copy(&self, stream: *mut abi::Stream, copies: &[abi::Copy]) -> Result<()> {
        // SAFETY: `stream` is NULL or live by this function's contract.
        let stream = unsafe { self.backend.stream(stream) }?;
        self.backend.fault(Operation::Copy, "copy")?;
        // All copies are checked before the first one is enqueued.
        let mut resolved = Vec::with_capacity(copies.len());
        for (i, copy) in copies.iter().enumerate() {
            resolved.push(self.resolve_copy(copy, stream).map_err(|e| e.context(format_args!("copy {i}")))?);
        }
        let mut done = 0;
        while let Some(first) = resolved.get(done) {
            let len = resolved.iter().skip(done).take_while(|next| next.engine == first.engine).count();
            let engine = self.backend.device(first.engine)?;
            let usable_stream = stream
                .filter(|stream| stream.device_index == first.engine || !self.backend.is_cuda(first.engine));
            let on = match usable_stream {
                Some(stream) => stream,
                None => self.backend.default_stream(first.engine)?,
            };
            let batch = resolved.get(done..done + len).unwrap_or(&[]);
            let transfers: Vec<Transfer> = batch.iter().map(|copy| copy.transfer()).collect();
            // SAFETY: `resolve_copy` resolved all ranges for their lengths; by this function's
            // contract the ranges are memory of their devices.
            unsafe { engine.copy(on, &transfers) }?;
            if usable_stream.is_none() && stream.is_some() {
                // `stream` belongs to a host device, so this work must be complete when the call
                // returns.
                engine.stream_synchronize(on)?;
            }
            for copy in batch {
                self.counters.add_copy(copy.from_host, copy.to_host, copy.bytes);
            }
            done += len;
        }
        Ok(())
    }

    fn resolve_copy(&self, copy: &abi::Copy, stream: Option<&Stream>) -> Result<ResolvedCopy> {
        let to_index = self.backend.index_of(copy.to_device)?;
        let from_index = self.backend.index_of(copy.from_device)?;
        let (to, from) = (self.backend.device(to_index)?, self.backend.device(from_index)?);
        let to_address = to.resolve(copy.to, copy.bytes).map_err(|e| e.context("target"))?;
        let from_address = from.resolve(copy.from, copy.bytes).map_err(|e| e.context("source"))?;
        let (to_host, from_host) = (to.describe().host_accessible, from.describe().host_accessible);
        let (to_cuda, from_cuda) = (self.backend.is_cuda(to_index), self.backend.is_cuda(from_index));
        let engine = match stream.map(|stream| stream.device_index) {
            Some(index) if (to_cuda || from_cuda) && self.backend.is_cuda(index) => index,
            _ if to_cuda => to_index,
            _ if from_cuda => from_index,
            _ if to_host => from_index,
            _ => to_index,
        };
        let bytes = copy.bytes;
        Ok(ResolvedCopy { engine, to_address, from_address, bytes, to_host, from_host, to_cuda, from_cuda })
    }

    /// Drops `source`, which owns the host memory at `address`, when the copies that are enqueued
    /// on `stream` have run. Drops it at once if a copy has read the memory when it returns.
    ///
    /// # Safety
    /// `stream` is a live stream of a backend.
    pub(crate) unsafe fn keep_until_done<T: Send + 'static>(
        &self,
        stream: *mut abi::Stream,
        address: u64,
        source: T,
    ) {
        // SAFETY: `stream` is live by this function's contract.
        let device = unsafe { self.device_and_stream(stream) };
        let address = address as *const c_void;
        if !device.is_ok_and(|(device, _)| device.reads_later(address)) {
            return;
        }
        let drop_source = Call { f: drop_boxed::<T>, data: Box::into_raw(Box::new(source)).cast() };
        // If no event can be recorded, the device has failed. Then `source` leaks, because no
        // moment is safe for its release. SAFETY: `stream` is live by this function's contract, and
        // the event is destroyed once.
        unsafe {
            if let Ok(event) = self.event_record(stream) {
                let _ = self.call_after(&[event], drop_source);
                let _ = self.event_destroy(event);
            }
        }
    }

    /// Whether a copy from this host memory on `stream` reads the memory itself, not a copy of it
    /// in a chunk of pinned memory.
    ///
    /// # Safety
    /// `stream` is a live stream of a backend.
    pub(crate) unsafe fn copies_in_place(&self, stream: *mut abi::Stream, address: u64) -> bool {
        // SAFETY: `stream` is live by this function's contract.
        let device = unsafe { self.device_and_stream(stream) };
        let copies = |device: &dyn DeviceBackend| {
            device.describe().host_accessible || device.reads_later(address as *const c_void)
        };
        device.is_ok_and(|(device, _)| copies(device))
    }

    /// Reads ranges of a source into memory of the stream's device.
    ///
    /// # Safety
    /// `stream` is a live stream of a backend. The targets are memory of its device, and stay
    /// allocated until the copies have run.
    pub(crate) unsafe fn load(
        &self,
        stream: *mut abi::Stream,
        source: &dyn ReadAt,
        loads: &[abi::Load],
        tasks: &InstanceTasks,
    ) -> Result<()> {
        // SAFETY: `stream` is live by this function's contract.
        let (device, stream) = unsafe { self.device_and_stream(stream) }?;
        self.backend.fault(Operation::Copy, "load")?;
        let mut pieces = Vec::with_capacity(loads.len());
        for (i, load) in loads.iter().enumerate().filter(|(_, load)| load.bytes > 0) {
            let to = device.resolve(load.to, load.bytes).map_err(|e| e.context(format_args!("load {i}")))?;
            pieces.push(LoadPiece { offset: load.offset, to, bytes: load.bytes });
        }
        // SAFETY: `resolve` checked the targets, and by this function's contract they are memory of
        // the device.
        unsafe { device.load(stream, source, &pieces, tasks) }?;
        let to_host = device.describe().host_accessible;
        // Reading into host memory is no copy.
        for piece in pieces.iter().filter(|_| !to_host) {
            self.counters.add_copy(true, false, piece.bytes);
        }
        Ok(())
    }

    /// # Safety
    /// The requirements of [`Account::copy`]. If the stream is NULL, the address selects the
    /// device.
    pub(crate) unsafe fn fill(
        &self,
        stream: *mut abi::Stream,
        to: *mut c_void,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: `stream` is NULL or live by this function's contract.
        let stream = unsafe { self.stream_for(stream, to) }?;
        self.backend.fault(Operation::Copy, "copy")?;
        let device = self.backend.device(stream.device_index)?;
        let address = device.resolve(to, bytes).map_err(|e| e.context("fill"))?;
        // SAFETY: `to` was resolved for `bytes` bytes; by this function's contract the bytes are
        // memory of the device.
        unsafe { device.fill(stream, address, value, bytes) }
    }

    /// # Safety
    /// The kernel and its arguments meet the requirements of [`DeviceBackend::launch`]. `stream` is
    /// NULL or a live stream of a backend. If `stream` is NULL, the address of the first range
    /// selects the device.
    pub(crate) unsafe fn launch(
        &self,
        stream: *mut abi::Stream,
        kernel: &abi::Kernel,
        size: &abi::Launch,
        args: &[abi::Arg],
    ) -> Result<()> {
        check_launch(kernel, size, args).map_err(|e| e.context(kernel_name(kernel)))?;
        let first = args.iter().find(|arg| arg.kind != abi::ARG_VALUE && arg.bytes > 0);
        let first = first.map_or(std::ptr::null(), |arg| arg.value as usize as *const c_void);
        // SAFETY: `stream` is NULL or live by this function's contract.
        let stream = unsafe { self.stream_for(stream, first) }?;
        self.backend.fault(Operation::Launch, "launch")?;
        let copy = match args.len() > abi::MAX_KERNEL_ARGS && self.backend.is_cuda(stream.device_index) {
            true => Some(self.copy_args(stream, args).map_err(|e| e.context(kernel_name(kernel)))?),
            false => None,
        };
        let all_args = copy.as_ref().map_or(std::ptr::null(), |copy| copy.address.cast_const().cast());
        let device = self.backend.device(stream.device_index)?;
        // SAFETY: by this function's contract the kernel is complete and the arguments match it;
        // `check_launch` checked their number and kinds, and the size.
        let launched = unsafe { device.launch(stream, kernel, size, args, all_args) };
        if let Some(copy) = copy {
            self.free_after_work(copy, stream);
        }
        launched?;
        self.counters.add_launch();
        Ok(())
    }

    /// Copies the arguments of a launch to the stream's device.
    fn copy_args(&self, stream: &Stream, args: &[abi::Arg]) -> Result<abi::Allocation> {
        let device = self.backend.device(stream.device_index)?;
        let bytes = size_of_val(args);
        let handle = std::ptr::from_ref(stream).cast_mut().cast();
        // SAFETY: `stream` is alive, and its address is its handle.
        let copy = unsafe { self.allocate(device.describe().device, bytes, MIN_ALIGNMENT, handle) }?;
        let from = args.as_ptr().cast();
        let transfer = Transfer { to: copy.address.cast(), from, bytes, to_cuda: true, from_cuda: false };
        // SAFETY: the block was allocated with `bytes` bytes, and is freed only after the work of
        // the stream. The source is a slice of the same size, which has been read when `copy`
        // returns.
        if let Err(error) = unsafe { device.copy(stream, &[transfer]) } {
            self.free_after_work(copy, stream);
            return Err(error);
        }
        Ok(copy)
    }

    /// Frees a block that this account has just allocated after the work enqueued so far on the
    /// stream.
    fn free_after_work(&self, block: abi::Allocation, stream: &Stream) {
        let device = self.backend.device(stream.device_index);
        match device.and_then(|device| device.event_record(stream)) {
            Ok(event) => {
                // SAFETY: the block is freed once, and nothing else has its handle. The event was
                // just recorded, and is destroyed once after its use.
                unsafe {
                    Block::free(block.block, &[event], false);
                    // The event belongs to this backend, so it can be destroyed.
                    let _ = self.event_destroy(event);
                }
            }
            // Without an event, the block is freed like an exported one: after all work in flight.
            // SAFETY: the block is freed once, and nothing else has its handle.
            Err(_) => unsafe { Block::free(block.block, &[], true) },
        }
    }
}

unsafe extern "C" fn drop_boxed<T>(value: *mut c_void) {
    // SAFETY: `keep_until_done` passes ownership of a boxed `T`, and the host calls this function
    // once.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}

/// Checks everything about a launch that the kernel itself cannot check.
fn check_launch(kernel: &abi::Kernel, size: &abi::Launch, args: &[abi::Arg]) -> Result<()> {
    reject_unknown(kernel.flags, abi::KERNEL_MANY_ARGS, "the kernel")?;
    reject_reserved(kernel.reserved, "the kernel")?;
    reject_unknown(size.flags, 0, "the launch")?;
    reject_reserved(size.reserved, "the launch")?;
    check_size(size)?;
    let takes_many = kernel.flags & abi::KERNEL_MANY_ARGS != 0;
    check_args(args, if takes_many { usize::MAX } else { abi::MAX_KERNEL_ARGS })
}

/// The limits of CUDA devices. They apply to all devices, so that a mistake is found without a GPU.
const MAX_BLOCKS: [u32; 3] = [i32::MAX as u32, u16::MAX as u32, u16::MAX as u32];
const MAX_THREADS: [u32; 3] = [1024, 1024, 64];
const MAX_THREADS_IN_TOTAL: u64 = 1024;
const MAX_CLUSTER: u64 = 8;

fn check_size(size: &abi::Launch) -> Result<()> {
    let product = |sizes: [u32; 3]| sizes.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
    let fits = |sizes: [u32; 3], max: [u32; 3]| sizes.iter().zip(max).all(|(n, max)| (1..=max).contains(n));
    let bad = |what: &str, got: [u32; 3], expected: String| {
        Err(Error::invalid_argument(format!("the launch has {got:?} {what}, expected {expected}")))
    };
    if !fits(size.blocks, MAX_BLOCKS) {
        return bad("blocks", size.blocks, format!("[1, 1, 1] to {MAX_BLOCKS:?}"));
    }
    if !fits(size.threads, MAX_THREADS) || product(size.threads) > MAX_THREADS_IN_TOTAL {
        let expected = format!("[1, 1, 1] to {MAX_THREADS:?}, and at most {MAX_THREADS_IN_TOTAL} in total");
        return bad("threads per block", size.threads, expected);
    }
    if size.cluster == [0; 3] {
        return Ok(());
    }
    let divides = size.cluster.iter().zip(size.blocks).all(|(n, blocks)| *n > 0 && blocks % n == 0);
    if !divides || product(size.cluster) > MAX_CLUSTER {
        let expected =
            format!("divisors of the {:?} blocks with at most {MAX_CLUSTER} in total", size.blocks);
        return bad("blocks per cluster", size.cluster, expected);
    }
    Ok(())
}

/// Checks the number and the kinds of the arguments.
fn check_args(args: &[abi::Arg], max: usize) -> Result<()> {
    if args.len() > max {
        return Err(Error::invalid_argument(format!("got {} arguments; expected at most {max}", args.len())));
    }
    if let Some((i, arg)) = args.iter().enumerate().find(|(_, arg)| arg.reserved != 0) {
        return reject_reserved(arg.reserved, &format!("argument {i}"));
    }
    let known = [abi::ARG_VALUE, abi::ARG_READ, abi::ARG_WRITE];
    match args.iter().enumerate().find(|(_, arg)| !known.contains(&arg.kind)) {
        None => Ok(()),
        Some((i, arg)) => Err(Error::unsupported(format!(
            "argument {i} is of kind {}; expected 0 (value), 1 (read) or 2 (write)",
            arg.kind
        ))),
    }
}

/// A copy with resolved addresses, and the index of the device that runs it.
struct ResolvedCopy {
    engine: usize,
    to_address: *mut u8,
    from_address: *mut u8,
    bytes: usize,
    to_host: bool,
    from_host: bool,
    to_cuda: bool,
    from_cuda: bool,
}

impl ResolvedCopy {
    fn transfer(&self) -> Transfer {
        Transfer {
            to: self.to_address,
            from: self.from_address,
            bytes: self.bytes,
            to_cuda: self.to_cuda,
            from_cuda: self.from_cuda,
        }
    }
}
