//! Decodes decimals and byte bools.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take;
use crossdock_kernels::{Checks, IntType, Integers};
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use super::{OnDevice, alloc, integers, supports_all};
use crate::job::Job;
use crate::kinds::parts::{BYTE_PARTS, BYTES, DECIMAL, stored_bytes};
use crate::validity::Validity;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: DECIMAL, supports: supports_all, decode: decimal },
    OnDevice { id: BYTE_PARTS, supports: supports_all, decode: byte_parts },
    OnDevice { id: BYTES, supports: supports_all, decode: bytes },
];

fn decimal(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let (width, to_width) = (stored_bytes(node)?, node.width()?);
    let validity = job.validity(node.has_validity(0)?.then_some(0))?;
    if width == to_width {
        let stored = job.take_buffer(0, width)?;
        return job.array(node.data_type(), validity, vec![stored]);
    }
    let Some(stored) = job.take_buffer(0, 1)? else { return DeviceArray::empty(node.data_type()) };
    if width < to_width {
        let of = IntType { width_bytes: width, signed: true };
        let values = widen(job, Integers { buffer: &stored, at: 0, len: node.len, of })?;
        return job.array(node.data_type(), validity, vec![Some(values)]);
    }
    let mut to = alloc(job, node.values_bytes()?)?;
    let mut checks = Checks::new();
    let valid = validity.bits.as_ref().map(|bits| (bits, 0));
    let cell = checks.narrow(&stored, 0, node.len, valid, &mut to, 0)?;
    if let Some(at) = checks.run(job.stream)?.first_wrong(cell) {
        return Err(node.wrong(format_args!("decimals: the value at index {at} does not fit into 128 bits")));
    }
    job.array(node.data_type(), validity, vec![Some(to.freeze(job.stream)?)])
}

/// Widens integers to the width of the node's type.
fn widen(job: &Job<'_>, from: Integers<'_>) -> Result<Buffer> {
    let mut to = alloc(job, job.node.values_bytes()?)?;
    let mut checks = Checks::new();
    checks.widen_long(from, &mut to, 0, job.node.width()?)?;
    checks.run(job.stream)?;
    to.freeze(job.stream)
}

fn byte_parts(job: &Job<'_>) -> Result<DeviceArray> {
    let (node, child) = (&job.node, job.child(0)?);
    let Some(from) = integers(child) else { return DeviceArray::empty(node.data_type()) };
    let values = widen(job, from)?;
    job.array(node.data_type(), Validity::from_array(job, child)?, vec![Some(values)])
}

fn bytes(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let validity = job.validity(node.has_validity(0)?.then_some(0))?;
    let Some(stored) = job.take_buffer(0, 1)? else { return DeviceArray::empty(node.data_type()) };
    let bits = take::bits_of_bytes(job.stream, &stored, node.len)?;
    job.array(node.data_type(), validity, vec![Some(bits)])
}
