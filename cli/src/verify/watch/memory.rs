//! The functions of `crossdock.host.memory/1`: each notes what it is asked, and asks the host's own memory.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock::api::{Device, Error, abi};
use crossdock::memory::Account;

use super::blocks::{Block, front_of, with_surroundings};
use super::shared::{Breach, Shared};

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

/// The watch, and the memory that does the work.
struct Inner<'a> {
    shared: &'a Shared,
    /// `None` after the end.
    account: Option<Arc<Account>>,
}

/// # Safety
/// `memory` is the table of a [`Shared`].
unsafe fn inner<'a>(memory: *const abi::Memory) -> Inner<'a> {
    // SAFETY: the plugin calls a table's functions on the table that it was given, whose `private_data` is its object's; that
    // lives for ever. (A plugin that makes up a table ends this process, which is what it is for.)
    let shared = unsafe { &*(*memory).private_data.cast::<Shared>() };
    Inner { shared, account: shared.own().map(|own| own.account) }
}

/// Tells of a failure as the plugin's callee would.
///
/// # Safety
/// `err` is null or the plugin's error struct.
unsafe fn refuse(error: Error, err: *mut abi::Error) -> abi::Code {
    // SAFETY: the caller's word.
    unsafe { error.write_to(err) }
}

/// Calls a function of the host's own memory, which has them all, and is there until the end.
macro_rules! ask {
    ($inner:expr, $f:ident ( $($arg:expr),* ), $otherwise:expr) => {{
        let memory = $inner.account.as_ref().map(|account| account.memory());
        // SAFETY: the table is the account's, which is kept meanwhile.
        match memory.and_then(|memory| unsafe { (*memory).$f }.map(|f| (memory, f))) {
            // SAFETY: its own function on itself; the arguments are the plugin's, handed on.
            Some((memory, f)) => unsafe { f(memory, $($arg),*) },
            None => $otherwise,
        }
    }};
}

impl Inner<'_> {
    /// The host's event; a handle that nobody gave the plugin, or that it has given back, is noted.
    fn event(&self, function: &str, event: *mut abi::Event) -> Option<*mut abi::Event> {
        let known = self.shared.notes().events.find(event);
        if known.is_none() {
            let words = format!("'{function}' was given an event that is none, or was destroyed before");
            self.shared.note(Breach::Handle, words);
        }
        known
    }

    /// Whether one of these is memory of the call's device. What a format that leaves that device out does in host memory has no
    /// stream of it to go onto.
    fn is_here(&self, addresses: &[*const c_void]) -> bool {
        let is_here = |address: &*const c_void| {
            let mut pointer = abi::Pointer::new();
            let code = ask!(self, pointer(*address, &mut pointer, std::ptr::null_mut()), abi::INTERNAL);
            code == abi::OK && pointer.device == self.shared.session.device
        };
        addresses.iter().any(is_here)
    }

    /// Those of a list, without those that are none.
    ///
    /// # Safety
    /// The list has as many as it says.
    unsafe fn events(&self, function: &str, list: *const *mut abi::Event, n: usize) -> Vec<*mut abi::Event> {
        let n = if list.is_null() { 0 } else { n };
        // SAFETY: the caller's word.
        (0..n).filter_map(|i| self.event(function, unsafe { *list.add(i) })).collect()
    }
}

