//! Tensors that are not what they say: an error with words, and the tensor freed.

use crate::common::*;
use crossdock_plugin_api::{Capsule, Code as ErrorCode, Device, Options};
use crossdock_test_support::TestHost;
use dlpark::ffi::DLPackVersion;

/// One change to a good tensor, and what is said about it.
fn assert_refused(change: impl Fn(&mut Spec), words: &[&str]) {
    let host = TestHost::new();
    let instance = instance(&host);
    for versioned in [true, false] {
        let mut spec = Spec::of_i64(&host, Device::CPU, &[1, 2, 3, 4]);
        spec.versioned = versioned;
        change(&mut spec);
        if spec.version.major != 1 && !versioned {
            continue;
        }
        let good = Spec::of_i64(&host, Device::CPU, &[1, 2, 3, 4]);
        let capsules = vec![good.capsule(), spec.capsule(), good.capsule()];
        let error = import(&host, &instance, Device::CPU, capsules, None, &Options::new()).unwrap_err();
        for word in words {
            assert!(error.message().contains(word), "{:?} does not contain {word:?}", error.message());
        }
        assert!(error.message().contains("tensor 1 of 3"), "{}", error.message());
        assert_eq!((good.frees(), spec.frees()), (2, 1), "{words:?}: each is freed once");
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn shapes_and_strides_that_cannot_be() {
    assert_refused(|s| s.shape = Some(vec![-4]), &["size -4"]);
    assert_refused(|s| (s.shape, s.ndim) = (None, Some(1)), &["NULL shape"]);
    assert_refused(|s| s.ndim = Some(-1), &["-1 dimensions"]);
    assert_refused(|s| s.ndim = Some(i32::MAX), &["2147483647 dimensions"]);
    assert_refused(|s| s.ndim = Some(65), &["65 dimensions, expected 1 to 64"]);
    assert_refused(|s| s.ndim = Some(0), &["scalar", "reshape"]);
    assert_refused(|s| s.shape = Some(vec![i64::MAX]), &["beyond what can be counted"]);
    assert_refused(
        |s| (s.shape, s.strides) = (Some(vec![1 << 40, 1 << 40]), Some(vec![0, 0])),
        &["beyond what can be counted"],
    );
    assert_refused(
        |s| (s.shape, s.strides) = (Some(vec![0, i64::MAX, i64::MAX]), Some(vec![0, 0, 0])),
        &["beyond what can be counted"],
    );
    assert_refused(|s| s.strides = Some(vec![i64::MAX]), &["beyond the address space"]);
    assert_refused(|s| s.strides = Some(vec![i64::MIN]), &["beyond the address space"]);
    assert_refused(|s| s.strides = Some(vec![-(1 << 60)]), &["beyond the address space"]);
}

#[test]
fn types_that_arrow_has_not() {
    let lanes = |n| move |s: &mut Spec| s.dtype.lanes = n;
    assert_refused(lanes(4), &["int64 with 4 lanes", "make the lanes a dimension"]);
    assert_refused(lanes(0), &["0 lanes"]);
    let of = |code, bits| move |s: &mut Spec| s.dtype = dtype(Code(code), bits);
    assert_refused(of(4, 16), &["bfloat16", "cast it"]);
    assert_refused(of(5, 64), &["complex64", "cast it"]);
    assert_refused(of(3, 64), &["handle64"]);
    assert_refused(of(0, 4), &["int4"]);
    assert_refused(of(0, 0), &["int0"]);
    assert_refused(of(0, 128), &["int128"]);
    assert_refused(of(2, 8), &["float8"]);
    assert_refused(of(6, 1), &["bool1"]);
    assert_refused(of(17, 4), &["code 17 of 4 bits"]);
    assert_refused(of(255, 255), &["code 255 of 255 bits"]);
}

#[test]
fn devices_that_are_not_there_and_addresses_that_cannot_be() {
    let on = |r#type, id| {
        move |s: &mut Spec| s.device = DLDevice { device_type: DLDeviceType(r#type), device_id: id }
    };
    assert_refused(on(2, 63), &["cuda:63", "expected one of cpu"]);
    assert_refused(on(2, -7), &["cuda:-7"]);
    assert_refused(on(4, 1), &["device type 4, id 1"]);
    assert_refused(on(99, 0), &["device type 99"]);
    assert_refused(on(0, 0), &["device type 0"]);
    assert_refused(on(u32::MAX, 0), &["expected one of"]);
    assert_refused(|s| s.data = None, &["data is NULL with shape [4]"]);
    assert_refused(|s| s.byte_offset = u64::MAX, &["beyond the address space"]);
}

#[test]
fn another_major_version_is_freed_and_not_looked_at() {
    let change = |s: &mut Spec| {
        s.version = DLPackVersion { major: 2, minor: 0 };
        // What lies there is anybody's guess.
        (s.shape, s.ndim) = (None, Some(i32::MAX));
    };
    assert_refused(change, &["version"]);
}

#[test]
fn a_newer_minor_version_and_a_missing_deleter_are_no_trouble() {
    let host = TestHost::new();
    let instance = instance(&host);
    let mut spec = Spec::of_i64(&host, Device::CPU, &[1, 2, 3]);
    spec.version.minor = 99;
    spec.has_deleter = false;
    for versioned in [true, false] {
        spec.versioned = versioned;
        let (_, batches) =
            import(&host, &instance, Device::CPU, vec![spec.capsule()], None, &Options::new()).unwrap();
        assert_eq!(batches[0].len(), 3);
        drop(batches);
        assert_eq!(spec.frees(), 0, "nobody told how to free it");
    }
}

#[test]
fn a_capsule_is_consumed_once_and_only_under_its_name() {
    let host = TestHost::new();
    let instance = instance(&host);
    let spec = Spec::of_i64(&host, Device::CPU, &[1]);
    let import = |capsule| import(&host, &instance, Device::CPU, vec![capsule], None, &Options::new());
    let mut raw = spec.capsule().into_raw();
    // SAFETY: the capsule is ours; what it held is deleted here, as its taker would.
    unsafe {
        let managed = (*raw.as_mut_ptr()).pointer.cast::<dlpark::ffi::DLManagedTensorVersioned>();
        (*raw.as_mut_ptr()).pointer = std::ptr::null_mut();
        ((*managed).deleter.unwrap())(managed);
    }
    // SAFETY: a capsule whose object has been taken.
    let error = import(unsafe { Capsule::from_raw(raw) }).unwrap_err();
    assert!(error.message().contains("consumed already"), "{}", error.message());
    assert_eq!(spec.frees(), 1);

    let mut raw = spec.capsule().into_raw();
    // SAFETY: the capsule is ours, and its name a constant.
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
