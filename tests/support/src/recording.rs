//! A host that behaves as if its streams had pending work, like the streams of a CUDA device. It
//! runs no work, and records which functions a caller uses to wait.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crossdock_memory::{Device, Host, Memory, Stream};
use crossdock_plugin_api::abi;

/// A host that offers the memory interface, but cannot allocate.
pub struct RecordingHost(Arc<Object>);

#[repr(C)]
struct Object {
    table: abi::Host,
    memory: abi::Memory,
    waits: Mutex<Vec<&'static str>>,
}

// SAFETY: the tables are constant, and `private_data` points to the object itself.
unsafe impl Send for Object {}
// SAFETY: the tables are constant, and a mutex guards `waits`.
unsafe impl Sync for Object {}

impl Default for RecordingHost {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordingHost {
    /// A host with no recorded waits.
    pub fn new() -> Self {
        let table = abi::Host {
            abi_major: abi::ABI_MAJOR,
            abi_minor: abi::ABI_MINOR,
            retain: Some(retain),
            release: Some(release),
            get_interface: Some(get_interface),
            ..abi::Host::new()
        };
        Self(Arc::new_cyclic(|object: &Weak<Object>| {
            let memory = abi::Memory {
                private_data: object.as_ptr().cast_mut().cast(),
                stream_default: Some(stream_default),
                stream_raw: Some(stream_raw),
                stream_is_capturing: Some(stream_is_capturing),
                stream_synchronize: Some(stream_synchronize),
                stream_wait: Some(stream_wait),
                stream_wait_raw: Some(stream_wait_raw),
                event_record: Some(event_record),
                ..abi::Memory::new()
            };
            Object { table, memory, waits: Mutex::default() }
        }))
    }

    /// The native handle that all streams on all devices have.
    pub fn native() -> *mut c_void {
        std::ptr::without_provenance_mut(0x5000)
    }

    /// The default stream of a device.
    #[allow(clippy::expect_used)]
    pub fn stream(&self, device: Device) -> Stream {
        // SAFETY: `self` keeps the object alive, and its table has both counting functions.
        let host = unsafe { Host::retain(Arc::as_ptr(&self.0).cast()) };
        let host = host.expect("a host object with both counting functions");
        let memory = Memory::from_host(&host).expect("the recording host offers memory");
        memory.default_stream(device).expect("a default stream of every device")
    }

    /// The waiting functions of `crossdock_memory` that were called since the previous `waits`.
    pub fn waits(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

unsafe extern "C" fn retain(host: *const abi::Host) {
    // SAFETY: the table is the first field of an `Object` in an Arc with at least one count.
    unsafe { Arc::increment_strong_count(host.cast::<Object>()) };
}

unsafe extern "C" fn release(host: *const abi::Host) {
    // SAFETY: the table is the first field of an `Object` in an Arc, and the caller owns one count.
    unsafe { Arc::decrement_strong_count(host.cast::<Object>()) };
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: the caller passes a live host object and a NUL-terminated id.
    let (object, id) = unsafe { (&*host.cast::<Object>(), CStr::from_ptr(id)) };
    if id == abi::HOST_MEMORY_ID { (&raw const object.memory).cast() } else { std::ptr::null() }
}

unsafe extern "C" fn stream_default(
    _memory: *const abi::Memory,
    _device: Device,
    out: *mut *mut abi::Stream,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes a valid `out`.
    unsafe { out.write(std::ptr::without_provenance_mut(0x1000)) };
    abi::OK
}

unsafe extern "C" fn stream_raw(_memory: *const abi::Memory, _stream: *mut abi::Stream) -> *mut c_void {
    RecordingHost::native()
}

unsafe extern "C" fn stream_is_capturing(
    _memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    out: *mut u32,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes a valid `out`.
    unsafe { out.write(0) };
    abi::OK
}

unsafe extern "C" fn event_record(
    _memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    out: *mut *mut abi::Event,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes a valid `out`.
    unsafe { out.write(std::ptr::without_provenance_mut(0x2000)) };
    abi::OK
}

unsafe extern "C" fn stream_synchronize(
    memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes the memory interface of a live host.
    unsafe { record_wait(memory, "stream_synchronize") }
}

unsafe extern "C" fn stream_wait(
    memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    _event: *mut abi::Event,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes the memory interface of a live host.
    unsafe { record_wait(memory, "stream_wait") }
}

unsafe extern "C" fn stream_wait_raw(
    memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    _event: *mut c_void,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes the memory interface of a live host.
    unsafe { record_wait(memory, "stream_wait_raw") }
}

/// # Safety
/// `memory` is the memory interface of a live `Object`.
unsafe fn record_wait(memory: *const abi::Memory, function: &'static str) -> abi::Code {
    // SAFETY: `private_data` of the table in a live `Object` points to that object.
    let object = unsafe { &*(*memory).private_data.cast::<Object>() };
    object.waits.lock().unwrap_or_else(PoisonError::into_inner).push(function);
    abi::OK
}
