//! Calls the C interface as a plugin would.
#![allow(dead_code)] // each test binary uses a part

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crossdock_memory_backend::Account;
use crossdock_plugin_api::{Device, Error, Result, abi};

/// The function table of an account. The borrow keeps the account alive.
#[derive(Clone, Copy)]
pub struct Table<'a>(&'a abi::Memory);

/// An allocated block.
pub struct TestBlock {
    pub address: *mut u8,
    pub block: *mut abi::Block,
}

/// The smallest launch.
pub const SIZE: abi::Launch = abi::Launch {
    struct_size: size_of::<abi::Launch>(),
    blocks: [1; 3],
    threads: [1; 3],
    cluster: [0; 3],
    shared_bytes: 0,
    flags: 0,
    reserved: 0,
};

/// A device's name, the device, and whether the host can access its memory.
pub type DeviceEntry = (String, Device, bool);

pub fn table(account: &Account) -> Table<'_> {
    // SAFETY: the account lives as long as the borrow.
    Table(unsafe { &*account.memory() })
}

macro_rules! call {
    ($table:expr, $f:ident ( $($arg:expr),* )) => {{
        // SAFETY: the tests pass ranges of live blocks and of locals, and handles that this table
        // created.
        Error::check(|err| unsafe { ($table.0.$f.unwrap())($table.0, $($arg,)* err) })
    }};
}

