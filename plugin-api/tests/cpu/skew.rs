//! Tests structs of other versions, sources that several threads read, and panics in threads that
//! exit.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{
    BatchStreamHandle, CallSettings, Capsule, Device, Owned, Release, Source, WriterHandle, abi,
};

/// Creates a batch of an earlier version, whose `struct_size` ends before the field `metadata`. The
/// tests check that this field is neither read nor written.
fn shorter() -> abi::Batch {
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        // SAFETY: the caller passes the array that is to be released.
        unsafe { (*array).release = None };
    }
    let mut batch = abi::Batch { struct_size: offset_of!(abi::Batch, metadata), ..abi::Batch::new() };
    batch.array.array.release = Some(release);
    batch.metadata = BEHIND_THE_END.as_ptr().cast();
    batch
}

static BEHIND_THE_END: [u8; 8] = [7; 8];

#[test]
fn memory_after_a_shorter_struct_is_not_accessed() {
    let mut source = shorter();
    // SAFETY: `source` is a valid batch of `struct_size` bytes.
    let batch = unsafe { Owned::take(&raw mut source) };
    assert!(!batch.is_released() && source.is_released());
    assert!(batch.metadata.is_null(), "the memory behind the end was read");
    assert_eq!(source.metadata, BEHIND_THE_END.as_ptr().cast(), "the memory behind the end was written");
    assert_eq!(source.struct_size, offset_of!(abi::Batch, metadata), "the source keeps its size");

    let mut out = abi::Batch { array: Default::default(), ..shorter() };
    let mut batch = abi::Batch { struct_size: size_of::<abi::Batch>(), ..shorter() };
    batch.metadata = std::ptr::null();
    // SAFETY: there is no other copy of the batch, and `out` is empty and has `struct_size` bytes.
    unsafe { Owned::new(batch).put(&raw mut out, "test").unwrap() };
    assert_eq!(out.metadata, BEHIND_THE_END.as_ptr().cast(), "the memory behind the end was written");
    assert_eq!(out.struct_size, offset_of!(abi::Batch, metadata));
    // SAFETY: `put` passed the ownership to `out`.
    assert!(!unsafe { Owned::take(&raw mut out) }.is_released());
}

#[test]
fn put_fills_a_zeroed_struct_and_rejects_null() {
    let mut out = abi::Batch::default();
    let batch = abi::Batch { struct_size: size_of::<abi::Batch>(), ..shorter() };
    // SAFETY: there is no other copy of the batch, and `out` is zero.
    unsafe { Owned::new(batch).put(&raw mut out, "test").unwrap() };
    assert_eq!((out.struct_size, out.metadata.is_null()), (size_of::<abi::Batch>(), false));
    // SAFETY: `put` passed the ownership to `out`.
    drop(unsafe { Owned::new(out) });
    // SAFETY: there is no other copy of the batch, and `put` accepts null.
    let error = unsafe { Owned::new(shorter()).put(std::ptr::null_mut(), "get_next") }.unwrap_err();
    assert_eq!(error.message(), "get_next: the out parameter is NULL");
}

/// A capsule of a later version, which is longer.
#[repr(C)]
struct Longer {
    capsule: abi::Capsule,
    later: [u64; 3],
}

static RELEASED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release_capsule(capsule: *mut abi::Capsule) {
    // SAFETY: the caller passes the capsule that is to be released.
    unsafe { (*capsule).release = None };
    RELEASED.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
    // SAFETY: only `write` sets this function, with a boxed array. Clearing `release` ensures that
    // this runs only once.
    unsafe {
        (*list).release = None;
        drop(Box::from_raw((*list).private_data.cast::<[Longer; 3]>()));
    }
}

unsafe extern "C" fn write(
    _writer: *mut abi::Writer,
    _call: *const abi::Call,
    _batch: *mut abi::Batch,
    out: *mut abi::Capsules,
    _err: *mut abi::Error,
) -> abi::Code {
    let capsule = |name: &'static std::ffi::CStr| Longer {
        capsule: abi::Capsule {
            struct_size: size_of::<Longer>(),
            name: name.as_ptr(),
            release: Some(release_capsule),
            ..abi::Capsule::new()
        },
        later: [u64::MAX; 3],
    };
    let list = Box::into_raw(Box::new([capsule(c"first"), capsule(c"second"), capsule(c"third")]));
    // SAFETY: the caller passes a valid out parameter.
    unsafe {
        (*out).capsules = list.cast();
        (*out).n_capsules = 3;
        (*out).private_data = list.cast();
        (*out).release = Some(release_list);
    }
    abi::OK
}

