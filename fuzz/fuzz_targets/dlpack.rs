//! Imports DLPack tensors with random fields. An imported column must be valid and equal after a
//! round trip, and each tensor must be freed exactly once. An importer cannot check the memory that
//! a tensor declares. Tensors that reach beyond their memory are therefore skipped, except for
//! tensors that exceed the address space.
#![no_main]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_arrays::{
    Level, Result, export_batch, export_schema, first_difference, import_batch, import_schema, validate,
};
use crossdock_dlpack::DlPack;
use crossdock_fuzz::Bytes;
use crossdock_memory::Device;
use crossdock_plugin_api::{CallSettings, Capsule, Exporter, Importer, Input, Options, Plugin, ReadRequest};
use crossdock_test_support::TestHost;
use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPackVersion, DLTensor,
};
use libfuzzer_sys::fuzz_target;

const DATA_BYTES: usize = 4096;
/// A number that is greater than every address.
const MAX_ADDRESS: i128 = 1 << 63;

static FREED: AtomicUsize = AtomicUsize::new(0);

/// The `manager_ctx` of a tensor.
struct Parts {
    _data: Vec<u8>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn free(parts: *mut c_void) {
    // SAFETY: `tensor` boxed the parts, and a deleter is called once.
    drop(unsafe { Box::from_raw(parts.cast::<Parts>()) });
    FREED.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn free_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: `capsule` boxed the tensor, and a deleter is called once.
    free(unsafe { Box::from_raw(tensor) }.manager_ctx);
}

unsafe extern "C" fn free_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: `capsule` boxed the tensor, and a deleter is called once.
    free(unsafe { Box::from_raw(tensor) }.manager_ctx);
}

/// Returns the range of bytes that the elements occupy, relative to the tensor's data pointer.
fn extent(dtype: DLDataType, shape: &[i64], strides: &[i64], offset: u64) -> (i128, i128) {
    let bytes = (i128::from(dtype.bits) * i128::from(dtype.lanes) + 7) / 8;
    let (mut low, mut high) = (i128::from(offset), i128::from(offset) + bytes);
    if shape.contains(&0) {
        return (low, low);
    }
    for (n, stride) in shape.iter().zip(strides) {
        let reach = ((i128::from(*n) - 1).max(0) * i128::from(*stride)).saturating_mul(bytes);
        (low, high) = (low.saturating_add(reach.min(0)), high.saturating_add(reach.max(0)));
    }
    (low, high)
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

/// Generates a tensor and its parts. Returns `None` if the tensor would reach beyond its memory.
fn tensor(from: &mut Bytes<'_>) -> Option<(DLTensor, *mut Parts)> {
    let codes = [0, 1, 2, 4, 5, 6, 7, 8, 14, 17, from.byte()];
    let bits = [8, 16, 32, 64, 1, 4, 6, 128, 0, from.byte()];
    let (code, bits) = (DLDataTypeCode(from.choose(&codes)), from.choose(&bits));
    let dtype = DLDataType { code, bits, lanes: from.choose(&[1, 1, 1, 1, 2, 4, 0, u16::MAX]) };
    let ndim = from.byte() % 5;
    let shape: Vec<i64> = (0..ndim)
        .map(|_| {
            let usual = i64::from(from.byte() % 9);
            from.count(usual)
        })
        .collect();
    let strides: Vec<i64> = match from.byte() % 3 {
        0 => row_major(&shape).into_iter().map(|stride| from.count(stride)).collect(),
        1 => shape.iter().map(|_| i64::from(from.byte() as i8)).collect(),
        _ => row_major(&shape),
    };
    let byte_offset = from.choose(&[0, 0, 0, 1, 8, 64, 2048, u64::MAX]);
    let (low, high) = extent(dtype, &shape, &strides, byte_offset);
    // The number of elements has a limit, because tensors with overlapping elements (stride 0)
    // would otherwise take too long.
    let elements = shape.iter().fold(1, |product: i128, n| product.saturating_mul(i128::from((*n).max(1))));
    let fits = low >= -(DATA_BYTES as i128) && high <= DATA_BYTES as i128 && elements <= DATA_BYTES as i128;
    let is_invalid = shape.iter().any(|n| *n < 0) || low < -MAX_ADDRESS || high > MAX_ADDRESS;
    if !fits && !is_invalid {
        return None;
    }
    let mut data = from.take(64);
    data.resize(2 * DATA_BYTES, 1);
    let has_strides = strides != row_major(&shape) || from.byte() & 1 == 0;
    let parts = Box::leak(Box::new(Parts { _data: data, shape, strides }));
    let device = DLDevice {
        device_type: DLDeviceType(from.choose(&[1, 1, 1, 1, 1, 1, 2, 13, 99])),
        device_id: from.choose(&[0, 0, 0, 0, 0, 7, -1]),
    };
    // The pointer is in the middle of the memory, so that elements with negative strides fit.
    let middle = parts._data.as_mut_ptr().wrapping_add(DATA_BYTES);
    let tensor = DLTensor {
        data: if from.byte() > 250 { std::ptr::null_mut() } else { middle.cast() },
        device,
        ndim: if from.byte() > 250 { from.number() as i32 & i32::MIN } else { i32::from(ndim) },
        dtype,
        shape: if from.byte() > 250 { std::ptr::null_mut() } else { parts.shape.as_mut_ptr() },
        strides: if has_strides { parts.strides.as_mut_ptr() } else { std::ptr::null_mut() },
        byte_offset,
    };
    Some((tensor, parts))
}

fn capsule(from: &mut Bytes<'_>) -> Option<Capsule> {
    let (dl_tensor, parts) = tensor(from)?;
    let manager_ctx = parts.cast();
    // SAFETY: each name matches the type of the object, and each function frees an object of this
    // type.
    Some(unsafe {
        if from.byte() & 1 == 0 {
            let deleter = Some(free_legacy as unsafe extern "C" fn(_));
            let tensor =
                NonNull::from(Box::leak(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter })));
            Capsule::from_self_freeing(c"dltensor", tensor, |tensor| free_legacy(tensor.as_ptr()))
        } else {
            let version = DLPackVersion { major: from.choose(&[1, 1, 1, 2]), minor: u32::from(from.byte()) };
            let flags = DlpackFlags::from_bits_retain(from.byte().into());
            let deleter = Some(free_versioned as unsafe extern "C" fn(_));
            let tensor = DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor };
            let tensor = NonNull::from(Box::leak(Box::new(tensor)));
            Capsule::from_self_freeing(c"dltensor_versioned", tensor, |tensor| {
                free_versioned(tensor.as_ptr())
            })
        }
    })
}

