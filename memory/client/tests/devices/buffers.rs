//! Tests buffers, streams and launches with the real backend, on devices that the host can access
//! and on devices that it cannot access.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_memory::{
    ALIGNMENT, Arg, Buffer, Code, Copies, Device, ForeignOwner, Kernel, LaunchSize, Ready, bytes_of_host_arg,
    bytes_of_host_arg_mut,
};
use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::abi;
use crossdock_test_support::{DEVICES, TestHost, devices};

fn filled(host: &TestHost, device: Device, bytes: &[u8]) -> Buffer {
    let stream = host.stream(device);
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    host.memory().alloc_with(&stream, bytes.len(), fill).unwrap().freeze(&stream).unwrap()
}

#[test]
fn bytes_survive_a_round_trip_to_every_device() {
    let host = TestHost::new();
    for device in devices().iter().copied() {
        let buffer = filled(&host, device, b"across the dock");
        assert_eq!((buffer.device(), buffer.len()), (device, Some(15)));
        assert_eq!(buffer.address() as usize % ALIGNMENT, 0);
        let view = buffer.host_view(&host.stream(device)).unwrap();
        assert_eq!(&*view, b"across the dock");
        assert_eq!(view.is_copied(), device != Device::CPU);
        assert_eq!(&*buffer.slice(7, 3).unwrap().host_view(&host.stream(device)).unwrap(), b"the");
    }
    host.assert_nothing_leaked();
}

#[test]
fn slice_keeps_the_allocation_alive_and_checks_bounds() {
    let host = TestHost::new();
    let buffer = filled(&host, Device::CPU, &[7; 100]);
    let slice = buffer.slice(90, 10).unwrap();
    assert!(slice.same_owner(&buffer));
    drop(buffer);
    assert_eq!(&*slice.host_view(&host.stream(Device::CPU)).unwrap(), &[7; 10]);
    assert_eq!(slice.slice(1, 10).unwrap_err().code(), Code::BAD_DATA);
    assert_eq!(slice.slice(usize::MAX, 2).unwrap_err().code(), Code::BAD_DATA);
    assert!(!host.backend().leaks().is_empty());
    drop(slice);
    host.assert_nothing_leaked();
}

#[test]
fn submit_performs_all_copies_of_the_list() {
    let host = TestHost::new();
    let stream = host.stream(Device::UNTOUCHABLE);
    let (a, b) = (filled(&host, Device::CPU, b"left "), filled(&host, Device::UNTOUCHABLE, b"right"));
    let mut to = host.memory().alloc(&stream, 10).unwrap();
    let mut copies = Copies::new();
    copies.push(&mut to, 0, &a, 0, 5).unwrap();
    copies.push(&mut to, 5, &b, 0, 5).unwrap();
    assert!(copies.push(&mut to, 6, &b, 0, 5).is_err(), "a target range outside is rejected");
    assert!(copies.push(&mut to, 0, &b, 1, 5).is_err(), "a source range outside is rejected");
    copies.submit(&stream).unwrap();
    let to = to.freeze(&stream).unwrap();
    let (mut first, mut second) = ([0; 2], [0; 3]);
    let mut back = Copies::new();
    back.push_to_host(&mut first, &to, 4).unwrap();
    back.push_to_host(&mut second, &to, 7).unwrap();
    back.submit(&stream).unwrap();
    assert_eq!((&first, &second), (b" r", b"ght"));
    drop((a, b, to));
    host.assert_nothing_leaked();
}

#[test]
fn fill_sets_only_its_range() {
    let host = TestHost::new();
    for device in devices().iter().copied() {
        let stream = host.stream(device);
        let mut buffer = host.memory().alloc(&stream, 8).unwrap();
        stream.fill(&mut buffer, 0, 8, 1).unwrap();
        stream.fill(&mut buffer, 2, 3, 9).unwrap();
        assert!(stream.fill(&mut buffer, 6, 3, 9).is_err());
        let buffer = buffer.freeze(&stream).unwrap();
        assert_eq!(&*buffer.host_view(&stream).unwrap(), &[1, 1, 9, 9, 9, 1, 1, 1]);
    }
}

unsafe extern "C" fn add_on_cpu(args: *const abi::Arg, n: usize) -> abi::Code {
    if n != 3 {
        return abi::INTERNAL;
    }
    // SAFETY: the launch passes three arguments: the summand, a range to read, and a range to
    // write. Both ranges have the same length.
    unsafe {
        let (add, from, to) = (&*args, &*args.add(1), &*args.add(2));
        for (from, to) in bytes_of_host_arg(from).iter().zip(bytes_of_host_arg_mut(to)) {
            *to = from.wrapping_add(add.value as u8);
        }
    }
    abi::OK
}
static ADD: Kernel = Kernel::host(c"add", add_on_cpu);
const SIZE: &LaunchSize = &LaunchSize::new(1, 1);

