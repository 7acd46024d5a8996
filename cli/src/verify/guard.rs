//! Buffers that end where a page begins that nobody may read.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use crossdock::api::{Device, Error, Owned, Result, abi};

/// Pages of the process's own, the last of which is not readable.
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory that nobody writes once it is filled.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `bytes` of them that may be read and written, in whole pages, and one that may not.
    fn new(bytes: usize) -> Option<Self> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let open = bytes.checked_next_multiple_of(page)?;
        let bytes = open.checked_add(page)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages, wherever there is room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let pages = Self { start: NonNull::new(start.cast())?, bytes };
        // SAFETY: the last of the pages that were mapped above.
        let closed = unsafe { libc::mprotect(start.byte_add(open), page, libc::PROT_NONE) };
        (closed == 0).then_some(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody's any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// As much as values of any type may have to be aligned to.
const ALIGNMENT: usize = 16;

/// The same bytes, as near to the page's begin as their alignment lets them.
fn bytes(buffer: &[u8]) -> Option<Buffer> {
    let pages = Pages::new(buffer.len())?;
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let offset = (pages.bytes - page - buffer.len()) / ALIGNMENT * ALIGNMENT;
    // SAFETY: from the offset on there are as many bytes before the last page.
    let start = unsafe {
        let start = pages.start.add(offset);
        std::ptr::copy_nonoverlapping(buffer.as_ptr(), start.as_ptr(), buffer.len());
        start
    };
    // SAFETY: the pages live as long as the buffer, which owns them.
    Some(unsafe { Buffer::from_custom_allocation(start, buffer.len(), Arc::new(pages)) })
}

fn array(array: &ArrayRef) -> Option<ArrayRef> {
    fn each(data: &arrow_data::ArrayData) -> Option<arrow_data::ArrayData> {
        let buffers = data.buffers().iter().map(|buffer| bytes(buffer)).collect::<Option<Vec<_>>>()?;
        let children = data.child_data().iter().map(each).collect::<Option<Vec<_>>>()?;
        let nulls = match data.nulls() {
            None => None,
            Some(nulls) => {
                let bits = bytes(nulls.buffer())?;
                Some(NullBuffer::new(BooleanBuffer::new(bits, nulls.offset(), nulls.len())))
            }
        };
        data.clone().into_builder().buffers(buffers).child_data(children).nulls(nulls).build().ok()
    }
    each(&array.to_data()).map(make_array)
}

/// The same columns in such buffers.
pub fn columns(batch: &RecordBatch) -> Option<RecordBatch> {
    let columns = batch.columns().iter().map(array).collect::<Option<Vec<_>>>()?;
    RecordBatch::try_new(batch.schema(), columns).ok()
}

/// An encoded array's buffer in host memory, as such a one.
pub fn encoded(buffer: Owned<abi::EncodedBuffer>) -> Result<Owned<abi::EncodedBuffer>> {
    let len = usize::try_from(buffer.bytes).unwrap_or(0);
    if len == 0 || buffer.device != Device::CPU {
        return Ok(buffer);
    }
    // SAFETY: a buffer of the suite's own, in host memory and ready, which is held meanwhile.
    let slice = unsafe { std::slice::from_raw_parts(buffer.address.cast::<u8>(), len) };
    let pages = bytes(slice).ok_or_else(|| Error::out_of_memory("no pages could be had"))?;
    let kept = Box::new(pages);
    let raw = abi::EncodedBuffer {
        address: kept.as_ptr().cast(),
        bytes: buffer.bytes,
        alignment: ALIGNMENT as u64,
        device: Device::CPU,
        private_data: Box::into_raw(kept).cast::<c_void>(),
        release: Some(release_guarded),
        ..abi::EncodedBuffer::new()
    };
    // SAFETY: made above; nobody else has it.
    Ok(unsafe { Owned::new(raw) })
}

unsafe extern "C" fn release_guarded(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: set by `encoded` only; released once because `release` is cleared.
    unsafe {
        (*buffer).release = None;
        drop(Box::from_raw((*buffer).private_data.cast::<Buffer>()));
    }
}
