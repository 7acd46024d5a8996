//! Models the pool and its budget, composed as in the backend. The pool allocates from the type
//! `Memory`, which only counts allocations.

#[path = "../../../../memory/backend/src/resource/limited.rs"]
#[expect(dead_code, reason = "not used by the models")]
mod limited;
#[path = "../../../../memory/backend/src/resource/pool.rs"]
mod pool;
mod sync;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::device::Stream;
use crate::model;
use limited::{Budget, Limited};
use pool::Pool;

/// Replaces the backend's type of the same name.
#[derive(Clone, Copy)]
struct Request {
    bytes: usize,
    alignment: usize,
}

/// Replaces the backend's type of the same name. It has a number instead of addresses.
struct Region {
    number: usize,
    request: Request,
}

#[derive(Debug)]
enum AllocError {
    OverLimit {
        #[expect(dead_code, reason = "for messages")]
        limit_bytes: usize,
        #[expect(dead_code, reason = "for messages")]
        left_bytes: usize,
    },
}

type Uses<'a> = &'a [()];

trait Resource {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError>;
    fn release(&self, region: Region, uses: Uses<'_>, exported: bool);
    fn trim(&self, bytes: usize) -> usize;
    fn cached_bytes(&self) -> usize;
}

struct HostMemory;

impl HostMemory {
    fn natural_alignment(_: usize) -> usize {
        ALIGNMENT
    }
}

/// For each region, the number of allocations minus the number of releases, which is always 0 or 1.
struct Memory(Arc<[AtomicUsize; MAX_REGIONS]>);

impl Resource for Memory {
    fn allocate(&self, request: Request, _: &Stream) -> Result<Region, AllocError> {
        let free = |number: &usize| {
            self.0[*number].compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        Ok(Region { number: (0..MAX_REGIONS).find(free).unwrap(), request })
    }

    fn release(&self, region: Region, _: Uses<'_>, _: bool) {
        assert_eq!(self.0[region.number].fetch_sub(1, Ordering::Relaxed), 1, "released twice");
    }

    fn trim(&self, _: usize) -> usize {
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}

const ALIGNMENT: usize = 64;
const BYTES: usize = 64;
const MAX_REGIONS: usize = 4;

/// A pool that caches at most `max_cached` blocks. Its budget allows `limit` blocks, live and
/// cached blocks together.
fn device(max_cached: usize, limit: usize) -> (Arc<Limited<Pool<Memory>>>, Arc<Budget>, Memory) {
    let regions = Arc::new(std::array::from_fn(|_| AtomicUsize::new(0)));
    let budget = Arc::new(Budget::new(limit * BYTES));
    let pool = Pool::new(Memory(regions.clone()), max_cached * BYTES, Some(budget.clone()));
    (Arc::new(Limited::new(pool, budget.clone())), budget, Memory(regions))
}

/// Allocates a block and releases it. Returns whether the allocation succeeded.
fn use_block(device: &impl Resource) -> bool {
    let region = device.allocate(Request { bytes: BYTES, alignment: ALIGNMENT }, &Stream);
    region.map(|region| device.release(region, &[], false)).is_ok()
}

/// Checks that exactly the cached blocks are allocated and charged to the budget, and that their
/// number is in `cached`. Then drops the pool, and checks that it releases the cached blocks.
fn check_at_rest(
    device: Arc<Limited<Pool<Memory>>>,
    (budget, memory): (&Budget, &Memory),
    limit: usize,
    cached: std::ops::RangeInclusive<usize>,
) {
    let allocated = |memory: &Memory| memory.0.iter().filter(|n| n.load(Ordering::Relaxed) == 1).count();
    let cached_blocks = device.cached_bytes() / BYTES;
    assert!(cached.contains(&cached_blocks), "{cached_blocks} blocks are cached");
    assert_eq!(allocated(memory), cached_blocks, "exactly the cached blocks are allocated");
    let remaining = (limit - cached_blocks) * BYTES;
    assert!(
        budget.charge(remaining).is_ok() && budget.charge(1).is_err(),
        "exactly the cached blocks are charged"
    );
    budget.release(remaining);
    drop(device);
    assert_eq!(allocated(memory), 0, "the pool leaked a block");
    assert!(budget.charge(limit * BYTES).is_ok(), "released bytes are still charged");
}

#[test]
fn blocks_of_two_threads_are_each_charged_once() {
    model(5, || {
        let (device, budget, memory) = device(1, 2);
        let other = thread::spawn({
            let device = device.clone();
            move || assert!(use_block(&*device), "the limit has room for both")
        });
        assert!(use_block(&*device), "the limit has room for both");
        other.join().unwrap();
        check_at_rest(device, (&budget, &memory), 2, 0..=1);
    });
}

#[test]
fn concurrent_trims_release_and_uncharge_each_block_once() {
    model(5, || {
        let (device, budget, memory) = device(2, 2);
        assert!(use_block(&*device));
        let other = thread::spawn({
            let device = device.clone();
            move || assert!(use_block(&*device))
        });
        device.trim(usize::MAX);
        other.join().unwrap();
        check_at_rest(device, (&budget, &memory), 2, 0..=1);
    });
}
