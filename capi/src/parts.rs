//! Takes tables apart, and rebuilds them.

use crossdock::{Parts as HostParts, Table};
use crossdock_arrays::{DeviceStream, import_field};
use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Device, Error, Owned, Result, abi as api};

use crate::abi::{Part, Parts, Received};
use crate::arguments::Data;
use crate::inputs::ForeignBytes;
use crate::session::SessionHandle;
use crate::{arguments, door};

/// The memory of a `crossdock_parts`, to which its `private_data` points.
struct Storage {
    parts: HostParts,
    rows: Vec<Part>,
}

/// `crossdock_session_to_parts` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_to_parts(
    session: *mut SessionHandle,
    stream: *mut api::ArrowDeviceArrayStream,
    out: *mut Parts,
    err: *mut api::Error,
) -> api::Code {
    // Takes ownership before all checks, because ownership passes even if a check fails.
    // SAFETY: the header requires a stream that is NULL or valid, and passes its ownership.
    let stream = unsafe { Owned::take(stream) };
    let body = |handle: &SessionHandle| {
        // SAFETY: the header requires an `out` that is NULL or has its `struct_size`.
        unsafe { arguments::check_out(out) }?;
        if stream.is_released() {
            return Err(Error::invalid_argument("the stream is NULL or released"));
        }
        let parts = read_all(handle, DeviceStream::new(stream))?.to_parts()?;
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { export(parts).put(out, "crossdock_session_to_parts") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

fn read_all(handle: &SessionHandle, mut stream: DeviceStream) -> Result<Table> {
    let schema = import_field(&stream.schema()?)?;
    Table::from_device_arrays(&handle.session, schema, &mut stream).map_err(Error::from)
}

fn export(parts: HostParts) -> Owned<Parts> {
    let row = |buffer: &Buffer| Part {
        struct_size: size_of::<Part>(),
        data: buffer.address() as *const _,
        bytes: buffer.len().unwrap_or(0),
    };
    let storage = Box::new(Storage { rows: parts.buffers.iter().map(row).collect(), parts });
    // Code of the application may still use the memory when it releases the parts.
    storage.parts.buffers.iter().for_each(Buffer::mark_exported);
    let raw = Parts {
        struct_size: size_of::<Parts>(),
        header: storage.parts.header.as_ptr().cast(),
        header_bytes: storage.parts.header.len(),
        buffers: storage.rows.as_ptr(),
        n_buffers: storage.rows.len(),
        release: Some(release),
        private_data: Box::into_raw(storage).cast(),
    };
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    unsafe { Owned::new(raw) }
}

/// # Safety
/// `export` created `parts`, which is not released.
unsafe extern "C" fn release(parts: *mut Parts) {
    // SAFETY: only `export` sets this function, and stores a box in `private_data`. The fields are
    // cleared, so the box is freed only once.
    unsafe {
        let parts = &mut *parts;
        let storage = Box::from_raw(parts.private_data.cast::<Storage>());
        *parts = Parts { struct_size: parts.struct_size, ..Parts::default() };
        Poison::new().run_release(move || drop(storage));
    }
}

/// `crossdock_session_from_parts` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_from_parts(
    session: *mut SessionHandle,
    header: *const std::ffi::c_void,
    header_bytes: usize,
    buffers: *const Received,
    n_buffers: usize,
    out: *mut api::ArrowDeviceArrayStream,
    err: *mut api::Error,
) -> api::Code {
    // Takes ownership before all checks, because ownership passes even if a check fails.
    // SAFETY: the header requires `n_buffers` valid elements, and passes the ownership of their
    // bytes.
    let buffers = unsafe { take_all(buffers, n_buffers) };
    let body = |handle: &SessionHandle| {
        arguments::check_not_null(out, "out")?;
        arguments::check_not_null(header, "header")?;
        if header_bytes > isize::MAX as usize {
            return Err(Error::invalid_argument(format!("header_bytes is {header_bytes}")));
        }
        // SAFETY: the header requires `header_bytes` bytes that are valid for the call, and
        // `header` is not null.
        let header = unsafe { std::slice::from_raw_parts(header.cast::<u8>(), header_bytes) };
        let table = Table::from_parts(&handle.session, header, buffers?)?;
        // SAFETY: `out` is not null, as checked above, and the header requires it to be writable.
        unsafe { table.to_c_device_stream().put(out, "crossdock_session_from_parts") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

/// # Safety
/// `n` is 0, or `buffers` points to `n` elements. The distance between two elements is the
/// `struct_size` of the first element. The caller passes the ownership of their bytes.
unsafe fn take_all(buffers: *const Received, n: usize) -> Result<Vec<Buffer>> {
    /// The longest list that is plausible.
    const MAX_BUFFERS: usize = 1 << 24;
    /// The largest element that is plausible, in bytes.
    const MAX_STRIDE: usize = 1 << 12;
    if n == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: `n` is not 0, as checked above, so there is a first element, which begins with its
    // `struct_size`.
    let stride = if buffers.is_null() { 0 } else { unsafe { buffers.cast::<usize>().read() } };
    let is_valid_stride = (size_of::<Received>()..=MAX_STRIDE).contains(&stride)
        && stride.is_multiple_of(align_of::<Received>());
    if !is_valid_stride || n > MAX_BUFFERS {
        return Err(Error::invalid_argument(format!(
            "a list of {n} buffers of {stride} bytes each is not plausible"
        )));
    }
    let take = |i: usize| {
        // SAFETY: `i < n`, and the elements have this distance. Each element has the fields of the
        // first version of the struct, which are all that it has now.
        let raw = unsafe { &*buffers.byte_add(i * stride) };
        let is_valid = raw.bytes == 0 || (!raw.data.is_null() && raw.bytes <= isize::MAX as usize);
        // SAFETY: the header requires bytes that stay valid and unchanged until they are released.
        let owner = unsafe {
            let data = Data(raw.data.cast_mut());
            ForeignBytes::new(data, if is_valid { raw.bytes } else { 0 }, raw.release, Data(raw.release_data))
        };
        (raw.data as u64, raw.bytes as u64, is_valid, owner)
    };
    // All elements are taken before the first error is returned.
    let taken: Vec<_> = (0..n).map(take).collect();
    let buffer = |(i, (address, bytes, is_valid, owner)): (usize, (u64, u64, bool, ForeignBytes))| {
        if !is_valid {
            return Err(Error::invalid_argument(format!(
                "buffer {i}: {bytes} bytes at {address:#x} are not a valid range of memory"
            )));
        }
        let owner = ForeignOwner::new(owner);
        // SAFETY: `owner` keeps the bytes, which the header requires to be valid until they are
        // released.
        Ok(unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(bytes), Ready::Now) })
    };
    taken.into_iter().enumerate().map(buffer).collect()
}
