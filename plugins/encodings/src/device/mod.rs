//! Nodes that are decoded where their buffers and children are, by kernels, on a device that the host may not touch.
//!
//! What a kernel finds wrong it writes to a cell, and goes on within its ranges; the cells come back together, and become
//! the error that the host's decoder gives.

mod chain;
mod repeat;

use crossdock_arrays::DeviceArray;
use crossdock_kernels::{Jobs, pack_bytes, unpack_bits};
use crossdock_memory::{Buffer, BufferMut};
use crossdock_plugin_api::{Device, Result};

use crate::job::Job;
use crate::kinds::{self, Kind};
use crate::node::Node;
use crate::validity::Validity;

/// How the nodes of one id are decoded on a device.
struct OnDevice {
    id: &'static str,
    /// Whether a node can be; else the host does it.
    suits: fn(&Node<'_>) -> Result<bool>,
    decode: fn(&Job<'_>) -> Result<DeviceArray>,
}

/// Those of whom the host's decoder hands on what is there, as it is.
const AS_IT_IS: &[&str] = &["vortex.primitive", "vortex.bool", "vortex.null", "vortex.struct", "vortex.ext"];

fn found(id: &str) -> Option<&'static OnDevice> {
    [chain::KINDS, repeat::KINDS].into_iter().flatten().find(|kind| kind.id == id)
}

/// Whether a node that is wanted on a device is decoded there.
pub fn suits(kind: &Kind, node: &Node<'_>, device: Device) -> Result<bool> {
    if device == Device::CPU {
        return Ok(false);
    }
    match found(kind.id) {
        Some(kind) => (kind.suits)(node),
        None => Ok(AS_IT_IS.contains(&kind.id)),
    }
}

/// Decodes a node on the stream's device.
pub fn decode(kind: &Kind, job: &Job<'_>) -> Result<DeviceArray> {
    match found(kind.id).filter(|_| job.stream.device() != Device::CPU) {
        Some(kind) => (kind.decode)(job),
        None => (kind.decode)(job),
    }
}

/// Room for values on the device.
fn room(job: &Job<'_>, bytes: usize) -> Result<BufferMut> {
    job.memory.alloc(job.stream, bytes)
}

/// The bits of `buffer` from bit `offset` on, moved to where they begin a byte.
pub fn shifted(job: &Job<'_>, buffer: &Buffer, offset: usize, len: usize) -> Result<Buffer> {
    let mut to = room(job, len.div_ceil(8))?;
    let mut jobs = Jobs::new();
    jobs.shift_bits(buffer, offset, len, &mut to, 0)?;
    jobs.launch(job.stream)?;
    to.freeze(job.stream)
}

/// A byte for each bit.
fn bytes_of_bits(job: &Job<'_>, bits: &Buffer, offset: usize, len: usize) -> Result<Buffer> {
    let mut to = room(job, len)?;
    unpack_bits(job.stream, bits, offset, len, false, &mut to, 0)?;
    to.freeze(job.stream)
}

/// A bit for each byte.
fn bits_of_bytes(job: &Job<'_>, bytes: &Buffer, len: usize) -> Result<Buffer> {
    let mut to = room(job, len.div_ceil(8))?;
    pack_bytes(job.stream, bytes, 0, len, false, &mut to, 0)?;
    to.freeze(job.stream)
}

/// The validity of an array, if it may have nulls: its bitmap, and the first bit.
fn bitmap(array: &DeviceArray) -> Option<(&Buffer, usize)> {
    if array.null_count() == Some(0) || !array.layout().has_validity || array.is_empty() {
        return None;
    }
    Some((array.buffers().first()?.as_ref()?, array.offset()))
}

/// What is valid in both.
fn both(job: &Job<'_>, a: Validity, b: Validity) -> Result<Validity> {
    let (Some(left), Some(right)) = (&a.bits, &b.bits) else {
        return Ok(if a.bits.is_some() { a } else { b });
    };
    let mut to = room(job, job.node.len.div_ceil(8))?;
    let mut jobs = Jobs::new();
    jobs.merge_bits((left, 0), (right, 0), job.node.len, &mut to, 0)?;
    jobs.launch(job.stream)?;
    Ok(Validity { bits: Some(to.freeze(job.stream)?), null_count: None })
}

/// Values of a slot each, which the host can name by a width; see [`kinds::slots`].
fn has_slots(node: &Node<'_>) -> Result<bool> {
    Ok(kinds::slots::slot(node).is_some())
}
