//! Tests the loader with every kind of source on every device.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_memory::{BufferMut, Code, Device, Error, LoadRange, Loader, Result};
use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::{ByteSource, CallSettings, CancelFlag, Source, abi};
use crossdock_test_support::{Random, TestHost, devices};

/// Bytes that are read at offsets.
struct Bytes {
    bytes: Vec<u8>,
    /// The length that the source states.
    len: Option<u64>,
    is_mapped: bool,
    reads: Mutex<Vec<(u64, usize)>>,
    on_read: Box<dyn Fn(u64) -> Result<()> + Send + Sync>,
}

impl Bytes {
    fn new(bytes: &[u8]) -> Self {
        let (reads, len) = (Mutex::default(), Some(bytes.len() as u64));
        Self { bytes: bytes.to_vec(), len, is_mapped: false, reads, on_read: Box::new(|_| Ok(())) }
    }
}

impl ByteSource for Bytes {
    fn name(&self) -> &str {
        "test bytes"
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        (self.on_read)(offset)?;
        self.reads.lock().unwrap().push((offset, to.len()));
        let from = self.bytes.get(offset as usize..).unwrap_or_default();
        // At most 1,000,000 bytes, as the read of a pipe returns fewer bytes than requested.
        let n = from.len().min(to.len()).min(1_000_000);
        to[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }

    fn map(&self) -> Option<&[u8]> {
        self.is_mapped.then_some(&self.bytes)
    }
}

/// Bytes in pinned memory. Counts the drops.
struct Pinned {
    block: Mutex<BufferMut>,
    address: usize,
    bytes: usize,
    drops: Arc<AtomicUsize>,
}

impl Pinned {
    fn new(host: &TestHost, bytes: &[u8], drops: &Arc<AtomicUsize>) -> Self {
        let mut block = host.memory().alloc_pinned(bytes.len()).unwrap();
        block.host_slice_mut().unwrap().copy_from_slice(bytes);
        let address = block.address() as usize;
        Self { block: Mutex::new(block), address, bytes: bytes.len(), drops: drops.clone() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Work that still reads the memory would read these bytes.
        self.block.get_mut().unwrap().host_slice_mut().unwrap().fill(0xEE);
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

impl ByteSource for Pinned {
    fn name(&self) -> &str {
        "pinned bytes"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes as u64)
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize> {
        Err(Error::internal("a source in memory was read"))
    }

    fn map(&self) -> Option<&[u8]> {
        // SAFETY: the block has `bytes` initialised bytes at this address, and lives as long as
        // `self`.
        Some(unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) })
    }
}

fn random_bytes(n: usize) -> Vec<u8> {
    let mut random = Random::new(7);
    let mut bytes: Vec<u8> = (0..n.div_ceil(8)).flat_map(|_| random.word().to_le_bytes()).collect();
    bytes.truncate(n);
    bytes
}

/// Loads `ranges` into a block of `bytes` zeros. Returns the block's bytes.
fn load(
    host: &TestHost,
    device: Device,
    source: Arc<dyn ByteSource>,
    bytes: usize,
    ranges: &[LoadRange],
) -> Result<Vec<u8>> {
    let stream = host.memory().create_stream(device)?;
    let mut block = host.memory().alloc(&stream, bytes)?;
    stream.fill(&mut block, 0, bytes, 0)?;
    let source = Source::new(source);
    let loader = Loader::from_host(&host.host())?;
    CallSettings::new(device).enter(|call| loader.load(call, &source, &mut block, ranges, &stream))?;
    drop(source);
    let block = block.freeze(&stream)?;
    Ok(block.host_view(&stream)?.to_vec())
}

/// Ranges that exercise each way: none, tiny, adjacent, overlapping in the source, larger than a
/// chunk, and of several parts for several threads.
fn cases() -> Vec<Vec<LoadRange>> {
    let range = |from, to, bytes| LoadRange { from, to, bytes };
    vec![
        vec![],
        vec![range(5, 3, 0)],
        vec![range(0, 0, 1)],
        vec![range(7, 0, 100), range(107, 100, 0), range(3, 100, 60), range(0, 1000, 64 << 10)],
        (0..1000).map(|i| range(9_999 - i, (i * 70) as usize, 64)).collect(),
        vec![range(1, 2, (512 << 10) + 1)],
        vec![range(11, 5, 9 << 20), range(0, 9 << 20 | 64, 1 << 20), range(100, 11 << 20, 3)],
    ]
}

const SOURCE_BYTES: usize = 10 << 20;
const BLOCK_BYTES: usize = 12 << 20;

fn expected(from: &[u8], ranges: &[LoadRange]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    for range in ranges {
        let from = &from[range.from as usize..][..range.bytes];
        block[range.to..][..range.bytes].copy_from_slice(from);
    }
    block
}

#[test]
fn ranges_of_every_kind_of_source_arrive_on_every_device() {
    let bytes = random_bytes(SOURCE_BYTES);
    let host = TestHost::new();
    let drops = Arc::<AtomicUsize>::default();
    for device in devices().iter().copied() {
        for (i, ranges) in cases().iter().enumerate() {
            let expected = expected(&bytes, ranges);
            let sources: [(&str, Arc<dyn ByteSource>); 3] = [
                ("read", Arc::new(Bytes::new(&bytes))),
                ("mapped", Arc::new(Bytes { is_mapped: true, ..Bytes::new(&bytes) })),
                ("pinned", Arc::new(Pinned::new(&host, &bytes, &drops))),
            ];
            for (kind, source) in sources {
                let loaded = load(&host, device, source, BLOCK_BYTES, ranges).unwrap();
                assert!(loaded == expected, "case {i}, {kind} source, {device}");
            }
        }
    }
    host.backend().settle();
    assert_eq!(drops.load(Ordering::SeqCst), devices().len() * cases().len());
    host.assert_nothing_leaked();
}

#[test]
fn source_of_unknown_length_is_read_once_in_order() {
    const LARGE: usize = 20 << 20;
    let bytes = random_bytes(LARGE + 100);
    let host = TestHost::new();
    let range = |from: usize, to, bytes| LoadRange { from: from as u64, to, bytes };
    let ranges =
        [range(10, 5, LARGE), range(LARGE + 10, 0, 5), range(0, 0, 0), range(LARGE + 15, LARGE + 50, 9)];
    for device in devices().iter().copied() {
        // Another thread would begin to read while this thread waits.
        let caller = std::thread::current().id();
        let on_read = move |_| {
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(std::thread::current().id(), caller);
            Ok(())
        };
        let source = Arc::new(Bytes { len: None, on_read: Box::new(on_read), ..Bytes::new(&bytes) });
        let loaded = load(&host, device, source.clone(), LARGE + 100, &ranges).unwrap();
        assert!(loaded[5..LARGE + 5] == bytes[10..LARGE + 10]);
        assert!(loaded[..5] == bytes[LARGE + 10..LARGE + 15]);
        assert!(loaded[LARGE + 50..LARGE + 59] == bytes[LARGE + 15..LARGE + 24]);
        let mut position = 10;
        for (offset, wanted) in source.reads.lock().unwrap().iter() {
            assert_eq!(*offset, position, "on {device}");
            position += (*wanted).min(1_000_000) as u64;
        }
        assert_eq!(position, LARGE as u64 + 24);
        let error = load(&host, device, source, 100, &[range(0, 0, 10), range(11, 10, 1)]).unwrap_err();
        assert_eq!(error.code(), Code::INVALID_ARGUMENT);
        assert_eq!(
            error.message(),
            "load 1 begins at byte 11 of 'test bytes', which can only be read in order: expected byte 10"
        );
    }
    host.assert_nothing_leaked();
}

#[test]
fn ranges_beyond_the_end_of_a_source_are_rejected() {
    let host = TestHost::new();
    for device in devices().iter().copied() {
        for is_mapped in [false, true] {
            let source = Arc::new(Bytes { is_mapped, ..Bytes::new(&[1; 100]) });
            for (from, bytes) in [(0, 101), (100, 1), (u64::MAX, 2)] {
                let ranges = [LoadRange { from: 0, to: 0, bytes: 3 }, LoadRange { from, to: 3, bytes }];
                let error = load(&host, device, source.clone(), 200, &ranges).unwrap_err();
                assert_eq!(error.code(), Code::BAD_DATA);
                let message = format!(
                    "load 1: 'test bytes' is truncated: expected {bytes} bytes at offset {from}, but its length is 100"
                );
                assert_eq!(error.message(), message);
            }
            assert!(source.reads.lock().unwrap().is_empty());
        }
        // The source has fewer bytes than it stated.
        let source = Arc::new(Bytes { len: Some(200), ..Bytes::new(&[1; 100]) });
        let ranges = [LoadRange { from: 50, to: 0, bytes: 51 }];
        let error = load(&host, device, source, 51, &ranges).unwrap_err();
        assert_eq!(error.code(), Code::BAD_DATA);
        assert_eq!(error.message(), "'test bytes' is truncated: expected 51 bytes at offset 50, got 50");
    }
    host.assert_nothing_leaked();
}

#[test]
fn first_error_of_a_source_ends_the_load() {
    let bytes = random_bytes(SOURCE_BYTES);
    let host = TestHost::new();
    for device in devices().iter().copied() {
        let calls = Arc::<AtomicU64>::default();
        let counted = calls.clone();
        let fail = move |_| match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(Error::io("the disk is on fire")),
        };
        let source = Arc::new(Bytes { on_read: Box::new(fail), ..Bytes::new(&bytes) });
        let ranges = [LoadRange { from: 0, to: 0, bytes: SOURCE_BYTES }];
        let error = load(&host, device, source, BLOCK_BYTES, &ranges).unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::IO, "the disk is on fire"), "on {device}");
        assert!(calls.load(Ordering::SeqCst) < 40, "{calls:?} reads after the error, on {device}");
    }
    host.assert_nothing_leaked();
}

