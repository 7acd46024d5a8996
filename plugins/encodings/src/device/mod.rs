//! Decodes nodes that have no program ([`crate::lower`]) with kernels, on the device of their
//! buffers.
//!
//! A kernel that detects an error writes the position of the error to a cell and continues within
//! bounds. The cells are read together. They are converted to the error that the host's decoder
//! would report. For text, the host's decoder decodes the same buffers again and reports the error.
//!
//! The same kernels take the rows of nested arrays, also on the host.

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
use crate::kinds::nested::CHUNKED;
use crate::node::Node;
use on_device::{OnDevice, alloc, check_patch_indices, integers, supports_all, supports_takeable};

/// Encodings whose host decoder works on every device. Such a decoder does not read the buffers, or
/// uses only operations that support every device.
const ANY_DEVICE: &[&str] = &[
    "vortex.primitive",
    "vortex.bool",
    "vortex.null",
    "vortex.struct",
    "vortex.ext",
    "vortex.masked",
    "vortex.fixed_size_list",
    "vortex.map",
    CHUNKED,
];

fn find(id: &str) -> Option<&'static OnDevice> {
    let all = repeat::KINDS
        .iter()
        .chain(sparse::KINDS)
        .chain(strings::KINDS)
        .chain(parts::KINDS)
        .chain(lists::KINDS)
        .chain(blocks::KINDS);
    all.into_iter().find(|kind| kind.id == id)
}

/// Whether a node can be decoded on the device.
pub fn supports(kind: &Kind, node: &Node<'_>, device: Device) -> Result<bool> {
    if device == Device::CPU {
        return Ok(false);
    }
    match find(kind.id) {
        Some(kind) => (kind.supports)(node),
        None => Ok(ANY_DEVICE.contains(&kind.id)),
    }
}

/// Decodes a node on the stream's device.
pub fn decode(kind: &Kind, job: &Job<'_>) -> Result<DeviceArray> {
    match find(kind.id).filter(|_| job.stream.device() != Device::CPU) {
        Some(kind) => (kind.decode)(job),
        None => (kind.decode)(job),
    }
}
