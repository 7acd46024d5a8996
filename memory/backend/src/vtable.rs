//! The functions that cross the boundary: each is one call through the door into [`Account`].

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::account::{Account, Block};

/// The interface over the account that `account` will point at.
pub(crate) fn table(account: *const Account) -> abi::Memory {
    abi::Memory {
        struct_size: size_of::<abi::Memory>(),
        private_data: account.cast_mut().cast(),
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
    }
}

/// The one door: finds the account, catches what unwinds, and turns the result into a code and a filled-in error.
///
/// # Safety
/// `memory` is null or a live `crossdock_memory` of this crate; `err` is null or a live `crossdock_error`.
#[inline]
unsafe fn enter(
    memory: *const abi::Memory,
    err: *mut abi::Error,
    body: impl FnOnce(&Account) -> Result<()>,
) -> abi::Code {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by this function's own contract.
        body(unsafe { account(memory) }?)
    }));
    let error = match caught {
        Ok(Ok(())) => return abi::OK,
        Ok(Err(error)) => error,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text =
                text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            let error = Error::panicked(format!("the host's memory panicked: {text}"));
            // A payload may panic again when it is dropped.
            std::mem::forget(payload);
            error
        }
    };
    // SAFETY: by this function's own contract.
    unsafe { error.write_to(err) }
}

/// # Safety
/// As [`enter`]; the account is alive during the call.
unsafe fn account<'a>(memory: *const abi::Memory) -> Result<&'a Account> {
    if memory.is_null() {
        return Err(Error::invalid_argument("the memory object is NULL"));
    }
    // SAFETY: live by the caller's word, and `struct_size` is the first field of every version.
    let struct_size = unsafe { *memory.cast::<usize>() };
    if struct_size < size_of::<abi::Memory>() {
        return Err(Error::invalid_argument(format!(
            "the memory object says that it is {struct_size} bytes; this host's is {}",
            size_of::<abi::Memory>()
        )));
    }
    // SAFETY: `table` wrote the account's address there, and an account lives as long as its table.
    unsafe { (*memory).private_data.cast::<Account>().as_ref() }
        .ok_or_else(|| Error::invalid_argument("the memory object has no owner"))
}

/// For functions that have nothing to report to.
///
/// # Safety
/// As [`enter`].
unsafe fn enter_quietly(memory: *const abi::Memory, body: impl FnOnce(&Account) -> Result<()>) {
    // SAFETY: as the caller's.
    let _code = unsafe { enter(memory, std::ptr::null_mut(), body) };
}

/// A place for a result, or whose was forgotten.
///
/// # Safety
/// Null, or valid for a write of `T`.
unsafe fn out<'a, T>(place: *mut T, function: &str) -> Result<&'a mut T> {
    // SAFETY: by this function's own contract; the callers' places hold values without drop, so that any bytes do.
    unsafe { place.as_mut() }
        .ok_or_else(|| Error::invalid_argument(format!("{function}: the result's place is NULL")))
}

/// # Safety
/// `first` points at `n` readable values, or is null.
unsafe fn list<'a, T>(first: *const T, n: usize, function: &str) -> Result<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || n > isize::MAX as usize / size_of::<T>() {
        return Err(Error::invalid_argument(format!(
            "{function}: expected a list of {n} elements, got {first:p}"
        )));
    }
    // SAFETY: by this function's own contract; null, misaligned and absurd lists were refused.
    Ok(unsafe { std::slice::from_raw_parts(first, n) })
}

unsafe extern "C" fn devices(
    memory: *const abi::Memory,
    infos: *mut abi::DeviceInfo,
    capacity: usize,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: this function's arguments are what the header says; so for all `SAFETY: as the header` below.
    unsafe {
        enter(memory, err, |account| {
            let n = out(n_out, "devices")?;
            let devices = account.backend().devices();
            let mut total = 0;
            for (i, device) in devices.enumerate() {
                total += 1;
                if i >= capacity {
                    continue;
                }
                let first = out(infos, "devices")?.struct_size;
                if first < size_of::<abi::DeviceInfo>()
                    || !first.is_multiple_of(align_of::<abi::DeviceInfo>())
                {
                    return Err(Error::invalid_argument(format!(
                        "devices: expected elements of at least {} bytes, got a struct_size of {first}",
                        size_of::<abi::DeviceInfo>()
                    )));
                }
                let about = device.describe();
                let info = abi::DeviceInfo {
                    struct_size: first,
                    device: about.device,
                    name: abi::Str::new(&about.name),
                    description: abi::Str::new(&about.description),
                    memory_bytes: about.memory_bytes,
                    host_accessible: about.host_accessible.into(),
                    reserved: 0,
                };
                infos.byte_add(first * i).write(info);
            }
            *n = total;
            Ok(())
        })
    }
}

