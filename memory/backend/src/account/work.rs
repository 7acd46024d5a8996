//! Copies, fills and launches.

use std::ffi::c_void;

use crossdock_plugin_api::{Error, Result, abi};

use super::Account;
use crate::device::{Stream, Transfer, kernel_name};
use crate::fault::Operation;

impl Account {
    /// # Safety
    /// The stream as in [`Inner::stream`]; the ranges are memory of the devices that they name, and stay allocated
    /// until the copies have run.
    pub(crate) unsafe fn copy(&self, stream: *mut abi::Stream, copies: &[abi::Copy]) -> Result<()> {
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.backend.stream(stream) }?;
        self.backend.fault(Operation::Copy, "copy")?;
        // All are checked before the first one runs.
        let mut sides = Vec::with_capacity(copies.len());
        for (i, copy) in copies.iter().enumerate() {
            sides.push(self.sides(copy, stream).map_err(|e| e.context(format_args!("copy {i}")))?);
        }
        let mut done = 0;
        while let Some(first) = sides.get(done) {
            let same = sides.iter().skip(done).take_while(|next| next.engine == first.engine).count();
            let engine = self.backend.device(first.engine)?;
            let own = stream
                .filter(|stream| stream.device_index == first.engine || !self.backend.is_cuda(first.engine));
            let on = match own {
                Some(stream) => stream,
                None => self.backend.default_stream(first.engine)?,
            };
            let batch = sides.get(done..done + same).unwrap_or(&[]);
            let transfers: Vec<Transfer> = batch.iter().map(|sides| sides.transfer()).collect();
            // SAFETY: all were resolved for their bytes; that they are what the caller says is its own word.
            unsafe { engine.copy(on, &transfers) }?;
            if own.is_none() && stream.is_some() {
                // On a stream whose work is done when its call returns, another device's is so, too.
                engine.stream_synchronize(on)?;
            }
            for sides in batch {
                self.page.copied(sides.from_host, sides.to_host, sides.bytes);
            }
            done += same;
        }
        Ok(())
    }

    fn sides(&self, copy: &abi::Copy, stream: Option<&Stream>) -> Result<Sides> {
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
        Ok(Sides { engine, to_address, from_address, bytes, to_host, from_host, to_cuda, from_cuda })
    }

    /// # Safety
    /// As [`Account::copy`]. Without a stream the address tells the device.
    pub(crate) unsafe fn fill(
        &self,
        stream: *mut abi::Stream,
        to: *mut c_void,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.stream_for(stream, to) }?;
        self.backend.fault(Operation::Copy, "copy")?;
        let device = self.backend.device(stream.device_index)?;
        let address = device.resolve(to, bytes).map_err(|e| e.context("fill"))?;
        // SAFETY: resolved for `bytes` bytes, which the caller vouches for.
        unsafe { device.fill(stream, address, value, bytes) }
    }

    /// # Safety
    /// As [`DeviceBackend::launch`]; the stream as in [`Inner::stream`]. Without one the first address tells the device.
    pub(crate) unsafe fn launch(
        &self,
        stream: *mut abi::Stream,
        kernel: &abi::Kernel,
        grid: abi::Grid,
        args: &[abi::Arg],
    ) -> Result<()> {
        check_args(args).map_err(|e| e.context(kernel_name(kernel)))?;
        let first = args.iter().find(|arg| arg.kind != abi::ARG_VALUE && arg.bytes > 0);
        let first = first.map_or(std::ptr::null(), |arg| arg.value as usize as *const c_void);
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.stream_for(stream, first) }?;
        self.backend.fault(Operation::Launch, "launch")?;
        // SAFETY: by this function's own contract; the arguments were looked at above.
        unsafe { self.backend.device(stream.device_index)?.launch(stream, kernel, grid, args) }?;
        self.page.launched();
        Ok(())
    }
}

/// A kernel on a device would take what it does not know for something else.
fn check_args(args: &[abi::Arg]) -> Result<()> {
    if args.len() > abi::MAX_KERNEL_ARGS {
        return Err(Error::invalid_argument(format!(
            "{} arguments were given; {} are allowed",
            args.len(),
            abi::MAX_KERNEL_ARGS
        )));
    }
    let known = [abi::ARG_VALUE, abi::ARG_READ, abi::ARG_WRITE];
    match args.iter().enumerate().find(|(_, arg)| !known.contains(&arg.kind)) {
        None => Ok(()),
        Some((i, arg)) => Err(Error::unsupported(format!(
            "argument {i} is of kind {}; this version knows 0 (value), 1 (read) and 2 (write)",
            arg.kind
        ))),
    }
}

/// A copy's two ends, and the device that does it.
struct Sides {
    engine: usize,
    to_address: *mut u8,
    from_address: *mut u8,
    bytes: usize,
    to_host: bool,
    from_host: bool,
    to_cuda: bool,
    from_cuda: bool,
}

impl Sides {
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
