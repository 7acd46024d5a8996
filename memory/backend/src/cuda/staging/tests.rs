//! Tests with the installed driver, real or simulated. The simulated driver runs every copy as late
//! as possible.

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
struct Fixture {
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

impl Fixture {
    fn new(test: &str, bytes: usize) -> Option<Self> {
        Self::with_driver(test, bytes, |driver| driver)
    }

    /// Creates a fixture with a driver in which `change` has replaced some functions.
    fn with_driver(test: &str, bytes: usize, change: impl FnOnce(Driver) -> Driver) -> Option<Self> {
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
        // SAFETY: the pointers point to local variables; the context is current.
        unsafe {
            assert_eq!((driver.mem_pool_create)(&mut pool, &props), SUCCESS);
            assert_eq!((driver.mem_alloc_from_pool_async)(&mut block, bytes, pool, stream), SUCCESS);
        }
        let staging = Staging::new(change(driver), gpu.context());
        Some(Self { staging, stream, block, pool, _entered: entered, gpu })
    }

    fn put(&self, pieces: &[(DevicePtr, &[u8])]) -> Result<()> {
        let pieces: Vec<_> = pieces.iter().map(|(to, from)| (*to, from.as_ptr(), from.len())).collect();
        // SAFETY: the sources are slices, and the targets are in the test's block.
        unsafe { self.staging.host_to_device(self.stream, &pieces) }
    }

    fn get(&self, pieces: &mut [(DevicePtr, &mut [u8])]) -> Result<()> {
        let pieces: Vec<_> = pieces.iter_mut().map(|(from, to)| (to.as_mut_ptr(), *from, to.len())).collect();
        // SAFETY: the targets are slices, and the sources are in the test's block.
        unsafe { self.staging.device_to_host(self.stream, &pieces) }
    }

