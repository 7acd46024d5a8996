//! What cannot be done is said, by name.

use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::{Code, Device, abi};

use super::{GPU, backend, backend_with, skip, turn};
use crate::common::{add_one, copy, range_arg, table};

#[test]
fn the_budget_holds_over_host_and_device_and_says_who_holds_what() {
    let builder = Backend::builder().limit_bytes(64 << 20);
    let Some(backend) = backend_with("the_budget_holds", builder) else { return };
    let (one, other) = (backend.account("one"), backend.account("other"));
    let (one, other) = (table(&one), table(&other));
    let held = [one.alloc(GPU, 40 << 20).unwrap(), other.alloc(Device::CPU, 20 << 20).unwrap()];
    let refused = other.alloc(GPU, 8 << 20).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code(abi::OUT_OF_MEMORY));
    let words = [
        "'other' asked for 8388608 bytes on cuda:0",
        "the limit of 67108864 bytes",
        "'one' holds 41943040 bytes in 1 block on cuda:0",
        "'other' holds 20971520 bytes in 1 block on cpu",
    ];
    words.iter().for_each(|word| assert!(refused.message().contains(word), "{refused:?}"));
    held.into_iter().for_each(|held| one.free(held));
    let held = other.alloc(GPU, 60 << 20).unwrap();
    other.free(held);
}

#[test]
fn more_than_the_device_has_is_out_of_memory_and_the_next_allocation_works() {
    let Some(backend) = backend("more_than_the_device_has") else { return };
    let _turn = turn();
    let account = backend.account("greedy");
    let t = table(&account);
    let bytes = backend.cuda().unwrap().devices[0].memory_bytes as usize;
    let refused = t.alloc(GPU, bytes + (1 << 30)).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code(abi::OUT_OF_MEMORY));
    let told = "the CUDA driver answered CUDA_ERROR_OUT_OF_MEMORY (2) to cuMemAllocFromPoolAsync";
    assert!(refused.message().contains(told), "{refused:?}");
    let held = t.upload(GPU, &[1, 2, 3]).unwrap();
    assert_eq!(t.download(GPU, held.address, 3).unwrap(), [1, 2, 3]);
    t.free(held);
    assert!(backend.leaks().is_empty());
}

#[test]
fn managed_memory_is_not_made_and_a_kernel_gets_no_argument_of_an_unknown_kind() {
    let Some(backend) = backend("managed_memory_is_not_made") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let managed = Device { r#type: abi::DEVICE_CUDA_MANAGED, ..GPU };
    let refused = t.alloc(managed, 8).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code::UNSUPPORTED);
    assert!(refused.message().ends_with("managed memory is not made here; expected cuda:0"), "{refused}");
    let block = t.alloc(GPU, 8).unwrap();
    let stream = t.stream_default(GPU).unwrap();
    let args = [range_arg(abi::ARG_READ, block.address, 8), range_arg(77, block.address, 8)];
    let refused = t.launch(stream, &add_one(), &args).unwrap_err();
    assert_eq!(refused.code(), Code::UNSUPPORTED);
    assert!(refused.message().starts_with("kernel 'add_one': argument 1 is of kind 77"), "{refused}");
    t.free(block);
}

#[test]
fn what_the_pool_keeps_is_given_up_before_there_is_no_memory() {
    let Some(backend) = backend("what_the_pool_keeps") else { return };
    if backend.cuda().unwrap().devices[0].memory_bytes > 32 << 30 {
        // The simulated device is small: filling a real one would take its memory from everybody.
        return skip("what_the_pool_keeps", "a device of this size is not filled by a test");
    }
    let account = backend.account("test");
    let t = table(&account);
    let bytes = backend.cuda().unwrap().devices[0].memory_bytes as usize;
    let halves: Vec<_> = (0..3).map(|_| t.alloc(GPU, bytes / 4).unwrap()).collect();
    halves.into_iter().for_each(|held| t.free(held));
    let whole = t.alloc(GPU, bytes / 8 * 7).unwrap();
    t.free(whole);
}

#[test]
fn devices_that_are_not_there_are_refused_with_those_that_are() {
    let Some(backend) = backend("devices_that_are_not_there") else { return };
    let account = backend.account("test");
    let refused = table(&account).alloc(Device::cuda(99), 1).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code(abi::DEVICE));
    assert!(
        refused.message().starts_with("cuda:99 does not exist on this host; it has cpu, cuda:0"),
        "{refused:?}"
    );
}