#[test]
fn cancelled_call_ends_the_load() {
    // More parts than threads, so that some thread begins a part after the cancellation.
    const RANGE_BYTES: usize = 1 << 20;
    const N_RANGES: usize = 64;
    let bytes = vec![7; N_RANGES * RANGE_BYTES];
    let range = |i| LoadRange { from: (i * RANGE_BYTES) as u64, to: i * RANGE_BYTES, bytes: RANGE_BYTES };
    let ranges: Vec<_> = (0..N_RANGES).map(range).collect();
    let host = TestHost::new();
    let loader = Loader::from_host(&host.host()).unwrap();
    for device in devices().iter().copied() {
        let cancel = CancelFlag::new();
        let (flag, calls) = (cancel.clone(), Arc::<AtomicU64>::default());
        let counted = calls.clone();
        let on_read = move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            flag.cancel();
            Ok(())
        };
        let source = Source::new(Arc::new(Bytes { on_read: Box::new(on_read), ..Bytes::new(&bytes) }));
        let stream = host.memory().create_stream(device).unwrap();
        let mut block = host.memory().alloc(&stream, bytes.len()).unwrap();
        let settings = CallSettings { cancel, ..CallSettings::new(device) };
        let load = || settings.enter(|call| loader.load(call, &source, &mut block, &ranges, &stream));
        assert_eq!({ load }().unwrap_err().code(), Code::CANCELLED);
        let n = calls.load(Ordering::SeqCst);
        assert!(n < 60, "{n} reads after the cancellation, on {device}");
        let load = || settings.enter(|call| loader.load(call, &source, &mut block, &ranges, &stream));
        assert_eq!({ load }().unwrap_err().code(), Code::CANCELLED);
        assert_eq!(calls.load(Ordering::SeqCst), n, "a cancelled call reads nothing");
    }
    host.assert_nothing_leaked();
}

