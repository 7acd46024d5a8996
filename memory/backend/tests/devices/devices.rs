//! Memory, copies, streams and kernels through the C interface, on `cpu` and on `untouchable` alike.

use std::ptr::{dangling_mut, null_mut};

use crate::common::{add_one, copy, range_arg, table};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Code, Device, abi};

const DEVICES: [Device; 2] = [Device::CPU, Device::UNTOUCHABLE];
const CUDA_HOST: Device = Device::from_arrow(abi::DEVICE_CUDA_HOST, 0);

fn backend() -> Backend {
    Backend::builder().untouchable(true).build()
}

#[test]
fn blocks_are_aligned_as_asked_and_to_64_bytes_at_least() {
    let (account, streams) = (backend().account("test"), null_mut());
    let memory = table(&account);
    for device in DEVICES {
        for (asked, expected) in [(0, 64), (1, 64), (64, 64), (512, 512), (4096, 4096), (2 << 20, 2 << 20)] {
            let held = memory.alloc_aligned(device, 1000, asked, streams).unwrap();
            assert_eq!(held.address as usize % expected, 0, "{asked} on {device}");
            memory.free(held);
        }
        for asked in [3, 65, 4 << 20, usize::MAX] {
            let error = memory.alloc_aligned(device, 1000, asked, streams).err().unwrap();
            assert_eq!(error.code(), Code::INVALID_ARGUMENT);
            assert!(error.message().contains(&format!("got {asked}")), "{error}");
        }
    }
}

#[test]
fn zero_bytes_are_a_block_like_any_other() {
    let account = backend().account("test");
    let memory = table(&account);
    for device in DEVICES {
        let (a, b) = (memory.alloc(device, 0).unwrap(), memory.alloc(device, 0).unwrap());
        assert!(!a.address.is_null() && a.address != b.address);
        memory.copy((device, a.address), (device, b.address), 0).unwrap();
        memory.fill(null_mut(), a.address, 1, 0).unwrap();
        memory.free(a);
        memory.free_with(b, 0);
    }
    assert!(account.usage().devices.iter().all(|d| (d.live_blocks, d.live_bytes) == (0, 0)));
}

#[test]
fn bytes_survive_every_way_between_host_and_device() {
    let account = backend().account("test");
    let memory = table(&account);
    let content: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    for first in DEVICES {
        for second in DEVICES {
            let a = memory.upload(first, &content).unwrap();
            let b = memory.alloc(second, content.len()).unwrap();
            memory.copy((second, b.address), (first, a.address), content.len()).unwrap();
            assert_eq!(memory.download(second, b.address, content.len()).unwrap(), content);
            // From the middle to the middle.
            memory
                .copy((second, b.address.wrapping_add(10)), (first, a.address.wrapping_add(20)), 30)
                .unwrap();
            assert_eq!(memory.download(second, b.address.wrapping_add(10), 30).unwrap(), content[20..50]);
            memory.free(a);
            memory.free(b);
        }
    }
}

#[test]
fn copies_are_counted_by_direction_and_only_when_they_ran() {
    let backend = backend();
    let account = backend.account("test");
    let memory = table(&account);
    let (far, near) = (memory.alloc(Device::UNTOUCHABLE, 100).unwrap(), memory.alloc_pinned(100).unwrap());
    let (far_at, near_at) = ((Device::UNTOUCHABLE, far.address), (Device::CPU, near.address));
    let far_from = (Device::UNTOUCHABLE, far.address.cast_const());
    let near_from = (CUDA_HOST, near.address.cast_const());
    memory.copy(far_at, near_from, 10).unwrap();
    memory.copy(near_at, far_from, 20).unwrap();
    memory.copies(null_mut(), &[copy(far_at, far_from, 30), copy(far_at, far_from, 31)]).unwrap();
    memory.copy(near_at, near_from, 40).unwrap();
    let before = account.usage().copied;
    let ways = [before.host_to_device, before.device_to_host, before.device_to_device, before.host_to_host];
    assert_eq!(ways.map(|way| (way.bytes, way.copies)), [(10, 1), (20, 1), (61, 2), (40, 1)]);
    assert_eq!((before.bytes(), backend.ledger().copied()), (131, before));

    let error =
        memory.copies(null_mut(), &[copy(far_at, near_from, 10), copy(far_at, near_from, 101)]).unwrap_err();
    assert!(error.message().starts_with("copy 1: target: 101 bytes from byte 0 on"), "{error}");
    assert_eq!(account.usage().copied.since(before).bytes(), 0);
    memory.free(far);
    memory.free(near);
}

