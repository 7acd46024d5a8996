//! Tests every composition of resources, then the behaviour that each policy adds.

use std::ptr::null_mut;

use super::*;
use crate::fault::{Faults, Operation};
use crate::ledger::{AccountCounters, Ledger};
use crossdock_plugin_api::Device;
use std::sync::Arc;

static STREAM: Stream = Stream::new(0, 0, null_mut());
const LIMIT_BYTES: usize = 1 << 30;

/// The tests compose chains of one base from `BASES` and any subset of `POLICIES`.
const BASES: [&str; 2] = ["host", "aliased"];
const POLICIES: [&str; 5] = ["pool", "published", "limited", "faulty", "counted"];

struct Chain {
    name: String,
    resource: Box<dyn Resource>,
    counters: Arc<AccountCounters>,
    budget: Arc<Budget>,
}

fn chain(base: usize, policies: usize) -> Chain {
    let has = |policy: usize| policies >> policy & 1 == 1;
    let names =
        std::iter::once(BASES[base]).chain((0..POLICIES.len()).filter(|i| has(*i)).map(|i| POLICIES[i]));
    let budget = Arc::new(Budget::new(LIMIT_BYTES));
    let counters = Ledger::default().open("plugin", std::iter::once(Device::CPU));
    let mut resource: Box<dyn Resource> =
        if base == 0 { Box::new(HostMemory) } else { Box::new(AliasedMemory) };
    if has(0) {
        resource = Box::new(Pool::new(resource, 64 << 20, has(2).then(|| budget.clone())));
    }
    if has(1) {
        resource = Box::new(Published::new(resource, Arc::default()));
    }
    if has(2) {
        resource = Box::new(Limited::new(resource, budget.clone()));
    }
    if has(3) {
        resource = Box::new(Faulty::new(resource, Faults::new()));
    }
    if has(4) {
        resource = Box::new(Counted::new(resource, counters.clone(), 0));
    }
    Chain { name: names.collect::<Vec<_>>().join(" < "), resource, counters, budget }
}

fn every_chain() -> impl Iterator<Item = Chain> {
    (0..BASES.len()).flat_map(|base| (0..1 << POLICIES.len()).map(move |policies| chain(base, policies)))
}

fn allocate(resource: &dyn Resource, bytes: usize, alignment: usize) -> Region {
    resource.allocate(Request { bytes, alignment }, &STREAM).unwrap()
}

fn release(resource: &dyn Resource, region: Region) {
    resource.release(region, &[], false);
}

fn bytes_of(region: &mut Region) -> &mut [u8] {
    // SAFETY: the region owns this many bytes, and the tests write them before they read them.
    unsafe { std::slice::from_raw_parts_mut(region.reachable.as_ptr(), region.request.bytes) }
}

#[test]
fn every_resource_chain_aligns_blocks_and_keeps_them_disjoint() {
    for Chain { name, resource, .. } in every_chain() {
        let mut live = Vec::new();
        for bytes in [0, 1, 63, 64, 65, 257, 4096, 100_000, (256 << 10) - 1, 256 << 10, (4 << 20) + 1] {
            for alignment in [64, 256, 4096, 65536, MAX_ALIGNMENT] {
                let mut region = allocate(&*resource, bytes, alignment);
                assert_eq!(region.request, Request { bytes, alignment }, "{name}");
                assert_eq!(region.address.as_ptr() as usize % alignment, 0, "{name}: {bytes} at {alignment}");
                assert_eq!(
                    region.reachable.as_ptr() as usize % alignment,
                    0,
                    "{name}: {bytes} at {alignment}"
                );
                let mark = live.len() as u8;
                if let [first, .., last] = bytes_of(&mut region) {
                    (*first, *last) = (mark, mark);
                }
                live.push(region);
            }
        }
        for (mark, region) in live.iter_mut().enumerate() {
            if let [first, .., last] = bytes_of(region) {
                assert_eq!((*first, *last), (mark as u8, mark as u8), "{name}: another block wrote here");
            }
        }
        let mut addresses: Vec<_> = live.iter().map(|region| region.address).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), live.len(), "{name}: two live blocks have one address");
        live.into_iter().for_each(|region| release(&*resource, region));
    }
}