unsafe extern "C" fn alloc(
    memory: *const abi::Memory,
    device: Device,
    bytes: usize,
    alignment: usize,
    stream: *mut abi::Stream,
    out: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("alloc") {
        // SAFETY: the plugin's error struct.
        return unsafe { refuse(error, err) };
    }
    let front = if device == Device::CPU { front_of(alignment) } else { 0 };
    let asked = if front == 0 { Some(bytes) } else { with_surroundings(bytes, front) };
    let code =
        ask!(inner, alloc(device, asked.unwrap_or(usize::MAX), alignment, stream, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success the place holds a block of as many bytes as were asked for, which nobody else has.
        let block = unsafe {
            if front == 0 { Block::plain(&*out) } else { Block::surrounded(&mut *out, bytes, front) }
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
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("alloc_pinned") {
        // SAFETY: the plugin's error struct.
        return unsafe { refuse(error, err) };
    }
    let front = front_of(0);
    let asked = with_surroundings(bytes, front).unwrap_or(usize::MAX);
    let code = ask!(inner, alloc_pinned(asked, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: as in `alloc`; pinned memory is the host's.
        let block = unsafe { Block::surrounded(&mut *out, bytes, front) };
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
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("free");
    let known = {
        let mut notes = inner.shared.notes();
        let at = notes.blocks.iter().position(|known| known.handle == block as usize);
        at.map(|at| notes.blocks.swap_remove(at))
    };
    match known {
        None => {
            let words = "'free' was given a block that is none, or was given back before";
            inner.shared.note(Breach::Handle, words.into());
        }
        Some(known) => {
            if let Some(words) = known.damage() {
                inner.shared.note(Breach::Bounds, words);
            }
            // SAFETY: the plugin's list.
            let uses = unsafe { inner.events("free", uses, n_uses) };
            ask!(inner, free(block, uses.as_ptr(), uses.len(), flags), ());
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
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("copy") {
        // SAFETY: the plugin's error struct.
        return unsafe { refuse(error, err) };
    }
    // As `is_here`, but that the plugin says whose memory it is.
    let here = inner.shared.session.device;
    let is_here = (0..if copies.is_null() { 0 } else { n_copies }).any(|i| {
        // SAFETY: the plugin's list has as many as it says.
        let copy = unsafe { &*copies.add(i) };
        copy.to_device == here || copy.from_device == here
    });
    if is_here {
        inner.shared.worked("copy", stream);
    }
    ask!(inner, copy(stream, copies, n_copies, err), abi::INTERNAL)
}

unsafe extern "C" fn stream_create(
    memory: *const abi::Memory,
    device: Device,
    out: *mut *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("stream_create") {
        // SAFETY: the plugin's error struct.
        return unsafe { refuse(error, err) };
    }
    let code = ask!(inner, stream_create(device, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success the place holds a stream.
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
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("stream_adopt") {
        // SAFETY: the plugin's error struct.
        return unsafe { refuse(error, err) };
    }
    let code = ask!(inner, stream_adopt(device, raw, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success the place holds a stream.
        inner.shared.notes().streams.insert(unsafe { *out } as usize);
    }
    code
}

unsafe extern "C" fn stream_destroy(memory: *const abi::Memory, stream: *mut abi::Stream) {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("stream_destroy");
    if inner.shared.notes().streams.remove(&(stream as usize)) {
        ask!(inner, stream_destroy(stream), ());
    } else {
        let words = "'stream_destroy' was given a stream that the plugin did not make, or destroyed before";
        inner.shared.note(Breach::Handle, words.into());
    }
}

unsafe extern "C" fn event_record(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    out: *mut *mut abi::Event,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    if let Err(error) = inner.shared.may_fail("event_record") {
        // SAFETY: the plugin's error struct.
        return unsafe { refuse(error, err) };
    }
    let code = ask!(inner, event_record(stream, out, err), abi::INTERNAL);
    if code == abi::OK {
        // SAFETY: on success the place holds an event, or NULL where all has run.
        unsafe { *out = inner.shared.notes().events.given(*out) };
    }
    code
}

unsafe extern "C" fn event_destroy(memory: *const abi::Memory, event: *mut abi::Event) {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("event_destroy");
    if let Some(own) = inner.event("event_destroy", event) {
        inner.shared.notes().events.forget(event);
        ask!(inner, event_destroy(own), ());
    }
}

unsafe extern "C" fn event_raw(memory: *const abi::Memory, event: *mut abi::Event) -> *mut c_void {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("event_raw");
    let Some(event) = inner.event("event_raw", event) else { return std::ptr::null_mut() };
    ask!(inner, event_raw(event), std::ptr::null_mut())
}

unsafe extern "C" fn stream_raw(memory: *const abi::Memory, stream: *mut abi::Stream) -> *mut c_void {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("stream_raw");
    ask!(inner, stream_raw(stream), std::ptr::null_mut())
}

unsafe extern "C" fn host_address(
    memory: *const abi::Memory,
    device: Device,
    address: *const c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("host_address");
    ask!(inner, host_address(device, address, bytes), std::ptr::null_mut())
}

unsafe extern "C" fn call_after(
    memory: *const abi::Memory,
    events: *const *mut abi::Event,
    n_events: usize,
    f: abi::Callback,
    data: *mut c_void,
) {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("call_after");
    // SAFETY: the plugin's list.
    let events = unsafe { inner.events("call_after", events, n_events) };
    ask!(inner, call_after(events.as_ptr(), events.len(), f, data), ());
}

unsafe extern "C" fn call_after_all(
    memory: *const abi::Memory,
    events: *const *mut abi::Event,
    n_events: usize,
    f: abi::Callback,
    data: *mut c_void,
) {
    // SAFETY: see `inner`.
    let inner = unsafe { inner(memory) };
    inner.shared.called("call_after_all");
    // SAFETY: the plugin's list.
    let events = unsafe { inner.events("call_after_all", events, n_events) };
    ask!(inner, call_after_all(events.as_ptr(), events.len(), f, data), ());
}

/// The memory that a kernel reads and writes.
///
/// # Safety
/// The list has as many arguments as it says.
unsafe fn ranges(args: *const abi::Arg, n: usize) -> Vec<*const c_void> {
    let n = if args.is_null() { 0 } else { n };
    // SAFETY: the caller's word.
    let args = (0..n).map(|i| unsafe { &*args.add(i) });
    let ranges = args.filter(|arg| arg.kind != abi::ARG_VALUE && arg.bytes > 0);
    ranges.map(|arg| arg.value as usize as *const c_void).collect()
}

/// Functions that may fail, hand on what they are asked, and note on which stream there is work to do with which memory, or which
/// event is meant.
macro_rules! handed_on {
    ($($f:ident ( $($arg:ident : $t:ty),* ) $([on $stream:ident with $addresses:expr])? $([of $event:ident])?;)*) => { $(
        unsafe extern "C" fn $f(memory: *const abi::Memory, $($arg: $t,)* err: *mut abi::Error) -> abi::Code {
            // SAFETY: see `inner`.
            let inner = unsafe { inner(memory) };
            if let Err(error) = inner.shared.may_fail(stringify!($f)) {
                // SAFETY: the plugin's error struct.
                return unsafe { refuse(error, err) };
            }
            $( if inner.is_here(&$addresses) {
                inner.shared.worked(stringify!($f), $stream);
            } )?
            $( let Some($event) = inner.event(stringify!($f), $event) else {
                // SAFETY: as above.
                return unsafe { refuse(Error::invalid_argument("there is no such event"), err) };
            }; )?
            ask!(inner, $f($($arg,)* err), abi::INTERNAL)
        }
    )* };
}

handed_on! {
    devices(out: *mut abi::DeviceInfo, capacity: usize, n_out: *mut usize);
    fill(stream: *mut abi::Stream, to: *mut c_void, value: u8, bytes: usize) [on stream with [to.cast_const()]];
    launch(stream: *mut abi::Stream, kernel: *const abi::Kernel, grid: abi::Grid, args: *const abi::Arg, n_args: usize) [on stream with {
        // SAFETY: the plugin's list.
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