    fn read(&self, from: DevicePtr, bytes: usize) -> Vec<u8> {
        let mut out = vec![0xEE; bytes];
        self.get(&mut [(from, &mut out)]).unwrap();
        out
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let driver = self.gpu.driver;
        // SAFETY: the constructor created the block, the stream and the pool, and nothing uses them
        // any more.
        unsafe {
            (driver.mem_free_async)(self.block, self.stream);
            (driver.stream_synchronize)(self.stream);
            (driver.mem_pool_destroy)(self.pool);
        }
        self.gpu.return_stream(self.stream);
    }
}

/// Pseudo-random bytes.
fn random_bytes(bytes: usize, seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(bytes)
}

fn assert_all_chunks_returned(ring: &Ring) {
    let (n_allocated, n_idle) = ring.count();
    assert_eq!(n_allocated, n_idle, "chunks were lost");
}

/// A size in bytes that exceeds the size of all chunks together.
const LARGE: usize = (MAX_CHUNKS + 3) * CHUNK_BYTES + 12_345;

#[test]
fn copies_of_every_size_survive_a_round_trip() {
    let Some(fixture) = Fixture::new("copies_of_every_size_survive_a_round_trip", LARGE + 64) else { return };
    let sizes = [
        0,
        1,
        100,
        SMALL_CHUNK_BYTES,
        SMALL_CHUNK_BYTES + 1,
        MAX_SINGLE_THREAD_BYTES,
        MAX_SINGLE_THREAD_BYTES + 1,
        5_000_003,
    ];
    for (i, bytes) in sizes.into_iter().chain([LARGE]).enumerate() {
        let source = random_bytes(bytes, i as u64 + 1);
        let address = fixture.block + i as u64;
        fixture.put(&[(address, &source)]).unwrap();
        assert!(fixture.read(address, bytes) == source, "{bytes} bytes");
    }
    assert_all_chunks_returned(&fixture.staging.large);
    assert_all_chunks_returned(&fixture.staging.small);
}

#[test]
fn copied_source_may_change_after_the_call() {
    let Some(fixture) = Fixture::new("copied_source_may_change_after_the_call", LARGE) else { return };
    for bytes in [1000, 300_000, LARGE] {
        let expected = random_bytes(bytes, 7);
        let mut source = expected.clone();
        fixture.put(&[(fixture.block, &source)]).unwrap();
        source.fill(0);
        assert!(fixture.read(fixture.block, bytes) == expected, "{bytes} bytes");
    }
}

#[test]
fn copies_many_pieces_of_all_sizes() {
    let Some(fixture) = Fixture::new("copies_many_pieces_of_all_sizes", 64 << 20) else { return };
    for (count, step) in [(40usize, 37), (300, 997), (100, 49_999), (30, 1_000_003)] {
        let sources: Vec<_> = (0..count).map(|i| random_bytes(i * step % (step * 3 / 2), i as u64)).collect();
        // Some pieces are adjacent on the device, some are not.
        let mut address = fixture.block;
        let mut addresses = Vec::new();
        for (i, source) in sources.iter().enumerate() {
            addresses.push(address);
            address += source.len() as u64 + if i % 3 == 0 { 0 } else { 24 };
        }
        let pieces: Vec<_> = addresses.iter().copied().zip(sources.iter().map(Vec::as_slice)).collect();
        fixture.put(&pieces).unwrap();
        let mut result: Vec<_> = sources.iter().map(|source| vec![0; source.len()]).collect();
        let mut pieces: Vec<_> =
            addresses.iter().copied().zip(result.iter_mut().map(Vec::as_mut_slice)).collect();
        fixture.get(&mut pieces).unwrap();
        assert!(result == sources, "{count} pieces");
    }
}

/// Blocks of a pool can be adjacent, but the driver rejects a copy that crosses the end of a block.
#[test]
fn does_not_copy_across_adjacent_blocks() {
    let Some(fixture) = Fixture::new("does_not_copy_across_adjacent_blocks", 512) else { return };
    const BYTES: usize = 32 << 10;
    let driver = fixture.gpu.driver;
    let mut blocks = vec![0; 40];
    for block in &mut blocks {
        // SAFETY: the pointer points to an element of `blocks`; the context is current, and the
        // test owns the pool.
        let code = unsafe { (driver.mem_alloc_from_pool_async)(block, BYTES, fixture.pool, fixture.stream) };
        assert_eq!(code, SUCCESS);
    }
    blocks.sort_unstable();
    let sources: Vec<_> = (0..blocks.len()).map(|i| random_bytes(BYTES, i as u64)).collect();
    let pieces: Vec<_> = blocks.iter().copied().zip(sources.iter().map(Vec::as_slice)).collect();
    fixture.put(&pieces).unwrap();
    let mut result = vec![vec![0; BYTES]; blocks.len()];
    let mut pieces: Vec<_> = blocks.iter().copied().zip(result.iter_mut().map(Vec::as_mut_slice)).collect();
    fixture.get(&mut pieces).unwrap();
    assert!(result == sources);
    for block in blocks {
        // SAFETY: the block was allocated from the pool and is not used any more.
        assert_eq!(unsafe { (driver.mem_free_async)(block, fixture.stream) }, SUCCESS);
    }
}

#[test]
fn copies_to_the_host_run_in_stream_order() {
    let Some(fixture) = Fixture::new("copies_to_the_host_run_in_stream_order", 8 << 20) else { return };
    for (value, bytes) in [(3, 500), (4, 8 << 20), (5, 200_000)] {
        // SAFETY: the test's block has at least `bytes` bytes.
        let code =
            unsafe { (fixture.gpu.driver.memset_d8_async)(fixture.block, value, bytes, fixture.stream) };
        assert_eq!(code, SUCCESS);
        assert!(
            fixture.read(fixture.block, bytes).iter().all(|byte| *byte == value),
            "{bytes} bytes of {value}"
        );
    }
}

#[test]
fn copies_on_many_threads_at_once() {
    let each = 9 << 20;
    let Some(fixture) = Fixture::new("copies_on_many_threads_at_once", 8 * each) else { return };
    let (staging, gpu, block) = (&fixture.staging, &fixture.gpu, fixture.block);
    // SAFETY: the stream is alive. The block is used on other streams from here on.
    unsafe { (gpu.driver.stream_synchronize)(fixture.stream) };
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for i in 0..8u64 {
            let done = &done;
            scope.spawn(move || {
                let _entered = gpu.enter().unwrap();
                let stream = gpu.take_stream().unwrap();
                let address = block + i * each as u64;
                for (round, bytes) in [each, 2000, 400_000, each - 1].into_iter().enumerate() {
                    let source = random_bytes(bytes, i * 10 + round as u64);
                    let mut result = vec![0; bytes];
                    // SAFETY: this part of the block is used by this thread alone, and the vectors
                    // are local.
                    unsafe {
                        staging.host_to_device(stream, &[(address, source.as_ptr(), bytes)]).unwrap();
                        staging.device_to_host(stream, &[(result.as_mut_ptr(), address, bytes)]).unwrap();
                    }
                    assert!(result == source, "thread {i}, {bytes} bytes");
                }
                gpu.return_stream(stream);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), 8);
    assert_all_chunks_returned(&fixture.staging.large);
    assert_all_chunks_returned(&fixture.staging.small);
}

/// The real driver, which the replaced functions call.
static REAL: OnceLock<Driver> = OnceLock::new();
/// An address that belongs to no device.
const NOWHERE: DevicePtr = 0x10;
const INVALID_VALUE: c_int = 1;

unsafe extern "C" fn memcpy_failing_for_nowhere(
    to: DevicePtr,
    from: DevicePtr,
    bytes: usize,
    stream: RawStream,
) -> c_int {
    let nowhere = NOWHERE..NOWHERE + (1 << 30);
    if nowhere.contains(&to) || nowhere.contains(&from) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller satisfies the contract of the replaced function.
    unsafe { (REAL.get().unwrap().memcpy_async)(to, from, bytes, stream) }
}

unsafe extern "C" fn host_alloc_failing(_: *mut *mut c_void, _: usize, _: c_uint) -> c_int {
    OUT_OF_MEMORY
}

unsafe extern "C" fn event_record_failing(_: RawEvent, _: RawStream) -> c_int {
    INVALID_VALUE
}

/// Replaces `cuEventQuery` and `cuEventSynchronize`.
unsafe extern "C" fn event_query_failing(_: RawEvent) -> c_int {
    INVALID_VALUE
}

#[test]
fn reports_a_failed_copy_and_recovers() {
    let failing =
        |driver: Driver| Driver { memcpy_async: memcpy_failing_for_nowhere, ..*REAL.get_or_init(|| driver) };
    let Some(fixture) = Fixture::with_driver("reports_a_failed_copy_and_recovers", LARGE, failing) else {
        return;
    };
    for bytes in [100, 300_000, 3 << 20, 40 << 20] {
        let good = random_bytes(bytes, 3);
        let mut bad = random_bytes(bytes, 4);
        let error = fixture.put(&[(fixture.block, &good), (NOWHERE, &bad)]).unwrap_err();
        assert_eq!(error.code(), crossdock_plugin_api::Code::DEVICE);
        assert!(error.message().contains("cuMemcpyAsync"), "{error}");
        let mut fine = vec![0; bytes];
        let error = fixture.get(&mut [(fixture.block, &mut fine), (NOWHERE, &mut bad)]).unwrap_err();
        assert!(error.message().contains("cuMemcpyAsync"), "{error}");
        assert_all_chunks_returned(&fixture.staging.large);
        assert_all_chunks_returned(&fixture.staging.small);
        fixture.put(&[(fixture.block, &good)]).unwrap();
        assert!(fixture.read(fixture.block, bytes) == good, "{bytes} bytes after a failure");
    }
}

#[test]
fn reports_out_of_memory_without_pinned_memory() {
    let failing = |driver: Driver| Driver { mem_host_alloc: host_alloc_failing, ..driver };
    let Some(fixture) = Fixture::with_driver("reports_out_of_memory_without_pinned_memory", LARGE, failing)
    else {
        return;
    };
    for bytes in [100, 300_000, 9 << 20] {
        let mut host = random_bytes(bytes, 1);
        let put_error = fixture.put(&[(fixture.block, &host)]).unwrap_err();
        let get_error = fixture.get(&mut [(fixture.block, &mut host)]).unwrap_err();
        for error in [put_error, get_error] {
            assert_eq!(error.code(), crossdock_plugin_api::Code::OUT_OF_MEMORY);
            assert!(error.message().contains("cuMemHostAlloc"), "{error}");
        }
    }
}

#[test]
fn keeps_chunks_whose_event_was_not_recorded() {
    let failing = |driver: Driver| Driver { event_record: event_record_failing, ..driver };
    let Some(fixture) = Fixture::with_driver("keeps_chunks_whose_event_was_not_recorded", LARGE, failing)
    else {
        return;
    };
    for bytes in [100, 300_000, 9 << 20] {
        let mut host = random_bytes(bytes, 1);
        assert!(fixture.put(&[(fixture.block, &host)]).unwrap_err().message().contains("cuEventRecord"));
        assert!(
            fixture.get(&mut [(fixture.block, &mut host)]).unwrap_err().message().contains("cuEventRecord")
        );
        assert_all_chunks_returned(&fixture.staging.large);
        assert_all_chunks_returned(&fixture.staging.small);
    }
}

#[test]
fn waits_for_copies_whose_query_fails() {
    const TEST: &str = "waits_for_copies_whose_query_fails";
    let failing = |driver: Driver| Driver { event_query: event_query_failing, ..driver };
    let Some(fixture) = Fixture::with_driver(TEST, LARGE, failing) else { return };
    for bytes in [100, 300_000, LARGE / 2] {
        let sources = [random_bytes(bytes, 1), random_bytes(bytes, 2)];
        let addresses = [fixture.block, fixture.block + bytes as u64];
        for (address, source) in addresses.iter().zip(&sources) {
            fixture.put(&[(*address, source)]).unwrap();
        }
        for (address, source) in addresses.iter().zip(&sources) {
            assert!(fixture.read(*address, bytes) == *source, "{bytes} bytes");
        }
    }
    assert_all_chunks_returned(&fixture.staging.large);
    assert_all_chunks_returned(&fixture.staging.small);
}

#[test]
fn failed_event_wait_is_an_error_and_leaves_the_target_unchanged() {
    let failing = |driver: Driver| Driver {
        event_query: event_query_failing,
        event_synchronize: event_query_failing,
        ..driver
    };
    let Some(fixture) =
        Fixture::with_driver("failed_event_wait_is_an_error_and_leaves_the_target_unchanged", LARGE, failing)
    else {
        return;
    };
    for bytes in [100, 300_000, LARGE] {
        let mut host = random_bytes(bytes, 1);
        let (before, error) = (host.clone(), fixture.get(&mut [(fixture.block, &mut host)]).unwrap_err());
        assert!(error.message().contains("cuEventSynchronize"), "{error}");
        assert!(host == before, "{bytes} bytes were written that may not have arrived");
        assert_all_chunks_returned(&fixture.staging.large);
        assert_all_chunks_returned(&fixture.staging.small);
    }
}

#[test]
fn starts_threads_and_pins_memory_only_when_needed() {
    let Some(fixture) = Fixture::new("starts_threads_and_pins_memory_only_when_needed", 1000) else {
        return;
    };
    assert_eq!((fixture.staging.small.count(), fixture.staging.large.count()), ((0, 0), (0, 0)));
    fixture.put(&[(fixture.block, &[1; 1000])]).unwrap();
    assert_eq!(fixture.staging.large.count(), (0, 0));
    assert!(!fixture.staging.workers.are_started());
}

#[test]
fn accepts_null_for_empty_copies() {
    let Some(fixture) = Fixture::new("accepts_null_for_empty_copies", 64) else { return };
    let nothing: *mut c_void = std::ptr::null_mut();
    // SAFETY: the copies are empty.
    unsafe {
        fixture.staging.host_to_device(fixture.stream, &[(0, nothing.cast(), 0)]).unwrap();
        fixture.staging.device_to_host(fixture.stream, &[(nothing.cast(), 0, 0)]).unwrap();
        fixture.staging.device_to_host(fixture.stream, &[]).unwrap();
    }
}