#[test]
fn loads_to_devices_are_in_the_ledger_and_reads_into_host_memory_are_not() {
    let host = TestHost::new();
    for device in devices().iter().copied() {
        let before = host.backend().ledger().copied();
        let source = Arc::new(Bytes::new(&random_bytes(1_000_000)));
        let ranges = [LoadRange { from: 1, to: 0, bytes: 999_999 }];
        let loaded = load(&host, device, source, 1_000_000, &ranges).unwrap();
        assert_eq!(loaded.len(), 1_000_000);
        let copied = host.backend().ledger().copied().bytes() - before.bytes();
        // The view of the test copies the block back.
        let expected = if device == Device::CPU { 0 } else { 999_999 + 1_000_000 };
        assert_eq!(copied, expected, "on {device}");
    }
}

#[test]
fn load_rejects_invalid_arguments() {
    let host = TestHost::new();
    let loader = Loader::from_host(&host.host()).unwrap();
    let source = Source::new(Arc::new(Bytes::new(&[1; 100])));
    // SAFETY: the header defines `HostLoader` for this id.
    let interface = unsafe { host.host().interface::<abi::HostLoader>(abi::HOST_LOADER_ID) };
    let (object, table) = interface.unwrap();
    for device in devices().iter().copied() {
        let stream = host.memory().create_stream(device).unwrap();
        let mut block = host.memory().alloc(&stream, 10).unwrap();
        let call = CallSettings::new(device);
        let outside = [LoadRange { from: 0, to: 5, bytes: 6 }];
        let error = call.enter(|call| loader.load(call, &source, &mut block, &outside, &stream)).unwrap_err();
        assert_eq!(error.message(), "a load to bytes 5..+6 lies outside a buffer of 10 bytes");
        let raw = |call: *const abi::Call, source: *mut abi::Source, to: u64| {
            let load = abi::Load { offset: 0, to: to as *mut _, bytes: 10 };
            // SAFETY: the pointers are null or valid, and the host rejects the others.
            Error::check(|err| unsafe {
                (table.load.unwrap())(object.as_ptr(), call, source, &load, 1, stream.raw(), err)
            })
        };
        call.enter(|call| {
            source.lend(|source| {
                let null = std::ptr::null_mut();
                let error = raw(call.as_ptr(), null, block.address()).unwrap_err();
                assert_eq!(error.message(), "load: a crossdock_source is NULL");
                let error = raw(null.cast(), source, block.address()).unwrap_err();
                assert_eq!(error.message(), "load: a crossdock_call is NULL");
                let error = raw(call.as_ptr(), source, 0).unwrap_err();
                assert!(error.message().starts_with("load 0: 10 bytes at address 0x0"), "{error}");
                raw(call.as_ptr(), source, block.address()).unwrap();
            });
        });
        stream.synchronize().unwrap();
    }
    host.assert_nothing_leaked();
}

#[test]
fn failing_copies_fail_the_load_without_leaks() {
    for device in devices().iter().copied() {
        for is_mapped in [false, true] {
            let faults = Faults::new();
            faults.fail(Operation::Copy, 2);
            let host = TestHost::over(Backend::builder().untouchable(true).faults(faults).build());
            let source = Arc::new(Bytes { is_mapped, ..Bytes::new(&[5; 1000]) });
            let ranges = [LoadRange { from: 0, to: 0, bytes: 1000 }];
            // The first copy is the fill of the block.
            let error = load(&host, device, source.clone(), 1000, &ranges).unwrap_err();
            assert!(error.message().contains("was set to fail by the fault plan"), "{error}");
            assert!(load(&host, device, source, 1000, &ranges).unwrap() == [5; 1000]);
            host.assert_nothing_leaked();
        }
    }
}