unsafe extern "C" fn alloc(
    memory: *const abi::Memory,
    device: Device,
    bytes: usize,
    alignment: usize,
    stream: *mut abi::Stream,
    allocation: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let allocation = out(allocation, "alloc")?;
            *allocation = account.allocate(device, bytes, alignment, stream)?;
            Ok(())
        })
    }
}

unsafe extern "C" fn alloc_pinned(
    memory: *const abi::Memory,
    bytes: usize,
    allocation: *mut abi::Allocation,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let allocation = out(allocation, "alloc_pinned")?;
            *allocation = account.allocate(Device::CPU, bytes, 0, std::ptr::null_mut())?;
            Ok(())
        })
    }
}

unsafe extern "C" fn free(
    memory: *const abi::Memory,
    block: *mut abi::Block,
    uses: *const *mut abi::Event,
    n_uses: usize,
    flags: u32,
) {
    // SAFETY: as the header.
    unsafe {
        enter_quietly(memory, |_| {
            if !block.is_null() {
                let uses = list(uses, n_uses, "free").unwrap_or_default();
                Block::free(block, uses, flags & abi::FREE_LENT != 0);
            }
            Ok(())
        });
    }
}

unsafe extern "C" fn copy(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    copies: *const abi::Copy,
    n_copies: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe { enter(memory, err, |account| account.copy(stream, list(copies, n_copies, "copy")?)) }
}

unsafe extern "C" fn fill(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    to: *mut c_void,
    value: u8,
    bytes: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe { enter(memory, err, |account| account.fill(stream, to, value, bytes)) }
}

unsafe extern "C" fn launch(
    memory: *const abi::Memory,
    stream: *mut abi::Stream,
    kernel: *const abi::Kernel,
    grid: abi::Grid,
    args: *const abi::Arg,
    n_args: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            // Only `struct_size` is looked at before it is known to cover the rest.
            let struct_size = if kernel.is_null() { 0 } else { *kernel.cast::<usize>() };
            if struct_size < size_of::<abi::Kernel>() {
                return Err(Error::invalid_argument(format!(
                    "launch: expected a kernel of at least {} bytes, got {struct_size}",
                    size_of::<abi::Kernel>()
                )));
            }
            account.launch(stream, &*kernel, grid, list(args, n_args, "launch")?)
        })
    }
}

unsafe extern "C" fn stream_default(
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

unsafe extern "C" fn stream_create(
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

unsafe extern "C" fn stream_destroy(memory: *const abi::Memory, stream: *mut abi::Stream) {
    // SAFETY: as the header.
    unsafe { enter_quietly(memory, |account| account.stream_destroy(stream)) }
}

unsafe extern "C" fn stream_synchronize(
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

unsafe extern "C" fn stream_wait(
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

unsafe extern "C" fn stream_wait_raw(
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

unsafe extern "C" fn stream_raw(memory: *const abi::Memory, stream: *mut abi::Stream) -> *mut c_void {
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

unsafe extern "C" fn stream_is_capturing(
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

unsafe extern "C" fn event_record(
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

unsafe extern "C" fn event_query(
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

unsafe extern "C" fn event_synchronize(
    memory: *const abi::Memory,
    event: *mut abi::Event,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe { enter(memory, err, |_| known_event(event)) }
}

unsafe extern "C" fn event_destroy(memory: *const abi::Memory, event: *mut abi::Event) {
    // SAFETY: as the header.
    unsafe { enter_quietly(memory, |_| known_event(event)) }
}

unsafe extern "C" fn event_raw(_memory: *const abi::Memory, _event: *mut abi::Event) -> *mut c_void {
    // No event, nothing to wait for: what `sync_event` must then be.
    std::ptr::null_mut()
}

unsafe extern "C" fn pointer(
    memory: *const abi::Memory,
    address: *const c_void,
    place: *mut abi::Pointer,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as the header.
    unsafe {
        enter(memory, err, |account| {
            let place = out(place, "pointer")?;
            if place.struct_size < size_of::<abi::Pointer>() {
                return Err(Error::invalid_argument(format!(
                    "pointer: expected a struct of at least {} bytes, got a struct_size of {}",
                    size_of::<abi::Pointer>(),
                    place.struct_size
                )));
            }
            let (device, base, bytes) = account.pointer(address)?;
            place.device = device;
            place.base = base as *const c_void;
            place.bytes = bytes as u64;
            Ok(())
        })
    }
}

unsafe extern "C" fn host_address(
    memory: *const abi::Memory,
    device: Device,
    address: *const c_void,
    bytes: usize,
) -> *mut c_void {
    let mut found = std::ptr::null_mut();
    // SAFETY: as the header.
    unsafe {
        enter_quietly(memory, |account| {
            found = account.host_address(device, address, bytes);
            Ok(())
        });
    }
    found
}