fn round_trip(host: &TestHost, capsules: Vec<Capsule>, from: &mut Bytes<'_>) -> Result<()> {
    let plugin = DlPack::create(host.host())?;
    let (settings, stream) = (CallSettings::new(Device::CPU), host.stream(Device::CPU));
    let options = match from.byte() % 4 {
        0 => Options::new().with("bools", "bits"),
        1 => Options::new().with("nulls", "mask"),
        _ => Options::new(),
    };
    let open = |capsules: Vec<Capsule>| {
        let input = Input::Capsules(capsules.into());
        let request = ReadRequest::new("dlpack").with_options(&options);
        settings.enter(|call| Importer::open(&plugin, call, input, &request))
    };
    let mut reader = open(capsules)?;
    let schema = Arc::new(import_schema(&reader.schema()?)?);
    while let Some(batch) = settings.enter(|call| reader.next(call))? {
        let batch = import_batch(batch, &schema, &host.memory())?;
        validate(&batch, Level::Full, &stream).expect("an imported batch is valid");
        let raw = export_schema(&schema)?;
        let to = Options::new();
        let mut writer = settings.enter(|call| Exporter::begin(&plugin, call, "dlpack", &raw, &to, None))?;
        let exported = export_batch(&batch, false, &stream)?;
        let mut out = settings.enter(|call| writer.write(call, exported))?;
        out.extend(settings.enter(|call| writer.finish(call))?);
        let mut back = settings.enter(|call| {
            let input = Input::Capsules(out.into());
            Importer::open(&plugin, call, input, &ReadRequest::new("dlpack").with_schema(Some(&raw)))
        })?;
        let again = settings.enter(|call| back.next(call))?.expect("the export has a batch");
        let again = import_batch(again, &schema, &host.memory())?;
        let difference = first_difference(&batch, &again, &stream)?;
        assert!(difference.is_none(), "{difference:?}");
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let mut from = Bytes(bytes);
    let capsules: Vec<_> = (0..1 + from.byte() % 2).filter_map(|_| capsule(&mut from)).collect();
    let (before, n_tensors) = (FREED.load(Ordering::Relaxed), capsules.len());
    let host = TestHost::new();
    // An error is a valid result.
    drop(round_trip(&host, capsules, &mut from));
    assert_eq!(FREED.load(Ordering::Relaxed), before + n_tensors, "each tensor was freed once");
    host.assert_nothing_leaked();
});
