//! Tests with the installed driver, real or simulated. Some of its functions are wrapped to count
//! calls and to fail on request.

use std::ffi::c_int;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crossdock_plugin_api::Device;
use cudarc::driver::sys;

use super::*;
use crate::cuda::context::Entered;
use crate::cuda::driver::{
    ALLOCATION_PINNED, Driver, LOCATION_DEVICE, MemLocation, MemPool, MemPoolProps, NOT_READY,
};

static REAL: OnceLock<Driver> = OnceLock::new();
static TEST_LOCK: Mutex<()> = Mutex::new(());

/// Whether event queries return "not ready".
static NEVER_READY: AtomicBool = AtomicBool::new(false);
static MEM_FREE_FAILS: AtomicBool = AtomicBool::new(false);
static MEM_FREE_ASYNC_FAILS: AtomicBool = AtomicBool::new(false);
/// Number of calls to `cuMemFree`, and the streams that were passed to `cuMemFreeAsync`.
static MEM_FREE_CALLS: AtomicUsize = AtomicUsize::new(0);
static MEM_FREE_ASYNC_STREAMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

const ERROR_CODE: c_int = 4242;

unsafe extern "C" fn query(event: RawEvent) -> c_int {
    if NEVER_READY.load(Ordering::Relaxed) {
        NOT_READY
    } else {
        // SAFETY: the caller passes a live event, as `cuEventQuery` requires.
        unsafe { (REAL.get().unwrap().event_query)(event) }
    }
}

unsafe extern "C" fn mem_free(base: DevicePtr) -> c_int {
    if MEM_FREE_FAILS.load(Ordering::Relaxed) {
        return ERROR_CODE;
    }
    MEM_FREE_CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller satisfies the contract of the replaced function.
    unsafe { (REAL.get().unwrap().mem_free)(base) }
}

unsafe extern "C" fn mem_free_async(base: DevicePtr, stream: RawStream) -> c_int {
    if MEM_FREE_ASYNC_FAILS.load(Ordering::Relaxed) {
        return ERROR_CODE;
    }
    MEM_FREE_ASYNC_STREAMS.lock().unwrap().push(stream as usize);
    // SAFETY: the caller satisfies the contract of the replaced function.
    unsafe { (REAL.get().unwrap().mem_free_async)(base, stream) }
}

/// A pool, a stream that allocates from it, and another stream that uses the blocks.
struct Fixture {
    /// `None` once a test has dropped it.
    frees: Option<PendingFrees>,
    pool: MemPool,
    home: RawStream,
    user: RawStream,
    _entered: Entered,
    gpu: Arc<Gpu>,
    _guard: MutexGuard<'static, ()>,
}

impl Fixture {
    fn new(test: &str) -> Option<Self> {
        let guard = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = match crate::cuda::probe::start() {
            Ok((driver, _)) => *REAL.get_or_init(|| driver),
            Err(missing) => {
                let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}");
                return None;
            }
        };
        [&NEVER_READY, &MEM_FREE_FAILS, &MEM_FREE_ASYNC_FAILS]
            .iter()
            .for_each(|flag| flag.store(false, Ordering::Relaxed));
        MEM_FREE_CALLS.store(0, Ordering::Relaxed);
        MEM_FREE_ASYNC_STREAMS.lock().unwrap().clear();
        let wrapped = Driver { event_query: query, mem_free, mem_free_async, ..driver };
        let gpu = Gpu::open(wrapped, Device::cuda(0), 0, (0, 0)).unwrap();
        let entered = gpu.enter().unwrap();
        let (home, user) = (gpu.take_stream().unwrap(), gpu.take_stream().unwrap());
        let props = MemPoolProps {
            alloc_type: ALLOCATION_PINNED,
            handle_types: 0,
            location: MemLocation { r#type: LOCATION_DEVICE, id: gpu.ordinal },
            win32_security_attributes: std::ptr::null_mut(),
            max_size: 0,
            reserved: [0; 56],
        };
        let mut pool = std::ptr::null_mut();
        // SAFETY: the pointers point to local variables; the context is current.
        assert_eq!(unsafe { (driver.mem_pool_create)(&mut pool, &props) }, SUCCESS);
        let frees = Some(PendingFrees::new(gpu.clone()).unwrap());
        Some(Self { frees, pool, home, user, _entered: entered, gpu, _guard: guard })
    }

    fn frees(&self) -> &PendingFrees {
        self.frees.as_ref().unwrap()
    }

    fn order(&self, from: RawStream, to: RawStream) {
        let event = self.gpu.record(from).unwrap();
        self.gpu.wait(to, event).unwrap();
        self.gpu.return_event(event);
    }

    /// Allocates a block, and writes to it on another stream.
    fn used_block(&self) -> DevicePtr {
        let mut base = 0;
        // SAFETY: the pointer points to a local variable, and the block has 4096 bytes.
        unsafe {
            let driver = &self.gpu.driver;
            assert_eq!((driver.mem_alloc_from_pool_async)(&mut base, 4096, self.pool, self.home), SUCCESS);
            self.order(self.home, self.user);
            assert_eq!((driver.memset_d8_async)(base, 1, 4096, self.user), SUCCESS);
        }
        base
    }

    /// Adds a pending block that counts as `bytes` bytes.
    fn add(&self, bytes: usize) {
        let base = self.used_block();
        self.order(self.user, self.frees().stream());
        self.frees().add(base, bytes).unwrap();
    }

