//! Buffers that end at a guard page, so that a read past the end of a buffer crashes.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use crossdock::api::{Device, Error, Owned, Result, abi};

/// Mapped pages, the last of which is a guard page.
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `Pages` owns its mapping, which any thread may unmap.
unsafe impl Send for Pages {}
// SAFETY: a shared `Pages` gives no access to the bytes. The buffers in the pages are filled before
// they are shared, and are not written to afterwards.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `bytes` readable and writable bytes, and a guard page after them.
    fn new(bytes: usize) -> Option<Self> {
        // SAFETY: sysconf gets an integer and has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let accessible = bytes.checked_next_multiple_of(page)?;
        let bytes = accessible.checked_add(page)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address that the system chooses replaces no other
        // mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let pages = Self { start: NonNull::new(start.cast())?, bytes };
        // SAFETY: `accessible` plus one page is the length of the mapping, so this is its last
        // page.
        let status = unsafe { libc::mprotect(start.byte_add(accessible), page, libc::PROT_NONE) };
        (status == 0).then_some(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these bytes. No buffer refers to them any more, because each buffer
        // holds an `Arc` of this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The largest alignment of Arrow's value types, in bytes.
const MAX_ALIGNMENT: usize = 16;

/// Copies the bytes to the end of a mapping, as close to the guard page as the alignment allows.
fn guarded(buffer: &[u8]) -> Option<Buffer> {
    let pages = Pages::new(buffer.len())?;
    // SAFETY: sysconf gets an integer and has no preconditions.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let offset = (pages.bytes - page - buffer.len()) / MAX_ALIGNMENT * MAX_ALIGNMENT;
    // SAFETY: `offset` plus `buffer.len()` is at most the number of accessible bytes, and the new
    // mapping overlaps no other memory.
    let start = unsafe {
        let start = pages.start.add(offset);
        std::ptr::copy_nonoverlapping(buffer.as_ptr(), start.as_ptr(), buffer.len());
        start
    };
    // SAFETY: `start` is valid for `buffer.len()` bytes while `pages` lives, and the buffer owns
    // `pages`.
    Some(unsafe { Buffer::from_custom_allocation(start, buffer.len(), Arc::new(pages)) })
}

fn array(array: &ArrayRef) -> Option<ArrayRef> {
    fn node(data: &arrow_data::ArrayData) -> Option<arrow_data::ArrayData> {
        let buffers = data.buffers().iter().map(|buffer| guarded(buffer)).collect::<Option<Vec<_>>>()?;
        let children = data.child_data().iter().map(node).collect::<Option<Vec<_>>>()?;
        let nulls = match data.nulls() {
            None => None,
            Some(nulls) => {
                let bits = guarded(nulls.buffer())?;
                Some(NullBuffer::new(BooleanBuffer::new(bits, nulls.offset(), nulls.len())))
            }
        };
        data.clone().into_builder().buffers(buffers).child_data(children).nulls(nulls).build().ok()
    }
    node(&array.to_data()).map(make_array)
}

/// Copies the columns to guarded buffers. `None` if no pages can be mapped.
pub fn columns(batch: &RecordBatch) -> Option<RecordBatch> {
    let columns = batch.columns().iter().map(array).collect::<Option<Vec<_>>>()?;
    RecordBatch::try_new(batch.schema(), columns).ok()
}

/// Copies an encoded array's buffer in host memory to a guarded buffer. Returns any other buffer
/// unchanged.
///
/// # Errors
/// No pages can be mapped.
pub fn encoded(buffer: Owned<abi::EncodedBuffer>) -> Result<Owned<abi::EncodedBuffer>> {
    let len = usize::try_from(buffer.bytes).unwrap_or(0);
    if len == 0 || buffer.device != Device::CPU {
        return Ok(buffer);
    }
    // SAFETY: the suite made the buffer with `len` bytes, the check above ensures that they are in
    // host memory, and `buffer` owns them until the end of this function.
    let slice = unsafe { std::slice::from_raw_parts(buffer.address.cast::<u8>(), len) };
    let copy = guarded(slice).ok_or_else(|| Error::out_of_memory("cannot map pages"))?;
    let copy = Box::new(copy);
    let raw = abi::EncodedBuffer {
        address: copy.as_ptr().cast(),
        bytes: buffer.bytes,
        alignment: MAX_ALIGNMENT as u64,
        device: Device::CPU,
        private_data: Box::into_raw(copy).cast::<c_void>(),
        release: Some(release_guarded),
        ..abi::EncodedBuffer::new()
    };
    // SAFETY: `raw` was initialised above with its release function, and this is its only copy.
    Ok(unsafe { Owned::new(raw) })
}

unsafe extern "C" fn release_guarded(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: only `encoded` sets this function, with a `Box<Buffer>` as private data. Clearing
    // `release` makes this the only release.
    unsafe {
        (*buffer).release = None;
        drop(Box::from_raw((*buffer).private_data.cast::<Buffer>()));
    }
}
