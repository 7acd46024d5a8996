//! abi_stable's view of the boundary. That this compiles is the proof that each struct is FFI-safe: the derive
//! refuses a field that is not. Its layout checker tells structs apart, and refuses growth: why the comparison with the last
//! release is another's is in docs/decisions/0006.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![allow(non_local_definitions)]

use abi_stable::StableAbi;
use abi_stable::abi_stability::abi_checking::check_layout_compatibility;
use abi_stable::type_layout::TypeLayout;
use crossdock_plugin_api::{abi, layout};

macro_rules! structs {
    ($($name:ident),* $(,)?) => { vec![ $((stringify!($name), <abi::$name as StableAbi>::LAYOUT)),* ] };
}

fn structs() -> Vec<(&'static str, &'static TypeLayout)> {
    structs! {
        ArrowSchema, ArrowArray, ArrowDeviceArray, ArrowArrayStream, ArrowDeviceArrayStream, Error, Str, OptionPair,
        Device, Batch, Capsule, Capsules, Source, Sink, Call, BatchStream, Writer, Magic, OptionInfo, Format, Input, Importer,
        ColumnPlan, Plan, Exporter, EncodedBuffer, EncodedNode, EncodedArray, Operator, Encoding, Host, HostLog, HostSession, HostDecode,
        Allocation, Copy, Pointer, DeviceInfo, Arg, Kernel, KernelArgs, Image,
        ImageSet, Grid, HostKernels, Memory, PluginEntry, PluginMeta,
    }
}

#[repr(C)]
#[derive(StableAbi)]
struct Released {
    struct_size: usize,
    name: *const core::ffi::c_char,
    bytes: u64,
}

/// The same fields, two of them exchanged.
#[repr(C)]
#[derive(StableAbi)]
struct Moved {
    struct_size: usize,
    bytes: u64,
    name: *const core::ffi::c_char,
}

/// The same with a field at its end, and who points at it.
mod later {
    use super::StableAbi;

    #[repr(C)]
    #[derive(StableAbi)]
    pub struct Released {
        pub struct_size: usize,
        pub name: *const core::ffi::c_char,
        pub bytes: u64,
        pub appended: u64,
    }

    #[repr(C)]
    #[derive(StableAbi)]
    pub struct Reader {
        pub read: Option<unsafe extern "C" fn(*const Released) -> i32>,
    }
}

#[repr(C)]
#[derive(StableAbi)]
struct Reader {
    read: Option<unsafe extern "C" fn(*const Released) -> i32>,
}

#[test]
fn every_struct_of_the_record_is_proved_ffi_safe() {
    let proved: Vec<usize> = structs().iter().map(|(_, layout)| layout.size()).collect();
    let recorded: Vec<usize> = layout::layouts().iter().map(|s| s.size).collect();
    assert_eq!(
        proved, recorded,
        "sizes by abi_stable (left) and by the record (right), in the record's order"
    );
}

#[test]
fn every_struct_is_compatible_with_itself() {
    for (name, layout) in structs() {
        if let Err(errors) = check_layout_compatibility(layout, layout) {
            panic!("{name}: {errors}");
        }
    }
}

#[test]
fn different_structs_are_rejected() {
    for pair in structs().windows(2) {
        let [(left, a), (right, b)] = pair else { unreachable!("windows of two") };
        assert!(check_layout_compatibility(a, b).is_err(), "{left} passes for {right}");
    }
}

#[test]
fn a_moved_field_is_rejected() {
    assert!(check_layout_compatibility(Released::LAYOUT, Released::LAYOUT).is_ok());
    assert!(check_layout_compatibility(Released::LAYOUT, Moved::LAYOUT).is_err());
}

/// Decision 6: this checker knows no struct that may be longer on the other side.
#[test]
fn growth_is_refused_in_either_direction_and_in_all_that_point_at_it() {
    let pairs = [(Released::LAYOUT, later::Released::LAYOUT), (Reader::LAYOUT, later::Reader::LAYOUT)];
    for (before, after) in pairs {
        assert!(check_layout_compatibility(before, after).is_err());
        assert!(check_layout_compatibility(after, before).is_err());
    }
    assert!(check_layout_compatibility(Reader::LAYOUT, Reader::LAYOUT).is_ok());
}
