//! Buffers that were received from another process.

use std::collections::HashSet;

use crossdock_memory::{ALIGNMENT, Buffer, ForeignOwner, Ready, Stream};
use crossdock_parts::{BufferRecord, PartReader, Place};
use crossdock_plugin_api::{Device, Error as ApiError, Owned, Result as ApiResult, abi};

use crate::place::is_host_memory;
use crate::whole_ranges;

/// The buffers from which an object is rebuilt.
pub(crate) struct Received {
    buffers: Vec<Buffer>,
    /// The indices of the buffers that were copied to another address.
    copied: HashSet<u32>,
    /// A stream of the device of the buffers.
    stream: Stream,
}

impl Received {
    /// `stream` is a stream of `device`, on which the buffers are.
    pub(crate) fn new(buffers: Vec<Buffer>, device: Device, stream: Stream) -> Self {
        let buffers = if is_host_memory(device) {
            buffers.into_iter().map(whole_ranges::buffer).collect()
        } else {
            buffers
        };
        Self { buffers, copied: HashSet::new(), stream }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the bytes at a place. Their address is a multiple of `alignment`; if it is not, they
    /// are copied. The first time, the whole buffer is copied, and the copy replaces it.
    fn aligned(&mut self, place: Place, alignment: u64) -> ApiResult<Buffer> {
        let Place { index, offset, bytes } = place;
        if bytes == 0 {
            return Ok(empty());
        }
        let n = self.buffers.len();
        let missing = || ApiError::bad_data(format!("buffer {index} of {n} buffers"));
        let buffer = self.buffers.get_mut(index as usize).ok_or_else(missing)?;
        let outside = |_| ApiError::bad_data(format!("bytes {offset}..+{bytes} of buffer {index}"));
        let (offset, bytes) =
            (usize::try_from(offset).map_err(outside)?, usize::try_from(bytes).map_err(outside)?);
        let slice = buffer.slice(offset, bytes).map_err(|error| error.context(format!("buffer {index}")))?;
        if slice.address().is_multiple_of(alignment) {
            return Ok(slice);
        }
        if slice.device() != Device::CPU && !is_host_memory(slice.device()) {
            return Err(ApiError::bad_data(format!(
                "bytes {offset}..+{bytes} of buffer {index} do not begin at a multiple of {alignment} bytes"
            )));
        }
        if self.copied.insert(index) {
            // The other ranges of the buffer probably have the same offset from aligned addresses.
            *buffer = copy_aligned(buffer, offset, alignment.max(ALIGNMENT as u64), &self.stream)?;
            return buffer.slice(offset, bytes);
        }
        copy_aligned(&slice, 0, alignment, &self.stream)
    }

    pub(crate) fn encoded(&mut self, record: &BufferRecord<Place>) -> ApiResult<Owned<abi::EncodedBuffer>> {
        /// The largest alignment in bytes that a buffer may require.
        const MAX_ALIGNMENT: u64 = 1 << 20;
        let BufferRecord { bytes, alignment, .. } = *record;
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(ApiError::bad_data(format!(
                "an alignment of {alignment} bytes, expected a power of two up to {MAX_ALIGNMENT}"
            )));
        }
        let buffer = match record.place {
            Some(place) => self.aligned(place, alignment)?,
            None => empty(),
        };
        if buffer.len().map(|len| len as u64) != Some(bytes) {
            return Err(ApiError::bad_data(format!(
                "an encoded buffer of {bytes} bytes has {} bytes",
                buffer.len().unwrap_or(0)
            )));
        }
        let mut raw = buffer.to_encoded().into_raw();
        if bytes == 0 {
            raw.address = std::ptr::null();
        }
        raw.alignment = alignment;
        // SAFETY: `raw` is the buffer that `to_encoded` exported, and `aligned` made its address a
        // multiple of the alignment.
        Ok(unsafe { Owned::new(raw) })
    }
}

impl PartReader<Place> for Received {
    fn buffer(&mut self, place: Place, alignment: usize) -> ApiResult<Buffer> {
        self.aligned(place, alignment as u64)
    }
}

/// Copies a buffer, so that the address of the byte at `offset` is a multiple of `alignment`.
fn copy_aligned(buffer: &Buffer, offset: usize, alignment: u64, stream: &Stream) -> ApiResult<Buffer> {
    let view = buffer.host_view(stream)?;
    let too_long = || ApiError::out_of_memory(format!("a buffer of {} bytes", view.len()));
    let room = view.len().checked_add(alignment as usize).ok_or_else(too_long)?;
    let mut block = stream.memory().alloc(stream, room)?;
    let at = block.address() + offset as u64;
    let skipped = (at.next_multiple_of(alignment) - at) as usize;
    let to = block.host_slice_mut().and_then(|to| to.get_mut(skipped..)?.get_mut(..view.len()));
    to.ok_or_else(|| ApiError::internal("the host cannot write its own memory"))?.copy_from_slice(&view);
    block.freeze_now().slice(skipped, view.len()).map(whole_ranges::buffer)
}

fn empty() -> Buffer {
    static NOTHING: [u64; 8] = [0; 8];
    let owner = ForeignOwner::new(());
    // SAFETY: the buffer has 0 bytes, and its address is the address of a static.
    unsafe { Buffer::foreign(&owner, Device::CPU, NOTHING.as_ptr() as u64, Some(0), Ready::Now) }
}
