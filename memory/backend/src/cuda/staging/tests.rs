//! Over whatever driver there is: a real one, or the simulated one, in which every copy runs as late as it may.

use std::ffi::{c_int, c_uint, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::Device;
use crossdock_test_support::Random;

use super::*;
use crate::cuda::context::{Entered, Gpu};
use crate::cuda::driver::{
    ALLOCATION_PINNED, LOCATION_DEVICE, MemLocation, MemPool, MemPoolProps, OUT_OF_MEMORY, RawEvent, SUCCESS,
};

/// Device 0 with one block of memory, a stream, and the staging under test.
struct Rig {
    staging: Staging,
    stream: RawStream,
    block: DevicePtr,
    pool: MemPool,
    _entered: Entered,
    gpu: Arc<Gpu>,
}

fn gpu(test: &str) -> Option<Arc<Gpu>> {
    match crate::cuda::probe::start() {
        Ok((driver, _)) => Some(Gpu::open(driver, Device::cuda(0), 0, (0, 0)).unwrap()),
        Err(missing) => {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}");
            None
        }
    }
}

impl Rig {
    fn new(test: &str, bytes: usize) -> Option<Self> {
        Self::over(test, bytes, |driver| driver)
    }

    /// With a driver of which `change` has replaced some of the functions.
    fn over(test: &str, bytes: usize, change: impl FnOnce(Driver) -> Driver) -> Option<Self> {
        let gpu = gpu(test)?;
        let entered = gpu.enter().unwrap();
        let stream = gpu.take_stream().unwrap();
        let driver = gpu.driver;
        let props = MemPoolProps {
            alloc_type: ALLOCATION_PINNED,
            handle_types: 0,
            location: MemLocation { r#type: LOCATION_DEVICE, id: gpu.ordinal },
            win32_security_attributes: std::ptr::null_mut(),
            max_size: 0,
            reserved: [0; 56],
        };
        let (mut pool, mut block) = (std::ptr::null_mut(), 0);
        // SAFETY: pointers to locals; the context is current.
        unsafe {
            assert_eq!((driver.mem_pool_create)(&mut pool, &props), SUCCESS);
            assert_eq!((driver.mem_alloc_from_pool_async)(&mut block, bytes, pool, stream), SUCCESS);
        }
        let staging = Staging::new(change(driver), gpu.context());
        Some(Self { staging, stream, block, pool, _entered: entered, gpu })
    }

    fn put(&self, pieces: &[(DevicePtr, &[u8])]) -> Result<()> {
        let pieces: Vec<_> = pieces.iter().map(|(to, from)| (*to, from.as_ptr(), from.len())).collect();
        // SAFETY: slices, and the test's own block.
        unsafe { self.staging.host_to_device(self.stream, &pieces) }
    }

    fn get(&self, pieces: &mut [(DevicePtr, &mut [u8])]) -> Result<()> {
        let pieces: Vec<_> = pieces.iter_mut().map(|(from, to)| (to.as_mut_ptr(), *from, to.len())).collect();
        // SAFETY: as above.
        unsafe { self.staging.device_to_host(self.stream, &pieces) }
    }

    fn read(&self, from: DevicePtr, bytes: usize) -> Vec<u8> {
        let mut out = vec![0xEE; bytes];
        self.get(&mut [(from, &mut out)]).unwrap();
        out
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let driver = self.gpu.driver;
        // SAFETY: made by `new`, and nothing uses them any more.
        unsafe {
            (driver.mem_free_async)(self.block, self.stream);
            (driver.stream_synchronize)(self.stream);
            (driver.mem_pool_destroy)(self.pool);
        }
        self.gpu.give_stream(self.stream);
    }
}

/// Bytes that differ from place to place.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(bytes)
}

fn assert_all_back(ring: &Ring) {
    let (made, idle) = ring.count();
    assert_eq!(made, idle, "chunks were lost");
}

/// More than all chunks together hold.
const LARGE: usize = (MOST_CHUNKS + 3) * CHUNK_BYTES + 12_345;

