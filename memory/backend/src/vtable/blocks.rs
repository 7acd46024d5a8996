//! Devices, blocks, and what is done with their bytes.

use std::ffi::c_void;

use crossdock_plugin_api::{Device, abi, told};

use super::{enter, enter_quietly, list, out};
use crate::account::Block;
use crate::trace::note_bytes;

pub(super) unsafe extern "C" fn devices(
    memory: *const abi::Memory,
    infos: *mut abi::DeviceInfo,
    capacity: usize,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: this function's arguments are what the header says; so for all `SAFETY: as the header` below.
    unsafe {
        enter(memory, "memory.devices", err, |account| {
            let n = out(n_out, "devices")?;
            let devices = account.backend().describe();
            for (i, about) in devices.iter().take(capacity).enumerate() {
                let first = told::stride(infos.cast_const()).map_err(|e| e.context("devices"))?;
                let info = abi::DeviceInfo {
                    struct_size: first,
                    device: about.device,
                    name: abi::Str::new(&about.name),
                    description: abi::Str::new(&about.description),
                    memory_bytes: about.memory_bytes,
                    host_accessible: about.host_accessible.into(),
                    reserved: 0,
                };
                told::fill(infos.byte_add(first * i), first, info);
            }
            *n = devices.len();
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn alloc(
    memory: *const abi::Memory,
    device: Device,
    bytes: usize,
    alignment: usize,
    stream: *mut abi::Stream,
    allocation: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, "memory.alloc", err, |account| {
            note_bytes(bytes as u64);
            let allocation = out(allocation, "alloc")?;
            *allocation = account.allocate(device, bytes, alignment, stream)?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn alloc_pinned(
    memory: *const abi::Memory,
    bytes: usize,
    allocation: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, "memory.alloc_pinned", err, |account| {
            note_bytes(bytes as u64);
            let allocation = out(allocation, "alloc_pinned")?;
            *allocation = account.allocate_pinned(bytes)?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn free(
    memory: *const abi::Memory,
    block: *mut abi::Block,
    uses: *const *mut abi::Event,
    n_uses: usize,
    flags: u32,
) {
    // SAFETY: as the header.
    unsafe {
        enter_quietly(memory, "memory.free", |_| {
            if !block.is_null() {
                let uses = list(uses, n_uses, "free").unwrap_or_default();
                // What a flag of a later version means is not known; the most careful way is right for all.
                Block::free(block, uses, flags != 0);
            }
            Ok(())
        });
    }
}

pub(super) unsafe extern "C" fn copy(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    copies: *const abi::Copy,
    n_copies: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, "memory.copy", err, |account| {
            let copies = list(copies, n_copies, "copy")?;
            note_bytes(copies.iter().fold(0, |sum: u64, copy| sum.saturating_add(copy.bytes as u64)));
            account.copy(stream, copies)
        })
    }
}

pub(super) unsafe extern "C" fn fill(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    to: *mut c_void,
    value: u8,
    bytes: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, "memory.fill", err, |account| {
            note_bytes(bytes as u64);
            account.fill(stream, to, value, bytes)
        })
    }
}

pub(super) unsafe extern "C" fn launch(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    kernel: *const abi::Kernel,
    grid: abi::Grid,
    args: *const abi::Arg,
    n_args: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, "memory.launch", err, |account| {
            told::stride(kernel).map_err(|e| e.context("launch"))?;
            let kernel = told::read(kernel)?;
            account.launch(stream, &kernel, grid, list(args, n_args, "launch")?)
        })
    }
}

pub(super) unsafe extern "C" fn pointer(
    memory: *const abi::Memory,
    address: *const c_void,
    place: *mut abi::Pointer,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, "memory.pointer", err, |account| {
            told::stride(place.cast_const()).map_err(|e| e.context("pointer"))?;
            let (device, base, bytes) = account.pointer(address)?;
            let base = base as *const c_void;
            told::write(place, abi::Pointer { device, base, bytes: bytes as u64, ..abi::Pointer::new() })
        })
    }
}

pub(super) unsafe extern "C" fn host_address(
    memory: *const abi::Memory,
    device: Device,
    address: *const c_void,
    bytes: usize,
) -> *mut c_void {
    let mut found = std::ptr::null_mut();
    // SAFETY: as the header.
    unsafe {
        enter_quietly(memory, "memory.host_address", |account| {
            found = account.host_address(device, address, bytes);
            Ok(())
        });
    }
    found
}
