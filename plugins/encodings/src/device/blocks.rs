//! Decodes FastLanes delta and run-length encoding.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::numbers;
use crossdock_kernels::{BlockCodes, Checks, Deltas, Integers, Source, Words};
use crossdock_plugin_api::Result;

use super::{OnDevice, alloc, integers, supports_all};
use crate::cpu::fastlanes::BLOCK;
use crate::job::Job;
use crate::kinds::blocks::{DELTA, RLE, delta_metadata, rle_metadata};
use crate::node::Node;
use crate::nulls::from_first_bit;
use crate::validity::Validity;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: DELTA, supports: supports_all, decode: delta },
    OnDevice { id: RLE, supports: has_words, decode: rle },
];

/// Whether the values of a node have a fixed width of 1 to 8 bytes.
fn has_words(node: &Node<'_>) -> Result<bool> {
    Ok(matches!(node.data_type().primitive_width(), Some(1..=8)))
}

fn delta(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let metadata = delta_metadata(node)?;
    let validity = job.validity(node.has_validity(2)?.then_some(2))?;
    let (Some(bases), Some(deltas), 1..) = (numbers(job.child(0)?), numbers(job.child(1)?), node.len) else {
        return DeviceArray::empty(node.data_type());
    };
    let from = Deltas {
        bases: (bases.buffer, bases.at),
        deltas: (deltas.buffer, deltas.at),
        blocks: metadata.deltas_len / BLOCK,
        first: metadata.offset as usize,
    };
    let mut to = alloc(job, node.values_bytes()?)?;
    let mut checks = Checks::new();
    checks.sum_lanes(from, &mut to, Words { at: 0, len: node.len, width_bytes: node.width()? })?;
    checks.run(job.stream)?;
    job.array(node.data_type(), validity, vec![Some(to.freeze(job.stream)?)])
}

fn rle(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let first = rle_metadata(node)?.offset as usize;
    let (values, indices, begins) = (job.child(0)?, job.child(1)?, job.child(2)?);
    let (Some(codes), Some(begins), 1..) = (integers(indices), integers(begins), node.len) else {
        return DeviceArray::empty(node.data_type());
    };
    // The indices cover whole blocks. Only the indices from the node's first value on are used.
    let at = codes.at + first * codes.of.width_bytes;
    let values = numbers(values);
    let from = BlockCodes {
        codes: Integers { at, len: node.len, ..codes },
        first,
        begins,
        values: Source {
            buffer: values.map(|values| values.buffer),
            at: values.map_or(0, |values| values.at),
            len: values.map_or(0, |values| values.len),
        },
    };
    let valid = indices.validity_bits().map(|(bits, bit)| (bits, bit + first));
    let mut to = alloc(job, node.values_bytes()?)?;
    let mut checks = Checks::new();
    let of_codes = valid.as_ref().map(|(bits, bit)| (bits, *bit));
    let words = Words { at: 0, len: node.len, width_bytes: node.width()? };
    let cell = checks.take_blocks(from, of_codes, &mut to, words)?;
    if let Some(at) = checks.run(job.stream)?.first_wrong(cell) {
        return Err(node.wrong(format_args!(
            "rle: expected indices within the dictionary of each block, but the index at position {at} is out of range"
        )));
    }
    let validity = match valid {
        Some((bits, bit)) => {
            Validity { bits: Some(from_first_bit(job, &bits, bit, node.len)?), null_count: None }
        }
        None => Validity::all_valid(),
    };
    job.array(node.data_type(), validity, vec![Some(to.freeze(job.stream)?)])
}
