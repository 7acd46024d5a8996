//! The pool within its budget, as the backend composes them, over memory that counts.

#[path = "../../../../memory/backend/src/resource/limited.rs"]
#[expect(dead_code, reason = "what no model needs of it")]
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

/// As the backend's, with a number in the place of addresses.
#[derive(Clone, Copy)]
struct Request {
    bytes: usize,
    alignment: usize,
}

struct Region {
    number: usize,
    request: Request,
}

#[derive(Debug)]
enum Refusal {
    OverLimit {
        #[expect(dead_code, reason = "for messages")]
        limit_bytes: usize,
        #[expect(dead_code, reason = "for messages")]
        left_bytes: usize,
    },
}

type Uses<'a> = &'a [()];

trait Resource {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal>;
    fn release(&self, region: Region, uses: Uses<'_>, lent: bool);
    fn trim(&self, bytes: usize) -> usize;
    fn cached_bytes(&self) -> usize;
}

struct HostMemory;

impl HostMemory {
    fn natural_alignment(_: usize) -> usize {
        ALIGNMENT
    }
}

/// How often each region was given, less how often it came back: never anything but one or none.
struct Memory(Arc<[AtomicUsize; MOST_REGIONS]>);

impl Resource for Memory {
    fn allocate(&self, request: Request, _: &Stream) -> Result<Region, Refusal> {
        let free = |number: &usize| {
            self.0[*number].compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        Ok(Region { number: (0..MOST_REGIONS).find(free).unwrap(), request })
    }

    fn release(&self, region: Region, _: Uses<'_>, _: bool) {
        assert_eq!(self.0[region.number].fetch_sub(1, Ordering::Relaxed), 1, "given back twice");
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
const MOST_REGIONS: usize = 4;

/// `keep`: how many blocks the pool keeps. `limit`: how many may be held and kept in all.
fn device(keep: usize, limit: usize) -> (Arc<Limited<Pool<Memory>>>, Arc<Budget>, Memory) {
    let regions = Arc::new(std::array::from_fn(|_| AtomicUsize::new(0)));
    let budget = Arc::new(Budget::new(limit * BYTES));
    let pool = Pool::new(Memory(regions.clone()), keep * BYTES, Some(budget.clone()));
    (Arc::new(Limited::new(pool, budget.clone())), budget, Memory(regions))
}

/// Takes a block and gives it back; whether there was one.
fn use_block(device: &impl Resource) -> bool {
    let region = device.allocate(Request { bytes: BYTES, alignment: ALIGNMENT }, &Stream);
    region.map(|region| device.release(region, &[], false)).is_ok()
}

/// Nobody holds anything, and the pool keeps `kept` blocks: these are charged to the budget, and go back with the pool.
fn check_at_rest(
    device: Arc<Limited<Pool<Memory>>>,
    (budget, memory): (&Budget, &Memory),
    limit: usize,
    kept: std::ops::RangeInclusive<usize>,
) {
    let out = |memory: &Memory| memory.0.iter().filter(|n| n.load(Ordering::Relaxed) == 1).count();
    let cached_blocks = device.cached_bytes() / BYTES;
    assert!(kept.contains(&cached_blocks), "{cached_blocks} blocks are kept");
    assert_eq!(out(memory), cached_blocks, "what is out is what is kept");
    let left = (limit - cached_blocks) * BYTES;
    assert!(
        budget.charge(left).is_ok() && budget.charge(1).is_err(),
        "what is kept is charged, and nothing else"
    );
    budget.give_back(left);
    drop(device);
    assert_eq!(out(memory), 0, "the pool kept something for good");
    assert!(budget.charge(limit * BYTES).is_ok(), "what went back is charged for good");
}

#[test]
fn blocks_that_two_threads_use_are_kept_or_given_back_and_charged_once() {
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
fn who_trims_while_others_work_takes_nothing_twice_and_leaves_nothing_charged() {
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
