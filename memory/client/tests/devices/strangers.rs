//! What strangers own: their memory, released after our last use, and their streams.

use std::ffi::c_void;
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use crossdock_memory::{Buffer, BufferMut, Code, Device, ForeignOwner, Ready};
use crossdock_test_support::{DEVICES, TestHost, devices};

#[test]
fn a_release_runs_once_after_the_last_use_of_the_range() {
    for device in devices().iter().copied() {
        let host = TestHost::new();
        let stream = host.stream(device);
        let fill = |to: &mut [u8]| {
            to.fill(5);
            Ok(())
        };
        // Memory of ours plays the stranger's, who gets it back when it is released.
        let theirs = host.memory().alloc_with(&stream, 4096, fill).unwrap().freeze(&stream).unwrap();
        let (sender, receiver) = mpsc::channel();
        let (address, ready) = (theirs.address(), theirs.ready().clone());
        let owner = ForeignOwner::on_release(move || sender.send(theirs).unwrap());
        // SAFETY: alive until the release.
        let range = unsafe { Buffer::foreign(&owner, device, address + 96, Some(4000), ready) };
        drop(owner);
        let mut copy = host.memory().alloc(&stream, 4000).unwrap();
        stream.copy(&mut copy, 0, &range.slice(1000, 3000).unwrap(), 500, 2500).unwrap();
        assert!(receiver.try_recv().is_err(), "{device}: a part of it is still here");
        drop(range);
        let back = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(back.address(), address);
        let copy = copy.freeze(&stream).unwrap();
        assert!(copy.host_view_of(0, 2500, &stream).unwrap().iter().all(|byte| *byte == 5), "{device}");
        assert!(receiver.recv().is_err(), "{device}: once");
        drop((copy, back));
        host.assert_nothing_leaked();
    }
}

#[test]
fn a_block_that_can_be_shared_is_a_buffer_like_any_other() {
    const GPU: Device = Device::cuda(0);
    if !devices().contains(&GPU) {
        let line = "skipped: a_block_that_can_be_shared_is_a_buffer: there is no CUDA device\n";
        return std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    let host = TestHost::new();
    let (memory, stream) = (host.memory(), host.stream(GPU));
    let other = memory.create_stream(GPU).unwrap();
    let block = host.backend().account("sharer").allocate_shareable(GPU, 4096).unwrap();
    // SAFETY: a block of this host's, made just now.
    let mut buffer = unsafe { BufferMut::from_block(&memory, GPU, block) };
    assert_eq!((buffer.len(), buffer.device()), (4096, GPU));
    stream.fill(&mut buffer, 0, 4096, 9).unwrap();
    let buffer = buffer.freeze(&stream).unwrap();
    let mut copy = memory.alloc(&other, 4096).unwrap();
    other.copy(&mut copy, 0, &buffer, 0, 4096).unwrap();
    // It goes while it is read.
    drop(buffer);
    let copy = copy.freeze(&other).unwrap();
    assert!(copy.host_view(&stream).unwrap().iter().all(|byte| *byte == 9));
    drop((copy, other));
    host.assert_nothing_leaked();
}

#[test]
fn on_a_host_device_any_stream_of_a_stranger_is_one_whose_work_is_done() {
    for device in DEVICES {
        let host = TestHost::new();
        let memory = host.memory();
        for raw in [0, 1, 2, usize::MAX] {
            let raw = std::ptr::without_provenance_mut::<c_void>(raw);
            // SAFETY: it means nothing here.
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
fn a_stream_of_a_device_that_is_not_there_is_refused() {
    let host = TestHost::new();
    // SAFETY: refused before it is used.
    let refused =
        unsafe { host.memory().adopt_stream(Device::cuda(99), std::ptr::null_mut()) }.err().unwrap();
    assert_eq!(refused.code(), Code::DEVICE);
    assert!(refused.message().contains("cuda:99"), "{refused}");
}
