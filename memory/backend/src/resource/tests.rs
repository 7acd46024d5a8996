//! One suite over every composition of resources, then what each policy adds.

use std::ptr::null_mut;

use super::*;
use crate::fault::{Faults, Operation};
use crate::ledger::{Books, Page};
use crossdock_plugin_api::Device;
use std::sync::Arc;

static STREAM: Stream = Stream::new(0, 0, null_mut());
const LIMIT_BYTES: usize = 1 << 30;

/// Which of the pieces a chain is made of, as bits.
const BASES: [&str; 2] = ["host", "aliased"];
const POLICIES: [&str; 5] = ["pool", "published", "limited", "faulty", "counted"];

struct Chain {
    name: String,
    resource: Box<dyn Resource>,
    page: Arc<Page>,
    budget: Arc<Budget>,
}

fn chain(base: usize, policies: usize) -> Chain {
    let has = |policy: usize| policies >> policy & 1 == 1;
    let names =
        std::iter::once(BASES[base]).chain((0..POLICIES.len()).filter(|i| has(*i)).map(|i| POLICIES[i]));
    let budget = Arc::new(Budget::new(LIMIT_BYTES));
    let page = Books::default().open("somebody", std::iter::once(Device::CPU));
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
        resource = Box::new(Counted::new(resource, page.clone(), 0));
    }
    Chain { name: names.collect::<Vec<_>>().join(" < "), resource, page, budget }
}

fn every_chain() -> impl Iterator<Item = Chain> {
    (0..BASES.len()).flat_map(|base| (0..1 << POLICIES.len()).map(move |policies| chain(base, policies)))
}

fn take(resource: &dyn Resource, bytes: usize, alignment: usize) -> Region {
    resource.allocate(Request { bytes, alignment }, &STREAM).unwrap()
}

fn give(resource: &dyn Resource, region: Region) {
    resource.release(region, &[], false);
}

fn bytes_of(region: &mut Region) -> &mut [u8] {
    // SAFETY: the region owns this many bytes, and the tests write them before they read them.
    unsafe { std::slice::from_raw_parts_mut(region.reachable.as_ptr(), region.request.bytes) }
}

#[test]
fn every_composition_aligns_blocks_and_keeps_them_apart() {
    for Chain { name, resource, .. } in every_chain() {
        let mut live = Vec::new();
        for bytes in [0, 1, 63, 64, 65, 257, 4096, 100_000, (256 << 10) - 1, 256 << 10, (4 << 20) + 1] {
            for alignment in [64, 256, 4096, 65536, MAX_ALIGNMENT] {
                let mut region = take(&*resource, bytes, alignment);
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
        live.into_iter().for_each(|region| give(&*resource, region));
    }
}

#[test]
fn every_composition_refuses_sizes_that_no_machine_has() {
    for Chain { name, resource, page, .. } in every_chain() {
        for bytes in [usize::MAX, usize::MAX - 63, isize::MAX as usize + 1, isize::MAX as usize, 1 << 60] {
            for alignment in [64, 4096, MAX_ALIGNMENT] {
                let refusal = resource.allocate(Request { bytes, alignment }, &STREAM);
                assert!(refusal.is_err(), "{name}: gave {bytes} bytes");
            }
        }
        assert_eq!(page.read().devices[0].live_blocks, 0, "{name}");
        assert_eq!(resource.cached_bytes(), 0, "{name}");
    }
}

#[test]
fn every_composition_is_empty_after_all_came_back_and_was_trimmed() {
    for Chain { name, resource, page, budget } in every_chain() {
        let live: Vec<_> =
            [0, 1, 300, 4096, 1 << 20, 5 << 20].map(|bytes| take(&*resource, bytes, 64)).into();
        live.into_iter().for_each(|region| give(&*resource, region));
        resource.trim(usize::MAX);
        assert_eq!(resource.cached_bytes(), 0, "{name}");
        assert_eq!(page.read().devices[0].live_bytes, 0, "{name}");
        assert_eq!(budget.charge(LIMIT_BYTES), Ok(()), "{name}: the budget was not given back");
    }
}

#[test]
fn every_composition_serves_threads_at_once() {
    for Chain { name, resource, page, .. } in every_chain() {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (resource, name) = (&*resource, &name);
                scope.spawn(move || {
                    for round in 0..100usize {
                        let mut region = take(resource, 64 + round * 37 % 4096, 64);
                        bytes_of(&mut region).fill(thread);
                        std::thread::yield_now();
                        assert!(bytes_of(&mut region).iter().all(|b| *b == thread), "{name}: shared by two");
                        give(resource, region);
                    }
                });
            }
        });
        assert_eq!(page.read().devices[0].live_blocks, 0, "{name}");
    }
}

#[test]
fn an_aliased_block_is_written_through_one_address_only() {
    let region = take(&AliasedMemory, 100, 64);
    assert_ne!(region.address, region.reachable);
    give(&AliasedMemory, region);
}