#[test]
fn kernel_runs_on_a_device_that_the_host_cannot_access() {
    let host = TestHost::new();
    // The kernel has no CUDA image. Launches on CUDA devices are tested where images are built.
    for device in DEVICES {
        let stream = host.stream(device);
        let from = filled(&host, device, b"HAL");
        let mut to = host.memory().alloc(&stream, 3).unwrap();
        let mut args = [
            Arg::Value(1),
            Arg::Read { buffer: &from, offset: 0, bytes: 3 },
            Arg::Write { buffer: &mut to, offset: 0, bytes: 3 },
        ];
        // SAFETY: the arguments match `add_on_cpu`.
        unsafe { stream.launch(&ADD, SIZE, &mut args) }.unwrap();
        assert_eq!(&*to.freeze(&stream).unwrap().host_view(&stream).unwrap(), b"IBM");
        let other = if device == Device::CPU { Device::UNTOUCHABLE } else { Device::CPU };
        let mut args = [Arg::Read { buffer: &from, offset: 0, bytes: 3 }];
        // SAFETY: the launch is rejected before the kernel runs.
        let error = unsafe { host.stream(other).launch(&ADD, SIZE, &mut args) }.unwrap_err();
        assert_eq!(error.code(), Code::INVALID_ARGUMENT, "a buffer on another device is rejected: {error}");
        let mut args = [Arg::Read { buffer: &from, offset: 1, bytes: 3 }];
        // SAFETY: the launch is rejected before the kernel runs.
        assert!(unsafe { stream.launch(&ADD, SIZE, &mut args) }.is_err(), "a range outside is rejected");
    }
    host.assert_nothing_leaked();
}

struct CountDrop(Arc<AtomicUsize>);
impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn foreign_memory_is_released_with_its_last_buffer() {
    let released = Arc::new(AtomicUsize::new(0));
    static BYTES: [u8; 4] = *b"text";
    let owner = ForeignOwner::new(CountDrop(released.clone()));
    // SAFETY: the range is a static of 4 bytes.
    let whole = unsafe { Buffer::foreign(&owner, Device::CPU, BYTES.as_ptr() as u64, None, Ready::Now) };
    drop(owner);
    assert_eq!(whole.len(), None);
    // SAFETY: the static has 4 bytes.
    let known = unsafe { whole.clone().with_len(4) }.unwrap();
    // SAFETY: `with_len` checks `5` itself, because the length is known.
    assert!(unsafe { known.clone().with_len(5) }.is_err(), "a known length cannot be increased");
    let host = TestHost::new();
    assert!(
        whole.host_view(&host.stream(Device::CPU)).is_err(),
        "bytes of an unknown length cannot be viewed"
    );
    assert!(whole.slice(0, 1).is_err() && whole.slice(0, 1 << 40).is_err(), "nor sliced");
    assert!(whole.host_view_of(1 << 30, 4, &host.stream(Device::CPU)).is_err());
    assert_eq!(&*known.host_view(&host.stream(Device::CPU)).unwrap(), b"text");
    drop(whole);
    assert_eq!(released.load(Ordering::SeqCst), 0);
    drop(known);
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn buffer_outlives_the_host_that_allocated_it() {
    let host = TestHost::new();
    let backend = host.backend().clone();
    let buffer = filled(&host, Device::UNTOUCHABLE, b"still here");
    let stream = host.stream(Device::UNTOUCHABLE);
    drop(host);
    assert_eq!(&*buffer.host_view(&stream).unwrap(), b"still here");
    drop((buffer, stream));
    assert!(backend.leaks().is_empty());
}

#[test]
fn error_for_exceeded_limit_states_the_requested_bytes_and_the_limit() {
    let host = TestHost::over(Backend::builder().limit_bytes(1000).build());
    let stream = host.stream(Device::CPU);
    let error = host.memory().alloc(&stream, 2000).err().unwrap();
    assert_eq!(error.code(), Code::OUT_OF_MEMORY);
    assert!(error.message().contains("2000") && error.message().contains("1000"), "{error}");
    host.assert_nothing_leaked();
}

#[test]
fn failed_allocation_or_copy_leaks_nothing() {
    for operation in [Operation::Allocate, Operation::Copy] {
        for nth in 1..=3 {
            let faults = Faults::new();
            faults.fail(operation, nth);
            let host = TestHost::with_faults(faults);
            let stream = host.stream(Device::UNTOUCHABLE);
            let mut failed = 0;
            for _ in 0..2 {
                let result = host.memory().alloc_with(&stream, 100, |to| {
                    to.fill(3);
                    Ok(())
                });
                failed += usize::from(result.is_err());
            }
            assert!(failed <= 1);
            assert!(nth > 2 || failed == 1, "the fault came up: {operation:?} {nth}");
            host.assert_nothing_leaked();
        }
    }
}

#[test]
fn copies_keep_a_dropped_target_alive_until_they_are_enqueued() {
    for device in devices().iter().copied() {
        let host = TestHost::new();
        let stream = host.stream(device);
        let from = host.memory().alloc_with(&stream, 100, |to| {
            to.fill(7);
            Ok(())
        });
        let from = from.unwrap().freeze_now();
        let mut copies = Copies::new();
        let mut to = host.memory().alloc(&stream, 100).unwrap();
        copies.push(&mut to, 0, &from, 0, 40).unwrap();
        copies.push(&mut to, 40, &from, 40, 60).unwrap();
        drop(to);
        let blocks = |host: &TestHost| host.backend().leaks().iter().map(|leak| leak.blocks).sum::<u64>();
        assert_eq!(blocks(&host), 2, "{device}");
        copies.submit(&stream).unwrap();
        assert_eq!(blocks(&host), 1, "{device}");
        drop(from);
        host.assert_nothing_leaked();
    }
}
