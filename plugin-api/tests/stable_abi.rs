//! Checks the C structs with abi_stable. If this file compiles, each struct is FFI-safe, because
//! the derive macro rejects fields of types that are not FFI-safe. The layout checker of abi_stable
//! also rejects structs that grow. Therefore the checker is not used to compare releases; see
//! docs/decisions/0006.
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
        Device, Batch, Capsule, Capsules, Source, Sink, Cancel, Call, BatchStream, Writer, Magic, OptionInfo, Format, Input, Path,
        RowRange, Predicate, ReadRequest, Fragment, Fragments, Importer, Opener,
        ColumnPlan, Plan, Exporter, EncodedBuffer, EncodedNode, EncodedArray, Operator, DecodePlan, Encoder, Encoding, Host, HostLog, HostSession, HostDecode,
        Load, HostLoader, HostTasks,
        Allocation, Copy, Pointer, DeviceInfo, Arg, Kernel, KernelArgs, Image,
        ImageSet, Launch, HostKernels, Memory, PluginEntry, PluginMeta,
    }
}

#[repr(C)]
#[derive(StableAbi)]
struct Released {
    struct_size: usize,
    name: *const core::ffi::c_char,
    bytes: u64,
}

/// The struct `Released`, but with `name` and `bytes` exchanged.
#[repr(C)]
#[derive(StableAbi)]
struct Moved {
    struct_size: usize,
    bytes: u64,
    name: *const core::ffi::c_char,
}

/// `Released` with an additional field at the end, and a `Reader` that refers to it.
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
fn all_recorded_structs_are_ffi_safe() {
    let checked: Vec<usize> = structs().iter().map(|(_, layout)| layout.size()).collect();
    let recorded: Vec<usize> = layout::layouts().iter().map(|s| s.size).collect();
    assert_eq!(
        checked, recorded,
        "the sizes of abi_stable (left) and of the record (right), in the order of the record"
    );
}

#[test]
fn all_structs_are_compatible_with_themselves() {
    for (name, layout) in structs() {
        if let Err(errors) = check_layout_compatibility(layout, layout) {
            panic!("{name}: {errors}");
        }
    }
}

#[test]
fn rejects_different_structs() {
    for pair in structs().windows(2) {
        let [(left, a), (right, b)] = pair else { unreachable!("windows of two") };
        assert!(check_layout_compatibility(a, b).is_err(), "{left} is accepted as {right}");
    }
}

#[test]
fn rejects_moved_fields() {
    assert!(check_layout_compatibility(Released::LAYOUT, Released::LAYOUT).is_ok());
    assert!(check_layout_compatibility(Released::LAYOUT, Moved::LAYOUT).is_err());
}

/// This checker is not used to compare releases (docs/decisions/0006), because it rejects structs
/// that are longer in another version.
#[test]
fn rejects_structs_that_are_longer_or_shorter_in_another_version() {
    let pairs = [(Released::LAYOUT, later::Released::LAYOUT), (Reader::LAYOUT, later::Reader::LAYOUT)];
    for (before, after) in pairs {
        assert!(check_layout_compatibility(before, after).is_err());
        assert!(check_layout_compatibility(after, before).is_err());
    }
    assert!(check_layout_compatibility(Reader::LAYOUT, Reader::LAYOUT).is_ok());
}
