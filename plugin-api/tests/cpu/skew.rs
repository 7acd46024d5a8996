//! Structs of other versions, shorter and longer than ours; pipes read by several threads; panics where threads end.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{
    BatchStreamHandle, CallSettings, Capsule, Device, Owned, Release, Source, WriterHandle, abi,
};

/// A batch as a version had it that knew no `metadata`: what lies there is somebody else's.
fn shorter() -> abi::Batch {
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        // SAFETY: the array that is released.
        unsafe { (*array).release = None };
    }
    let mut batch = abi::Batch { struct_size: offset_of!(abi::Batch, metadata), ..abi::Batch::new() };
    batch.array.array.release = Some(release);
    batch.metadata = SOMEBODY_ELSES.as_ptr().cast();
    batch
}

static SOMEBODY_ELSES: [u8; 8] = [7; 8];

#[test]
fn of_a_shorter_struct_nothing_beyond_its_end_is_read_or_written() {
    let mut theirs = shorter();
    // SAFETY: a valid batch, as long as it says.
    let taken = unsafe { Owned::take(&raw mut theirs) };
    assert!(!taken.is_released() && theirs.is_released());
    assert!(taken.metadata.is_null(), "its end was read over");
    assert_eq!(theirs.metadata, SOMEBODY_ELSES.as_ptr().cast(), "its end was written over");
    assert_eq!(theirs.struct_size, offset_of!(abi::Batch, metadata), "what is left says how long it is");

    let mut out = abi::Batch { array: Default::default(), ..shorter() };
    let mut ours = abi::Batch { struct_size: size_of::<abi::Batch>(), ..shorter() };
    ours.metadata = std::ptr::null();
    // SAFETY: a valid batch that nobody else has, and a place as long as it says.
    unsafe { Owned::new(ours).put(&raw mut out, "test").unwrap() };
    assert_eq!(out.metadata, SOMEBODY_ELSES.as_ptr().cast(), "its end was written over");
    assert_eq!(out.struct_size, offset_of!(abi::Batch, metadata));
    // SAFETY: what was put there is ours again.
    assert!(!unsafe { Owned::take(&raw mut out) }.is_released());
}

#[test]
fn an_out_parameter_that_is_all_zero_is_filled_whole_and_null_is_refused() {
    let mut out = abi::Batch::default();
    let whole = abi::Batch { struct_size: size_of::<abi::Batch>(), ..shorter() };
    // SAFETY: a valid batch that nobody else has, and a zeroed place.
    unsafe { Owned::new(whole).put(&raw mut out, "test").unwrap() };
    assert_eq!((out.struct_size, out.metadata.is_null()), (size_of::<abi::Batch>(), false));
    // SAFETY: as above.
    drop(unsafe { Owned::new(out) });
    // SAFETY: a valid batch that nobody else has.
    let error = unsafe { Owned::new(shorter()).put(std::ptr::null_mut(), "get_next") }.unwrap_err();
    assert_eq!(error.message(), "get_next: the out parameter is NULL");
}

/// A capsule of a later version.
#[repr(C)]
struct Longer {
    capsule: abi::Capsule,
    later: [u64; 3],
}

static RELEASED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release_capsule(capsule: *mut abi::Capsule) {
    // SAFETY: the capsule that is released.
    unsafe { (*capsule).release = None };
    RELEASED.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
    // SAFETY: the list that is released, which `write` made.
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
    // SAFETY: the caller's out parameter.
    unsafe {
        (*out).capsules = list.cast();
        (*out).n_capsules = 3;
        (*out).private_data = list.cast();
        (*out).release = Some(release_list);
    }
    abi::OK
}

#[test]
fn capsules_of_a_later_version_are_taken_at_the_distance_that_the_first_one_says() {
    let raw = abi::Writer { write: Some(write), ..abi::Writer::new() };
    // SAFETY: complete, with nothing to release.
    let mut writer = unsafe { WriterHandle::from_raw(Owned::new(raw)) };
    // SAFETY: a released batch.
    let nothing = unsafe { Owned::new(abi::Batch::new()) };
    let capsules = writer.write(&CallSettings::new(Device::CPU), nothing).unwrap();
    let names: Vec<_> = capsules.iter().map(Capsule::name).collect();
    assert_eq!(names, [c"first", c"second", c"third"]);
    // Handed on, they lie in a list of ours, and say so.
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
    let others = INSIDE.fetch_add(1, Ordering::SeqCst);
    std::thread::yield_now();
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: the caller's out parameter.
    unsafe { *out_read = others };
    abi::OK
}

#[test]
fn a_pipe_is_read_by_one_thread_at_a_time_whoever_made_it() {
    let raw = abi::Source { bytes: -1, read_at: Some(read_at), ..abi::Source::new() };
    // SAFETY: complete, with nothing to release.
    let source = Arc::new(unsafe { Source::from_raw(Owned::new(raw)) });
    let reader = || {
        let source = source.clone();
        std::thread::spawn(move || (0..2000).map(|i| source.read_at(i, &mut [0; 8]).unwrap()).sum::<usize>())
    };
    let readers: Vec<_> = (0..4).map(|_| reader()).collect();
    let met: usize = readers.into_iter().map(|r| r.join().unwrap()).sum();
    assert_eq!(met, 0, "calls met each other inside");
}

#[test]
fn a_release_that_panics_where_its_thread_ends_is_caught() {
    struct AtTheEnd(Poison);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            self.0.leave(|| panic!("too late"));
        }
    }
    thread_local!(static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) });
    let poison = Poison::new();
    let theirs = poison.clone();
    std::thread::spawn(move || {
        // Registered first, so that it ends after what the door itself remembers about this thread.
        LAST.with(|last| *last.borrow_mut() = Some(AtTheEnd(theirs)));
        Poison::new().leave(|| panic!("a place to remember"));
    })
    .join()
    .unwrap();
    assert!(poison.message().is_some_and(|message| message.starts_with("too late")));
}

unsafe extern "C" fn next_of_an_older_release(
    _stream: *mut abi::BatchStream,
    _call: *const abi::Call,
    out: *mut abi::Batch,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller's out parameter.
    unsafe {
        *out = abi::Batch { metadata: std::ptr::null(), ..shorter() };
        (*out).struct_size = offset_of!(abi::Batch, metadata);
    }
    abi::OK
}

#[test]
fn what_an_older_release_fills_in_and_says_the_size_of_is_ours_in_full() {
    let raw = abi::BatchStream { get_next: Some(next_of_an_older_release), ..abi::BatchStream::new() };
    // SAFETY: its one function is above; it owns nothing.
    let mut stream = unsafe { BatchStreamHandle::from_raw(Owned::new(raw)) };
    let batch = stream.next(&CallSettings::new(Device::CPU)).unwrap().unwrap();
    assert_eq!((batch.struct_size, batch.metadata), (size_of::<abi::Batch>(), std::ptr::null()));
}

#[test]
fn a_device_is_known_by_what_it_is_and_not_by_what_is_reserved() {
    let cpu = abi::Device { id: 3, r#type: abi::DEVICE_CPU, reserved: 7 };
    assert_eq!(cpu, Device::CPU);
    assert_eq!(abi::Device { reserved: 1, ..Device::cuda(2) }, Device::cuda(2));
    assert_ne!(Device::cuda(1), Device::cuda(2));
    assert!(Device::CPU < Device::cuda(0) && Device::cuda(0) < Device::cuda(1));
}
