//! The functions of `crossdock.host.memory/1`. Each function records its arguments and calls the
//! same function of the host's own memory.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock::api::{Device, Error, abi};
use crossdock::memory::Account;

use super::blocks::{Block, bytes_with_redzones, front_of};
use super::shared::{Shared, Violation};

pub(super) fn table() -> abi::Memory {
    abi::Memory {
        devices: Some(devices),
        alloc: Some(alloc),
        alloc_pinned: Some(alloc_pinned),
        free: Some(free),
        copy: Some(copy),
        fill: Some(fill),
        launch: Some(launch),
        stream_default: Some(stream_default),
        stream_create: Some(stream_create),
        stream_destroy: Some(stream_destroy),
        stream_synchronize: Some(stream_synchronize),
        stream_wait: Some(stream_wait),
        stream_wait_raw: Some(stream_wait_raw),
        stream_raw: Some(stream_raw),
        stream_is_capturing: Some(stream_is_capturing),
        event_record: Some(event_record),
        event_query: Some(event_query),
        event_synchronize: Some(event_synchronize),
        event_destroy: Some(event_destroy),
        event_raw: Some(event_raw),
        pointer: Some(pointer),
        host_address: Some(host_address),
        call_after: Some(call_after),
        stream_adopt: Some(stream_adopt),
        call_after_all: Some(call_after_all),
        ..abi::Memory::new()
    }
}

/// The watched host, and the account to which its calls are forwarded.
struct Inner<'a> {
    shared: &'a Shared,
    /// `None` after the host has ended.
    account: Option<Arc<Account>>,
}

/// # Safety
/// `memory` is the table of a [`Shared`].
unsafe fn inner<'a>(memory: *const abi::Memory) -> Inner<'a> {
    // SAFETY: the caller passes the table of a `Shared`, whose `private_data` is the `Shared`,
    // which is never freed. If the plugin passes a different address, this process may crash, and
    // the report attributes the crash to the plugin.
    let shared = unsafe { &*(*memory).private_data.cast::<Shared>() };
    Inner { shared, account: shared.backing().map(|backing| backing.account) }
}

/// Writes the error to the plugin's error struct, and returns its code.
///
/// # Safety
/// `err` is NULL or the plugin's error struct.
unsafe fn fail(error: Error, err: *mut abi::Error) -> abi::Code {
    // SAFETY: the caller passes NULL or the plugin's error struct, as `write_to` requires.
    unsafe { error.write_to(err) }
}

/// Calls a function of the host's own memory, or returns `$otherwise` after the host has ended.
macro_rules! forward {
    ($inner:expr, $f:ident ( $($arg:expr),* ), $otherwise:expr) => {{
        let memory = $inner.account.as_ref().map(|account| account.memory());
        // SAFETY: the table belongs to the account, which `$inner` holds.
        match memory.and_then(|memory| unsafe { (*memory).$f }.map(|f| (memory, f))) {
            // SAFETY: the function is called on its own table, and the plugin passed valid
            // arguments.
            Some((memory, f)) => unsafe { f(memory, $($arg),*) },
            None => $otherwise,
        }
    }};
}

impl Inner<'_> {
    /// Returns the host's event for a handle. Records a violation if the handle is invalid.
    fn event(&self, function: &str, event: *mut abi::Event) -> Option<*mut abi::Event> {
        let host_event = self.shared.notes().events.find(event);
        if host_event.is_none() {
            let details = format!("'{function}' got an event that is invalid or already destroyed");
            self.shared.note(Violation::Handle, details);
        }
        host_event
    }

    /// Returns whether one of the addresses is in memory of the call's device. Work that uses no
    /// memory of this device may use any stream.
    fn is_any_on_device(&self, addresses: &[*const c_void]) -> bool {
        let is_on_device = |address: &*const c_void| {
            let mut pointer = abi::Pointer::new();
            let code = forward!(self, pointer(*address, &mut pointer, std::ptr::null_mut()), abi::INTERNAL);
            code == abi::OK && pointer.device == self.shared.session.device
        };
        addresses.iter().any(is_on_device)
    }

    /// Returns the host's events for the valid handles of a list.
    ///
    /// # Safety
    /// `list` is NULL or has `n` entries.
    unsafe fn events(&self, function: &str, list: *const *mut abi::Event, n: usize) -> Vec<*mut abi::Event> {
        let n = if list.is_null() { 0 } else { n };
        // SAFETY: the caller passes a list of `n` entries, and `n` is 0 for NULL.
        (0..n).filter_map(|i| self.event(function, unsafe { *list.add(i) })).collect()
    }
}

