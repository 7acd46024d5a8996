//! Tests memory, copies, streams and kernels through the C interface, on `cpu` and `untouchable`.

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
fn aligns_blocks_as_requested_and_to_64_bytes() {
    let (account, stream) = (backend().account("test"), null_mut());
    let memory = table(&account);
    for device in DEVICES {
        for (alignment, expected) in
            [(0, 64), (1, 64), (64, 64), (512, 512), (4096, 4096), (2 << 20, 2 << 20)]
        {
            let block = memory.alloc_aligned(device, 1000, alignment, stream).unwrap();
            assert_eq!(block.address as usize % expected, 0, "{alignment} on {device}");
            memory.free(block);
        }
        for alignment in [3, 65, 4 << 20, usize::MAX] {
            let error = memory.alloc_aligned(device, 1000, alignment, stream).err().unwrap();
            assert_eq!(error.code(), Code::INVALID_ARGUMENT);
            assert!(error.message().contains(&format!("got {alignment}")), "{error}");
        }
    }
}

#[test]
fn empty_blocks_are_valid() {
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
fn bytes_survive_copies_in_every_direction() {
    let account = backend().account("test");
    let memory = table(&account);
    let content: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    for first in DEVICES {
        for second in DEVICES {
            let a = memory.upload(first, &content).unwrap();
            let b = memory.alloc(second, content.len()).unwrap();
            memory.copy((second, b.address), (first, a.address), content.len()).unwrap();
            assert_eq!(memory.download(second, b.address, content.len()).unwrap(), content);
            // Copies between ranges that begin inside their blocks.
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
fn counts_completed_copies_by_direction() {
    let backend = backend();
    let account = backend.account("test");
    let memory = table(&account);
    let (device_block, host_block) =
        (memory.alloc(Device::UNTOUCHABLE, 100).unwrap(), memory.alloc_pinned(100).unwrap());
    let (device_to, host_to) =
        ((Device::UNTOUCHABLE, device_block.address), (Device::CPU, host_block.address));
    let device_from = (Device::UNTOUCHABLE, device_block.address.cast_const());
    let host_from = (CUDA_HOST, host_block.address.cast_const());
    memory.copy(device_to, host_from, 10).unwrap();
    memory.copy(host_to, device_from, 20).unwrap();
    memory.copies(null_mut(), &[copy(device_to, device_from, 30), copy(device_to, device_from, 31)]).unwrap();
    memory.copy(host_to, host_from, 40).unwrap();
    let before = account.usage().copied;
    let traffic =
        [before.host_to_device, before.device_to_host, before.device_to_device, before.host_to_host];
    assert_eq!(traffic.map(|traffic| (traffic.bytes, traffic.copies)), [(10, 1), (20, 1), (61, 2), (40, 1)]);
    assert_eq!((before.bytes(), backend.ledger().copied()), (131, before));

    let error = memory
        .copies(null_mut(), &[copy(device_to, host_from, 10), copy(device_to, host_from, 101)])
        .unwrap_err();
    assert!(error.message().starts_with("copy 1: target: 101 bytes at offset 0"), "{error}");
    assert_eq!(account.usage().copied.since(before).bytes(), 0);
    memory.free(device_block);
    memory.free(host_block);
}

#[test]
fn rejects_copies_and_fills_outside_a_block_on_untouchable_device() {
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
    assert!(error.message().contains("is not in a live block of untouchable"), "{error}");
}

#[test]
fn rejects_an_untouchable_address_as_a_host_address() {
    let account = backend().account("test");
    let memory = table(&account);
    let (block, mut local) = (memory.alloc(Device::UNTOUCHABLE, 100).unwrap(), [0u8; 100]);
    let error =
        memory.copy((Device::CPU, local.as_mut_ptr()), (Device::CPU, block.address), 100).unwrap_err();
    assert!(error.message().contains("belongs to the untouchable device"), "{error}");
    memory.free(block);
}

#[test]
fn error_for_missing_device_names_the_device() {
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
            assert!(
                error.message().contains(name) && error.message().contains("the host has cpu"),
                "{error}"
            );
        }
        assert!(memory.host_address(device, host.1, 1).is_null());
    }
}

#[test]
fn fill_sets_only_its_range() {
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
fn launch_passes_dereferenceable_addresses() {
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

/// A value may have any number of bytes, because only the kernel interprets it.
#[test]
fn launch_passes_values_unchanged() {
    unsafe extern "C" fn cpu_implementation(args: *const abi::Arg, n_args: usize) -> abi::Code {
        // SAFETY: a launch passes `n_args` arguments.
        let args = unsafe { std::slice::from_raw_parts(args, n_args) };
        let arguments: Vec<_> = args.iter().map(|arg| (arg.kind, arg.value, arg.bytes)).collect();
        if arguments == [(abi::ARG_VALUE, 0, 0), (abi::ARG_VALUE, 77, 8)] { abi::OK } else { abi::BAD_DATA }
    }
    let kernel = abi::Kernel {
        name: c"values".as_ptr(),
        host_function: Some(cpu_implementation),
        ..abi::Kernel::new()
    };
    let account = backend().account("test");
    let memory = table(&account);
    let value = |value, bytes| abi::Arg { value, bytes, kind: abi::ARG_VALUE, reserved: 0 };
    for device in DEVICES {
        let stream = memory.stream_default(device).unwrap();
        memory.launch(stream, &kernel, &[value(0, 0), value(77, 8)]).unwrap();
    }
}

#[test]
fn error_for_failed_launch_names_the_kernel() {
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
    assert_eq!(error.message(), "kernel 'add_one': got 169 arguments; expected at most 168");
    let without_implementation = abi::Kernel { host_function: None, ..add_one() };
    let error = memory.launch(stream, &without_implementation, &[]).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("'add_one' has no CPU implementation"), "{error}");
    let unnamed = abi::Kernel { name: std::ptr::null(), host_function: None, ..add_one() };
    assert!(memory.launch(stream, &unnamed, &[]).unwrap_err().message().contains("an unnamed kernel"));
    memory.free(block);
    assert_eq!(account.usage().launches, 0);
}

#[test]
fn streams_of_host_devices_are_always_complete() {
    let account = backend().account("test");
    let memory = table(&account);
    for device in DEVICES {
        let (default, created) =
            (memory.stream_default(device).unwrap(), memory.stream_create(device).unwrap());
        assert!(
            !default.is_null() && default != created && default == memory.stream_default(device).unwrap()
        );
        for stream in [default, created] {
            assert!(memory.event_record(stream).unwrap().is_null());
            assert_eq!(memory.stream_is_capturing(stream).unwrap(), 0);
            memory.stream_synchronize(stream).unwrap();
            memory.stream_wait(stream, null_mut()).unwrap();
            memory.stream_wait_raw(stream, null_mut()).unwrap();
        }
        // A NULL stream selects no device, so it is rejected.
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
        let error = memory.stream_wait_raw(created, 0xdead_beef_usize as *mut _).unwrap_err();
        assert_eq!(error.code(), Code::INVALID_ARGUMENT);
        assert!(
            error.message().contains("0xdeadbeef") && error.message().contains(&device.to_string()),
            "{error}"
        );
        assert_eq!(memory.stream_wait(created, dangling_mut()).unwrap_err().code(), Code::INVALID_ARGUMENT);
        memory.stream_destroy(created);
        memory.stream_destroy(default);
        memory.stream_synchronize(default).unwrap(); // destroying a default stream has no effect
    }
    assert_eq!(memory.event_query(null_mut()).unwrap(), 1);
    assert_eq!(memory.event_query(dangling_mut()).unwrap_err().code(), Code::INVALID_ARGUMENT);
}

#[test]
fn rejects_allocation_on_a_stream_of_another_device() {
    let account = backend().account("test");
    let memory = table(&account);
    let stream = memory.stream_default(Device::CPU).unwrap();
    let error = memory.alloc_aligned(Device::UNTOUCHABLE, 1, 64, stream).err().unwrap();
    assert_eq!(
        error.message(),
        "alloc on untouchable: the stream belongs to cpu; expected a stream of untouchable"
    );
}

#[test]
fn pointer_finds_the_device_of_known_addresses() {
    let account = backend().account("test");
    let memory = table(&account);
    let (device_block, host_block) =
        (memory.alloc(Device::UNTOUCHABLE, 100).unwrap(), memory.alloc(Device::CPU, 100).unwrap());
    let arguments = memory.pointer(device_block.address.wrapping_add(60)).unwrap();
    assert_eq!(arguments, (Device::UNTOUCHABLE, device_block.address.cast_const(), 100));
    assert_eq!(memory.pointer(host_block.address).unwrap(), (Device::CPU, std::ptr::null(), 0));
    assert_eq!(memory.pointer(null_mut()).unwrap_err().code(), Code::INVALID_ARGUMENT);
    assert_eq!(memory.host_address(Device::CPU, host_block.address, 100), host_block.address);
    assert_eq!(memory.host_address(CUDA_HOST, host_block.address, 100), host_block.address);
    assert!(memory.host_address(Device::UNTOUCHABLE, device_block.address, 100).is_null());
    memory.free(device_block);
    memory.free(host_block);
}

#[test]
fn lists_devices_up_to_the_capacity_and_counts_all() {
    let account = backend().account("test");
    let memory = table(&account);
    let mut all =
        vec![("cpu".to_string(), Device::CPU, true), ("untouchable".to_string(), Device::UNTOUCHABLE, false)];
    let plain_backend = Backend::builder().build();
    let cuda_devices =
        plain_backend.cuda().iter().flat_map(|cuda| &cuda.devices).map(|d| d.device).collect::<Vec<_>>();
    all.extend(cuda_devices.iter().map(|device| (device.to_string(), *device, false)));
    assert_eq!(memory.devices(100).unwrap(), (all.clone(), all.len()));
    assert_eq!(memory.devices(1).unwrap(), (all[..1].to_vec(), all.len()));
    assert_eq!(memory.devices(0).unwrap(), (vec![], all.len()));
    let plain_backend = Backend::builder().build();
    assert_eq!(plain_backend.devices().iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["cpu"]);
    assert!(plain_backend.devices()[0].memory_bytes > 0);
}