#[test]
fn every_resource_chain_rejects_excessive_sizes() {
    for Chain { name, resource, counters, .. } in every_chain() {
        for bytes in [usize::MAX, usize::MAX - 63, isize::MAX as usize + 1, isize::MAX as usize, 1 << 60] {
            for alignment in [64, 4096, MAX_ALIGNMENT] {
                let result = resource.allocate(Request { bytes, alignment }, &STREAM);
                assert!(result.is_err(), "{name}: allocated {bytes} bytes");
            }
        }
        assert_eq!(counters.read().devices[0].live_blocks, 0, "{name}");
        assert_eq!(resource.cached_bytes(), 0, "{name}");
    }
}

#[test]
fn every_resource_chain_is_empty_after_release_and_trim() {
    for Chain { name, resource, counters, budget } in every_chain() {
        let live: Vec<_> =
            [0, 1, 300, 4096, 1 << 20, 5 << 20].map(|bytes| allocate(&*resource, bytes, 64)).into();
        live.into_iter().for_each(|region| release(&*resource, region));
        resource.trim(usize::MAX);
        assert_eq!(resource.cached_bytes(), 0, "{name}");
        assert_eq!(counters.read().devices[0].live_bytes, 0, "{name}");
        assert_eq!(budget.charge(LIMIT_BYTES), Ok(()), "{name}: bytes are still charged");
    }
}

#[test]
fn every_resource_chain_is_thread_safe() {
    for Chain { name, resource, counters, .. } in every_chain() {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (resource, name) = (&*resource, &name);
                scope.spawn(move || {
                    for round in 0..100usize {
                        let mut region = allocate(resource, 64 + round * 37 % 4096, 64);
                        bytes_of(&mut region).fill(thread);
                        std::thread::yield_now();
                        assert!(
                            bytes_of(&mut region).iter().all(|b| *b == thread),
                            "{name}: another block wrote here"
                        );
                        release(resource, region);
                    }
                });
            }
        });
        assert_eq!(counters.read().devices[0].live_blocks, 0, "{name}");
    }
}

#[test]
fn aliased_block_has_two_addresses() {
    let region = allocate(&AliasedMemory, 100, 64);
    assert_ne!(region.address, region.reachable);
    release(&AliasedMemory, region);
}

#[test]
fn pool_reuses_the_block_released_last() {
    let pool = Pool::new(HostMemory, 1 << 20, None);
    let first = allocate(&pool, 1000, 64);
    let address = first.address;
    release(&pool, first);
    assert_eq!(pool.cached_bytes(), 1024);
    // Sizes from 897 to 1024 bytes belong to one class.
    let again = allocate(&pool, 900, 64);
    assert_eq!((again.address, pool.cached_bytes()), (address, 0));
    release(&pool, again);
}

#[test]
fn pool_rounds_sizes_up_by_at_most_a_quarter() {
    for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 30) - 1]) {
        let pool = Pool::new(HostMemory, usize::MAX, None);
        release(&pool, allocate(&pool, bytes, 64));
        let class_bytes = pool.cached_bytes();
        assert!(
            class_bytes >= bytes && class_bytes - bytes <= (bytes / 4).max(63),
            "{bytes} -> {class_bytes}"
        );
    }
}

