//! Tests errors of CUDA devices.

use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::{Code, Device, abi};

use super::{GPU, backend, backend_with, driver_lock, skip};
use crate::common::{add_one, copy, range_arg, table};

#[test]
fn budget_covers_host_and_device_and_error_lists_allocations() {
    let builder = Backend::builder().limit_bytes(64 << 20);
    let Some(backend) = backend_with("budget_covers_host_and_device_and_error_lists_allocations", builder)
    else {
        return;
    };
    let (one, other) = (backend.account("one"), backend.account("other"));
    let (one, other) = (table(&one), table(&other));
    let blocks = [one.alloc(GPU, 40 << 20).unwrap(), other.alloc(Device::CPU, 20 << 20).unwrap()];
    let error = other.alloc(GPU, 8 << 20).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code(abi::OUT_OF_MEMORY));
    let words = [
        "'other' asked for 8388608 bytes on cuda:0",
        "the limit of 67108864 bytes",
        "'one' holds 41943040 bytes in 1 block on cuda:0",
        "'other' holds 20971520 bytes in 1 block on cpu",
    ];
    words.iter().for_each(|word| assert!(error.message().contains(word), "{error:?}"));
    blocks.into_iter().for_each(|block| one.free(block));
    let block = other.alloc(GPU, 60 << 20).unwrap();
    other.free(block);
}

#[test]
fn recovers_after_the_device_is_out_of_memory() {
    let Some(backend) = backend("recovers_after_the_device_is_out_of_memory") else { return };
    let _lock = driver_lock();
    let account = backend.account("greedy");
    let t = table(&account);
    // More than any address space, so that the driver fails before it takes memory that parallel
    // tests need.
    let error = t.alloc(GPU, 1 << 50).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code(abi::OUT_OF_MEMORY));
    let expected = "the CUDA driver returned CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemAllocFromPoolAsync";
    assert!(error.message().contains(expected), "{error:?}");
    let block = t.upload(GPU, &[1, 2, 3]).unwrap();
    assert_eq!(t.download(GPU, block.address, 3).unwrap(), [1, 2, 3]);
    t.free(block);
    assert!(backend.leaks().is_empty());
}

#[test]
fn rejects_managed_memory_and_unknown_argument_kinds() {
    let Some(backend) = backend("rejects_managed_memory_and_unknown_argument_kinds") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let managed = Device { r#type: abi::DEVICE_CUDA_MANAGED, ..GPU };
    let error = t.alloc(managed, 8).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().ends_with("managed memory cannot be allocated here; expected cuda:0"), "{error}");
    let block = t.alloc(GPU, 8).unwrap();
    let stream = t.stream_default(GPU).unwrap();
    let args = [range_arg(abi::ARG_READ, block.address, 8), range_arg(77, block.address, 8)];
    let error = t.launch(stream, &add_one(), &args).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().starts_with("kernel 'add_one': argument 1 is of kind 77"), "{error}");
    t.free(block);
}

#[test]
fn trims_the_pool_before_memory_is_exhausted() {
    let Some(backend) = backend("trims_the_pool_before_memory_is_exhausted") else { return };
    if backend.cuda().unwrap().devices[0].memory_bytes > 32 << 30 {
        // The simulated device is small enough to fill. Filling a real device would disturb other
        // programs.
        return skip(
            "trims_the_pool_before_memory_is_exhausted",
            "a device of this size is not filled by a test",
        );
    }
    let account = backend.account("test");
    let t = table(&account);
    let bytes = backend.cuda().unwrap().devices[0].memory_bytes as usize;
    let halves: Vec<_> = (0..3).map(|_| t.alloc(GPU, bytes / 4).unwrap()).collect();
    halves.into_iter().for_each(|block| t.free(block));
    let whole = t.alloc(GPU, bytes / 8 * 7).unwrap();
    t.free(whole);
}

#[test]
fn error_for_missing_device_lists_the_existing_devices() {
    let Some(backend) = backend("error_for_missing_device_lists_the_existing_devices") else { return };
    let account = backend.account("test");
    let error = table(&account).alloc(Device::cuda(99), 1).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code(abi::DEVICE));
    assert!(
        error.message().starts_with("cuda:99 does not exist on this host; the host has cpu, cuda:0"),
        "{error:?}"
    );
}

