//! Converts the elements of tensors to Arrow buffers. The elements are used without a copy if
//! possible; otherwise they are gathered. Booleans are packed to bits.
//!
//! On each device, gathering and packing need one allocation and one launch each for any number of
//! tensors.

use crossdock_kernels::{Dim, Jobs};
use crossdock_memory::{ALIGNMENT, Buffer, Device, Error, Ready, Result, Stream};

use crate::tensor::Tensor;

/// A tensor, and the required form of the Arrow buffer for its elements.
pub(crate) struct BufferRequest {
    pub(crate) tensor: Tensor,
    /// The dimensions of a row in the order of memory, outermost first.
    pub(crate) order: Vec<usize>,
    /// Whether the buffer contains bits instead of bytes.
    pub(crate) bits: bool,
    /// Whether the bits are inverted. They are inverted for a mask, which is true for null rows,
    /// because a validity bitmap is true for rows that are not null.
    pub(crate) invert: bool,
}

/// A tensor between two steps of the conversion.
struct Slot {
    buffer: Buffer,
    /// Offset of the first element in `buffer`, in bytes.
    first: usize,
    elements: usize,
    width: usize,
    /// The dimensions to gather; `None` if the elements are used without a copy.
    dims: Option<Vec<Dim>>,
    /// `Some` if the elements are packed to bits. The value is whether the bits are inverted.
    bits: Option<bool>,
}

/// Returns one buffer for each request, in order. The buffer is `None` if the tensor has no
/// elements.
///
/// Tensors that are not ready yet can be read after `ready`. The work on a device runs on the
/// stream that `stream_on` returns for the device.
///
/// # Errors
/// Returns an error together with the index of the request in which it occurred.
pub(crate) fn buffers(
    requests: Vec<BufferRequest>,
    ready: &Ready,
    stream_on: impl Fn(Device) -> Result<Stream>,
) -> Result<Vec<Option<Buffer>>, (usize, Error)> {
    let mut slots: Vec<Option<Slot>> = requests.into_iter().map(|request| request.into_slot(ready)).collect();
    step(
        &mut slots,
        &stream_on,
        |slot| slot.dims.as_ref().map(|_| slot.elements * slot.width),
        |jobs, slot, block, at| {
            let dims = slot.dims.as_deref().unwrap_or(&[]);
            jobs.gather(&slot.buffer, slot.first, slot.width, dims, block, at)
        },
    )?;
    step(
        &mut slots,
        &stream_on,
        |slot| slot.bits.map(|_| slot.elements.div_ceil(8)),
        |jobs, slot, block, at| {
            let invert = slot.bits.unwrap_or(false);
            jobs.pack_bytes(&slot.buffer, slot.first, slot.elements, invert, block, at)
        },
    )?;
    Ok(slots.into_iter().map(|slot| slot.map(|slot| slot.buffer)).collect())
}

impl BufferRequest {
    fn into_slot(self, ready: &Ready) -> Option<Slot> {
        let Self { tensor, order, bits, invert } = self;
        let (elements, width) = (tensor.strides.elements(), tensor.element.width());
        if elements == 0 {
            return None;
        }
        let dims = (!tensor.is_in_place(&order)).then(|| tensor.strides.gather_dims(&order, width));
        let ready = if tensor.is_ready() { Ready::Now } else { ready.clone() };
        let (buffer, first) = tensor.into_buffer(ready);
        Some(Slot { buffer, first, elements, width, dims, bits: bits.then_some(invert) })
    }
}

/// Replaces the buffers of all slots for which `output_bytes` returns a size. All new buffers of a
/// device are in one block.
fn step(
    slots: &mut [Option<Slot>],
    stream_on: impl Fn(Device) -> Result<Stream>,
    output_bytes: impl Fn(&Slot) -> Option<usize>,
    job: impl for<'a> Fn(&mut Jobs<'a>, &'a Slot, &mut crossdock_memory::BufferMut, usize) -> Result<()>,
) -> Result<(), (usize, Error)> {
    // For each output, the index of its slot, its offset in the block, and its size in bytes.
    let mut outputs: Vec<(usize, usize, usize)> = Vec::new();
    let mut done: Vec<Device> = Vec::new();
    while let Some((first, device)) = slots.iter().enumerate().find_map(|(i, slot)| {
        let slot = slot.as_ref().filter(|slot| output_bytes(slot).is_some())?;
        (!done.contains(&slot.buffer.device())).then(|| (i, slot.buffer.device()))
    }) {
        done.push(device);
        outputs.clear();
        let (mut next, mut total) = (0usize, 0usize);
        for (i, slot) in slots.iter().enumerate() {
            let Some(slot) = slot.as_ref().filter(|slot| slot.buffer.device() == device) else { continue };
            let Some(n) = output_bytes(slot) else { continue };
            outputs.push((i, next, n));
            let end =
                next.checked_add(n).and_then(|end| Some((end, end.checked_next_multiple_of(ALIGNMENT)?)));
            let overflow = || Error::out_of_memory("the size of all tensors together overflows an address");
            (total, next) = end.ok_or_else(|| (i, overflow()))?;
        }
        let of_first = |error| (first, error);
        let stream = stream_on(device).map_err(of_first)?;
        let mut block = stream.memory().alloc(&stream, total).map_err(of_first)?;
        let mut jobs = Jobs::new();
        for &(i, at, _) in &outputs {
            if let Some(slot) = slots.get(i).and_then(Option::as_ref) {
                job(&mut jobs, slot, &mut block, at).map_err(|error| (i, error))?;
            }
        }
        jobs.launch(&stream).map_err(of_first)?;
        let block = block.freeze(&stream).map_err(of_first)?;
        for &(i, at, n) in &outputs {
            if let Some(slot) = slots.get_mut(i).and_then(Option::as_mut) {
                slot.buffer = block.slice(at, n).map_err(|error| (i, error))?;
                slot.first = 0;
            }
        }
    }
    Ok(())
}
