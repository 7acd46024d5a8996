//! Streams and events.

use std::ffi::c_void;

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::{enter, enter_quietly, out};

pub(super) unsafe extern "C" fn stream_default(
    memory: *const abi::Memory,
    device: Device,
    stream: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
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
    stream: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let stream = out(stream, "stream_create")?;
            *stream = account.stream_create(device)?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn stream_destroy(memory: *const abi::Memory, stream: *mut abi::Stream) {
    // SAFETY: as the header.
    unsafe { enter_quietly(memory, |account| account.stream_destroy(stream)) }
}

pub(super) unsafe extern "C" fn stream_synchronize(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let (device, stream) = account.on_stream(stream)?;
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
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let (device, stream) = account.on_stream(stream)?;
            if event.is_null() { Ok(()) } else { device.stream_wait(stream, event) }
        })
    }
}

pub(super) unsafe extern "C" fn stream_wait_raw(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    sync_event: *mut c_void,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let (device, stream) = account.on_stream(stream)?;
            if sync_event.is_null() { Ok(()) } else { device.stream_wait_raw(stream, sync_event) }
        })
    }
}

pub(super) unsafe extern "C" fn stream_raw(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
) -> *mut c_void {
    let mut raw = std::ptr::null_mut();
    // SAFETY: as the header.
    unsafe {
        enter_quietly(memory, |account| {
            raw = account.on_stream(stream)?.1.raw;
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
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let capturing = out(capturing, "stream_is_capturing")?;
            let (device, stream) = account.on_stream(stream)?;
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
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let event = out(event, "event_record")?;
            let (device, stream) = account.on_stream(stream)?;
            *event = device.event_record(stream)?;
            Ok(())
        })
    }
}

/// NULL is the event of work that has run. Others are made by devices that run later, and there is none yet.
fn known_event(event: *mut abi::Event) -> Result<()> {
    if event.is_null() {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("event {event:p} was not made by this memory")))
}

pub(super) unsafe extern "C" fn event_query(
    memory: *const abi::Memory,
    event: *mut abi::Event,
    done: *mut u32,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |_| {
            let done = out(done, "event_query")?;
            known_event(event)?;
            *done = 1;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn event_synchronize(
    memory: *const abi::Memory,
    event: *mut abi::Event,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe { enter(memory, err, |_| known_event(event)) }
}

pub(super) unsafe extern "C" fn event_destroy(memory: *const abi::Memory, event: *mut abi::Event) {
    // SAFETY: as the header.
    unsafe { enter_quietly(memory, |_| known_event(event)) }
}

pub(super) unsafe extern "C" fn event_raw(
    _memory: *const abi::Memory,
    _event: *mut abi::Event,
) -> *mut c_void {
    // No event, nothing to wait for: what `sync_event` must then be.
    std::ptr::null_mut()
}

/// Events of devices with immediate streams are NULL, and have passed.
pub(super) unsafe extern "C" fn call_after(
    _memory: *const abi::Memory,
    _events: *const *mut abi::Event,
    _n_events: usize,
    f: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) {
    if let Some(f) = f {
        // SAFETY: the caller's own function with its own argument, once, as the header says.
        unsafe { f(data) };
    }
}