unsafe extern "C" fn alloc(
    memory: *const abi::Memory,
    device: Device,
    bytes: usize,
    alignment: usize,
    stream: *mut abi::Stream,
    flags: u32,
    out: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("alloc") {
        // SAFETY: `err` is NULL or the plugin's error struct.
        return unsafe { fail(error, err) };
    }
    let front = if device == Device::CPU { front_of(alignment) } else { 0 };
    let total = if front == 0 { Some(bytes) } else { bytes_with_redzones(bytes, front) };
    let code = forward!(
        inner,
        alloc(device, total.unwrap_or(usize::MAX), alignment, stream, flags, out, err),
        abi::INTERNAL
    );
    if code == abi::OK {
        // SAFETY: on success `out` holds a new block of `total` bytes, which is in host memory if
        // `front` is not 0.
        let block = unsafe {
            if front == 0 { Block::plain(&*out) } else { Block::with_redzones(&mut *out, bytes, front) }
        };
        inner.shared.notes().blocks.push(block);
    }
    code
}

unsafe extern "C" fn alloc_pinned(
    memory: *const abi::Memory,
    bytes: usize,
    out: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("alloc_pinned") {
        // SAFETY: `err` is NULL or the plugin's error struct.
        return unsafe { fail(error, err) };
    }
    let front = front_of(0);
    let total = bytes_with_redzones(bytes, front).unwrap_or(usize::MAX);
    let code = forward!(inner, alloc_pinned(total, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success `out` holds a new block of `total` bytes of pinned memory, which is
        // host memory.
        let block = unsafe { Block::with_redzones(&mut *out, bytes, front) };
        inner.shared.notes().blocks.push(block);
    }
    code
}

unsafe extern "C" fn free(
    memory: *const abi::Memory,
    block: *mut abi::Block,
    uses: *const *mut abi::Event,
    n_uses: usize,
    flags: u32,
) {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("free");
    let held = {
        let mut notes = inner.shared.notes();
        let at = notes.blocks.iter().position(|held| held.handle == block as usize);
        at.map(|at| notes.blocks.swap_remove(at))
    };
    match held {
        None => {
            let details = "'free' got a block that is invalid or already freed";
            inner.shared.note(Violation::Handle, details.into());
        }
        Some(held) => {
            if let Some(details) = held.damage() {
                inner.shared.note(Violation::Bounds, details);
            }
            // SAFETY: the plugin passes a list with the number of its entries.
            let uses = unsafe { inner.events("free", uses, n_uses) };
            forward!(inner, free(block, uses.as_ptr(), uses.len(), flags), ());
        }
    }
}

unsafe extern "C" fn copy(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    copies: *const abi::Copy,
    n_copies: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("copy") {
        // SAFETY: `err` is NULL or the plugin's error struct.
        return unsafe { fail(error, err) };
    }
    // This check is like `is_any_on_device`, but it uses the devices that each copy declares.
    let device = inner.shared.session.device;
    let uses_device = (0..if copies.is_null() { 0 } else { n_copies }).any(|i| {
        // SAFETY: the plugin passes a list of `n_copies` entries, and the range is empty for NULL.
        let copy = unsafe { &*copies.add(i) };
        copy.to_device == device || copy.from_device == device
    });
    if uses_device {
        inner.shared.note_work("copy", stream);
    }
    forward!(inner, copy(stream, copies, n_copies, err), abi::INTERNAL)
}

unsafe extern "C" fn stream_create(
    memory: *const abi::Memory,
    device: Device,
    priority: i32,
    flags: u32,
    out: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("stream_create") {
        // SAFETY: `err` is NULL or the plugin's error struct.
        return unsafe { fail(error, err) };
    }
    let code = forward!(inner, stream_create(device, priority, flags, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success `out` holds a stream.
        inner.shared.notes().streams.insert(unsafe { *out } as usize);
    }
    code
}

unsafe extern "C" fn stream_adopt(
    memory: *const abi::Memory,
    device: Device,
    raw: *mut c_void,
    out: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("stream_adopt") {
        // SAFETY: `err` is NULL or the plugin's error struct.
        return unsafe { fail(error, err) };
    }
    let code = forward!(inner, stream_adopt(device, raw, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success `out` holds a stream.
        inner.shared.notes().streams.insert(unsafe { *out } as usize);
    }
    code
}

unsafe extern "C" fn stream_destroy(memory: *const abi::Memory, stream: *mut abi::Stream) {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("stream_destroy");
    if inner.shared.notes().streams.remove(&(stream as usize)) {
        forward!(inner, stream_destroy(stream), ());
    } else {
        let details = "'stream_destroy' got a stream that the plugin did not create or already destroyed";
        inner.shared.note(Violation::Handle, details.into());
    }
}

unsafe extern "C" fn event_record(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    out: *mut *mut abi::Event,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("event_record") {
        // SAFETY: `err` is NULL or the plugin's error struct.
        return unsafe { fail(error, err) };
    }
    let code = forward!(inner, event_record(stream, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success `out` holds an event, or NULL if all work has run.
        unsafe { *out = inner.shared.notes().events.add(*out) };
    }
    code
}

unsafe extern "C" fn event_destroy(memory: *const abi::Memory, event: *mut abi::Event) {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("event_destroy");
    if let Some(host_event) = inner.event("event_destroy", event) {
        inner.shared.notes().events.remove(event);
        forward!(inner, event_destroy(host_event), ());
    }
}

unsafe extern "C" fn event_raw(memory: *const abi::Memory, event: *mut abi::Event) -> *mut c_void {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("event_raw");
    let Some(event) = inner.event("event_raw", event) else { return std::ptr::null_mut() };
    forward!(inner, event_raw(event), std::ptr::null_mut())
}

unsafe extern "C" fn stream_raw(memory: *const abi::Memory, stream: *mut abi::Stream) -> *mut c_void {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("stream_raw");
    forward!(inner, stream_raw(stream), std::ptr::null_mut())
}

unsafe extern "C" fn host_address(
    memory: *const abi::Memory,
    device: Device,
    address: *const c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("host_address");
    forward!(inner, host_address(device, address, bytes), std::ptr::null_mut())
}

unsafe extern "C" fn call_after(
    memory: *const abi::Memory,
    events: *const *mut abi::Event,
    n_events: usize,
    f: abi::Callback,
    data: *mut c_void,
) {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("call_after");
    // SAFETY: the plugin passes a list with the number of its entries.
    let events = unsafe { inner.events("call_after", events, n_events) };
    forward!(inner, call_after(events.as_ptr(), events.len(), f, data), ());
}

unsafe extern "C" fn call_after_all(
    memory: *const abi::Memory,
    events: *const *mut abi::Event,
    n_events: usize,
    f: abi::Callback,
    data: *mut c_void,
) {
    // SAFETY: `memory` is the table that the plugin got.
    let inner = unsafe { inner(memory) };
    inner.shared.note_call("call_after_all");
    // SAFETY: the plugin passes a list with the number of its entries.
    let events = unsafe { inner.events("call_after_all", events, n_events) };
    forward!(inner, call_after_all(events.as_ptr(), events.len(), f, data), ());
}

/// The addresses of the memory that a kernel reads and writes.
///
/// # Safety
/// `args` is NULL or has `n` entries.
unsafe fn ranges(args: *const abi::Arg, n: usize) -> Vec<*const c_void> {
    let n = if args.is_null() { 0 } else { n };
    // SAFETY: the caller passes a list of `n` entries, and `n` is 0 for NULL.
    let args = (0..n).map(|i| unsafe { &*args.add(i) });
    let ranges = args.filter(|arg| arg.kind != abi::ARG_VALUE && arg.bytes > 0);
    ranges.map(|arg| arg.value as usize as *const c_void).collect()
}

/// Defines functions that can fail and forward their arguments. `on` records work that uses a
/// stream and the memory at the given addresses. `of` replaces the handle of an event with the
/// host's event.
macro_rules! forwarded {
    ($($f:ident ( $($arg:ident : $t:ty),* ) $([on $stream:ident with $addresses:expr])? $([of $event:ident])?;)*) => { $(
        unsafe extern "C" fn $f(memory: *const abi::Memory, $($arg: $t,)* err: *mut abi::Error) -> abi::Code {
            // SAFETY: `memory` is the table that the plugin got.
            let inner = unsafe { inner(memory) };
            if let Err(error) = inner.shared.may_fail(stringify!($f)) {
                // SAFETY: `err` is NULL or the plugin's error struct.
                return unsafe { fail(error, err) };
            }
            $( if inner.is_any_on_device(&$addresses) {
                inner.shared.note_work(stringify!($f), $stream);
            } )?
            $( let Some($event) = inner.event(stringify!($f), $event) else {
                // SAFETY: `err` is NULL or the plugin's error struct.
                return unsafe { fail(Error::invalid_argument("the event is invalid"), err) };
            }; )?
            forward!(inner, $f($($arg,)* err), abi::INTERNAL)
        }
    )* };
}

forwarded! {
    devices(out: *mut abi::DeviceInfo, capacity: usize, n_out: *mut usize);
    fill(stream: *mut abi::Stream, to: *mut c_void, value: u8, bytes: usize) [on stream with [to.cast_const()]];
    launch(stream: *mut abi::Stream, kernel: *const abi::Kernel, size: *const abi::Launch, args: *const abi::Arg, n_args: usize) [on stream with {
        // SAFETY: the plugin passes a list with the number of its entries.
        unsafe { ranges(args, n_args) }
    }];
    stream_default(device: Device, out: *mut *mut abi::Stream);
    stream_synchronize(stream: *mut abi::Stream);
    stream_wait(stream: *mut abi::Stream, event: *mut abi::Event) [of event];
    stream_wait_raw(stream: *mut abi::Stream, sync_event: *mut c_void);
    stream_is_capturing(stream: *mut abi::Stream, out: *mut u32);
    event_query(event: *mut abi::Event, out_done: *mut u32) [of event];
    event_synchronize(event: *mut abi::Event) [of event];
    pointer(address: *const c_void, out: *mut abi::Pointer);
}