#[test]
fn a_copy_outside_its_block_on_untouchable_is_refused() {
    let account = backend().account("test");
    let memory = table(&account);
    let (block, mut local) = (memory.alloc(Device::UNTOUCHABLE, 100).unwrap(), [0u8; 256]);
    let stream = memory.stream_default(Device::UNTOUCHABLE).unwrap();
    let at = |offset| (Device::UNTOUCHABLE, block.address.wrapping_add(offset));
    let to_host = (Device::CPU, local.as_mut_ptr());
    for (offset, bytes) in [(0, 101), (99, 2), (100, 1), (1, usize::MAX), (0, isize::MAX as usize)] {
        let from = (Device::UNTOUCHABLE, at(offset).1.cast_const());
        assert_eq!(memory.copy(to_host, from, bytes).unwrap_err().code(), Code::INVALID_ARGUMENT);
        assert_eq!(memory.fill(stream, at(offset).1, 0, bytes).unwrap_err().code(), Code::INVALID_ARGUMENT);
    }
    let freed = at(0).1;
    memory.free(block);
    let error = memory.copy(to_host, (Device::UNTOUCHABLE, freed), 1).unwrap_err();
    assert!(error.message().contains("no live block of untouchable"), "{error}");
}

#[test]
fn an_untouchable_address_passed_as_one_of_the_host_is_refused_by_name() {
    let account = backend().account("test");
    let memory = table(&account);
    let (block, mut local) = (memory.alloc(Device::UNTOUCHABLE, 100).unwrap(), [0u8; 100]);
    let error =
        memory.copy((Device::CPU, local.as_mut_ptr()), (Device::CPU, block.address), 100).unwrap_err();
    assert!(error.message().contains("belongs to untouchable"), "{error}");
    memory.free(block);
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let account = Backend::builder().build().account("test");
    let memory = table(&account);
    let mut local = [0u8; 8];
    let host = (Device::CPU, local.as_mut_ptr());
    for (device, name) in [
        (Device::UNTOUCHABLE, "untouchable"),
        (Device::from_arrow(abi::DEVICE_EXT_DEV, 7), "untouchable"),
        (Device::from_arrow(10, 2), "device type 10, id 2"),
        (Device::from_arrow(-1, i64::MIN), "device type -1"),
    ] {
        for error in [
            memory.alloc(device, 1).err().unwrap(),
            memory.copy(host, (device, host.1), 1).unwrap_err(),
            memory.copy((device, host.1), (Device::CPU, host.1), 1).unwrap_err(),
            memory.stream_default(device).unwrap_err(),
            memory.stream_create(device).unwrap_err(),
        ] {
            assert_eq!(error.code(), Code::DEVICE);
            assert!(error.message().contains(name) && error.message().contains("it has cpu"), "{error}");
        }
        assert!(memory.host_address(device, host.1, 1).is_null());
    }
}

#[test]
fn fill_sets_exactly_its_range() {
    let account = backend().account("test");
    let memory = table(&account);
    for device in DEVICES {
        let block = memory.upload(device, &[1; 10]).unwrap();
        let stream = memory.stream_default(device).unwrap();
        memory.fill(stream, block.address.wrapping_add(2), 7, 3).unwrap();
        memory.fill(null_mut(), block.address.wrapping_add(9), 8, 1).unwrap();
        let expected = [1, 1, 7, 7, 7, 1, 1, 1, 1, 8];
        assert_eq!(memory.download(device, block.address, 10).unwrap(), expected, "{device}");
        memory.free(block);
    }
}

