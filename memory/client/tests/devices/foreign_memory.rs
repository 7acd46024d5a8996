//! Tests external streams, and foreign memory, which is released after its last use.

use std::ffi::c_void;
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use crossdock_memory::{Buffer, BufferMut, Code, Device, ForeignOwner, Ready};
use crossdock_test_support::{DEVICES, TestHost, devices};

#[test]
fn releases_foreign_memory_once_after_its_last_use() {
    for device in devices().iter().copied() {
        let host = TestHost::new();
        let stream = host.stream(device);
        let fill = |to: &mut [u8]| {
            to.fill(5);
            Ok(())
        };
        // A buffer of the host serves as foreign memory. The release callback sends this buffer
        // back.
        let foreign = host.memory().alloc_with(&stream, 4096, fill).unwrap().freeze(&stream).unwrap();
        let (sender, receiver) = mpsc::channel();
        let (address, ready) = (foreign.address(), foreign.ready().clone());
        let owner = ForeignOwner::on_release(move || sender.send(foreign).unwrap());
        // SAFETY: the buffer stays alive until the release.
        let range = unsafe { Buffer::foreign(&owner, device, address + 96, Some(4000), ready) };
        drop(owner);
        let mut copy = host.memory().alloc(&stream, 4000).unwrap();
        stream.copy(&mut copy, 0, &range.slice(1000, 3000).unwrap(), 500, 2500).unwrap();
        assert!(receiver.try_recv().is_err(), "{device}: a slice is still alive");
        drop(range);
        let released = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(released.address(), address);
        let copy = copy.freeze(&stream).unwrap();
        assert!(copy.host_view_of(0, 2500, &stream).unwrap().iter().all(|byte| *byte == 5), "{device}");
        assert!(receiver.recv().is_err(), "{device}: released twice");
        drop((copy, released));
        host.assert_nothing_leaked();
    }
}

#[test]
fn shareable_block_works_as_a_buffer() {
    const GPU: Device = Device::cuda(0);
    if !devices().contains(&GPU) {
        let line = "skipped: shareable_block_works_as_a_buffer: there is no CUDA device\n";
        return std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    let host = TestHost::new();
    let (memory, stream) = (host.memory(), host.stream(GPU));
    let other = memory.create_stream(GPU).unwrap();
    let block = host.backend().account("sharer").allocate_shareable(GPU, 4096).unwrap();
    // SAFETY: `backend` allocated the block for this host just now.
    let mut buffer = unsafe { BufferMut::from_block(&memory, GPU, block) };
    assert_eq!((buffer.len(), buffer.device()), (4096, GPU));
    stream.fill(&mut buffer, 0, 4096, 9).unwrap();
    let buffer = buffer.freeze(&stream).unwrap();
    let mut copy = memory.alloc(&other, 4096).unwrap();
    other.copy(&mut copy, 0, &buffer, 0, 4096).unwrap();
    // The block is dropped while the copy may still be reading it.
    drop(buffer);
    let copy = copy.freeze(&other).unwrap();
    assert!(copy.host_view(&stream).unwrap().iter().all(|byte| *byte == 9));
    drop((copy, other));
    host.assert_nothing_leaked();
}

#[test]
fn adopts_any_external_stream_on_host_devices() {
    for device in DEVICES {
        let host = TestHost::new();
        let memory = host.memory();
        for raw in [0, 1, 2, usize::MAX] {
            let raw = std::ptr::without_provenance_mut::<c_void>(raw);
            // SAFETY: host devices ignore the pointer.
            let (first, second) = unsafe {
                (memory.adopt_stream(device, raw).unwrap(), memory.adopt_stream(device, raw).unwrap())
            };
            assert_eq!((first.device(), first.native()), (device, std::ptr::null_mut()));
            let mut block = memory.alloc(&first, 64).unwrap();
            first.fill(&mut block, 0, 64, 7).unwrap();
            drop(first);
            second.wait(&Ready::Now).unwrap();
            assert!(second.record().unwrap().is_now() && !second.is_capturing().unwrap());
            let block = block.freeze(&second).unwrap();
            assert_eq!(&*block.host_view(&second).unwrap(), [7; 64]);
            second.synchronize().unwrap();
        }
        host.assert_nothing_leaked();
    }
}

#[test]
fn rejects_adopting_a_stream_of_a_missing_device() {
    let host = TestHost::new();
    // SAFETY: the device is rejected before the pointer is used.
    let error = unsafe { host.memory().adopt_stream(Device::cuda(99), std::ptr::null_mut()) }.err().unwrap();
    assert_eq!(error.code(), Code::DEVICE);
    assert!(error.message().contains("cuda:99"), "{error}");
}
