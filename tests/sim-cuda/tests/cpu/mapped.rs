//! Tests memory with handles, and sharing it as a file.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::common::*;
use crossdock_sim_cuda::exports::mapped::*;

const BYTES: usize = 4 << 20;
const INVALID_VALUE: i32 = 1;
const NOT_SUPPORTED: i32 = 801;

/// Creates memory on device 0 that can be exported as a file.
fn create() -> Handle {
    let props = [1i32, 1, 1, 0, 0, 0, 0, 0];
    let mut memory = 0;
    ok!(cuMemCreate(&mut memory, BYTES, props.as_ptr().cast(), 0));
    memory
}

fn reserve() -> u64 {
    let mut address = 0;
    ok!(cuMemAddressReserve(&mut address, BYTES, 0, 0, 0));
    address
}

fn allow(address: u64) {
    let access = [1i32, 0, 3];
    ok!(cuMemSetAccess(address, BYTES, access.as_ptr().cast(), 1));
}

fn map(memory: Handle) -> u64 {
    let address = reserve();
    ok!(cuMemMap(address, BYTES, 0, memory, 0));
    allow(address);
    ok!(cuMemRelease(memory));
    address
}

fn unmap(address: u64) {
    ok!(cuMemUnmap(address, BYTES));
    ok!(cuMemAddressFree(address, BYTES));
}

fn export(address: u64) -> OwnedFd {
    let (mut memory, mut file) = (0, -1);
    ok!(cuMemRetainAllocationHandle(&mut memory, address));
    ok!(cuMemExportToShareableHandle((&raw mut file).cast::<c_void>(), memory, 1, 0));
    ok!(cuMemRelease(memory));
    // SAFETY: cuMemExportToShareableHandle opened the file descriptor, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(file) }
}

fn import(file: i32) -> Result<Handle, i32> {
    let mut memory = 0;
    match code!(cuMemImportFromShareableHandle(&mut memory, file as usize as *mut c_void, 1)) {
        0 => Ok(memory),
        code => Err(code),
    }
}

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    free
}

#[test]
fn shared_memory_keeps_its_bytes_after_its_creator_unmaps_it() {
    let gpu = Gpu::get();
    let (home, before) = (stream(), free_bytes());
    let first = map(create());
    assert_eq!(free_bytes(), before - BYTES);
    fill(first, 7, BYTES, home);
    sync(home);
    let file = export(first);
    unmap(first);
    assert_eq!(free_bytes(), before);
    let second = map(import(file.as_raw_fd()).unwrap());
    drop(file);
    assert_eq!(read(second, BYTES, home), vec![7; BYTES]);
    unmap(second);
    assert_eq!(gpu.violations(), 0);
}

#[test]
fn import_rejects_files_that_are_not_device_memory() {
    let _gpu = Gpu::get();
    let file = std::fs::File::open("/dev/null").unwrap();
    for file in [file.as_raw_fd(), -1, 9999] {
        assert_eq!(import(file), Err(999));
    }
}

#[test]
fn memory_must_be_mapped_whole_and_needs_access_before_use() {
    let gpu = Gpu::get();
    let (memory, home, address) = (create(), stream(), reserve());
    for (bytes, offset) in [(BYTES / 2, 0), (2 * BYTES, 0), (BYTES, 1)] {
        assert_eq!(code!(cuMemMap(address, bytes, offset, memory, 0)), NOT_SUPPORTED);
    }
    ok!(cuMemMap(address, BYTES, 0, memory, 0));
    assert_eq!(code!(cuMemsetD8Async(address, 1, 1, home)), INVALID_VALUE);
    allow(address);
    fill(address, 1, BYTES, home);
    sync(home);
    assert_eq!(code!(cuMemAddressFree(address, BYTES)), INVALID_VALUE, "the range is mapped");
    assert_eq!(code!(cuMemFree_v2(address)), INVALID_VALUE);
    ok!(cuMemRelease(memory));
    unmap(address);
    assert_eq!(gpu.violations(), 0);
}

#[test]
fn reports_unmapping_of_memory_that_queued_work_uses() {
    let gpu = Gpu::get();
    let (home, address) = (stream(), map(create()));
    fill(address, 1, BYTES, home);
    unmap(address);
    gpu.expect("early free");
    sync(home);
}
