//! A host with streams whose work takes its time, as a CUDA device's does: nothing runs on them, and what is to be waited for
//! is noted.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crossdock_memory::{Device, Host, Memory, Stream};
use crossdock_plugin_api::abi;

/// A host that has memory, which allocates nothing.
pub struct NotingHost(Arc<Object>);

#[repr(C)]
struct Object {
    table: abi::Host,
    memory: abi::Memory,
    asked: Mutex<Vec<&'static str>>,
}

// SAFETY: the tables are constant data, and the pointer in one is to the object itself.
unsafe impl Send for Object {}
// SAFETY: as above; what was asked is behind a lock.
unsafe impl Sync for Object {}

impl Default for NotingHost {
    fn default() -> Self {
        Self::new()
    }
}

impl NotingHost {
    /// Nothing was asked of it yet.
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
            Object { table, memory, asked: Mutex::default() }
        }))
    }

    /// The device's own handle of each of its streams.
    pub fn native() -> *mut c_void {
        std::ptr::without_provenance_mut(0x5000)
    }

    /// The default stream of a device.
    #[allow(clippy::expect_used)]
    pub fn stream(&self, device: Device) -> Stream {
        // SAFETY: alive, and with both counting functions.
        let host = unsafe { Host::retain(Arc::as_ptr(&self.0).cast()) }.expect("the host's own object");
        let memory = Memory::from_host(&host).expect("it has memory");
        memory.default_stream(device).expect("it has a stream for every device")
    }

    /// The functions of the memory that were called to wait since the last question.
    pub fn waits(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

unsafe extern "C" fn retain(host: *const abi::Host) {
    // SAFETY: the table is the first field of an `Object` in an Arc with at least one count.
    unsafe { Arc::increment_strong_count(host.cast::<Object>()) };
}

unsafe extern "C" fn release(host: *const abi::Host) {
    // SAFETY: as above; gives back one count.
    unsafe { Arc::decrement_strong_count(host.cast::<Object>()) };
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: a live object, and a NUL-terminated id.
    let (object, id) = unsafe { (&*host.cast::<Object>(), CStr::from_ptr(id)) };
    if id == abi::HOST_MEMORY_ID { (&raw const object.memory).cast() } else { std::ptr::null() }
}

unsafe extern "C" fn stream_default(
    _memory: *const abi::Memory,
    _device: Device,
    out: *mut *mut abi::Stream,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller's place.
    unsafe { out.write(std::ptr::without_provenance_mut(0x1000)) };
    abi::OK
}

unsafe extern "C" fn stream_raw(_memory: *const abi::Memory, _stream: *mut abi::Stream) -> *mut c_void {
    NotingHost::native()
}

unsafe extern "C" fn stream_is_capturing(
    _memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    out: *mut u32,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller's place.
    unsafe { out.write(0) };
    abi::OK
}

unsafe extern "C" fn event_record(
    _memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    out: *mut *mut abi::Event,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller's place.
    unsafe { out.write(std::ptr::without_provenance_mut(0x2000)) };
    abi::OK
}

unsafe extern "C" fn stream_synchronize(
    memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as `note` says.
    unsafe { note(memory, "stream_synchronize") }
}

unsafe extern "C" fn stream_wait(
    memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    _event: *mut abi::Event,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as `note` says.
    unsafe { note(memory, "stream_wait") }
}

unsafe extern "C" fn stream_wait_raw(
    memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    _event: *mut c_void,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as `note` says.
    unsafe { note(memory, "stream_wait_raw") }
}

/// # Safety
/// `memory` is the table of a live object.
unsafe fn note(memory: *const abi::Memory, function: &'static str) -> abi::Code {
    // SAFETY: the caller's word; `private_data` is the object.
    let object = unsafe { &*(*memory).private_data.cast::<Object>() };
    object.asked.lock().unwrap_or_else(PoisonError::into_inner).push(function);
    abi::OK
}
