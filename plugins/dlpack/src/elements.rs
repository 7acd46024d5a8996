//! Tensors' elements as Arrow's buffers hold them: in place where they lie so, else gathered, and booleans as bits. What is
//! made takes one allocation and one launch a step, however many tensors there are.

use crossdock_kernels::{Dim, Jobs};
use crossdock_memory::{ALIGNMENT, Buffer, Device, Error, Ready, Result, Stream};

use crate::tensor::Tensor;

/// What is wanted of a tensor.
pub(crate) struct Wanted {
    pub(crate) tensor: Tensor,
    /// Of a row's dimensions.
    pub(crate) order: Vec<usize>,
    /// Bits instead of bytes.
    pub(crate) bits: bool,
    /// Each the other way round: of a mask, which tells what is null.
    pub(crate) invert: bool,
}

/// A tensor on its way.
struct Slot {
    buffer: Buffer,
    /// Where its first element lies.
    first: usize,
    elements: usize,
    width: usize,
    /// Of what has to be gathered.
    dims: Option<Vec<Dim>>,
    /// Whether bits are wanted, and inverted.
    bits: Option<bool>,
}

/// The buffers of all, in order; `None` where there are no elements. Those tensors that are not ready by themselves are ready
/// after `ready`. What is made is made on the stream that `stream_on` gives for a device. An error says which one it is of.
pub(crate) fn buffers(
    wanted: Vec<Wanted>,
    ready: &Ready,
    stream_on: impl Fn(Device) -> Result<Stream>,
) -> Result<Vec<Option<Buffer>>, (usize, Error)> {
    let mut slots: Vec<Option<Slot>> = wanted.into_iter().map(|wanted| wanted.slot(ready)).collect();
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

impl Wanted {
    fn slot(self, ready: &Ready) -> Option<Slot> {
        let Self { tensor, order, bits, invert } = self;
        let (elements, width) = (tensor.strides.elements(), tensor.element.width());
        if elements == 0 {
            return None;
        }
        let dims = (!tensor.is_in_place(&order)).then(|| tensor.strides.gathered(&order, width));
        let ready = if tensor.is_ready() { Ready::Now } else { ready.clone() };
        let (buffer, first) = tensor.into_buffer(ready);
        Some(Slot { buffer, first, elements, width, dims, bits: bits.then_some(invert) })
    }
}

/// Makes new bytes, as many as `bytes` says, for each slot that needs some, all of a device in one block.
fn step(
    slots: &mut [Option<Slot>],
    stream_on: impl Fn(Device) -> Result<Stream>,
    bytes: impl Fn(&Slot) -> Option<usize>,
    job: impl for<'a> Fn(&mut Jobs<'a>, &'a Slot, &mut crossdock_memory::BufferMut, usize) -> Result<()>,
) -> Result<(), (usize, Error)> {
    // Which slot, where in the block, and how much.
    let mut made: Vec<(usize, usize, usize)> = Vec::new();
    let mut done: Vec<Device> = Vec::new();
    while let Some((first, device)) = slots.iter().enumerate().find_map(|(i, slot)| {
        let slot = slot.as_ref().filter(|slot| bytes(slot).is_some())?;
        (!done.contains(&slot.buffer.device())).then(|| (i, slot.buffer.device()))
    }) {
        done.push(device);
        made.clear();
        let (mut next, mut total) = (0usize, 0usize);
        for (i, slot) in slots.iter().enumerate() {
            let Some(slot) = slot.as_ref().filter(|slot| slot.buffer.device() == device) else { continue };
            let Some(n) = bytes(slot) else { continue };
            made.push((i, next, n));
            let end =
                next.checked_add(n).and_then(|end| Some((end, end.checked_next_multiple_of(ALIGNMENT)?)));
            let beyond = || Error::out_of_memory("the tensors together are longer than memory can be");
            (total, next) = end.ok_or_else(|| (i, beyond()))?;
        }
        let of_first = |error| (first, error);
        let stream = stream_on(device).map_err(of_first)?;
        let mut block = stream.memory().alloc(&stream, total).map_err(of_first)?;
        let mut jobs = Jobs::new();
        for &(i, at, _) in &made {
            if let Some(slot) = slots.get(i).and_then(Option::as_ref) {
                job(&mut jobs, slot, &mut block, at).map_err(|error| (i, error))?;
            }
        }
        jobs.launch(&stream).map_err(of_first)?;
        let block = block.freeze(&stream).map_err(of_first)?;
        for &(i, at, n) in &made {
            if let Some(slot) = slots.get_mut(i).and_then(Option::as_mut) {
                slot.buffer = block.slice(at, n).map_err(|error| (i, error))?;
                slot.first = 0;
            }
        }
    }
    Ok(())
}