#[test]
fn rejects_kernels_without_a_valid_image() {
    let Some(backend) = backend("rejects_kernels_without_a_valid_image") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let block = t.upload(GPU, &[1; 64]).unwrap();
    let args = [range_arg(abi::ARG_READ, block.address, 32), range_arg(abi::ARG_WRITE, block.address, 32)];
    let stream = t.stream_default(GPU).unwrap();
    let error = t.launch(stream, &add_one(), &args).unwrap_err();
    assert_eq!(error.code(), Code(abi::UNSUPPORTED));
    assert!(
        error.message().contains("kernel 'add_one' on cuda:0: the kernel has no CUDA image"),
        "{error:?}"
    );
    let junk = b"this is no image";
    let kernel = abi::Kernel { image: junk.as_ptr().cast(), image_bytes: junk.len(), ..add_one() };
    let error = t.launch(stream, &kernel, &args).unwrap_err();
    assert!(error.message().contains("kernel 'add_one' on cuda:0"), "{error:?}");
    assert_eq!(t.download(GPU, block.address, 64).unwrap(), [1; 64], "the device still works");
    t.free(block);
}

#[test]
fn pointer_finds_the_device_of_an_address() {
    let Some(backend) = backend("pointer_finds_the_device_of_an_address") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let block = t.alloc(GPU, 1000).unwrap();
    let (device, base, bytes) = t.pointer(block.address.wrapping_add(500)).unwrap();
    assert_eq!(device, GPU);
    assert!(base <= block.address && bytes >= 1000);
    let pinned = t.alloc_pinned(1000).unwrap();
    assert_eq!(t.pointer(pinned.address).unwrap().0.r#type, abi::DEVICE_CUDA_HOST);
    assert_eq!(t.host_address(Device::CPU, pinned.address, 1000), pinned.address);
    let local = 0u8;
    assert_eq!(t.pointer(&local).unwrap().0, Device::CPU);
    t.free(block);
    t.free(pinned);
}

#[test]
fn fault_plan_applies_to_cuda_devices() {
    let faults = Faults::new();
    let builder = Backend::builder().faults(faults.clone());
    let Some(backend) = backend_with("fault_plan_applies_to_cuda_devices", builder) else { return };
    let account = backend.account("test");
    let t = table(&account);
    faults.fail(Operation::Allocate, 1);
    assert!(t.alloc(GPU, 64).map(|_| ()).unwrap_err().message().contains("fault plan"));
    let block = t.alloc(GPU, 64).unwrap();
    faults.fail(Operation::Copy, 1);
    assert!(
        t.copies(t.stream_default(GPU).unwrap(), &[copy((GPU, block.address), (GPU, block.address), 0)])
            .is_err()
    );
    t.free(block);
    assert!(backend.leaks().is_empty());
}

/// PTX code with two kernels. It does not end with a NUL, and its length is a multiple of 8.
const IMAGE: &str = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry here()\n{ ret; }\n\
                     .visible .entry there()\n{ ret; }\n//\n";

#[test]
fn kernel_names_are_compared_by_text_and_ptx_needs_no_nul() {
    let Some(backend) = backend("kernel_names_are_compared_by_text_and_ptx_needs_no_nul") else { return };
    assert_eq!(IMAGE.len() % 8, 0);
    let account = backend.account("test");
    let t = table(&account);
    let block = t.upload(GPU, &[1; 64]).unwrap();
    let args = [range_arg(abi::ARG_READ, block.address, 32), range_arg(abi::ARG_WRITE, block.address, 32)];
    let stream = t.stream_default(GPU).unwrap();
    let mut name = *b"here\0\0\0\0";
    let launch = |name: &[u8; 8]| {
        let (image, image_bytes) = (IMAGE.as_ptr().cast(), IMAGE.len());
        t.launch(stream, &abi::Kernel { image, image_bytes, name: name.as_ptr().cast(), ..add_one() }, &args)
    };
    launch(&name).unwrap();
    name[..5].copy_from_slice(b"there");
    launch(&name).unwrap();
    name[..5].copy_from_slice(b"where");
    let error = launch(&name).unwrap_err();
    assert!(error.message().contains("the image has no such function"), "{error:?}");
    t.free(block);
}

#[test]
fn rejects_an_empty_image() {
    let Some(backend) = backend("rejects_an_empty_image") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let kernel = abi::Kernel { image: IMAGE.as_ptr().cast(), image_bytes: 0, ..add_one() };
    let error = t.launch(t.stream_default(GPU).unwrap(), &kernel, &[]).unwrap_err();
    assert!(error.message().contains("has no bytes"), "{error:?}");
}

#[test]
fn frees_a_block_after_a_passed_event() {
    let Some(backend) = backend("frees_a_block_after_a_passed_event") else { return };
    let account = backend.account("test");
    let t = table(&account);
    for device in [GPU, Device::CPU] {
        let block = t.alloc(device, 1 << 20).unwrap();
        t.free_after(block, &[std::ptr::null_mut()], 0);
    }
    backend.settle();
    assert!(backend.leaks().is_empty());
}