#[test]
fn a_kernel_without_an_image_or_with_a_bad_one_is_refused_by_name() {
    let Some(backend) = backend("a_kernel_without_an_image") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let held = t.upload(GPU, &[1; 64]).unwrap();
    let args = [range_arg(abi::ARG_READ, held.address, 32), range_arg(abi::ARG_WRITE, held.address, 32)];
    let stream = t.stream_default(GPU).unwrap();
    let refused = t.launch(stream, &add_one(), &args).unwrap_err();
    assert_eq!(refused.code(), Code(abi::UNSUPPORTED));
    assert!(refused.message().contains("kernel 'add_one' on cuda:0: it has no CUDA image"), "{refused:?}");
    let junk = b"this is no image";
    let kernel = abi::Kernel { image: junk.as_ptr().cast(), image_bytes: junk.len(), ..add_one() };
    let refused = t.launch(stream, &kernel, &args).unwrap_err();
    assert!(refused.message().contains("kernel 'add_one' on cuda:0"), "{refused:?}");
    assert_eq!(t.download(GPU, held.address, 64).unwrap(), [1; 64], "the device works on");
    t.free(held);
}

#[test]
fn an_address_is_told_by_the_device_that_it_lies_on() {
    let Some(backend) = backend("an_address_is_told") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let held = t.alloc(GPU, 1000).unwrap();
    let (device, base, bytes) = t.pointer(held.address.wrapping_add(500)).unwrap();
    assert_eq!(device, GPU);
    assert!(base <= held.address && bytes >= 1000);
    let pinned = t.alloc_pinned(1000).unwrap();
    assert_eq!(t.pointer(pinned.address).unwrap().0.r#type, abi::DEVICE_CUDA_HOST);
    assert_eq!(t.host_address(Device::CPU, pinned.address, 1000), pinned.address);
    let local = 0u8;
    assert_eq!(t.pointer(&local).unwrap().0, Device::CPU);
    t.free(held);
    t.free(pinned);
}

#[test]
fn faults_reach_the_device_too() {
    let faults = Faults::new();
    let builder = Backend::builder().faults(faults.clone());
    let Some(backend) = backend_with("faults_reach_the_device", builder) else { return };
    let account = backend.account("test");
    let t = table(&account);
    faults.fail(Operation::Allocate, 1);
    assert!(t.alloc(GPU, 64).map(|_| ()).unwrap_err().message().contains("fault plan"));
    let held = t.alloc(GPU, 64).unwrap();
    faults.fail(Operation::Copy, 1);
    assert!(
        t.copies(t.stream_default(GPU).unwrap(), &[copy((GPU, held.address), (GPU, held.address), 0)])
            .is_err()
    );
    t.free(held);
    assert!(backend.leaks().is_empty());
}

/// Two kernels, and no NUL at the end, where eights are full.
const IMAGE: &str = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry here()\n{ ret; }\n\
                     .visible .entry there()\n{ ret; }\n//\n";

#[test]
fn a_kernel_is_known_by_its_name_s_text_and_ptx_need_not_end_in_a_nul() {
    let Some(backend) = backend("a_kernel_is_known_by_its_name_s_text") else { return };
    assert_eq!(IMAGE.len() % 8, 0);
    let account = backend.account("test");
    let t = table(&account);
    let held = t.upload(GPU, &[1; 64]).unwrap();
    let args = [range_arg(abi::ARG_READ, held.address, 32), range_arg(abi::ARG_WRITE, held.address, 32)];
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
    let refused = launch(&name).unwrap_err();
    assert!(refused.message().contains("its image has no such function"), "{refused:?}");
    t.free(held);
}

#[test]
fn an_image_without_bytes_is_refused() {
    let Some(backend) = backend("an_image_without_bytes") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let kernel = abi::Kernel { image: IMAGE.as_ptr().cast(), image_bytes: 0, ..add_one() };
    let refused = t.launch(t.stream_default(GPU).unwrap(), &kernel, &[]).unwrap_err();
    assert!(refused.message().contains("has no bytes"), "{refused:?}");
}

#[test]
fn a_block_that_is_freed_after_an_event_that_has_passed_is_freed() {
    let Some(backend) = backend("a_block_that_is_freed_after_an_event_that_has_passed") else { return };
    let account = backend.account("test");
    let t = table(&account);
    for device in [GPU, Device::CPU] {
        let held = t.alloc(device, 1 << 20).unwrap();
        t.free_after(held, &[std::ptr::null_mut()], 0);
    }
    backend.settle();
    assert!(backend.leaks().is_empty());
}