impl Table<'_> {
    pub fn raw(self) -> *const abi::Memory {
        self.0
    }

    pub fn functions(&self) -> &abi::Memory {
        self.0
    }

    pub fn alloc(self, device: Device, bytes: usize) -> Result<TestBlock> {
        self.alloc_aligned(device, bytes, 64, null_mut())
    }

    pub fn alloc_aligned(
        self,
        device: Device,
        bytes: usize,
        alignment: usize,
        stream: *mut abi::Stream,
    ) -> Result<TestBlock> {
        let mut out = abi::Allocation::default();
        call!(self, alloc(device, bytes, alignment, stream, 0, &mut out))?;
        assert_eq!(out.bytes, bytes);
        Ok(TestBlock { address: out.address.cast(), block: out.block })
    }

    pub fn alloc_pinned(self, bytes: usize) -> Result<TestBlock> {
        let mut out = abi::Allocation::default();
        call!(self, alloc_pinned(bytes, &mut out))?;
        Ok(TestBlock { address: out.address.cast(), block: out.block })
    }

    pub fn free(self, block: TestBlock) {
        self.free_with(block, abi::FREE_EXPORTED);
    }

    pub fn free_with(self, block: TestBlock, flags: u32) {
        // SAFETY: `block` is passed by value, so it is freed once.
        unsafe { (self.0.free.unwrap())(self.0, block.block, null(), 0, flags) };
    }

    /// Frees the block after these events.
    pub fn free_after(self, block: TestBlock, uses: &[*mut abi::Event], flags: u32) {
        // SAFETY: `block` is passed by value, so it is freed once; the events are alive.
        unsafe { (self.0.free.unwrap())(self.0, block.block, uses.as_ptr(), uses.len(), flags) };
    }

    pub fn event_raw(self, event: *mut abi::Event) -> *mut c_void {
        // SAFETY: the tests pass events that this table created.
        unsafe { (self.0.event_raw.unwrap())(self.0, event) }
    }

    pub fn event_destroy(self, event: *mut abi::Event) {
        // SAFETY: the tests pass events that this table created, and do not use them again.
        unsafe { (self.0.event_destroy.unwrap())(self.0, event) };
    }

    pub fn copies(self, stream: *mut abi::Stream, copies: &[abi::Copy]) -> Result<()> {
        call!(self, copy(stream, copies.as_ptr(), copies.len()))
    }

    pub fn copy(self, to: (Device, *mut u8), from: (Device, *const u8), bytes: usize) -> Result<()> {
        self.copies(null_mut(), &[copy(to, from, bytes)])
    }

    pub fn upload(self, device: Device, content: &[u8]) -> Result<TestBlock> {
        let block = self.alloc(device, content.len())?;
        self.copy((device, block.address), (Device::CPU, content.as_ptr()), content.len())?;
        Ok(block)
    }

    pub fn download(self, device: Device, from: *const u8, bytes: usize) -> Result<Vec<u8>> {
        let mut content = vec![0; bytes];
        self.copy((Device::CPU, content.as_mut_ptr()), (device, from), bytes)?;
        Ok(content)
    }

    pub fn fill(self, stream: *mut abi::Stream, to: *mut u8, value: u8, bytes: usize) -> Result<()> {
        call!(self, fill(stream, to.cast(), value, bytes))
    }

    pub fn launch(self, stream: *mut abi::Stream, kernel: &abi::Kernel, args: &[abi::Arg]) -> Result<()> {
        self.launch_sized(stream, kernel, &SIZE, args)
    }

    pub fn launch_sized(
        self,
        stream: *mut abi::Stream,
        kernel: &abi::Kernel,
        size: &abi::Launch,
        args: &[abi::Arg],
    ) -> Result<()> {
        call!(self, launch(stream, kernel, size, args.as_ptr(), args.len()))
    }

    pub fn stream_default(self, device: Device) -> Result<*mut abi::Stream> {
        let mut stream = null_mut();
        call!(self, stream_default(device, &mut stream))?;
        Ok(stream)
    }

    pub fn stream_create(self, device: Device) -> Result<*mut abi::Stream> {
        let mut stream = null_mut();
        call!(self, stream_create(device, 0, 0, &mut stream))?;
        Ok(stream)
    }

    pub fn stream_destroy(self, stream: *mut abi::Stream) {
        // SAFETY: the tests do not use the stream again.
        unsafe { (self.0.stream_destroy.unwrap())(self.0, stream) };
    }

    pub fn stream_synchronize(self, stream: *mut abi::Stream) -> Result<()> {
        call!(self, stream_synchronize(stream))
    }

    pub fn stream_wait(self, stream: *mut abi::Stream, event: *mut abi::Event) -> Result<()> {
        call!(self, stream_wait(stream, event))
    }

    pub fn stream_wait_raw(self, stream: *mut abi::Stream, sync_event: *mut c_void) -> Result<()> {
        call!(self, stream_wait_raw(stream, sync_event))
    }

    pub fn stream_is_capturing(self, stream: *mut abi::Stream) -> Result<u32> {
        let mut capturing = u32::MAX;
        call!(self, stream_is_capturing(stream, &mut capturing))?;
        Ok(capturing)
    }

    pub fn event_record(self, stream: *mut abi::Stream) -> Result<*mut abi::Event> {
        let mut event = std::ptr::dangling_mut();
        call!(self, event_record(stream, &mut event))?;
        Ok(event)
    }

    pub fn event_query(self, event: *mut abi::Event) -> Result<u32> {
        let mut done = u32::MAX;
        call!(self, event_query(event, &mut done))?;
        Ok(done)
    }

    pub fn event_synchronize(self, event: *mut abi::Event) -> Result<()> {
        call!(self, event_synchronize(event))
    }

    pub fn pointer(self, address: *const u8) -> Result<(Device, *const u8, u64)> {
        let mut out = abi::Pointer::new();
        call!(self, pointer(address.cast(), &mut out))?;
        Ok((out.device, out.base.cast(), out.bytes))
    }

    pub fn host_address(self, device: Device, address: *const u8, bytes: usize) -> *mut u8 {
        // SAFETY: the function treats the address as a number.
        unsafe { (self.0.host_address.unwrap())(self.0, device, address.cast(), bytes) }.cast()
    }

    /// Lists at most `capacity` devices. Returns their entries, and the number of all devices.
    pub fn devices(self, capacity: usize) -> Result<(Vec<DeviceEntry>, usize)> {
        let mut infos: Vec<_> = (0..capacity).map(|_| abi::DeviceInfo::new()).collect();
        let mut n = 0;
        call!(self, devices(infos.as_mut_ptr(), capacity, &mut n))?;
        infos.truncate(n);
        // SAFETY: the strings live as long as the account.
        let entries =
            infos.iter().map(|i| unsafe { (i.name.get().unwrap().into(), i.device, i.host_accessible == 1) });
        Ok((entries.collect(), n))
    }
}

pub fn copy(to: (Device, *mut u8), from: (Device, *const u8), bytes: usize) -> abi::Copy {
    abi::Copy { to: to.1.cast(), from: from.1.cast(), bytes, to_device: to.0, from_device: from.0 }
}

pub fn range_arg(kind: u32, address: *const u8, bytes: usize) -> abi::Arg {
    abi::Arg { value: address as u64, bytes: bytes as u64, kind, reserved: 0 }
}

/// Returns a kernel with two ranges of bytes. It adds one to each byte of the first range and
/// writes the result to the second range.
pub fn add_one() -> abi::Kernel {
    unsafe extern "C" fn cpu_implementation(args: *const abi::Arg, n_args: usize) -> abi::Code {
        // SAFETY: a launch passes `n_args` arguments with valid host addresses.
        unsafe {
            let [from, to] = std::slice::from_raw_parts(args, n_args) else { return abi::INVALID_ARGUMENT };
            if from.bytes != to.bytes {
                return abi::BAD_DATA;
            }
            for i in 0..from.bytes as usize {
                *(to.value as *mut u8).add(i) = (*(from.value as *const u8).add(i)).wrapping_add(1);
            }
        }
        abi::OK
    }
    abi::Kernel { name: c"add_one".as_ptr(), host_function: Some(cpu_implementation), ..abi::Kernel::new() }
}
