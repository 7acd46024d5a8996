//! Allocations, frees, copies, fills, and attributes of pointers.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // the CUDA header has the names and the docs

use std::ffi::{c_int, c_uint, c_void};

use crate::codes::{INVALID_VALUE, Outcome, PEER_ACCESS_UNSUPPORTED};
use crate::memory::Kind;
use crate::state::{Handle, Sim, put};

/// `CUmemPoolProps`, 88 bytes.
#[repr(C)]
pub struct MemPoolProps {
    alloc_type: c_int,
    handle_types: c_int,
    location: MemLocation,
    win32_security_attributes: *mut c_void,
    max_size: usize,
    reserved: [u8; 56],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemLocation {
    pub(super) kind: c_int,
    pub(super) id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub struct MemAccess {
    pub(super) location: MemLocation,
    pub(super) flags: c_int,
}

const _: () = assert!(size_of::<MemPoolProps>() == 88 && size_of::<MemAccess>() == 12);

pub(super) const ALLOCATION_PINNED: c_int = 1;
pub(super) const LOCATION_DEVICE: c_int = 1;
pub(super) const ACCESS_NONE: c_int = 0;
pub(super) const ACCESS_READ_WRITE: c_int = 3;

super::exports! {
    fn cuMemAlloc_v2(sim, address: *mut u64, bytes: usize) {
        put(address, 0)?;
        put(address, sim.alloc_direct(bytes as u64)?)
    }

    fn cuMemAllocManaged(sim, address: *mut u64, bytes: usize, _flags: c_uint) {
        put(address, 0)?;
        put(address, sim.alloc_managed(bytes as u64)?)
    }

    fn cuMemFree_v2(sim, address: u64) {
        sim.free_now(address)
    }

    fn cuMemAllocAsync(sim, address: *mut u64, bytes: usize, stream: Handle) {
        let slot = sim.stream(stream)?;
        let pool = sim.devices[sim.streams[slot].device].default_pool;
        put(address, 0)?;
        put(address, sim.alloc_async(pool, bytes as u64, slot)?)
    }

    fn cuMemAllocFromPoolAsync(sim, address: *mut u64, bytes: usize, pool: Handle, stream: Handle) {
        let slot = sim.stream(stream)?;
        put(address, 0)?;
        put(address, sim.alloc_async(pool, bytes as u64, slot)?)
    }

    fn cuMemFreeAsync(sim, address: u64, stream: Handle) {
        let slot = sim.stream(stream)?;
        sim.free_async(address, slot)
    }

    fn cuMemGetInfo_v2(sim, free: *mut usize, total: *mut usize) {
        let device = sim.current()?;
        let all = sim.config.memory_bytes;
        put(free, all.saturating_sub(sim.used_bytes(device)) as usize)?;
        put(total, all as usize)
    }

    fn cuMemHostAlloc(sim, pointer: *mut *mut u8, bytes: usize, _flags: c_uint) {
        put(pointer, std::ptr::null_mut())?;
        put(pointer, sim.alloc_host(bytes as u64)?)
    }

    fn cuMemFreeHost(sim, pointer: *mut u8) {
        sim.free_host(pointer, Kind::Pinned)
    }

    fn cuMemHostRegister_v2(sim, pointer: *mut u8, bytes: usize, _flags: c_uint) {
        sim.register_host(pointer, bytes as u64)
    }

    fn cuMemHostUnregister(sim, pointer: *mut u8) {
        sim.free_host(pointer, Kind::Registered)
    }

    fn cuMemPoolCreate(sim, pool: *mut Handle, props: *const MemPoolProps) {
        if props.is_null() {
            return Err(INVALID_VALUE);
        }
        let MemPoolProps { alloc_type, location, reserved, .. } = props.read_unaligned();
        if alloc_type != ALLOCATION_PINNED || location.kind != LOCATION_DEVICE || reserved != [0; 56] {
            return Err(INVALID_VALUE);
        }
        let device = sim.device(location.id)?;
        put(pool, sim.create_pool(device)?)
    }

    fn cuMemPoolDestroy(sim, pool: Handle) {
        sim.destroy_pool(pool)
    }

    fn cuMemPoolTrimTo(sim, pool: Handle, keep_bytes: usize) {
        sim.trim_pool(pool, keep_bytes as u64)
    }

    fn cuMemPoolSetAttribute(sim, pool: Handle, attribute: c_int, value: *mut c_void) {
        let pool = sim.pool(pool)?;
        if value.is_null() {
            return Err(INVALID_VALUE);
        }
        let wide = || value.cast::<u64>().read_unaligned();
        match attribute {
            1..=3 => pool.reuse[attribute as usize - 1] = value.cast::<c_int>().read_unaligned(),
            4 => pool.threshold = wide(),
            // A high-water mark can only be set to 0, which resets it to the current value.
            6 if wide() == 0 => pool.reserved_high = pool.reserved,
            8 if wide() == 0 => pool.used_high = pool.used,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemPoolGetAttribute(sim, pool: Handle, attribute: c_int, value: *mut c_void) {
        sim.reject_during_capture()?;
        let pool = sim.pool(pool)?;
        match attribute {
            1..=3 => put(value.cast::<c_int>(), pool.reuse[attribute as usize - 1]),
            4 => put(value.cast::<u64>(), pool.threshold),
            5 => put(value.cast::<u64>(), pool.reserved),
            6 => put(value.cast::<u64>(), pool.reserved_high),
            7 => put(value.cast::<u64>(), pool.used),
            8 => put(value.cast::<u64>(), pool.used_high),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAccess(sim, pool: Handle, access: *const MemAccess, count: usize) {
        let home = sim.pool(pool)?.device;
        if access.is_null() {
            return Err(INVALID_VALUE);
        }
        for at in 0..count {
            let MemAccess { location, flags } = access.add(at).read_unaligned();
            if location.kind != LOCATION_DEVICE || !matches!(flags, ACCESS_NONE | ACCESS_READ_WRITE) {
                return Err(INVALID_VALUE);
            }
            let device = sim.device(location.id)?;
            if device == home {
                if flags == ACCESS_NONE {
                    return Err(INVALID_VALUE);
                }
                continue;
            }
            if !sim.config.peer {
                return Err(PEER_ACCESS_UNSUPPORTED);
            }
            let peers = &mut sim.pool(pool)?.peers;
            peers.retain(|peer| *peer != device);
            peers.extend((flags == ACCESS_READ_WRITE).then_some(device));
        }
        Ok(())
    }

    fn cuMemcpyAsync(sim, to: u64, from: u64, bytes: usize, stream: Handle) {
        let slot = sim.stream(stream)?;
        sim.copy(to, from, bytes as u64, slot)
    }

    fn cuMemcpyHtoDAsync_v2(sim, to: u64, from: *const c_void, bytes: usize, stream: Handle) {
        let slot = sim.stream(stream)?;
        sim.copy(to, from as u64, bytes as u64, slot)
    }

    fn cuMemcpyDtoHAsync_v2(sim, to: *mut c_void, from: u64, bytes: usize, stream: Handle) {
        let slot = sim.stream(stream)?;
        sim.copy(to as u64, from, bytes as u64, slot)
    }

    fn cuMemcpyDtoDAsync_v2(sim, to: u64, from: u64, bytes: usize, stream: Handle) {
        let slot = sim.stream(stream)?;
        sim.copy(to, from, bytes as u64, slot)
    }

    fn cuMemcpyPeerAsync(
        sim, to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle
    ) {
        let slot = sim.stream(stream)?;
        sim.device_of(to_context)?;
        sim.device_of(from_context)?;
        sim.copy(to, from, bytes as u64, slot)
    }

    fn cuMemcpy(sim, to: u64, from: u64, bytes: usize) {
        sim.copy_now(to, from, bytes as u64)
    }

    fn cuMemcpyHtoD_v2(sim, to: u64, from: *const c_void, bytes: usize) {
        sim.copy_now(to, from as u64, bytes as u64)
    }

    fn cuMemcpyDtoH_v2(sim, to: *mut c_void, from: u64, bytes: usize) {
        sim.copy_now(to as u64, from, bytes as u64)
    }

    fn cuMemsetD8Async(sim, to: u64, value: u8, bytes: usize, stream: Handle) {
        let slot = sim.stream(stream)?;
        sim.fill(to, value, bytes as u64, slot)
    }

    fn cuPointerGetAttributes(
        sim, count: c_uint, attributes: *mut c_int, data: *mut *mut c_void, address: u64
    ) {
        if attributes.is_null() || data.is_null() {
            return Err(INVALID_VALUE);
        }
        for at in 0..count as usize {
            pointer_attribute(sim, attributes.add(at).read_unaligned(), *data.add(at), address)?;
        }
        Ok(())
    }

    fn cuPointerGetAttribute(sim, data: *mut c_void, attribute: c_int, address: u64) {
        if sim.find(address).is_none() {
            return Err(INVALID_VALUE);
        }
        pointer_attribute(sim, attribute, data, address)
    }
}

/// Writes an attribute of the pointer `address`, with the value that a real driver writes. For
/// pageable memory, pointers are null, numbers are 0, the device is -2, and the begin and size of
/// the block are not written.
///
/// # Safety
/// `data` is null or valid for a write of the attribute.
unsafe fn pointer_attribute(sim: &Sim, attribute: c_int, data: *mut c_void, address: u64) -> Outcome {
    const UNKNOWN_DEVICE: c_int = -2;
    let live = sim.find(address).filter(|(_, block)| block.freed.is_none());
    let (id, block) = live.map_or((0, None), |(id, block)| (id, Some(block)));
    let kind = block.map(|block| block.kind);
    let on_device = matches!(kind, Some(Kind::Device { .. }));
    // SAFETY: `put` requires a pointer that is null or valid for a write. By this function's
    // contract, `data` is such a pointer for the attribute's type.
    unsafe {
        match attribute {
            // Memory from a pool belongs to no context.
            1 => put(
                data.cast(),
                home(kind).filter(|_| !is_pooled(kind)).map_or(0, |d| sim.devices[d].context),
            ),
            2 => put(data.cast::<c_uint>(), block.map_or(0, |_| if on_device { 2 } else { 1 })),
            3 => put(data.cast::<u64>(), block.map_or(0, |_| address)),
            4 => put(data.cast::<u64>(), if on_device { 0 } else { address }),
            6 => put(data.cast::<c_int>(), 0),
            8 => put(data.cast::<c_int>(), block.is_some_and(|block| block.managed).into()),
            7 => put(data.cast::<u64>(), id),
            9 => put(data.cast::<c_int>(), home(kind).map_or(UNKNOWN_DEVICE, |device| device as c_int)),
            // Whether a real cuIpcGetMemHandle accepts the pointer. It rejects managed memory,
            // memory from pools, and mapped memory.
            10 => {
                let is_plain = block.is_some_and(|block| !block.managed && block.mapped.is_none());
                let is_plain = is_plain && on_device && !is_pooled(kind);
                put(data.cast::<c_uint>(), is_plain.into())
            }
            11 => block.map_or(Ok(()), |block| put(data.cast::<u64>(), block.begin)),
            12 => block.map_or(Ok(()), |block| put(data.cast::<u64>(), block.bytes)),
            13 => put(data.cast::<c_int>(), c_int::from(block.is_some())),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// The device of a block. For host memory, this is device 0, because the simulator does not store
/// which device was current when the memory was pinned.
fn home(kind: Option<Kind>) -> Option<usize> {
    match kind? {
        Kind::Device { device, .. } => Some(device),
        Kind::Pinned | Kind::Registered => Some(0),
    }
}

fn is_pooled(kind: Option<Kind>) -> bool {
    matches!(kind, Some(Kind::Device { pool: Some(_), .. }))
}