    /// Calls `try_free_passed` until `done` returns true, because a query may report a passed event
    /// late.
    fn free_passed_until(&self, done: impl Fn() -> bool) {
        let n_calls = (0..100_000).take_while(|_| !done()).map(|_| self.frees().try_free_passed()).count();
        assert!(done(), "not after {n_calls} calls");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.frees = None;
        // SAFETY: `new` made the context current and created the pool, and all blocks have been
        // freed.
        unsafe {
            (self.gpu.driver.ctx_synchronize)();
            (self.gpu.driver.mem_pool_destroy)(self.pool);
        }
        [self.home, self.user].into_iter().for_each(|stream| self.gpu.return_stream(stream));
    }
}

fn n_mem_free() -> usize {
    MEM_FREE_CALLS.load(Ordering::Relaxed)
}

fn mem_free_async_streams() -> Vec<usize> {
    MEM_FREE_ASYNC_STREAMS.lock().unwrap().clone()
}

#[test]
fn frees_a_block_after_its_last_use_and_not_before() {
    let Some(fixture) = Fixture::new("frees_a_block_after_its_last_use_and_not_before") else { return };
    NEVER_READY.store(true, Ordering::Relaxed);
    fixture.add(1000);
    fixture.add(500);
    fixture.frees().try_free_passed();
    assert_eq!((fixture.frees().pending_bytes(), n_mem_free()), (1500, 0));
    NEVER_READY.store(false, Ordering::Relaxed);
    fixture.free_passed_until(|| fixture.frees().pending_bytes() == 0);
    assert_eq!((n_mem_free(), mem_free_async_streams()), (2, vec![]));
}

#[test]
fn block_is_freed_in_stream_order_or_later_if_mem_free_fails() {
    let Some(fixture) = Fixture::new("block_is_freed_in_stream_order_or_later_if_mem_free_fails") else {
        return;
    };
    MEM_FREE_FAILS.store(true, Ordering::Relaxed);
    fixture.add(1000);
    fixture.free_passed_until(|| fixture.frees().pending_bytes() == 0);
    assert_eq!((n_mem_free(), mem_free_async_streams()), (0, vec![fixture.frees().stream() as usize]));

    MEM_FREE_ASYNC_FAILS.store(true, Ordering::Relaxed);
    fixture.add(1000);
    (0..100).for_each(|_| fixture.frees().try_free_passed());
    let base = fixture.used_block();
    // SAFETY: the stream is alive.
    assert_eq!(unsafe { (fixture.gpu.driver.stream_synchronize)(fixture.user) }, SUCCESS);
    fixture.frees().free(base, 500);
    assert_eq!((fixture.frees().pending_bytes(), n_mem_free(), mem_free_async_streams().len()), (1500, 0, 1));
    MEM_FREE_FAILS.store(false, Ordering::Relaxed);
    fixture.free_passed_until(|| fixture.frees().pending_bytes() == 0);
    assert_eq!((n_mem_free(), mem_free_async_streams().len()), (2, 1));
}

#[test]
fn allocating_stream_waits_if_pending_frees_exceed_the_limit() {
    let Some(fixture) = Fixture::new("allocating_stream_waits_if_pending_frees_exceed_the_limit") else {
        return;
    };
    NEVER_READY.store(true, Ordering::Relaxed);
    fixture.add(MAX_PENDING_BYTES);
    fixture.frees().make_room(fixture.home);
    assert_eq!((fixture.frees().pending_bytes(), mem_free_async_streams()), (MAX_PENDING_BYTES, vec![]));
    fixture.add(1);
    fixture.frees().make_room(fixture.home);
    assert_eq!((fixture.frees().pending_bytes(), n_mem_free()), (0, 0));
    assert_eq!(mem_free_async_streams(), [fixture.home as usize; 2]);
}

#[test]
fn drop_frees_pending_blocks_without_waiting() {
    let Some(mut fixture) = Fixture::new("drop_frees_pending_blocks_without_waiting") else { return };
    NEVER_READY.store(true, Ordering::Relaxed);
    fixture.add(1000);
    let stream = fixture.frees().stream() as usize;
    fixture.frees = None;
    assert_eq!((n_mem_free(), mem_free_async_streams()), (0, vec![stream]));
}

#[test]
fn settle_waits_until_all_blocks_are_freed() {
    let Some(fixture) = Fixture::new("settle_waits_until_all_blocks_are_freed") else { return };
    fixture.add(1000);
    fixture.add(500);
    fixture.frees().settle();
    assert_eq!((fixture.frees().pending_bytes(), n_mem_free()), (0, 2));
}

#[test]
fn freeing_a_block_does_not_invalidate_a_graph_capture() {
    let Some(fixture) = Fixture::new("freeing_a_block_does_not_invalidate_a_graph_capture") else { return };
    // SAFETY: the types are the signatures in the driver's header.
    let (begin, end) = unsafe {
        type Begin = unsafe extern "C" fn(RawStream, c_int) -> c_int;
        type End = unsafe extern "C" fn(RawStream, *mut *mut std::ffi::c_void) -> c_int;
        let begin: Begin = *sys::culib().get(b"cuStreamBeginCapture_v2").unwrap();
        let end: End = *sys::culib().get(b"cuStreamEndCapture").unwrap();
        (begin, end)
    };
    fixture.add(1000);
    let capturing = fixture.gpu.take_stream().unwrap();
    const THREAD_LOCAL: c_int = 1;
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer points to a local variable.
    unsafe {
        assert_eq!(begin(capturing, THREAD_LOCAL), SUCCESS);
        fixture.free_passed_until(|| fixture.frees().pending_bytes() == 0);
        assert_eq!(end(capturing, &mut graph), SUCCESS, "the capture was broken");
    }
    assert_eq!(n_mem_free(), 1);
    fixture.gpu.return_stream(capturing);
}
