//! Tests pools, memory limits, and attributes of pointers.

use std::ffi::c_void;

use crate::common::*;

/// Creates a memory pool: allocation type 1, no handle types, location type 1, device 0.
fn pool() -> Handle {
    let mut props = [0i32; 22];
    (props[0], props[2]) = (1, 1);
    let mut pool = 0;
    ok!(cuMemPoolCreate(&mut pool, props.as_ptr().cast()));
    pool
}

fn attribute(pool: Handle, which: i32) -> u64 {
    let mut value = 0u64;
    ok!(cuMemPoolGetAttribute(pool, which, (&raw mut value).cast()));
    value
}

/// Returns the reserved bytes and the used bytes of a pool.
fn state(pool: Handle) -> (u64, u64) {
    (attribute(pool, 5), attribute(pool, 7))
}

fn keep(pool: Handle, mut threshold: u64) {
    ok!(cuMemPoolSetAttribute(pool, 4, (&raw mut threshold).cast()));
}

fn alloc_from(pool: Handle, bytes: usize, stream: Handle) -> Result<u64, i32> {
    let mut address = 0;
    match code!(cuMemAllocFromPoolAsync(&mut address, bytes, pool, stream)) {
        0 => Ok(address),
        code => Err(code),
    }
}

#[test]
fn pool_keeps_freed_bytes_up_to_its_threshold() {
    let _gpu = Gpu::get();
    let (home, pool) = (stream(), pool());
    let blocks = [alloc_from(pool, 1000, home).unwrap(), alloc_from(pool, 3000, home).unwrap()];
    assert_eq!(state(pool), (4000, 4000));
    keep(pool, 2000);
    free(blocks[0], home);
    free(blocks[1], home);
    assert_eq!(state(pool), (4000, 4000), "the frees have not run");
    sync(home);
    assert_eq!(state(pool), (2000, 0));
    let again = alloc_from(pool, 1500, home).unwrap();
    assert_eq!(state(pool), (2000, 1500));
    assert_eq!((attribute(pool, 6), attribute(pool, 8)), (4000, 4000), "the high-water marks");
    free(again, home);
    sync(home);
    ok!(cuMemPoolTrimTo(pool, 0));
    assert_eq!(state(pool), (0, 0));
    ok!(cuMemPoolDestroy(pool));
}

#[test]
fn other_streams_reuse_bytes_freed_in_stream_order_only_after_a_synchronization() {
    let _gpu = Gpu::get();
    let (home, other, pool) = (stream(), stream(), pool());
    keep(pool, u64::MAX);
    let (block, passed) = (alloc_from(pool, 1000, home).unwrap(), event());
    free(block, home);
    ok!(cuEventRecord(passed, home));
    while code!(cuEventQuery(passed)) != 0 {}
    assert_eq!(state(pool), (1000, 0), "the free has run, but the host has only queried it");
    ok!(cuMemPoolTrimTo(pool, 0));
    assert_eq!(state(pool), (1000, 0));
    let same_stream = alloc_from(pool, 600, home).unwrap();
    assert_eq!(state(pool), (1000, 600));
    ok!(cuStreamWaitEvent(other, passed, 0));
    sync(other);
    let other_block = alloc_from(pool, 300, other).unwrap();
    assert_eq!(state(pool), (1300, 900), "the host has synchronized only with later work");
    ok!(cuEventSynchronize(passed));
    let again = alloc_from(pool, 300, other).unwrap();
    assert_eq!(state(pool), (1300, 1200));
    free(same_stream, home);
    [other_block, again].into_iter().for_each(|block| free(block, other));
    ok!(cuCtxSynchronize());
    ok!(cuMemPoolTrimTo(pool, 0));
    assert_eq!(state(pool), (0, 0));
    ok!(cuEventDestroy_v2(passed));
    ok!(cuMemPoolDestroy(pool));
}

#[test]
fn every_stream_reuses_synchronously_freed_bytes_at_once() {
    let _gpu = Gpu::get();
    let (home, other, pool) = (stream(), stream(), pool());
    keep(pool, u64::MAX);
    let (block, used) = (alloc_from(pool, 1000, home).unwrap(), event());
    ok!(cuEventRecord(used, home));
    while code!(cuEventQuery(used)) != 0 {}
    ok!(cuMemFree_v2(block));
    let other_block = alloc_from(pool, 1000, other).unwrap();
    assert_eq!(state(pool), (1000, 1000));
    sync(other);
    ok!(cuMemFree_v2(other_block));
    ok!(cuMemPoolTrimTo(pool, 0));
    assert_eq!(state(pool), (0, 0));
    ok!(cuEventDestroy_v2(used));
    ok!(cuMemPoolDestroy(pool));
}

#[test]
fn unused_bytes_of_pools_count_against_the_device_limit() {
    let case = "memory::unused_bytes_of_pools_count_against_the_device_limit";
    if !is_child(case) {
        let (output, text) = in_child(case, &[("CROSSDOCK_SIM_CUDA_MEMORY", "10000")]);
        assert!(output.status.success(), "{text}");
        return;
    }
    let gpu = Gpu::get();
    let (home, other) = (stream(), stream());
    let (keeping, small) = (pool(), pool());
    keep(keeping, u64::MAX);
    let block = alloc_from(keeping, 6000, home).unwrap();
    assert_eq!(alloc_from(keeping, 4001, home), Err(2));
    free(block, home);
    // Allocations from the same pool on the same stream can reuse the freed bytes, but other pools
    // cannot.
    assert_eq!(alloc_from(small, 6000, other), Err(2));
    let block = alloc_from(keeping, 9000, home).unwrap();
    free(block, home);
    sync(home);
    let (mut bytes, mut all, mut direct) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&mut bytes, &mut all));
    assert_eq!((bytes, all), (1000, 10000));
    assert_eq!(code!(cuMemAlloc_v2(&mut direct, 6000)), 2);
    ok!(cuMemPoolTrimTo(keeping, 0));
    ok!(cuMemAlloc_v2(&mut direct, 6000));
    assert_eq!(alloc_from(small, 6000, other), Err(2));
    ok!(cuMemFree_v2(direct));
    let block = alloc_from(small, 6000, other).unwrap();
    free(block, other);
    assert_eq!(gpu.violations(), 0);
}

