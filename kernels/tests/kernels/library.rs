//! Tests that the library finds each kernel by name, and rejects callers that expect other
//! arguments.

use std::collections::BTreeSet;
use std::ffi::CStr;

use crossdock_kernel_library::{find, images};
use crossdock_kernels::table::TABLE;
use crossdock_memory::{Code, Device, HostKernel};
use crossdock_plugin_api::abi;

/// Each type of device, and whether the kernels run there as CUDA code.
const DEVICES: [(Device, bool); 5] = [
    (Device::CPU, false),
    (Device::UNTOUCHABLE, false),
    (Device { r#type: abi::DEVICE_CUDA_HOST, ..Device::cuda(0) }, false),
    (Device::cuda(0), true),
    (Device { r#type: abi::DEVICE_CUDA_MANAGED, ..Device::cuda(0) }, true),
];

#[test]
fn finds_every_kernel_on_every_type_of_device() {
    for row in TABLE {
        for (device, is_cuda) in DEVICES {
            let kernel = find(device, row.name, row.host.arguments()).unwrap().as_abi();
            // SAFETY: the name of a kernel is a NUL-terminated constant.
            assert_eq!(unsafe { CStr::from_ptr(kernel.name) }, row.name);
            assert!(kernel.host_function.is_some(), "{:?}", row.name);
            let image = if is_cuda { images().as_ptr() } else { std::ptr::null() };
            assert_eq!(kernel.image.cast(), image, "{:?} on {device}", row.name);
        }
    }
}

#[test]
fn each_kernel_has_its_own_cpu_implementation() {
    let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    let implementations: BTreeSet<_> = TABLE
        .iter()
        .map(|row| {
            find(Device::CPU, row.name, row.host.arguments()).unwrap().as_abi().host_function.unwrap()
                as usize
        })
        .collect();
    assert_eq!(implementations.len(), TABLE.len());
}

#[test]
fn find_returns_same_address_each_time() {
    for (device, _) in DEVICES {
        let address = || std::ptr::from_ref(find(device, c"crossdock_cast", c"rvwvw").unwrap());
        assert_eq!(address(), address());
    }
}

#[test]
fn argument_string_has_repeatable_arguments_in_parentheses() {
    let arguments = |name: &CStr| TABLE.iter().find(|row| row.name == name).unwrap().host.arguments();
    assert_eq!(arguments(c"crossdock_copy_ranges"), c"rw");
    assert_eq!(arguments(c"crossdock_gather"), c"rvvw(vv)");
    assert_eq!(arguments(c"crossdock_concatenate_bits"), c"wv(rvv)");
}

#[test]
fn rejects_unknown_name() {
    let error = find(Device::CPU, c"crossdock_unheard_of", c"rw").unwrap_err();
    assert_eq!(error.code(), Code::VERSION);
    assert!(error.message().starts_with("this host has no kernel 'crossdock_unheard_of': "), "{error}");
}

#[test]
fn error_for_mismatched_arguments_contains_expected_and_actual_lists() {
    for stated in [c"", c"r", c"wr", c"rwv", c"rw(vv)", c"(rw)"] {
        let error = find(Device::cuda(0), c"crossdock_copy_ranges", stated).unwrap_err();
        assert_eq!(error.code(), Code::VERSION);
        let message = format!(
            "the kernel 'crossdock_copy_ranges' takes the arguments 'rw', and the caller states '{}': ",
            stated.to_str().unwrap()
        );
        assert!(error.message().starts_with(&message), "{error}");
    }
}

#[test]
fn rejects_device_without_kernels() {
    let device = Device { r#type: 7, ..Device::CPU };
    let error = find(device, c"crossdock_copy_ranges", c"rw").unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
}

#[test]
fn kernel_cache_holds_all_kernels() {
    assert!(TABLE.len() <= HostKernel::MAX_CACHED);
}
