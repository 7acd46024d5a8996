//! Tests that work runs as late as permitted, in an order that the seed determines.

use crate::common::*;

const BYTES: usize = 1000;

fn bytes<'a>(pinned: *const u8) -> &'a [u8] {
    // SAFETY: the callers pass pinned memory of `BYTES` bytes, and free it only after they have
    // used the slice.
    unsafe { std::slice::from_raw_parts(pinned, BYTES) }
}

#[test]
fn work_runs_only_after_a_synchronization() {
    let _gpu = Gpu::get();
    let home = stream();
    let (block, host) = (alloc(BYTES, home), pinned(BYTES));
    fill(block, 7, BYTES, home);
    copy(host as u64, block, BYTES, home);
    assert_ne!(bytes(host), [7; BYTES]);
    sync(home);
    assert_eq!(bytes(host), [7; BYTES]);
    free(block, home);
    ok!(cuMemFreeHost(host));
}

#[test]
fn synchronizing_an_event_runs_only_work_before_it() {
    let _gpu = Gpu::get();
    let (one, two) = (stream(), stream());
    let hosts = [pinned(BYTES), pinned(BYTES), pinned(BYTES)];
    let block = alloc(BYTES, one);
    hosts.iter().for_each(|host| fill(*host as u64, 0, BYTES, one));
    sync(one);
    fill(block, 1, BYTES, one);
    copy(hosts[0] as u64, block, BYTES, one);
    order(one, two);
    copy(hosts[1] as u64, block, BYTES, two);
    let event = event();
    ok!(cuEventRecord(event, two));
    fill(block, 2, 0, two);
    copy(hosts[2] as u64, block, BYTES, two);
    ok!(cuEventSynchronize(event));
    assert_eq!(hosts.map(|host| bytes(host)[0]), [1, 1, 0]);
    sync(two);
    assert_eq!(bytes(hosts[2])[0], 1);
    free(block, two);
    hosts.iter().for_each(|host| ok!(cuMemFreeHost(*host)));
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn copy_reads_pinned_memory_when_it_runs_and_pageable_memory_when_it_is_queued() {
    let _gpu = Gpu::get();
    let home = stream();
    let block = alloc(2 * BYTES, home);
    let (mut pageable, host) = (vec![1u8; BYTES], pinned(BYTES));
    fill(host as u64, 1, BYTES, home);
    sync(home);
    copy(block, pageable.as_ptr() as u64, BYTES, home);
    copy(block + BYTES as u64, host as u64, BYTES, home);
    pageable.fill(2);
    // SAFETY: the pinned memory has `BYTES` bytes.
    unsafe { host.write_bytes(2, BYTES) };
    let values = read(block, 2 * BYTES, home);
    assert_eq!((values[0], values[BYTES]), (1, 2));
    free(block, home);
    ok!(cuMemFreeHost(host));
}

#[test]
fn queries_sometimes_return_not_ready_and_finally_succeed() {
    let _gpu = Gpu::get();
    let (mut not_ready, mut at_once) = (0, 0);
    let home = stream();
    let block = alloc(BYTES, home);
    let event = event();
    for seed in 0..50 {
        crossdock_sim_cuda_seed(seed);
        (0..4).for_each(|value| fill(block, value, BYTES, home));
        ok!(cuEventRecord(event, home));
        let before = not_ready;
        while code!(cuEventQuery(event)) == 600 {
            not_ready += 1;
        }
        at_once += i32::from(not_ready == before);
        while code!(cuStreamQuery(home)) == 600 {}
    }
    assert!(not_ready > 10 && at_once > 5, "{not_ready} times not ready, {at_once} times ready at once");
    free(block, home);
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn queries_of_a_held_stream_always_return_not_ready() {
    let _gpu = Gpu::get();
    let (one, two) = (stream(), stream());
    let host = pinned(BYTES);
    fill(host as u64, 0, BYTES, one);
    sync(one);
    assert_eq!((crossdock_sim_cuda_hold(one, 1), crossdock_sim_cuda_hold(1234, 1)), (0, 400));
    fill(host as u64, 1, BYTES, one);
    order(one, two);
    let event = event();
    ok!(cuEventRecord(event, two));
    for _ in 0..100 {
        assert_eq!((code!(cuEventQuery(event)), code!(cuStreamQuery(one)), bytes(host)[0]), (600, 600, 0));
    }
    assert_eq!(crossdock_sim_cuda_hold(one, 0), 0);
    while code!(cuEventQuery(event)) == 600 {}
    assert_eq!(bytes(host)[0], 1);
    assert_eq!(crossdock_sim_cuda_hold(one, 1), 0);
    fill(host as u64, 2, BYTES, one);
    sync(one);
    assert_eq!(bytes(host)[0], 2, "a synchronization runs the work of a held stream");
    ok!(cuMemFreeHost(host));
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn seed_determines_the_order_of_unordered_streams() {
    let gpu = Gpu::get();
    let streams: Vec<_> = (0..3).map(|_| stream()).collect();
    let host = pinned(BYTES);
    let mut last_writers = std::collections::BTreeSet::new();
    for seed in 0..30 {
        crossdock_sim_cuda_seed(seed);
        for (value, stream) in streams.iter().enumerate() {
            fill(host as u64, value as u8, BYTES, *stream);
        }
        ok!(cuCtxSynchronize());
        last_writers.insert(bytes(host)[0]);
    }
    assert_eq!(last_writers.len(), 3, "each stream must be the last writer for some seed");
    assert!(gpu.violations() > 0);
    ok!(cuMemFreeHost(host));
}

/// Runs work on several streams without violations. In each step, a kernel adds the bytes of one
/// block to another block, and events order the kernel with the work on both blocks.
fn run_correct_program(seed: u64) {
    const WIDTH: usize = 4;
    let streams: Vec<_> = (0..WIDTH).map(|_| stream()).collect();
    let blocks: Vec<_> = streams.iter().map(|stream| alloc(BYTES, *stream)).collect();
    let add = function("add");
    let host = pinned(BYTES);
    let mut expected: Vec<u8> = (0..WIDTH as u8).collect();
    for (at, value) in expected.iter().enumerate() {
        fill(blocks[at], *value, BYTES, streams[at]);
    }
    for step in 0..6 {
        let (from, to) = ((step + seed as usize) % WIDTH, (step * 3 + 1) % WIDTH);
        if from == to {
            continue;
        }
        order(streams[from], streams[to]);
        let n = BYTES as u64;
        let params = Params::new(Some(add_on_cpu), &[(blocks[to], n, 2), (blocks[from], n, 1), (n, 0, 0)]);
        assert_eq!(params.launch(add, streams[to]), 0);
        order(streams[to], streams[from]);
        expected[to] = expected[to].wrapping_add(expected[from]);
    }
    for at in 0..WIDTH {
        copy(host as u64, blocks[at], BYTES, streams[at]);
        sync(streams[at]);
        assert_eq!(bytes(host), [expected[at]; BYTES], "seed {seed}, block {at}");
        free(blocks[at], streams[at]);
        ok!(cuStreamDestroy_v2(streams[at]));
    }
    ok!(cuMemFreeHost(host));
    ok!(cuCtxSynchronize());
}

/// A CPU implementation: `to[i] += from[i]`.
unsafe extern "C" fn add_on_cpu(
    args: *const crossdock_plugin_api::abi::Arg,
    n_args: usize,
) -> crossdock_plugin_api::abi::Code {
    // SAFETY: `run_correct_program` launches this kernel with three arguments, whose ranges are
    // valid.
    unsafe {
        assert_eq!(n_args, 3);
        let args = std::slice::from_raw_parts(args, n_args);
        let (to, from) = (args[0].value as *mut u8, args[1].value as *const u8);
        for at in 0..args[2].value as usize {
            *to.add(at) = (*to.add(at)).wrapping_add(*from.add(at));
        }
    }
    0
}

#[test]
fn correct_program_has_no_violations_under_200_seeds() {
    let gpu = Gpu::get();
    let before = crossdock_sim_cuda_live_blocks();
    for seed in 0..200 {
        crossdock_sim_cuda_seed(seed);
        run_correct_program(seed);
    }
    assert_eq!(gpu.violations(), 0);
    assert_eq!(crossdock_sim_cuda_live_blocks(), before);
}
