//! The functions of `crossdock_memory` for devices, blocks, copies and launches.

use std::ffi::c_void;

use crossdock_plugin_api::flags::reject_unknown;
use crossdock_plugin_api::{Device, abi, sized_struct};

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
    // SAFETY: the caller meets the requirements of `crossdock_memory.devices`.
    unsafe {
        enter(memory, "memory.devices", err, |account| {
            let n = out(n_out, "devices")?;
            let devices = account.backend().describe();
            for (i, description) in devices.iter().take(capacity).enumerate() {
                let first = sized_struct::stride(infos.cast_const()).map_err(|e| e.context("devices"))?;
                let info = abi::DeviceInfo {
                    struct_size: first,
                    device: description.device,
                    name: abi::Str::new(&description.name),
                    description: abi::Str::new(&description.description),
                    memory_bytes: description.memory_bytes,
                    host_accessible: description.host_accessible.into(),
                    reserved: 0,
                };
                sized_struct::fill(infos.byte_add(first * i), first, info);
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
    flags: u32,
    allocation: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.alloc`.
    unsafe {
        enter(memory, "memory.alloc", err, |account| {
            note_bytes(bytes as u64);
            let allocation = out(allocation, "alloc")?;
            reject_unknown(flags, 0, "alloc")?;
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
    // SAFETY: the caller meets the requirements of `crossdock_memory.alloc_pinned`.
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
    // SAFETY: the caller meets the requirements of `crossdock_memory.free`.
    unsafe {
        enter_quietly(memory, "memory.free", |_| {
            if !block.is_null() {
                let uses = list(uses, n_uses, "free").unwrap_or_default();
                // A later version may define further flags. Treating the block as exported is safe
                // for any flag.
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
    // SAFETY: the caller meets the requirements of `crossdock_memory.copy`.
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
    // SAFETY: the caller meets the requirements of `crossdock_memory.fill`.
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
    size: *const abi::Launch,
    args: *const abi::Arg,
    n_args: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.launch`.
    unsafe {
        enter(memory, "memory.launch", err, |account| {
            sized_struct::stride(kernel).map_err(|e| e.context("launch"))?;
            let kernel = sized_struct::read(kernel)?;
            let size = sized_struct::read(size).map_err(|e| e.context("launch"))?;
            account.launch(stream, &kernel, &size, list(args, n_args, "launch")?)
        })
    }
}

pub(super) unsafe extern "C" fn pointer(
    memory: *const abi::Memory,
    address: *const c_void,
    place: *mut abi::Pointer,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.pointer`.
    unsafe {
        enter(memory, "memory.pointer", err, |account| {
            sized_struct::stride(place.cast_const()).map_err(|e| e.context("pointer"))?;
            let (device, base, bytes) = account.pointer(address)?;
            let base = base as *const c_void;
            sized_struct::write(
                place,
                abi::Pointer { device, base, bytes: bytes as u64, ..abi::Pointer::new() },
            )
        })
    }
}

pub(super) unsafe extern "C" fn host_address(
    memory: *const abi::Memory,
    device: Device,
    address: *const c_void,
    bytes: usize,
) -> *mut c_void {
    let mut host_address = std::ptr::null_mut();
    // SAFETY: the caller meets the requirements of `crossdock_memory.host_address`.
    unsafe {
        enter_quietly(memory, "memory.host_address", |account| {
            host_address = account.host_address(device, address, bytes);
            Ok(())
        });
    }
    host_address
}
