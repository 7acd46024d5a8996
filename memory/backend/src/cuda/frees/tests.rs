//! Over whatever driver there is, some functions of which are watched, and refuse when they are told to.

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
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Queries say that nothing has passed.
static LATE: AtomicBool = AtomicBool::new(false);
static REFUSES_AT_ONCE: AtomicBool = AtomicBool::new(false);
static REFUSES_IN_ORDER: AtomicBool = AtomicBool::new(false);
/// Blocks that were freed, and in the order of which streams.
static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
static IN_ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());

const REFUSED: c_int = 4242;

unsafe extern "C" fn query(event: RawEvent) -> c_int {
    // SAFETY: what the caller was asked for.
    if LATE.load(Ordering::Relaxed) { NOT_READY } else { unsafe { (REAL.get().unwrap().event_query)(event) } }
}

unsafe extern "C" fn free_at_once(base: DevicePtr) -> c_int {
    if REFUSES_AT_ONCE.load(Ordering::Relaxed) {
        return REFUSED;
    }
    AT_ONCE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { (REAL.get().unwrap().mem_free)(base) }
}

unsafe extern "C" fn free_in_order(base: DevicePtr, stream: RawStream) -> c_int {
    if REFUSES_IN_ORDER.load(Ordering::Relaxed) {
        return REFUSED;
    }
    IN_ORDER.lock().unwrap().push(stream as usize);
    // SAFETY: as above.
    unsafe { (REAL.get().unwrap().mem_free_async)(base, stream) }
}

/// A pool, a stream that allocates from it, and another one that uses the blocks.
struct Rig {
    /// Gone once a test has dropped it.
    frees: Option<Frees>,
    pool: MemPool,
    home: RawStream,
    user: RawStream,
    _entered: Entered,
    gpu: Arc<Gpu>,
    _turn: MutexGuard<'static, ()>,
}

impl Rig {
    fn new(test: &str) -> Option<Self> {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = match crate::cuda::probe::start() {
            Ok((driver, _)) => *REAL.get_or_init(|| driver),
            Err(missing) => {
                let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}");
                return None;
            }
        };
        [&LATE, &REFUSES_AT_ONCE, &REFUSES_IN_ORDER]
            .iter()
            .for_each(|set| set.store(false, Ordering::Relaxed));
        AT_ONCE.store(0, Ordering::Relaxed);
        IN_ORDER.lock().unwrap().clear();
        let watched =
            Driver { event_query: query, mem_free: free_at_once, mem_free_async: free_in_order, ..driver };
        let gpu = Gpu::open(watched, Device::cuda(0), 0, (0, 0)).unwrap();
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
        // SAFETY: pointers to locals; the context is current.
        assert_eq!(unsafe { (driver.mem_pool_create)(&mut pool, &props) }, SUCCESS);
        let frees = Some(Frees::new(gpu.clone()).unwrap());
        Some(Self { frees, pool, home, user, _entered: entered, gpu, _turn: turn })
    }

    fn frees(&self) -> &Frees {
        self.frees.as_ref().unwrap()
    }

    fn order(&self, from: RawStream, to: RawStream) {
        let event = self.gpu.record(from).unwrap();
        self.gpu.wait(to, event).unwrap();
        self.gpu.give_event(event);
    }

    /// A block that another stream than its own writes to.
    fn used_block(&self) -> DevicePtr {
        let mut base = 0;
        // SAFETY: a pointer to a local, then the block that it tells.
        unsafe {
            let driver = &self.gpu.driver;
            assert_eq!((driver.mem_alloc_from_pool_async)(&mut base, 4096, self.pool, self.home), SUCCESS);
            self.order(self.home, self.user);
            assert_eq!((driver.memset_d8_async)(base, 1, 4096, self.user), SUCCESS);
        }
        base
    }

    /// One that goes back when it is no longer used, and counts as so many bytes.
    fn add(&self, bytes: usize) {
        let base = self.used_block();
        self.order(self.user, self.frees().stream());
        self.frees().add(base, bytes).unwrap();
    }

    /// Until `done`: a query may be behind.
    fn look_until(&self, done: impl Fn() -> bool) {
        let looks = (0..100_000).take_while(|_| !done()).map(|_| self.frees().look()).count();
        assert!(done(), "not after {looks} looks");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.frees = None;
        // SAFETY: made by `new`; all blocks have been freed.
        unsafe { (self.gpu.driver.mem_pool_destroy)(self.pool) };
        [self.home, self.user].into_iter().for_each(|stream| self.gpu.give_stream(stream));
    }
}