#[test]
fn struct_size_of_first_capsule_is_distance_between_capsules() {
    let raw = abi::Writer { write: Some(write), ..abi::Writer::new() };
    // SAFETY: the writer owns nothing, and the test calls only `write`.
    let mut writer = unsafe { WriterHandle::from_raw(Owned::new(raw)) };
    // SAFETY: a released batch owns nothing.
    let batch = unsafe { Owned::new(abi::Batch::new()) };
    let capsules = writer.write(&CallSettings::new(Device::CPU), batch).unwrap();
    let names: Vec<_> = capsules.iter().map(Capsule::name).collect();
    assert_eq!(names, [c"first", c"second", c"third"]);
    // Capsules that were moved out of the list have the size that the struct has in this version.
    let sizes = capsules.into_iter().map(|capsule| capsule.into_raw().struct_size);
    assert_eq!(sizes.collect::<Vec<_>>(), [size_of::<abi::Capsule>(); 3]);
    assert_eq!(RELEASED.load(Ordering::SeqCst), 3);
}

static INSIDE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn read_at(
    _source: *mut abi::Source,
    _offset: u64,
    _to: *mut c_void,
    _bytes: usize,
    out_read: *mut usize,
    _err: *mut abi::Error,
) -> abi::Code {
    let concurrent_calls = INSIDE.fetch_add(1, Ordering::SeqCst);
    std::thread::yield_now();
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: the caller passes a valid out parameter.
    unsafe { *out_read = concurrent_calls };
    abi::OK
}

#[test]
fn source_of_unknown_length_is_read_by_one_thread_at_a_time() {
    let raw = abi::Source { bytes: -1, read_at: Some(read_at), ..abi::Source::new() };
    // SAFETY: the source owns nothing, and the test calls only `read_at`.
    let source = Arc::new(unsafe { Source::from_raw(Owned::new(raw)) });
    let reader = || {
        let source = source.clone();
        std::thread::spawn(move || (0..2000).map(|i| source.read_at(i, &mut [0; 8]).unwrap()).sum::<usize>())
    };
    let readers: Vec<_> = (0..4).map(|_| reader()).collect();
    let concurrent_calls: usize = readers.into_iter().map(|r| r.join().unwrap()).sum();
    assert_eq!(concurrent_calls, 0);
}

#[test]
fn panic_of_release_callback_in_exiting_thread_does_not_unwind() {
    struct PanicsOnDrop(Poison);
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            self.0.run_release(|| panic!("too late"));
        }
    }
    thread_local!(static LAST: RefCell<Option<PanicsOnDrop>> = const { RefCell::new(None) });
    let poison = Poison::new();
    let poison_of_thread = poison.clone();
    std::thread::spawn(move || {
        // This thread local is registered first, so it is dropped after the thread locals of the
        // FFI door.
        LAST.with(|last| *last.borrow_mut() = Some(PanicsOnDrop(poison_of_thread)));
        Poison::new().run_release(|| panic!("initialises the thread locals of the door"));
    })
    .join()
    .unwrap();
    assert!(poison.message().is_some_and(|message| message.starts_with("too late")));
}

unsafe extern "C" fn next_of_an_earlier_version(
    _stream: *mut abi::BatchStream,
    _call: *const abi::Call,
    out: *mut abi::Batch,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes a valid out parameter.
    unsafe {
        *out = abi::Batch { metadata: std::ptr::null(), ..shorter() };
        (*out).struct_size = offset_of!(abi::Batch, metadata);
    }
    abi::OK
}

#[test]
fn out_parameter_has_size_of_this_version_after_call() {
    let raw = abi::BatchStream { get_next: Some(next_of_an_earlier_version), ..abi::BatchStream::new() };
    // SAFETY: the stream owns nothing, and the test calls only `get_next`.
    let mut stream = unsafe { BatchStreamHandle::from_raw(Owned::new(raw)) };
    let batch = stream.next(&CallSettings::new(Device::CPU)).unwrap().unwrap();
    assert_eq!((batch.struct_size, batch.metadata), (size_of::<abi::Batch>(), std::ptr::null()));
}

#[test]
fn device_comparison_ignores_reserved_fields_and_cpu_id() {
    let cpu = abi::Device { id: 3, r#type: abi::DEVICE_CPU, reserved: 7 };
    assert_eq!(cpu, Device::CPU);
    assert_eq!(abi::Device { reserved: 1, ..Device::cuda(2) }, Device::cuda(2));
    assert_ne!(Device::cuda(1), Device::cuda(2));
    assert!(Device::CPU < Device::cuda(0) && Device::cuda(0) < Device::cuda(1));
}