#[test]
fn a_launch_hands_the_twin_addresses_that_it_may_dereference() {
    let account = backend().account("test");
    let memory = table(&account);
    for device in DEVICES {
        let (from, to) = (memory.upload(device, &[1, 2, 3]).unwrap(), memory.alloc(device, 3).unwrap());
        let args = [range_arg(abi::ARG_READ, from.address, 3), range_arg(abi::ARG_WRITE, to.address, 3)];
        for stream in [null_mut(), memory.stream_default(device).unwrap()] {
            memory.launch(stream, &add_one(), &args).unwrap();
            assert_eq!(memory.download(device, to.address, 3).unwrap(), [2, 3, 4], "{device}");
        }
        let empty = [range_arg(abi::ARG_READ, null_mut(), 0), range_arg(abi::ARG_WRITE, null_mut(), 0)];
        memory.launch(memory.stream_default(device).unwrap(), &add_one(), &empty).unwrap();
        memory.free(from);
        memory.free(to);
    }
    assert_eq!(account.usage().launches, 6);
}

/// What a value is, nobody but the kernel knows, whatever else its argument says.
#[test]
fn a_launch_hands_the_twin_values_as_they_are() {
    unsafe extern "C" fn twin(args: *const abi::Arg, n_args: usize) -> abi::Code {
        // SAFETY: a launch passes `n_args` arguments.
        let args = unsafe { std::slice::from_raw_parts(args, n_args) };
        let found: Vec<_> = args.iter().map(|arg| (arg.kind, arg.value, arg.bytes)).collect();
        if found == [(abi::ARG_VALUE, 0, 0), (abi::ARG_VALUE, 77, 8)] { abi::OK } else { abi::BAD_DATA }
    }
    let kernel = abi::Kernel { name: c"values".as_ptr(), host_twin: Some(twin), ..abi::Kernel::new() };
    let account = backend().account("test");
    let memory = table(&account);
    let value = |value, bytes| abi::Arg { value, bytes, kind: abi::ARG_VALUE, reserved: 0 };
    for device in DEVICES {
        let stream = memory.stream_default(device).unwrap();
        memory.launch(stream, &kernel, &[value(0, 0), value(77, 8)]).unwrap();
    }
}

#[test]
fn a_launch_that_fails_names_its_kernel() {
    let account = backend().account("test");
    let memory = table(&account);
    let stream = memory.stream_default(Device::UNTOUCHABLE).unwrap();
    let block = memory.alloc(Device::UNTOUCHABLE, 8).unwrap();
    let arg = |kind, bytes| range_arg(kind, block.address, bytes);
    let error = memory.launch(stream, &add_one(), &[arg(1, 1), arg(2, 2)]).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::BAD_DATA, "kernel 'add_one' failed on untouchable: bad data")
    );
    let error = memory.launch(stream, &add_one(), &[arg(1, 9), arg(2, 8)]).unwrap_err();
    assert!(error.message().starts_with("kernel 'add_one': argument 0: 9 bytes"), "{error}");
    let error = memory.launch(stream, &add_one(), &[arg(1, 8), arg(77, 8)]).unwrap_err();
    assert!(error.message().starts_with("kernel 'add_one': argument 1 is of kind 77"), "{error}");
    assert_eq!(error.code(), Code::UNSUPPORTED);
    let many = [arg(1, 8); abi::MAX_KERNEL_ARGS + 1];
    let error = memory.launch(stream, &add_one(), &many).unwrap_err();
    assert_eq!(error.message(), "kernel 'add_one': 169 arguments were given; 168 are allowed");
    let twinless = abi::Kernel { host_twin: None, ..add_one() };
    let error = memory.launch(stream, &twinless, &[]).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("'add_one' has no host twin"), "{error}");
    let nameless = abi::Kernel { name: std::ptr::null(), host_twin: None, ..add_one() };
    assert!(memory.launch(stream, &nameless, &[]).unwrap_err().message().contains("without a name"));
    memory.free(block);
    assert_eq!(account.usage().launches, 0);
}

