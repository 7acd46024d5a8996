//! Tests that malformed tensors are rejected with a message and freed.

use crate::common::*;
use crossdock_plugin_api::{Capsule, Code as ErrorCode, Device, Options};
use crossdock_test_support::TestHost;
use dlpark::ffi::DLPackVersion;

/// Imports a tensor that `change` made invalid, and asserts that the error contains all `parts`.
fn assert_rejected(change: impl Fn(&mut Spec), parts: &[&str]) {
    let host = TestHost::new();
    let instance = instance(&host);
    for versioned in [true, false] {
        let mut spec = Spec::from_i64(&host, Device::CPU, &[1, 2, 3, 4]);
        spec.versioned = versioned;
        change(&mut spec);
        if spec.version.major != 1 && !versioned {
            continue;
        }
        let good = Spec::from_i64(&host, Device::CPU, &[1, 2, 3, 4]);
        let capsules = vec![good.capsule(), spec.capsule(), good.capsule()];
        let error = import(&host, &instance, Device::CPU, capsules, None, &Options::new()).unwrap_err();
        for part in parts {
            assert!(error.message().contains(part), "{:?} does not contain {part:?}", error.message());
        }
        assert!(error.message().contains("tensor 1 of 3"), "{}", error.message());
        assert_eq!((good.frees(), spec.frees()), (2, 1), "{parts:?}: each is freed once");
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn rejects_invalid_shapes_and_strides() {
    assert_rejected(|s| s.shape = Some(vec![-4]), &["size -4"]);
    assert_rejected(|s| (s.shape, s.ndim) = (None, Some(1)), &["shape is NULL"]);
    assert_rejected(|s| s.ndim = Some(-1), &["-1 dimensions"]);
    assert_rejected(|s| s.ndim = Some(i32::MAX), &["2147483647 dimensions"]);
    assert_rejected(|s| s.ndim = Some(65), &["65 dimensions, expected 1 to 64"]);
    assert_rejected(|s| s.ndim = Some(0), &["scalar", "reshape"]);
    assert_rejected(|s| s.shape = Some(vec![i64::MAX]), &["overflows int64"]);
    assert_rejected(
        |s| (s.shape, s.strides) = (Some(vec![1 << 40, 1 << 40]), Some(vec![0, 0])),
        &["overflows int64"],
    );
    assert_rejected(
        |s| (s.shape, s.strides) = (Some(vec![0, i64::MAX, i64::MAX]), Some(vec![0, 0, 0])),
        &["overflows int64"],
    );
    assert_rejected(|s| s.strides = Some(vec![i64::MAX]), &["beyond the address space"]);
    assert_rejected(|s| s.strides = Some(vec![i64::MIN]), &["beyond the address space"]);
    assert_rejected(|s| s.strides = Some(vec![-(1 << 60)]), &["beyond the address space"]);
}

#[test]
fn rejects_dtypes_that_arrow_does_not_support() {
    let lanes = |n| move |s: &mut Spec| s.dtype.lanes = n;
    assert_rejected(lanes(4), &["int64 with 4 lanes", "make the lanes a dimension"]);
    assert_rejected(lanes(0), &["0 lanes"]);
    let of = |code, bits| move |s: &mut Spec| s.dtype = dtype(Code(code), bits);
    assert_rejected(of(4, 32), &["bfloat32", "cast it", "bfloat16, float8_e3m4"]);
    assert_rejected(of(5, 32), &["complex32", "cast it"]);
    assert_rejected(of(10, 16), &["code 10 and 16 bits"]);
    assert_rejected(of(15, 6), &["float6_e2m3fn: several elements share a byte", "view the bytes as uint8"]);
    assert_rejected(of(16, 6), &["float6_e3m2fn: several elements share a byte"]);
    assert_rejected(of(3, 64), &["handle64"]);
    assert_rejected(of(0, 4), &["int4"]);
    assert_rejected(of(0, 0), &["int0"]);
    assert_rejected(of(0, 128), &["int128"]);
    assert_rejected(of(2, 8), &["float8"]);
    assert_rejected(of(6, 1), &["bool1"]);
    assert_rejected(of(17, 4), &["float4_e2m1fn: several elements share a byte"]);
    assert_rejected(of(18, 8), &["code 18 and 8 bits"]);
    assert_rejected(of(255, 255), &["code 255 and 255 bits"]);
}

#[test]
fn rejects_unknown_devices_and_invalid_addresses() {
    let on = |r#type, id| {
        move |s: &mut Spec| s.device = DLDevice { device_type: DLDeviceType(r#type), device_id: id }
    };
    assert_rejected(on(2, 63), &["cuda:63", "expected one of cpu"]);
    assert_rejected(on(2, -7), &["cuda:-7"]);
    assert_rejected(on(4, 1), &["device type 4, id 1"]);
    assert_rejected(on(99, 0), &["device type 99"]);
    assert_rejected(on(0, 0), &["device type 0"]);
    assert_rejected(on(u32::MAX, 0), &["expected one of"]);
    assert_rejected(|s| s.data = None, &["data is NULL with shape [4]"]);
    assert_rejected(|s| s.byte_offset = u64::MAX, &["beyond the address space"]);
}

#[test]
fn frees_unknown_major_version_without_reading_it() {
    let change = |s: &mut Spec| {
        s.version = DLPackVersion { major: 2, minor: 0 };
        // A struct of another major version may have another layout, so these fields must not be
        // read.
        (s.shape, s.ndim) = (None, Some(i32::MAX));
    };
    assert_rejected(change, &["version"]);
}

#[test]
fn accepts_newer_minor_version_and_null_deleter() {
    let host = TestHost::new();
    let instance = instance(&host);
    let mut spec = Spec::from_i64(&host, Device::CPU, &[1, 2, 3]);
    spec.version.minor = 99;
    spec.has_deleter = false;
    for versioned in [true, false] {
        spec.versioned = versioned;
        let (_, batches) =
            import(&host, &instance, Device::CPU, vec![spec.capsule()], None, &Options::new()).unwrap();
        assert_eq!(batches[0].len(), 3);
        drop(batches);
        assert_eq!(spec.frees(), 0, "a tensor without deleter is never freed");
    }
}

#[test]
fn rejects_consumed_and_renamed_capsules() {
    let host = TestHost::new();
    let instance = instance(&host);
    let spec = Spec::from_i64(&host, Device::CPU, &[1]);
    let import = |capsule| import(&host, &instance, Device::CPU, vec![capsule], None, &Options::new());
    let mut raw = spec.capsule().into_raw();
    // SAFETY: `into_raw` passed the ownership of the capsule. The tensor is deleted only here, in
    // the same way as by a consumer.
    unsafe {
        let managed = (*raw.as_mut_ptr()).pointer.cast::<dlpark::ffi::DLManagedTensorVersioned>();
        (*raw.as_mut_ptr()).pointer = std::ptr::null_mut();
        ((*managed).deleter.unwrap())(managed);
    }
    // SAFETY: the struct is still a valid capsule. Its NULL pointer means that it has been
    // consumed.
    let error = import(unsafe { Capsule::from_raw(raw) }).unwrap_err();
    assert!(error.message().contains("consumed already"), "{}", error.message());
    assert_eq!(spec.frees(), 1);

    let mut raw = spec.capsule().into_raw();
    // SAFETY: `into_raw` passed the ownership of the capsule, and the new name is a static string.
    let capsule = unsafe {
        (*raw.as_mut_ptr()).name = c"used_dltensor_versioned".as_ptr();
        Capsule::from_raw(raw)
    };
    let error = import(capsule).unwrap_err();
    assert!(
        error.message().contains("'used_dltensor_versioned', expected 'dltensor_versioned' or 'dltensor'"),
        "{}",
        error.message()
    );
    assert_eq!(error.code(), ErrorCode::INVALID_ARGUMENT);
    assert_eq!(spec.frees(), 2);
}