#[test]
fn pool_respects_its_cap_and_prefers_recent_blocks() {
    let pool = Pool::new(HostMemory, 4096, None);
    let blocks: Vec<_> = (0..20).map(|_| allocate(&pool, 512, 64)).collect();
    blocks.into_iter().for_each(|region| release(&pool, region));
    assert_eq!(pool.cached_bytes(), 4096);
    release(&pool, allocate(&pool, 2048, 64));
    assert_eq!(pool.cached_bytes(), 4096, "four blocks of 512 bytes were evicted for one of 2048");
    release(&pool, allocate(&pool, 8192, 64));
    assert_eq!(pool.cached_bytes(), 4096, "a block larger than the cap bypasses the pool and evicts nothing");
}

#[test]
fn pool_caches_at_most_the_remaining_budget() {
    let budget = Arc::new(Budget::new(1024));
    let memory = Limited::new(Pool::new(HostMemory, 1 << 20, Some(budget.clone())), budget.clone());
    let (a, b) = (allocate(&memory, 512, 64), allocate(&memory, 512, 64));
    release(&memory, a);
    assert_eq!(memory.cached_bytes(), 512);
    assert!(memory.allocate(Request { bytes: 256, alignment: 64 }, &STREAM).is_err());
    assert_eq!(memory.trim(1), 512);
    let c = allocate(&memory, 256, 64);
    release(&memory, b);
    release(&memory, c);
    assert!(memory.cached_bytes() <= 1024);
}

#[test]
fn memory_limit_is_inclusive_and_error_states_the_remaining_bytes() {
    let memory = Limited::new(HostMemory, Arc::new(Budget::new(1000)));
    let block = allocate(&memory, 999, 64);
    let error = memory.allocate(Request { bytes: 2, alignment: 64 }, &STREAM).unwrap_err();
    assert_eq!(error, AllocError::OverLimit { limit_bytes: 1000, left_bytes: 1 });
    release(&memory, allocate(&memory, 1, 64));
    release(&memory, block);
    release(&memory, allocate(&memory, 1000, 64));
}

#[test]
fn memory_limit_holds_for_concurrent_allocations() {
    let budget = Arc::new(Budget::new(10_000));
    let memory = Limited::new(HostMemory, budget.clone());
    let live_bytes = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    if let Ok(region) = memory.allocate(Request { bytes: 3000, alignment: 64 }, &STREAM) {
                        let total = live_bytes.fetch_add(3000, std::sync::atomic::Ordering::SeqCst) + 3000;
                        assert!(total <= 10_000, "{total} bytes are allocated under a limit of 10000");
                        std::thread::yield_now();
                        live_bytes.fetch_sub(3000, std::sync::atomic::Ordering::SeqCst);
                        release(&memory, region);
                    }
                }
            });
        }
    });
    assert_eq!(budget.charge(10_000), Ok(()));
}

#[test]
fn fault_fails_only_the_nth_allocation() {
    let faults = Faults::new();
    let memory = Faulty::new(HostMemory, faults.clone());
    faults.fail(Operation::Allocate, 3);
    let outcomes: Vec<_> = (0..5)
        .map(|_| memory.allocate(Request { bytes: 1, alignment: 64 }, &STREAM).map(|r| release(&memory, r)))
        .collect();
    let expected = [Ok(()), Ok(()), Err(AllocError::Injected { occurrence: 3 }), Ok(()), Ok(())];
    assert_eq!(outcomes, expected);
    assert_eq!(faults.count(Operation::Allocate), 5);
}

#[test]
fn block_is_found_by_any_of_its_addresses_until_its_release() {
    let ranges = Arc::<Ranges>::default();
    let memory = Published::new(AliasedMemory, ranges.clone());
    let region = allocate(&memory, 100, 64);
    let (base, reachable) = (region.address.as_ptr() as usize, region.reachable.as_ptr());
    assert_eq!(ranges.find(base + 99).unwrap().translate(base + 99, 1), Some(reachable.wrapping_add(99)));
    assert_eq!(ranges.find(base).unwrap().translate(base + 99, 2), None);
    assert!(ranges.find(base + 100).is_none() && ranges.find(base - 1).is_none());
    release(&memory, region);
    assert!(ranges.find(base).is_none());
}
