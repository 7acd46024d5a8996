//! The functions of `crossdock_memory` for streams and events.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use crossdock_plugin_api::flags::reject_unknown;
use crossdock_plugin_api::{Device, abi};

use super::{enter, enter_quietly, list, out};

pub(super) unsafe extern "C" fn stream_default(
    memory: *const abi::Memory,
    device: Device,
    stream: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_default`.
    unsafe {
        enter(memory, "memory.stream_default", err, |account| {
            let stream = out(stream, "stream_default")?;
            let default = account.backend().default_stream(account.backend().index_of(device)?)?;
            *stream = std::ptr::from_ref(default).cast_mut().cast();
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn stream_create(
    memory: *const abi::Memory,
    device: Device,
    priority: i32,
    flags: u32,
    stream: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_create`.
    unsafe {
        enter(memory, "memory.stream_create", err, |account| {
            let stream = out(stream, "stream_create")?;
            reject_unknown(flags, 0, "stream_create")?;
            *stream = account.stream_create(device, priority)?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn stream_adopt(
    memory: *const abi::Memory,
    device: Device,
    raw: *mut c_void,
    stream: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_adopt`.
    unsafe {
        enter(memory, "memory.stream_adopt", err, |account| {
            let stream = out(stream, "stream_adopt")?;
            *stream = account.stream_adopt(device, raw)?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn stream_destroy(memory: *const abi::Memory, stream: *mut abi::Stream) {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_destroy`.
    unsafe { enter_quietly(memory, "memory.stream_destroy", |account| account.stream_destroy(stream)) }
}

pub(super) unsafe extern "C" fn stream_synchronize(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_synchronize`.
    unsafe {
        enter(memory, "memory.stream_synchronize", err, |account| {
            let (device, stream) = account.device_and_stream(stream)?;
            device.stream_synchronize(stream)
        })
    }
}

pub(super) unsafe extern "C" fn stream_wait(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    event: *mut abi::Event,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_wait`.
    unsafe {
        enter(memory, "memory.stream_wait", err, |account| {
            if event.is_null() { Ok(()) } else { account.stream_wait(stream, event) }
        })
    }
}

pub(super) unsafe extern "C" fn stream_wait_raw(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    sync_event: *mut c_void,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_wait_raw`.
    unsafe {
        enter(memory, "memory.stream_wait_raw", err, |account| {
            if sync_event.is_null() { Ok(()) } else { account.stream_wait_raw(stream, sync_event) }
        })
    }
}

pub(super) unsafe extern "C" fn stream_raw(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
) -> *mut c_void {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_raw`.
    unsafe {
        enter_quietly(memory, "memory.stream_raw", |account| {
            let (device, stream) = account.device_and_stream(stream)?;
            stream.exposed.store(true, Ordering::Relaxed);
            device.note_exposed();
            raw = stream.raw;
            Ok(())
        });
    }
    raw
}

pub(super) unsafe extern "C" fn stream_is_capturing(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    capturing: *mut u32,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.stream_is_capturing`.
    unsafe {
        enter(memory, "memory.stream_is_capturing", err, |account| {
            let capturing = out(capturing, "stream_is_capturing")?;
            let (device, stream) = account.device_and_stream(stream)?;
            *capturing = device.stream_is_capturing(stream)?.into();
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn event_record(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    event: *mut *mut abi::Event,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.event_record`.
    unsafe {
        enter(memory, "memory.event_record", err, |account| {
            let event = out(event, "event_record")?;
            *event = account.event_record(stream)?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn event_query(
    memory: *const abi::Memory,
    event: *mut abi::Event,
    done: *mut u32,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.event_query`.
    unsafe {
        enter(memory, "memory.event_query", err, |account| {
            let done = out(done, "event_query")?;
            *done = account.event(event)?.map_or(Ok(true), |event| event.is_done())?.into();
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn event_synchronize(
    memory: *const abi::Memory,
    event: *mut abi::Event,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller meets the requirements of `crossdock_memory.event_synchronize`.
    unsafe {
        enter(memory, "memory.event_synchronize", err, |account| {
            account.event(event)?.map_or(Ok(()), |event| event.synchronize())
        })
    }
}

pub(super) unsafe extern "C" fn event_destroy(memory: *const abi::Memory, event: *mut abi::Event) {
    // SAFETY: the caller meets the requirements of `crossdock_memory.event_destroy`.
    unsafe { enter_quietly(memory, "memory.event_destroy", |account| account.event_destroy(event)) }
}

pub(super) unsafe extern "C" fn event_raw(memory: *const abi::Memory, event: *mut abi::Event) -> *mut c_void {
    // NULL is the value of `sync_event` if there is no event to wait for.
    let mut raw = std::ptr::null_mut();
    // SAFETY: the caller meets the requirements of `crossdock_memory.event_raw`.
    unsafe {
        enter_quietly(memory, "memory.event_raw", |account| {
            raw = account.event(event)?.map_or(std::ptr::null_mut(), |event| event.sync_event());
            Ok(())
        });
    }
    raw
}

pub(super) unsafe extern "C" fn call_after(
    memory: *const abi::Memory,
    events: *const *mut abi::Event,
    n_events: usize,
    f: abi::Callback,
    data: *mut c_void,
) {
    let Some(f) = f.0 else { return };
    // SAFETY: the caller meets the requirements of `crossdock_memory.call_after`.
    unsafe {
        enter_quietly(memory, "memory.call_after", |account| {
            account.call_after(list(events, n_events, "call_after")?, Call { f, data })
        });
    }
}

pub(super) unsafe extern "C" fn call_after_all(
    memory: *const abi::Memory,
    events: *const *mut abi::Event,
    n_events: usize,
    f: abi::Callback,
    data: *mut c_void,
) {
    let Some(f) = f.0 else { return };
    // SAFETY: the caller meets the requirements of `crossdock_memory.call_after_all`.
    unsafe {
        enter_quietly(memory, "memory.call_after_all", |account| {
            account.call_after_all(list(events, n_events, "call_after_all")?, Call { f, data })
        });
    }
}

/// A callback of a plugin, which is called once.
pub(crate) struct Call {
    pub f: unsafe extern "C" fn(*mut c_void),
    pub data: *mut c_void,
}

// SAFETY: by the documentation of `call_after` and of `crossdock_host_tasks.run` the host may call
// the callback on any thread.
unsafe impl Send for Call {}

impl Call {
    pub(crate) fn run(self) {
        // SAFETY: the callback and its argument come from a function that documents the call, and
        // `self` is consumed, so that it runs once.
        unsafe { (self.f)(self.data) };
    }
}
