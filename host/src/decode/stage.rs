//! Copies the buffers of an encoded array to the devices where their nodes are decoded.

use crossdock_memory::{ALIGNMENT, Buffer, Copies, EncodedBuffers, Memory};
use crossdock_plugin_api::{Device, EncodedArray, Error as ApiError, Result as ApiResult};

use super::plan::{By, ChildInput, Decoded, Step};
use crate::place::is_host_memory;

/// Copies each node's buffers to the device where the node is decoded. The buffers of a child that
/// stays encoded are copied to the device where its parent is decoded.
pub(super) fn stage(array: &mut EncodedArray, steps: &[Step<'_>], memory: &Memory) -> ApiResult<()> {
    let mut moves: Vec<Move> = Vec::new();
    for (index, device) in wanted_devices(steps).into_iter().enumerate() {
        let Some(to) = device else { continue };
        let node = array.node(index)?;
        for i in 0..node.n_buffers() {
            if matches!(steps.get(index), Some(Step::Decoded(step)) if !step.reads_buffer(i)) {
                continue;
            }
            let buffer = node.buffer(i)?;
            let from = Device::from_arrow(buffer.device.r#type, buffer.device.id);
            if from == to || buffer.bytes == 0 {
                continue;
            }
            add(&mut moves, from, to, (index, i));
        }
    }
    moves.iter().try_for_each(|each| each.run(array, memory))
}

/// Copies all buffers that are not in host memory to host memory.
pub(crate) fn to_host(array: &mut EncodedArray, memory: &Memory) -> ApiResult<()> {
    let mut moves: Vec<Move> = Vec::new();
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        for i in 0..node.n_buffers() {
            let buffer = node.buffer(i)?;
            let from = Device::from_arrow(buffer.device.r#type, buffer.device.id);
            if buffer.bytes > 0 && !is_host_memory(from) {
                add(&mut moves, from, Device::CPU, (index, i));
            }
        }
    }
    moves.iter().try_for_each(|each| each.run(array, memory))
}

/// Adds a buffer, the node and the position in the node, to the buffers between two devices.
fn add(moves: &mut Vec<Move>, from: Device, to: Device, buffer: (usize, usize)) {
    match moves.iter_mut().find(|other| (other.from, other.to) == (from, to)) {
        Some(same) => same.buffers.push(buffer),
        None => moves.push(Move { from, to, buffers: vec![buffer] }),
    }
}

/// For each node, the device on which its buffers are read. `None` if no plugin or kernel reads
/// them.
fn wanted_devices(steps: &[Step<'_>]) -> Vec<Option<Device>> {
    let mut devices = vec![None; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        let Step::Decoded(Decoded { device, inputs, by, .. }) = step else { continue };
        let raw = inputs.iter().zip(index + 1..).filter(|(input, _)| **input == ChildInput::Raw);
        let raw = raw.map(|(_, at)| at).filter(|_| matches!(by, By::Plugin(_)));
        for at in std::iter::once(index).chain(raw) {
            if let Some(slot) = devices.get_mut(at) {
                *slot = Some(*device);
            }
        }
    }
    devices
}

/// Buffers that are copied together, because many small copies take longer than one large copy.
struct Move {
    from: Device,
    to: Device,
    /// The nodes, and the positions of the buffers in the nodes.
    buffers: Vec<(usize, usize)>,
}

impl Move {
    fn run(&self, array: &mut EncodedArray, memory: &Memory) -> ApiResult<()> {
        let sources = self.sources(array)?;
        let mut places = Vec::with_capacity(sources.len());
        let mut end = 0usize;
        for source in &sources {
            let bytes = source.len().unwrap_or(0);
            places.push((end, bytes));
            end = end
                .checked_add(bytes.next_multiple_of(ALIGNMENT))
                .ok_or_else(|| ApiError::out_of_memory("the buffers exceed the address space"))?;
        }
        let mut block = memory.alloc(&memory.default_stream(self.to)?, end)?;
        let mut copies = Copies::new();
        for (source, (at, bytes)) in sources.iter().zip(&places) {
            copies.push(&mut block, *at, source, 0, *bytes)?;
        }
        // A copy between host and device runs on a stream of the device.
        let is_to_host = self.to == Device::CPU;
        let stream = memory.default_stream(if is_to_host { self.from } else { self.to })?;
        copies.submit(&stream)?;
        let block = if is_to_host {
            // The copies must be complete, because the host reads the bytes next.
            stream.synchronize()?;
            block.freeze_now()
        } else {
            block.freeze(&stream)?
        };
        for ((index, i), (at, bytes)) in self.buffers.iter().zip(places) {
            let copy = block.slice(at, bytes)?;
            array.replace_buffer(*index, *i, |_| Ok(copy.to_encoded()))?;
        }
        Ok(())
    }

    /// The buffers of the array, which keeps them until they are replaced.
    fn sources(&self, array: &mut EncodedArray) -> ApiResult<Vec<Buffer>> {
        let held = EncodedBuffers::new();
        let mut sources = Vec::with_capacity(self.buffers.len());
        for (index, i) in &self.buffers {
            array.replace_buffer(*index, *i, |raw| {
                // SAFETY: the array's producer guarantees that each buffer has its declared address
                // and length.
                let buffer = unsafe { held.add(raw) };
                let buffer =
                    buffer.ok_or_else(|| ApiError::internal("a buffer with bytes has no address"))?;
                let shared = buffer.to_encoded();
                sources.push(buffer);
                Ok(shared)
            })?;
        }
        Ok(sources)
    }
}
