//! Reads and writes encoded arrays as bytes (`crossdock_plugin_api::encoded::blob`).

use crossdock_plugin_api::encoded::blob::{self, BufferRange, Head};
use crossdock_plugin_api::{Device, EncodedArray, Error, Owned, Result, Source};

use crate::{Buffer, BufferMut, ForeignOwner, Memory, Ready, Stream};

/// Initial size in bytes of the buffer for data from a pipe. The buffer grows as data arrives,
/// because the declared size may be wrong.
const FIRST_PIPE_BYTES: u64 = 1 << 20;

/// Number of bytes that are read from a file between two calls of `progress`.
const PROGRESS_BYTES: usize = 8 << 20;

/// Reads the encoded array in `source`. If the source has a mapping, the buffers of the array refer
/// to the mapping. Otherwise the whole source is read into host memory. `device` is the device to
/// which the caller later moves the buffers. If that device is not the host, the host memory is
/// pinned. A buffer whose address is not a multiple of its alignment is copied. `progress` is
/// called with the number of bytes read and the total number of bytes. If `progress` returns an
/// error, reading stops with that error.
///
/// # Errors
/// - bad data: `source` does not contain exactly one encoded array
/// - unsupported: `source` has another version of the format
/// - the errors of `source` and of `progress`
pub fn read_encoded(
    memory: &Memory,
    source: &Source,
    device: Device,
    progress: impl Fn(u64, u64) -> Result<()>,
) -> Result<EncodedArray> {
    let stream = memory.default_stream(Device::CPU)?;
    let whole = match source.map() {
        Some(map) => {
            let (address, bytes) = (map.address(), map.len() as u64);
            let owner = ForeignOwner::new(map);
            // SAFETY: the mapping is readable host memory while a reference to it exists, and
            // `owner` holds a reference.
            unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(bytes), Ready::Now) }
        }
        None => read_all(memory, source, &stream, device, &progress)?.freeze_now(),
    };
    let bytes = whole.host_view(&stream)?;
    // The tree of nodes is allocated on the heap. `counted` is an unused block of the tree's size,
    // so that the tree counts against the budget.
    let counted = match Head::read(&bytes)?.tree_bytes() {
        0 => None,
        bytes => {
            let reserved = memory.alloc(&stream, usize::try_from(bytes).unwrap_or(usize::MAX));
            Some(Box::new(reserved.map_err(|e| e.context("a tree of many nodes"))?) as Box<dyn Send>)
        }
    };
    let array = blob::read(&bytes)?;
    drop(bytes);
    let mut buffers = Vec::new();
    for place in array.buffer_ranges() {
        let mut buffer = aligned_slice(&whole, place, &stream)?.to_encoded().into_raw();
        // The buffer keeps the alignment that the source states, so that writing the array again
        // produces the same bytes.
        buffer.alignment = place.alignment;
        if place.bytes == 0 {
            buffer.address = std::ptr::null();
        }
        // SAFETY: `into_raw` passed the ownership of `buffer`, and `aligned_slice` made its address
        // a multiple of the alignment.
        buffers.push(unsafe { Owned::new(buffer) });
    }
    array.with_buffers(buffers, counted)
}

/// Returns the buffer at `place`. Copies it if its address is not a multiple of its alignment.
fn aligned_slice(whole: &Buffer, place: &BufferRange, stream: &Stream) -> Result<Buffer> {
    let too_large = |_| Error::internal("a buffer's offset or length exceeds usize");
    let (offset, bytes) = (usize::try_from(place.offset), usize::try_from(place.bytes));
    let (offset, bytes) = (offset.map_err(too_large)?, bytes.map_err(too_large)?);
    let slice = whole.slice(offset, bytes)?;
    if bytes == 0 || slice.address().is_multiple_of(place.alignment) {
        return Ok(slice);
    }
    let copied = stream.memory().alloc_with(stream, bytes, |to| {
        to.copy_from_slice(&slice.host_view(stream)?);
        Ok(())
    })?;
    Ok(copied.freeze_now())
}

