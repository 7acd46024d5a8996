//! Whole encoded arrays as bytes, in and out (`crossdock_plugin_api::encoded::blob`).

use crossdock_plugin_api::encoded::blob::{self, Head, Place};
use crossdock_plugin_api::{Device, EncodedArray, Error, Owned, Result, Source};

use crate::{Buffer, BufferMut, ForeignOwner, Memory, Ready, Stream};

/// A pipe is read into room of this many bytes first, which grows with what comes: what it claims is a claim.
const FIRST_ROOM_BYTES: u64 = 1 << 20;

/// So many bytes of a file are read before anybody hears of it.
const AT_ONCE_BYTES: usize = 8 << 20;

/// The encoded array whose bytes `source` has. Its buffers lie where those are: in the source's mapping, else in host memory
/// into which all of it is read, pinned if `device`, to which they will go, is not the host. Those whose place does not meet
/// their alignment are copied. `watch` hears how many bytes have been read, and of how many, and ends it by an error.
///
/// # Errors
/// Bad data for what is no such thing, whole and alone; unsupported for another version; what the source or `watch` says.
pub fn read_encoded(
    memory: &Memory,
    source: &Source,
    device: Device,
    watch: impl Fn(u64, u64) -> Result<()>,
) -> Result<EncodedArray> {
    let stream = memory.default_stream(Device::CPU)?;
    let whole = match source.map() {
        Some(map) => {
            let (address, bytes) = (map.address(), map.len() as u64);
            let owner = ForeignOwner::new(map);
            // SAFETY: a mapping is readable host memory as long as a share of it is held, and the owner holds one.
            unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(bytes), Ready::Now) }
        }
        None => read_all(memory, source, &stream, device, &watch)?.freeze_now(),
    };
    let bytes = whole.host_view(&stream)?;
    // Memory that is allocated elsewhere, so that the budget has it: this is not written to.
    let counted = match Head::read(&bytes)?.tree_bytes() {
        0 => None,
        bytes => {
            let room = memory.alloc(&stream, usize::try_from(bytes).unwrap_or(usize::MAX));
            Some(Box::new(room.map_err(|e| e.context("a tree of many nodes"))?) as Box<dyn Send>)
        }
    };
    let described = blob::read(&bytes)?;
    drop(bytes);
    let mut buffers = Vec::new();
    for place in described.places() {
        let mut buffer = placed(&whole, place, &stream)?.to_encoded().into_raw();
        // What was told of it before, so that the same bytes are written again.
        buffer.alignment = place.alignment;
        if place.bytes == 0 {
            buffer.address = std::ptr::null();
        }
        // SAFETY: the same buffer, of which no more is told than is so: `placed` saw to its alignment.
        buffers.push(unsafe { Owned::new(buffer) });
    }
    described.with_buffers(buffers, counted)
}

fn placed(whole: &Buffer, place: &Place, stream: &Stream) -> Result<Buffer> {
    let beyond = |_| Error::internal("a place beyond memory");
    let (offset, bytes) = (usize::try_from(place.offset), usize::try_from(place.bytes));
    let (offset, bytes) = (offset.map_err(beyond)?, bytes.map_err(beyond)?);
    let there = whole.slice(offset, bytes)?;
    if bytes == 0 || there.address().is_multiple_of(place.alignment) {
        return Ok(there);
    }
    let copied = stream.memory().alloc_with(stream, bytes, |to| {
        to.copy_from_slice(&there.host_view(stream)?);
        Ok(())
    })?;
    Ok(copied.freeze_now())
}

fn read_all(
    memory: &Memory,
    source: &Source,
    stream: &Stream,
    device: Device,
    watch: &impl Fn(u64, u64) -> Result<()>,
) -> Result<BufferMut> {
    let room = |bytes: u64| {
        let bytes = usize::try_from(bytes).map_err(|_| Error::out_of_memory(format!("{bytes} bytes")))?;
        if device == Device::CPU { memory.alloc(stream, bytes) } else { memory.alloc_pinned(bytes) }
    };
    let mut first = [0; blob::HEAD_BYTES];
    let got = fill(source, 0, &mut first, |_| Ok(()))?;
    let head = Head::read(first.get(..got).unwrap_or_default())?;
    let watch = |done| watch(done, head.total_bytes);
    let Some(bytes) = source.len() else { return read_pipe(source, &head, &first, room, watch) };
    head.check_length(bytes)?;
    let mut whole = room(bytes)?;
    for (i, piece) in in_place(&mut whole)?.chunks_mut(AT_ONCE_BYTES).enumerate() {
        let offset = (i * AT_ONCE_BYTES) as u64;
        source.read_exact_at(offset, piece)?;
        watch(offset + piece.len() as u64)?;
    }
    Ok(whole)
}

/// All of a pipe, whose first bytes have been read.
fn read_pipe(
    source: &Source,
    head: &Head,
    first: &[u8],
    room: impl Fn(u64) -> Result<BufferMut>,
    watch: impl Fn(u64) -> Result<()>,
) -> Result<BufferMut> {
    let mut whole = room(head.total_bytes.min(FIRST_ROOM_BYTES))?;
    let mut there = first.len();
    in_place(&mut whole)?[..there].copy_from_slice(first);
    loop {
        there += fill(source, there as u64, &mut in_place(&mut whole)?[there..], &watch)?;
        if there < whole.len() || there as u64 == head.total_bytes {
            break;
        }
        let mut larger = room(head.total_bytes.min(2 * there as u64))?;
        in_place(&mut larger)?[..there].copy_from_slice(in_place(&mut whole)?);
        whole = larger;
    }
    let after = fill(source, there as u64, &mut [0], |_| Ok(()))?;
    head.check_length((there + after) as u64)?;
    Ok(whole)
}

/// Reads until `to` is full or the source ends; how many bytes came. `watch` hears how far that is.
fn fill(source: &Source, offset: u64, to: &mut [u8], watch: impl Fn(u64) -> Result<()>) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match source.read_at(offset + done as u64, rest)? {
            0 => break,
            n => done += n,
        }
        watch(offset + done as u64)?;
    }
    Ok(done)
}

fn in_place(block: &mut BufferMut) -> Result<&mut [u8]> {
    block
        .host_slice_mut()
        .ok_or_else(|| Error::internal("the host cannot reach the memory that it allocated"))
}

/// Writes the array's bytes, in pieces; buffers on devices are brought to the host for it. Answers how many there are.
///
/// # Errors
/// A buffer was taken, or a type cannot be told: see [`blob::describe`]; what copying or `write` says.
pub fn write_encoded(
    memory: &Memory,
    array: EncodedArray,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let written = blob::describe(&array)?;
    write(&written.header)?;
    let (mut places, mut end) = (written.buffers.iter(), written.header.len() as u64);
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        for (i, place) in (0..node.n_buffers()).zip(&mut places) {
            let zeros = [0; blob::ALIGNMENT as usize];
            write(zeros.get(..(place.offset - end) as usize).unwrap_or(&zeros))?;
            // SAFETY: the array is this function's alone.
            let raw = unsafe { node.take_buffer(i) }?;
            // SAFETY: whoever made the array vouches for its buffers.
            if let Some(buffer) = unsafe { Buffer::of_encoded(raw) } {
                let stream = memory.default_stream(buffer.device())?;
                write(&buffer.host_view(&stream)?)?;
            }
            end = place.offset + place.bytes;
        }
    }
    Ok(written.total_bytes)
}
