//! Allocates, maps and shares device memory with handles.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // the CUDA header has the names and the docs

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::memory::{
    ACCESS_NONE, ACCESS_READ_WRITE, ALLOCATION_PINNED, LOCATION_DEVICE, MemAccess, MemLocation,
};
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED};
use crate::mapped::GRANULARITY;
use crate::state::{Handle, put};

/// `CUmemAllocationProp`.
#[repr(C)]
pub struct MemProps {
    kind: c_int,
    handle_types: c_int,
    location: MemLocation,
    win32: *mut c_void,
    flags: u64,
}

const _: () = assert!(size_of::<MemProps>() == 32);

const FILE: c_int = 1;

super::exports! {
    fn cuMemGetAllocationGranularity(_sim, bytes: *mut usize, _props: *const MemProps, _which: c_int) {
        put(bytes, GRANULARITY as usize)
    }

    fn cuMemCreate(sim, handle: *mut Handle, bytes: usize, props: *const MemProps, flags: c_ulonglong) {
        if props.is_null() || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let MemProps { kind, handle_types, location, .. } = props.read_unaligned();
        if kind != ALLOCATION_PINNED || location.kind != LOCATION_DEVICE || handle_types & !FILE != 0 {
            return Err(INVALID_VALUE);
        }
        let device = sim.device(location.id)?;
        put(handle, sim.make_memory(device, bytes as u64)?)
    }

    fn cuMemRelease(sim, handle: Handle) {
        sim.release_memory(handle)
    }

    fn cuMemAddressReserve(
        sim, address: *mut u64, bytes: usize, _alignment: usize, _hint: u64, _flags: c_ulonglong
    ) {
        put(address, sim.reserve(bytes as u64)?)
    }

    fn cuMemAddressFree(sim, address: u64, bytes: usize) {
        sim.free_reserved(address, bytes as u64)
    }

    fn cuMemMap(sim, address: u64, bytes: usize, offset: usize, handle: Handle, _flags: c_ulonglong) {
        sim.map(address, bytes as u64, offset as u64, handle)
    }

    fn cuMemUnmap(sim, address: u64, bytes: usize) {
        sim.unmap(address, bytes as u64)
    }

    fn cuMemSetAccess(sim, address: u64, bytes: usize, access: *const MemAccess, count: usize) {
        if access.is_null() || count != 1 {
            return Err(INVALID_VALUE);
        }
        let MemAccess { location, flags } = access.read_unaligned();
        let device = sim.device(location.id)?;
        if location.kind != LOCATION_DEVICE || !(ACCESS_NONE..=ACCESS_READ_WRITE).contains(&flags) {
            return Err(INVALID_VALUE);
        }
        sim.give_access(address, bytes as u64, device, flags == ACCESS_READ_WRITE)
    }

    fn cuMemRetainAllocationHandle(sim, handle: *mut Handle, address: u64) {
        put(handle, sim.retain_memory(address)?)
    }

    fn cuMemGetAllocationPropertiesFromHandle(sim, props: *mut MemProps, handle: Handle) {
        let id = sim.memory_of(handle)?.device as c_int;
        let location = MemLocation { kind: LOCATION_DEVICE, id };
        let win32 = std::ptr::null_mut();
        put(props, MemProps { kind: ALLOCATION_PINNED, handle_types: FILE, location, win32, flags: 0 })
    }

    fn cuMemExportToShareableHandle(
        sim, file: *mut c_void, handle: Handle, kind: c_int, _flags: c_ulonglong
    ) {
        if kind != FILE {
            return Err(NOT_SUPPORTED);
        }
        put(file.cast::<c_int>(), sim.export_memory(handle)?)
    }

    fn cuMemImportFromShareableHandle(sim, handle: *mut Handle, file: *mut c_void, kind: c_uint) {
        if kind != FILE as c_uint {
            return Err(NOT_SUPPORTED);
        }
        put(handle, sim.import_memory(file as usize as c_int)?)
    }
}
