//! DLPack tensors with every field taken from the fuzzer's bytes: an error, or a sound column that goes out as tensors again; freed
//! once. Nothing else. What a tensor reaches of memory it alone says, so those that say what is not so are left out, but for
//! what no address space has.
#![no_main]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_arrays::{Level, Result, export_batch, export_schema, first_difference, import_batch, import_schema, validate};
use crossdock_dlpack::DlPack;
use crossdock_fuzz::Bytes;
use crossdock_memory::Device;
use crossdock_plugin_api::{CallSettings, Capsule, Exporter, Importer, Input, Options, Plugin};
use crossdock_test_support::TestHost;
use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use libfuzzer_sys::fuzz_target;

const DATA_BYTES: usize = 4096;
/// Beyond what any address can be.
const ABSURD: i128 = 1 << 63;

static FREED: AtomicUsize = AtomicUsize::new(0);

/// What a tensor points at.
struct Parts {
    _data: Vec<u8>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn free(parts: *mut c_void) {
    // SAFETY: made in `tensor`, freed once: the fuzzer sees twice.
    drop(unsafe { Box::from_raw(parts.cast::<Parts>()) });
    FREED.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn free_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: made in `capsule`.
    free(unsafe { Box::from_raw(tensor) }.manager_ctx);
}

unsafe extern "C" fn free_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: as above.
    free(unsafe { Box::from_raw(tensor) }.manager_ctx);
}

/// The first byte that elements reach, counted from the pointer, and the one behind the last.
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

/// A tensor, and what it points at; `None` where it would lie about memory.
fn tensor(from: &mut Bytes<'_>) -> Option<(DLTensor, *mut Parts)> {
    let codes = [0, 1, 2, 4, 5, 6, 7, 8, 14, 17, from.byte()];
    let bits = [8, 16, 32, 64, 1, 4, 6, 128, 0, from.byte()];
    let (code, bits) = (DLDataTypeCode(from.of(&codes)), from.of(&bits));
    let dtype = DLDataType { code, bits, lanes: from.of(&[1, 1, 1, 1, 2, 4, 0, u16::MAX]) };
    let ndim = from.byte() % 5;
    let shape: Vec<i64> = (0..ndim).map(|_| { let usual = i64::from(from.byte() % 9); from.count(usual) }).collect();
    let strides: Vec<i64> = match from.byte() % 3 {
        0 => row_major(&shape).into_iter().map(|stride| from.count(stride)).collect(),
        1 => shape.iter().map(|_| i64::from(from.byte() as i8)).collect(),
        _ => row_major(&shape),
    };
    let byte_offset = from.of(&[0, 0, 0, 1, 8, 64, 2048, u64::MAX]);
    let (low, high) = extent(dtype, &shape, &strides, byte_offset);
    // Of elements that lie upon each other there may be more than one wants to wait for.
    let elements = shape.iter().fold(1, |product: i128, n| product.saturating_mul(i128::from((*n).max(1))));
    let fits = low >= -(DATA_BYTES as i128) && high <= DATA_BYTES as i128 && elements <= DATA_BYTES as i128;
    let is_refused = shape.iter().any(|n| *n < 0) || low < -ABSURD || high > ABSURD;
    if !fits && !is_refused {
        return None;
    }
    let mut data = from.some(64);
    data.resize(2 * DATA_BYTES, 1);
    let has_strides = strides != row_major(&shape) || from.byte() & 1 == 0;
    let parts = Box::leak(Box::new(Parts { _data: data, shape, strides }));
    let device = DLDevice {
        device_type: DLDeviceType(from.of(&[1, 1, 1, 1, 1, 1, 2, 13, 99])),
        device_id: from.of(&[0, 0, 0, 0, 0, 7, -1]),
    };
    // Half of it before, half of it behind.
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
    // SAFETY: objects of the kinds that the names say, each freed by its own function.
    Some(unsafe {
        if from.byte() & 1 == 0 {
            let deleter = Some(free_legacy as unsafe extern "C" fn(_));
            let made = NonNull::from(Box::leak(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter })));
            Capsule::of_self_freeing(c"dltensor", made, |made| free_legacy(made.as_ptr()))
        } else {
            let version = DLPackVersion { major: from.of(&[1, 1, 1, 2]), minor: u32::from(from.byte()) };
            let flags = DlpackFlags::from_bits_retain(from.byte().into());
            let deleter = Some(free_versioned as unsafe extern "C" fn(_));
            let made = DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor };
            let made = NonNull::from(Box::leak(Box::new(made)));
            Capsule::of_self_freeing(c"dltensor_versioned", made, |made| free_versioned(made.as_ptr()))
        }
    })
}

fn through(host: &TestHost, capsules: Vec<Capsule>, from: &mut Bytes<'_>) -> Result<()> {
    let plugin = DlPack::create(host.host())?;
    let (settings, stream) = (CallSettings::new(Device::CPU), host.stream(Device::CPU));
    let options = match from.byte() % 4 {
        0 => Options::new().with("bools", "bits"),
        1 => Options::new().with("nulls", "mask"),
        _ => Options::new(),
    };
    let open = |capsules: Vec<Capsule>| {
        let input = Input::Capsules(capsules.into());
        settings.enter(|call| Importer::open(&plugin, call, "dlpack", input, None, &options))
    };
    let mut reader = open(capsules)?;
    let schema = Arc::new(import_schema(&reader.schema()?)?);
    while let Some(batch) = settings.enter(|call| reader.next(call))? {
        let batch = import_batch(batch, &schema, &host.memory())?;
        validate(&batch, Level::Full, &stream).expect("what was read is sound");
        let raw = export_schema(&schema)?;
        let to = Options::new();
        let mut writer = settings.enter(|call| Exporter::begin(&plugin, call, "dlpack", &raw, &to, None))?;
        let lent = export_batch(&batch, false, &stream)?;
        let mut out = settings.enter(|call| writer.write(call, lent))?;
        out.extend(settings.enter(|call| writer.finish(call))?);
        let mut back = settings.enter(|call| {
            let input = Input::Capsules(out.into());
            Importer::open(&plugin, call, "dlpack", input, Some(&raw), &Options::new())
        })?;
        let again = settings.enter(|call| back.next(call))?.expect("a batch went out");
        let again = import_batch(again, &schema, &host.memory())?;
        let difference = first_difference(&batch, &again, &stream)?;
        assert!(difference.is_none(), "{difference:?}");
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let mut from = Bytes(bytes);
    let capsules: Vec<_> = (0..1 + from.byte() % 2).filter_map(|_| capsule(&mut from)).collect();
    let (before, made) = (FREED.load(Ordering::Relaxed), capsules.len());
    let host = TestHost::new();
    // An error is an answer.
    drop(through(&host, capsules, &mut from));
    assert_eq!(FREED.load(Ordering::Relaxed), before + made, "each tensor was freed once");
    host.assert_nothing_leaked();
});