#[test]
fn streams_of_host_devices_have_always_run() {
    let account = backend().account("test");
    let memory = table(&account);
    for device in DEVICES {
        let (default, own) = (memory.stream_default(device).unwrap(), memory.stream_create(device).unwrap());
        assert!(!default.is_null() && default != own && default == memory.stream_default(device).unwrap());
        for stream in [default, own] {
            assert!(memory.event_record(stream).unwrap().is_null());
            assert_eq!(memory.stream_is_capturing(stream).unwrap(), 0);
            memory.stream_synchronize(stream).unwrap();
            memory.stream_wait(stream, null_mut()).unwrap();
            memory.stream_wait_raw(stream, null_mut()).unwrap();
        }
        // Which device's default one it were, nobody would know.
        for error in [
            memory.event_record(null_mut()).unwrap_err(),
            memory.stream_is_capturing(null_mut()).unwrap_err(),
            memory.stream_synchronize(null_mut()).unwrap_err(),
            memory.stream_wait(null_mut(), dangling_mut()).unwrap_err(),
            memory.stream_wait_raw(null_mut(), 0xdead_beef_usize as *mut _).unwrap_err(),
        ] {
            assert!(
                error.code() == Code::INVALID_ARGUMENT && error.message().contains("stream is NULL"),
                "{error}"
            );
        }
        let error = memory.stream_wait_raw(own, 0xdead_beef_usize as *mut _).unwrap_err();
        assert_eq!(error.code(), Code::INVALID_ARGUMENT);
        assert!(
            error.message().contains("0xdeadbeef") && error.message().contains(&device.to_string()),
            "{error}"
        );
        assert_eq!(memory.stream_wait(own, dangling_mut()).unwrap_err().code(), Code::INVALID_ARGUMENT);
        memory.stream_destroy(own);
        memory.stream_destroy(default);
        memory.stream_synchronize(default).unwrap(); // a default stream is borrowed: destroying it changes nothing
    }
    assert_eq!(memory.event_query(null_mut()).unwrap(), 1);
    assert_eq!(memory.event_query(dangling_mut()).unwrap_err().code(), Code::INVALID_ARGUMENT);
}

#[test]
fn an_allocation_on_another_devices_stream_is_refused() {
    let account = backend().account("test");
    let memory = table(&account);
    let stream = memory.stream_default(Device::CPU).unwrap();
    let error = memory.alloc_aligned(Device::UNTOUCHABLE, 1, 64, stream).err().unwrap();
    assert_eq!(
        error.message(),
        "alloc on untouchable was given a stream of cpu; expected one of untouchable"
    );
}

#[test]
fn an_address_tells_its_device_where_it_is_known() {
    let account = backend().account("test");
    let memory = table(&account);
    let (far, near) =
        (memory.alloc(Device::UNTOUCHABLE, 100).unwrap(), memory.alloc(Device::CPU, 100).unwrap());
    let found = memory.pointer(far.address.wrapping_add(60)).unwrap();
    assert_eq!(found, (Device::UNTOUCHABLE, far.address.cast_const(), 100));
    assert_eq!(memory.pointer(near.address).unwrap(), (Device::CPU, std::ptr::null(), 0));
    assert_eq!(memory.pointer(null_mut()).unwrap_err().code(), Code::INVALID_ARGUMENT);
    assert_eq!(memory.host_address(Device::CPU, near.address, 100), near.address);
    assert_eq!(memory.host_address(CUDA_HOST, near.address, 100), near.address);
    assert!(memory.host_address(Device::UNTOUCHABLE, far.address, 100).is_null());
    memory.free(far);
    memory.free(near);
}

#[test]
fn devices_are_listed_as_far_as_there_is_room_and_all_counted() {
    let account = backend().account("test");
    let memory = table(&account);
    let mut all =
        vec![("cpu".to_string(), Device::CPU, true), ("untouchable".to_string(), Device::UNTOUCHABLE, false)];
    let alone = Backend::builder().build();
    let of_cuda = alone.cuda().iter().flat_map(|cuda| &cuda.devices).map(|d| d.device).collect::<Vec<_>>();
    all.extend(of_cuda.iter().map(|device| (device.to_string(), *device, false)));
    assert_eq!(memory.devices(100).unwrap(), (all.clone(), all.len()));
    assert_eq!(memory.devices(1).unwrap(), (all[..1].to_vec(), all.len()));
    assert_eq!(memory.devices(0).unwrap(), (vec![], all.len()));
    let alone = Backend::builder().build();
    assert_eq!(alone.devices().iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["cpu"]);
    assert!(alone.devices()[0].memory_bytes > 0);
}