#[test]
fn bytes_of_every_size_go_and_come_back() {
    let Some(rig) = Rig::new("bytes_of_every_size_go_and_come_back", LARGE + 64) else { return };
    let sizes =
        [0, 1, 100, SMALL_CHUNK_BYTES, SMALL_CHUNK_BYTES + 1, ALONE_BYTES, ALONE_BYTES + 1, 5_000_003];
    for (i, bytes) in sizes.into_iter().chain([LARGE]).enumerate() {
        let source = noise(bytes, i as u64 + 1);
        let at = rig.block + i as u64;
        rig.put(&[(at, &source)]).unwrap();
        assert!(rig.read(at, bytes) == source, "{bytes} bytes");
    }
    assert_all_back(&rig.staging.large);
    assert_all_back(&rig.staging.small);
}

#[test]
fn a_source_may_change_once_the_call_has_returned() {
    let Some(rig) = Rig::new("a_source_may_change_once_the_call_has_returned", LARGE) else { return };
    for bytes in [1000, 300_000, LARGE] {
        let expected = noise(bytes, 7);
        let mut source = expected.clone();
        rig.put(&[(rig.block, &source)]).unwrap();
        source.fill(0);
        assert!(rig.read(rig.block, bytes) == expected, "{bytes} bytes");
    }
}

#[test]
fn many_pieces_of_all_sizes_land_where_they_belong() {
    let Some(rig) = Rig::new("many_pieces_of_all_sizes_land_where_they_belong", 64 << 20) else { return };
    for (count, step) in [(40usize, 37), (300, 997), (100, 49_999), (30, 1_000_003)] {
        let sources: Vec<_> = (0..count).map(|i| noise(i * step % (step * 3 / 2), i as u64)).collect();
        // Some adjoin, some do not.
        let mut at = rig.block;
        let mut places = Vec::new();
        for (i, source) in sources.iter().enumerate() {
            places.push(at);
            at += source.len() as u64 + if i % 3 == 0 { 0 } else { 24 };
        }
        let pieces: Vec<_> = places.iter().copied().zip(sources.iter().map(Vec::as_slice)).collect();
        rig.put(&pieces).unwrap();
        let mut back: Vec<_> = sources.iter().map(|source| vec![0; source.len()]).collect();
        let mut pieces: Vec<_> = places.iter().copied().zip(back.iter_mut().map(Vec::as_mut_slice)).collect();
        rig.get(&mut pieces).unwrap();
        assert!(back == sources, "{count} pieces");
    }
}

/// Blocks of a pool adjoin, and the driver refuses a copy across their ends.
#[test]
fn blocks_that_adjoin_are_not_one() {
    let Some(rig) = Rig::new("blocks_that_adjoin_are_not_one", 512) else { return };
    const BYTES: usize = 32 << 10;
    let driver = rig.gpu.driver;
    let mut blocks = vec![0; 40];
    for block in &mut blocks {
        // SAFETY: a pointer to an element; the context is current, and the pool the test's own.
        let code = unsafe { (driver.mem_alloc_from_pool_async)(block, BYTES, rig.pool, rig.stream) };
        assert_eq!(code, SUCCESS);
    }
    blocks.sort_unstable();
    let sources: Vec<_> = (0..blocks.len()).map(|i| noise(BYTES, i as u64)).collect();
    let pieces: Vec<_> = blocks.iter().copied().zip(sources.iter().map(Vec::as_slice)).collect();
    rig.put(&pieces).unwrap();
    let mut back = vec![vec![0; BYTES]; blocks.len()];
    let mut pieces: Vec<_> = blocks.iter().copied().zip(back.iter_mut().map(Vec::as_mut_slice)).collect();
    rig.get(&mut pieces).unwrap();
    assert!(back == sources);
    for block in blocks {
        // SAFETY: of that pool, used no more.
        assert_eq!(unsafe { (driver.mem_free_async)(block, rig.stream) }, SUCCESS);
    }
}

#[test]
fn copies_to_the_host_come_after_what_the_stream_has() {
    let Some(rig) = Rig::new("copies_to_the_host_come_after_what_the_stream_has", 8 << 20) else { return };
    for (value, bytes) in [(3, 500), (4, 8 << 20), (5, 200_000)] {
        // SAFETY: the test's own block, of at least as many bytes.
        let code = unsafe { (rig.gpu.driver.memset_d8_async)(rig.block, value, bytes, rig.stream) };
        assert_eq!(code, SUCCESS);
        assert!(rig.read(rig.block, bytes).iter().all(|byte| *byte == value), "{bytes} bytes of {value}");
    }
}