#[test]
fn a_pool_gives_the_block_that_came_back_last() {
    let pool = Pool::new(HostMemory, 1 << 20, None);
    let first = take(&pool, 1000, 64);
    let address = first.address;
    give(&pool, first);
    assert_eq!(pool.cached_bytes(), 1024);
    // 897 to 1024 bytes are one class.
    let again = take(&pool, 900, 64);
    assert_eq!((again.address, pool.cached_bytes()), (address, 0));
    give(&pool, again);
}

#[test]
fn a_pool_wastes_at_most_a_quarter() {
    for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 30) - 1]) {
        let pool = Pool::new(HostMemory, usize::MAX, None);
        give(&pool, take(&pool, bytes, 64));
        let class_bytes = pool.cached_bytes();
        assert!(
            class_bytes >= bytes && class_bytes - bytes <= (bytes / 4).max(63),
            "{bytes} -> {class_bytes}"
        );
    }
}

#[test]
fn a_pool_keeps_no_more_than_its_cap_and_prefers_what_came_last() {
    let pool = Pool::new(HostMemory, 4096, None);
    let blocks: Vec<_> = (0..20).map(|_| take(&pool, 512, 64)).collect();
    blocks.into_iter().for_each(|region| give(&pool, region));
    assert_eq!(pool.cached_bytes(), 4096);
    give(&pool, take(&pool, 2048, 64));
    assert_eq!(pool.cached_bytes(), 4096, "four blocks of 512 bytes made room for one of 2048");
    give(&pool, take(&pool, 8192, 64));
    assert_eq!(pool.cached_bytes(), 4096, "a block larger than the cap passes by and evicts nothing");
}

#[test]
fn a_pool_under_a_budget_keeps_only_what_the_budget_leaves() {
    let budget = Arc::new(Budget::new(1024));
    let memory = Limited::new(Pool::new(HostMemory, 1 << 20, Some(budget.clone())), budget.clone());
    let (a, b) = (take(&memory, 512, 64), take(&memory, 512, 64));
    give(&memory, a);
    assert_eq!(memory.cached_bytes(), 512);
    assert!(memory.allocate(Request { bytes: 256, alignment: 64 }, &STREAM).is_err());
    assert_eq!(memory.trim(1), 512);
    let c = take(&memory, 256, 64);
    give(&memory, b);
    give(&memory, c);
    assert!(memory.cached_bytes() <= 1024);
}

#[test]
fn a_limit_is_exact_to_the_byte_and_says_what_is_left() {
    let memory = Limited::new(HostMemory, Arc::new(Budget::new(1000)));
    let block = take(&memory, 999, 64);
    let refusal = memory.allocate(Request { bytes: 2, alignment: 64 }, &STREAM).unwrap_err();
    assert_eq!(refusal, Refusal::OverLimit { limit_bytes: 1000, left_bytes: 1 });
    give(&memory, take(&memory, 1, 64));
    give(&memory, block);
    give(&memory, take(&memory, 1000, 64));
}

#[test]
fn a_limit_holds_while_threads_race_for_it() {
    let budget = Arc::new(Budget::new(10_000));
    let memory = Limited::new(HostMemory, budget.clone());
    let held = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    if let Ok(region) = memory.allocate(Request { bytes: 3000, alignment: 64 }, &STREAM) {
                        let now = held.fetch_add(3000, std::sync::atomic::Ordering::SeqCst) + 3000;
                        assert!(now <= 10_000, "{now} bytes are held under a limit of 10000");
                        std::thread::yield_now();
                        held.fetch_sub(3000, std::sync::atomic::Ordering::SeqCst);
                        give(&memory, region);
                    }
                }
            });
        }
    });
    assert_eq!(budget.charge(10_000), Ok(()));
}

#[test]
fn a_fault_hits_the_nth_allocation_and_no_other() {
    let faults = Faults::new();
    let memory = Faulty::new(HostMemory, faults.clone());
    faults.fail(Operation::Allocate, 3);
    let outcomes: Vec<_> = (0..5)
        .map(|_| memory.allocate(Request { bytes: 1, alignment: 64 }, &STREAM).map(|r| give(&memory, r)))
        .collect();
    let expected = [Ok(()), Ok(()), Err(Refusal::Injected { occurrence: 3 }), Ok(()), Ok(())];
    assert_eq!(outcomes, expected);
    assert_eq!(faults.seen(Operation::Allocate), 5);
}

#[test]
fn a_published_block_is_found_by_each_of_its_bytes_until_it_goes_back() {
    let ranges = Arc::<Ranges>::default();
    let memory = Published::new(AliasedMemory, ranges.clone());
    let region = take(&memory, 100, 64);
    let (base, reachable) = (region.address.as_ptr() as usize, region.reachable.as_ptr());
    assert_eq!(ranges.find(base + 99).unwrap().reach(base + 99, 1), Some(reachable.wrapping_add(99)));
    assert_eq!(ranges.find(base).unwrap().reach(base + 99, 2), None);
    assert!(ranges.find(base + 100).is_none() && ranges.find(base - 1).is_none());
    give(&memory, region);
    assert!(ranges.find(base).is_none());
}