fn at_once() -> usize {
    AT_ONCE.load(Ordering::Relaxed)
}

fn in_order() -> Vec<usize> {
    IN_ORDER.lock().unwrap().clone()
}

#[test]
fn a_block_goes_back_at_once_when_its_last_use_has_passed_and_not_before() {
    let Some(rig) = Rig::new("a_block_goes_back_at_once") else { return };
    LATE.store(true, Ordering::Relaxed);
    rig.add(1000);
    rig.add(500);
    rig.frees().look();
    assert_eq!((rig.frees().pending_bytes(), at_once()), (1500, 0));
    LATE.store(false, Ordering::Relaxed);
    rig.look_until(|| rig.frees().pending_bytes() == 0);
    assert_eq!((at_once(), in_order()), (2, vec![]));
}

#[test]
fn what_the_driver_does_not_free_at_once_goes_back_in_order_or_later() {
    let Some(rig) = Rig::new("what_the_driver_does_not_free_at_once") else { return };
    REFUSES_AT_ONCE.store(true, Ordering::Relaxed);
    rig.add(1000);
    rig.look_until(|| rig.frees().pending_bytes() == 0);
    assert_eq!((at_once(), in_order()), (0, vec![rig.frees().stream() as usize]));

    REFUSES_IN_ORDER.store(true, Ordering::Relaxed);
    rig.add(1000);
    (0..100).for_each(|_| rig.frees().look());
    let base = rig.used_block();
    // SAFETY: a live stream.
    assert_eq!(unsafe { (rig.gpu.driver.stream_synchronize)(rig.user) }, SUCCESS);
    rig.frees().free(base, 500);
    assert_eq!((rig.frees().pending_bytes(), at_once(), in_order().len()), (1500, 0, 1));
    REFUSES_AT_ONCE.store(false, Ordering::Relaxed);
    rig.look_until(|| rig.frees().pending_bytes() == 0);
    assert_eq!((at_once(), in_order().len()), (2, 1));
}

#[test]
fn a_stream_that_allocates_while_too_much_is_pending_waits_for_it_and_has_it() {
    let Some(rig) = Rig::new("a_stream_that_allocates") else { return };
    LATE.store(true, Ordering::Relaxed);
    rig.add(MOST_PENDING_BYTES);
    rig.frees().make_room(rig.home);
    assert_eq!((rig.frees().pending_bytes(), in_order()), (MOST_PENDING_BYTES, vec![]));
    rig.add(1);
    rig.frees().make_room(rig.home);
    assert_eq!((rig.frees().pending_bytes(), at_once()), (0, 0));
    assert_eq!(in_order(), [rig.home as usize; 2]);
}

#[test]
fn what_is_pending_at_the_end_goes_back_without_a_wait() {
    let Some(mut rig) = Rig::new("what_is_pending_at_the_end") else { return };
    LATE.store(true, Ordering::Relaxed);
    rig.add(1000);
    let stream = rig.frees().stream() as usize;
    rig.frees = None;
    assert_eq!((at_once(), in_order()), (0, vec![stream]));
}

#[test]
fn settling_waits_until_all_has_gone_back() {
    let Some(rig) = Rig::new("settling_waits") else { return };
    rig.add(1000);
    rig.add(500);
    rig.frees().settle();
    assert_eq!((rig.frees().pending_bytes(), at_once()), (0, 2));
}

#[test]
fn looking_breaks_no_capture() {
    let Some(rig) = Rig::new("looking_breaks_no_capture") else { return };
    // SAFETY: the signatures that the driver's header has for these names.
    let (begin, end) = unsafe {
        type Begin = unsafe extern "C" fn(RawStream, c_int) -> c_int;
        type End = unsafe extern "C" fn(RawStream, *mut *mut std::ffi::c_void) -> c_int;
        let begin: Begin = *sys::culib().get(b"cuStreamBeginCapture_v2").unwrap();
        let end: End = *sys::culib().get(b"cuStreamEndCapture").unwrap();
        (begin, end)
    };
    rig.add(1000);
    let captured = rig.gpu.take_stream().unwrap();
    const THREAD_LOCAL: c_int = 1;
    let mut graph = std::ptr::null_mut();
    // SAFETY: a live stream, and a local.
    unsafe {
        assert_eq!(begin(captured, THREAD_LOCAL), SUCCESS);
        rig.look_until(|| rig.frees().pending_bytes() == 0);
        assert_eq!(end(captured, &mut graph), SUCCESS, "the capture was broken");
    }
    assert_eq!(at_once(), 1);
    rig.gpu.give_stream(captured);
}
