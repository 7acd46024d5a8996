//! The library finds each kernel by its name, and refuses a caller that expects another one.

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
fn finds_every_kernel_of_the_table_on_every_type_of_device() {
    for row in TABLE {
        for (device, is_cuda) in DEVICES {
            let kernel = find(device, row.name, row.host.arguments()).unwrap().as_abi();
            // SAFETY: names of kernels are NUL-terminated constants.
            assert_eq!(unsafe { CStr::from_ptr(kernel.name) }, row.name);
            assert!(kernel.host_twin.is_some(), "{:?}", row.name);
            let image = if is_cuda { images().as_ptr() } else { std::ptr::null() };
            assert_eq!(kernel.image.cast(), image, "{:?} on {device}", row.name);
        }
    }
}

#[test]
fn each_name_has_a_cpu_implementation_of_its_own() {
    let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    let implementations: BTreeSet<_> = TABLE
        .iter()
        .map(|row| {
            find(Device::CPU, row.name, row.host.arguments()).unwrap().as_abi().host_twin.unwrap() as usize
        })
        .collect();
    assert_eq!(implementations.len(), TABLE.len());
}

#[test]
fn gives_the_same_address_at_each_lookup() {
    for (device, _) in DEVICES {
        let address = || std::ptr::from_ref(find(device, c"crossdock_cast", c"rvwvw").unwrap());
        assert_eq!(address(), address());
    }
}

#[test]
fn states_arguments_by_a_letter_each_with_repeated_ones_in_parentheses() {
    let arguments = |name: &CStr| TABLE.iter().find(|row| row.name == name).unwrap().host.arguments();
    assert_eq!(arguments(c"crossdock_copy_ranges"), c"rw");
    assert_eq!(arguments(c"crossdock_gather"), c"rvvw(vv)");
    assert_eq!(arguments(c"crossdock_concatenate_bits"), c"wv(rvv)");
}

#[test]
fn refuses_an_unknown_name() {
    let error = find(Device::CPU, c"crossdock_unheard_of", c"rw").unwrap_err();
    assert_eq!(error.code(), Code::VERSION);
    assert!(error.message().starts_with("this host has no kernel 'crossdock_unheard_of': "), "{error}");
}

#[test]
fn refuses_other_arguments_and_names_both() {
    for stated in [c"", c"r", c"wr", c"rwv", c"rw(vv)", c"(rw)"] {
        let error = find(Device::cuda(0), c"crossdock_copy_ranges", stated).unwrap_err();
        assert_eq!(error.code(), Code::VERSION);
        let words = format!(
            "the kernel 'crossdock_copy_ranges' takes the arguments 'rw', and the caller states '{}': ",
            stated.to_str().unwrap()
        );
        assert!(error.message().starts_with(&words), "{error}");
    }
}

#[test]
fn refuses_a_device_that_no_kernel_runs_on() {
    let device = Device { r#type: 7, ..Device::CPU };
    let error = find(device, c"crossdock_copy_ranges", c"rw").unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
}

#[test]
fn all_kernels_have_room_among_those_that_a_memory_remembers() {
    assert!(TABLE.len() <= HostKernel::REMEMBERED);
}