#[test]
fn destroyed_pool_exists_until_its_last_block_is_freed() {
    let gpu = Gpu::get();
    let (home, pool) = (stream(), pool());
    let block = alloc_from(pool, 1000, home).unwrap();
    ok!(cuMemPoolDestroy(pool));
    fill(block, 1, 1000, home);
    assert_eq!(read(block, 1, home), [1]);
    free(block, home);
    sync(home);
    assert_eq!(gpu.violations(), 0);
    assert_eq!(alloc_from(pool, 1, home), Err(400));
    gpu.expect("stale handle");
}

#[test]
fn reports_a_pool_destroyed_before_the_host_waits_for_its_frees() {
    let gpu = Gpu::get();
    let (home, early, late) = (stream(), pool(), pool());
    let blocks = [early, late].map(|pool| alloc_from(pool, 1000, home).unwrap());
    free(blocks[1], home);
    sync(home);
    ok!(cuMemPoolDestroy(late));
    assert_eq!(gpu.violations(), 0);
    free(blocks[0], home);
    ok!(cuMemPoolDestroy(early));
    gpu.expect("pool destroyed in use");
    sync(home);
}

#[test]
fn free_of_cumemalloc_memory_waits_for_the_device() {
    let gpu = Gpu::get();
    let (one, two) = (stream(), stream());
    let (mut block, host) = (0, pinned(100));
    ok!(cuMemAlloc_v2(&mut block, 100));
    ok!(cuMemcpyHtoD_v2(block, [9u8; 100].as_ptr().cast(), 100));
    copy(host as u64, block, 50, one);
    copy(host as u64 + 50, block + 50, 50, two);
    ok!(cuMemFree_v2(block));
    // SAFETY: the pinned memory has 100 bytes.
    assert_eq!(unsafe { std::slice::from_raw_parts(host, 100) }, [9; 100], "the free waited for the copies");
    ok!(cuMemFreeHost(host));
    assert_eq!(gpu.violations(), 0);
}

/// Returns the memory type, the device, and the begin and size in bytes of the block: the
/// attributes 2, 9, 11 and 12 of a pointer.
fn attributes_of(address: u64) -> (u32, i32, u64, u64) {
    let (mut kind, mut device, mut begin, mut bytes) = (u32::MAX, i32::MAX, 0u64, 0u64);
    let mut which = [2, 9, 11, 12];
    let mut data: [*mut c_void; 4] =
        [(&raw mut kind).cast(), (&raw mut device).cast(), (&raw mut begin).cast(), (&raw mut bytes).cast()];
    ok!(cuPointerGetAttributes(4, which.as_mut_ptr(), data.as_mut_ptr(), address));
    (kind, device, begin, bytes)
}

#[test]
fn pointer_attributes_state_type_device_and_range() {
    let _gpu = Gpu::get();
    let home = stream();
    let (block, host, pageable) = (alloc(100, home), pinned(100), [0u8; 8]);
    assert_eq!(attributes_of(block + 99), (2, 0, block, 100));
    assert_eq!(attributes_of(host as u64 + 1), (1, 0, host as u64, 100));
    assert_eq!(attributes_of(pageable.as_ptr() as u64), (0, -2, 0, 0));
    free(block, home);
    ok!(cuMemFreeHost(host));
}

#[test]
fn managed_memory_is_device_memory_with_the_managed_attribute() {
    let _gpu = Gpu::get();
    let home = stream();
    let (mut block, other) = (0, alloc(100, home));
    ok!(cuMemAllocManaged(&mut block, 100, 1));
    let managed = |address| {
        let mut managed = -1i32;
        ok!(cuPointerGetAttribute((&raw mut managed).cast(), 8, address));
        managed
    };
    assert_eq!((managed(block + 9), managed(other)), (1, 0));
    assert_eq!(attributes_of(block), (2, 0, block, 100));
    ok!(cuMemFree_v2(block));
    free(other, home);
}

#[test]
fn fresh_device_memory_is_not_zero() {
    let _gpu = Gpu::get();
    let home = stream();
    let block = alloc(100, home);
    assert_ne!(read(block, 100, home), [0; 100]);
    free(block, home);
}

#[test]
fn rejects_calls_that_need_a_current_context() {
    let _gpu = Gpu::get();
    let (home, mut context, mut event, mut pointer) = (stream(), 0, 0, std::ptr::null_mut());
    ok!(cuCtxGetCurrent(&mut context));
    ok!(cuCtxSetCurrent(0));
    assert_eq!(code!(cuEventCreate(&mut event, 2)), 201);
    assert_eq!(code!(cuMemHostAlloc(&mut pointer, 8, 1)), 201);
    assert_eq!(code!(cuCtxSynchronize()), 201);
    assert_eq!(code!(cuStreamSynchronize(0)), 201, "the default stream belongs to the current context");
    sync(home);
    ok!(cuCtxSetCurrent(context));
    sync(0);
}