#[test]
fn many_threads_copy_at_once() {
    let each = 9 << 20;
    let Some(rig) = Rig::new("many_threads_copy_at_once", 8 * each) else { return };
    let (staging, gpu, block) = (&rig.staging, &rig.gpu, rig.block);
    // SAFETY: the pool's memory is used on other streams from here on.
    unsafe { (gpu.driver.stream_synchronize)(rig.stream) };
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for i in 0..8u64 {
            let done = &done;
            scope.spawn(move || {
                let _entered = gpu.enter().unwrap();
                let stream = gpu.take_stream().unwrap();
                let at = block + i * each as u64;
                for (round, bytes) in [each, 2000, 400_000, each - 1].into_iter().enumerate() {
                    let source = noise(bytes, i * 10 + round as u64);
                    let mut back = vec![0; bytes];
                    // SAFETY: a part of the block that is this thread's own, and local vectors.
                    unsafe {
                        staging.host_to_device(stream, &[(at, source.as_ptr(), bytes)]).unwrap();
                        staging.device_to_host(stream, &[(back.as_mut_ptr(), at, bytes)]).unwrap();
                    }
                    assert!(back == source, "thread {i}, {bytes} bytes");
                }
                gpu.give_stream(stream);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), 8);
    assert_all_back(&rig.staging.large);
    assert_all_back(&rig.staging.small);
}

/// The driver under those that fail.
static REAL: OnceLock<Driver> = OnceLock::new();
/// An address of no device.
const NOWHERE: DevicePtr = 0x10;
const INVALID_VALUE: c_int = 1;

unsafe extern "C" fn refuses_nowhere(
    to: DevicePtr,
    from: DevicePtr,
    bytes: usize,
    stream: RawStream,
) -> c_int {
    let nowhere = NOWHERE..NOWHERE + (1 << 30);
    if nowhere.contains(&to) || nowhere.contains(&from) {
        return INVALID_VALUE;
    }
    // SAFETY: passed on as it came.
    unsafe { (REAL.get().unwrap().memcpy_async)(to, from, bytes, stream) }
}

unsafe extern "C" fn pins_nothing(_: *mut *mut c_void, _: usize, _: c_uint) -> c_int {
    OUT_OF_MEMORY
}

unsafe extern "C" fn records_nothing(_: RawEvent, _: RawStream) -> c_int {
    INVALID_VALUE
}

/// Of queries, and of waits.
unsafe extern "C" fn says_nothing_of_an_event(_: RawEvent) -> c_int {
    INVALID_VALUE
}

#[test]
fn a_copy_that_fails_says_so_and_the_next_one_works() {
    let refusing = |driver: Driver| Driver { memcpy_async: refuses_nowhere, ..*REAL.get_or_init(|| driver) };
    let Some(rig) = Rig::over("a_copy_that_fails_says_so_and_the_next_one_works", LARGE, refusing) else {
        return;
    };
    for bytes in [100, 300_000, 3 << 20, 40 << 20] {
        let good = noise(bytes, 3);
        let mut bad = noise(bytes, 4);
        let error = rig.put(&[(rig.block, &good), (NOWHERE, &bad)]).unwrap_err();
        assert_eq!(error.code(), crossdock_plugin_api::Code::DEVICE);
        assert!(error.message().contains("cuMemcpyAsync"), "{error}");
        let mut fine = vec![0; bytes];
        let error = rig.get(&mut [(rig.block, &mut fine), (NOWHERE, &mut bad)]).unwrap_err();
        assert!(error.message().contains("cuMemcpyAsync"), "{error}");
        assert_all_back(&rig.staging.large);
        assert_all_back(&rig.staging.small);
        rig.put(&[(rig.block, &good)]).unwrap();
        assert!(rig.read(rig.block, bytes) == good, "{bytes} bytes after a failure");
    }
}

#[test]
fn without_pinned_memory_a_copy_is_out_of_memory() {
    let refusing = |driver: Driver| Driver { mem_host_alloc: pins_nothing, ..driver };
    let Some(rig) = Rig::over("without_pinned_memory_a_copy_is_out_of_memory", LARGE, refusing) else {
        return;
    };
    for bytes in [100, 300_000, 9 << 20] {
        let mut host = noise(bytes, 1);
        let there = rig.put(&[(rig.block, &host)]).unwrap_err();
        let back = rig.get(&mut [(rig.block, &mut host)]).unwrap_err();
        for error in [there, back] {
            assert_eq!(error.code(), crossdock_plugin_api::Code::OUT_OF_MEMORY);
            assert!(error.message().contains("cuMemHostAlloc"), "{error}");
        }
    }
}

#[test]
fn a_chunk_whose_event_was_not_recorded_is_not_lost() {
    let refusing = |driver: Driver| Driver { event_record: records_nothing, ..driver };
    let Some(rig) = Rig::over("a_chunk_whose_event_was_not_recorded_is_not_lost", LARGE, refusing) else {
        return;
    };
    for bytes in [100, 300_000, 9 << 20] {
        let mut host = noise(bytes, 1);
        assert!(rig.put(&[(rig.block, &host)]).unwrap_err().message().contains("cuEventRecord"));
        assert!(rig.get(&mut [(rig.block, &mut host)]).unwrap_err().message().contains("cuEventRecord"));
        assert_all_back(&rig.staging.large);
        assert_all_back(&rig.staging.small);
    }
}

#[test]
fn what_the_driver_does_not_say_is_done_is_waited_for() {
    const TEST: &str = "what_the_driver_does_not_say_is_done_is_waited_for";
    let failing = |driver: Driver| Driver { event_query: says_nothing_of_an_event, ..driver };
    let Some(rig) = Rig::over(TEST, LARGE, failing) else { return };
    for bytes in [100, 300_000, LARGE / 2] {
        let sources = [noise(bytes, 1), noise(bytes, 2)];
        let places = [rig.block, rig.block + bytes as u64];
        for (at, source) in places.iter().zip(&sources) {
            rig.put(&[(*at, source)]).unwrap();
        }
        for (at, source) in places.iter().zip(&sources) {
            assert!(rig.read(*at, bytes) == *source, "{bytes} bytes");
        }
    }
    assert_all_back(&rig.staging.large);
    assert_all_back(&rig.staging.small);
}

#[test]
fn where_it_cannot_be_waited_for_that_is_the_error() {
    let failing = |driver: Driver| Driver {
        event_query: says_nothing_of_an_event,
        event_synchronize: says_nothing_of_an_event,
        ..driver
    };
    let Some(rig) = Rig::over("where_it_cannot_be_waited_for_that_is_the_error", LARGE, failing) else {
        return;
    };
    for bytes in [100, 300_000, LARGE] {
        let mut host = noise(bytes, 1);
        let (before, error) = (host.clone(), rig.get(&mut [(rig.block, &mut host)]).unwrap_err());
        assert!(error.message().contains("cuEventSynchronize"), "{error}");
        assert!(host == before, "{bytes} bytes were written that may not have arrived");
        assert_all_back(&rig.staging.large);
        assert_all_back(&rig.staging.small);
    }
}

#[test]
fn threads_and_pinned_memory_are_not_there_before_they_are_needed() {
    let Some(rig) = Rig::new("threads_and_pinned_memory_are_not_there_before_they_are_needed", 1000) else {
        return;
    };
    assert_eq!((rig.staging.small.count(), rig.staging.large.count()), ((0, 0), (0, 0)));
    rig.put(&[(rig.block, &[1; 1000])]).unwrap();
    assert_eq!(rig.staging.large.count(), (0, 0));
    assert!(!rig.staging.workers.are_started());
}

#[test]
fn an_address_that_is_null_is_never_touched_for_no_bytes() {
    let Some(rig) = Rig::new("an_address_that_is_null_is_never_touched_for_no_bytes", 64) else { return };
    let nothing: *mut c_void = std::ptr::null_mut();
    // SAFETY: no bytes.
    unsafe {
        rig.staging.host_to_device(rig.stream, &[(0, nothing.cast(), 0)]).unwrap();
        rig.staging.device_to_host(rig.stream, &[(nothing.cast(), 0, 0)]).unwrap();
        rig.staging.device_to_host(rig.stream, &[]).unwrap();
    }
}
