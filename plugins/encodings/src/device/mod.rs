//! Nodes that are decoded where their buffers and children are, by kernels, on a device that the host may not touch: those
//! that have no program ([`crate::lower`]).
//!
//! What a kernel finds wrong it writes to a cell, and goes on within its ranges; the cells come back together, and become
//! the error that the host's decoder gives: of texts the host's decoder says it itself, over the same buffers.
//!
//! Values that are arrays themselves are taken by their rows with these kernels on the host too.

mod blocks;
pub mod lists;
mod on_device;
mod parts;
pub mod repeat;
pub mod sparse;
mod strings;

use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Device, Result};

use crate::job::Job;
use crate::kinds::Kind;
use crate::node::Node;
use on_device::{OnDevice, always, integers, is_taken, misplaced, room};

/// Those of whom the host's decoder hands on what is there, as it is, or puts it together by what does so on any device.
const AS_IT_IS: &[&str] = &[
    "vortex.primitive",
    "vortex.bool",
    "vortex.null",
    "vortex.struct",
    "vortex.ext",
    "vortex.masked",
    "vortex.fixed_size_list",
    "vortex.map",
    "vortex.chunked",
];

fn found(id: &str) -> Option<&'static OnDevice> {
    let all = repeat::KINDS
        .iter()
        .chain(sparse::KINDS)
        .chain(strings::KINDS)
        .chain(parts::KINDS)
        .chain(lists::KINDS)
        .chain(blocks::KINDS);
    all.into_iter().find(|kind| kind.id == id)
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