fn read_all(
    memory: &Memory,
    source: &Source,
    stream: &Stream,
    device: Device,
    progress: &impl Fn(u64, u64) -> Result<()>,
) -> Result<BufferMut> {
    let allocate = |bytes: u64| {
        let bytes = usize::try_from(bytes).map_err(|_| Error::out_of_memory(format!("{bytes} bytes")))?;
        if device == Device::CPU { memory.alloc(stream, bytes) } else { memory.alloc_pinned(bytes) }
    };
    let mut first = [0; blob::HEAD_BYTES];
    let head_len = fill(source, 0, &mut first, |_| Ok(()))?;
    let head = Head::read(first.get(..head_len).unwrap_or_default())?;
    let progress = |done| progress(done, head.total_bytes);
    let Some(bytes) = source.len() else { return read_pipe(source, &head, &first, allocate, progress) };
    head.check_length(bytes)?;
    let mut whole = allocate(bytes)?;
    for (i, piece) in bytes_mut(&mut whole)?.chunks_mut(PROGRESS_BYTES).enumerate() {
        let offset = (i * PROGRESS_BYTES) as u64;
        source.read_exact_at(offset, piece)?;
        progress(offset + piece.len() as u64)?;
    }
    Ok(whole)
}

/// Reads a pipe to its end. `first` holds the bytes that were read before.
fn read_pipe(
    source: &Source,
    head: &Head,
    first: &[u8],
    allocate: impl Fn(u64) -> Result<BufferMut>,
    progress: impl Fn(u64) -> Result<()>,
) -> Result<BufferMut> {
    let mut whole = allocate(head.total_bytes.min(FIRST_PIPE_BYTES))?;
    let mut len = first.len();
    bytes_mut(&mut whole)?[..len].copy_from_slice(first);
    loop {
        len += fill(source, len as u64, &mut bytes_mut(&mut whole)?[len..], &progress)?;
        if len < whole.len() || len as u64 == head.total_bytes {
            break;
        }
        let mut larger = allocate(head.total_bytes.min(2 * len as u64))?;
        bytes_mut(&mut larger)?[..len].copy_from_slice(bytes_mut(&mut whole)?);
        whole = larger;
    }
    let after = fill(source, len as u64, &mut [0], |_| Ok(()))?;
    head.check_length((len + after) as u64)?;
    Ok(whole)
}

/// Reads until `to` is full or the source ends. Returns the number of bytes read. `progress` is
/// called after each read, with the position in the source.
fn fill(source: &Source, offset: u64, to: &mut [u8], progress: impl Fn(u64) -> Result<()>) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match source.read_at(offset + done as u64, rest)? {
            0 => break,
            n => done += n,
        }
        progress(offset + done as u64)?;
    }
    Ok(done)
}

fn bytes_mut(block: &mut BufferMut) -> Result<&mut [u8]> {
    block
        .host_slice_mut()
        .ok_or_else(|| Error::internal("the host cannot reach the memory that it allocated"))
}

/// Writes the array as bytes, by several calls of `write`. Buffers in device memory are copied to
/// the host. Returns the total number of bytes written.
///
/// # Errors
/// - a buffer of the array is missing, or the format cannot describe the type of the array; see
///   [`blob::write_header`]
/// - the errors of copying and of `write`
pub fn write_encoded(
    memory: &Memory,
    array: EncodedArray,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let written = blob::write_header(&array)?;
    write(&written.header)?;
    let (mut places, mut end) = (written.buffers.iter(), written.header.len() as u64);
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        for (i, place) in (0..node.n_buffers()).zip(&mut places) {
            let zeros = [0; blob::ALIGNMENT as usize];
            write(zeros.get(..(place.offset - end) as usize).unwrap_or(&zeros))?;
            // SAFETY: this function owns the array, so that no other reference to its buffers
            // exists.
            let raw = unsafe { node.take_buffer(i) }?;
            // SAFETY: the producer of the array guarantees that the range is readable and the event
            // is live until the buffer is released, as `from_encoded` requires.
            if let Some(buffer) = unsafe { Buffer::from_encoded(raw) } {
                let stream = memory.default_stream(buffer.device())?;
                write(&buffer.host_view(&stream)?)?;
            }
            end = place.offset + place.bytes;
        }
    }
    Ok(written.total_bytes)
}
