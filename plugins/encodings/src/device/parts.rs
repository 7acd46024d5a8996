//! Decodes ALP-RD, decimals, date-time parts and byte bools.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, numbers};
use crossdock_kernels::{
    Checks, Halves, IntType, Integers, LeftParts, Numbers, Part, Patches, Source, Step, Words,
};
use crossdock_memory::{Buffer, BufferMut};
use crossdock_plugin_api::Result;

use super::{OnDevice, alloc, check_patch_indices, integers, supports_all};
use crate::cpu::{alprd, date_time_parts};
use crate::job::Job;
use crate::kinds::chain::Patched;
use crate::kinds::numbers::floats;
use crate::kinds::parts::{
    ALP_RD, BYTE_PARTS, BYTES, DECIMAL, TIMESTAMP, alprd_metadata, stored_bytes, ticks,
};
use crate::node::in_node;
use crate::validity::Validity;
use crate::wire::PType;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: ALP_RD, supports: supports_all, decode: alprd },
    OnDevice { id: DECIMAL, supports: supports_all, decode: decimal },
    OnDevice { id: BYTE_PARTS, supports: supports_all, decode: byte_parts },
    OnDevice { id: TIMESTAMP, supports: supports_all, decode: timestamp },
    OnDevice { id: BYTES, supports: supports_all, decode: bytes },
];

fn alprd(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let metadata = alprd_metadata(node)?;
    let (right_bits, lefts) = (metadata.right_bit_width, metadata.dictionary.as_slice());
    match floats(node)? {
        PType::F32 => in_node(node, alprd::Cut::<u32>::new(right_bits, lefts)).map(drop),
        _ => in_node(node, alprd::Cut::<u64>::new(right_bits, lefts)).map(drop),
    }?;
    let (codes, rights) = (job.child(0)?, job.child(1)?);
    let patched = metadata.patches.as_ref().map(|patches| Patched::new(job, node, 2, patches)).transpose()?;
    let (Some(code_numbers), Some(right_parts)) = (numbers(codes), numbers(rights)) else {
        let has_patches = patched.is_some_and(|patched| !patched.indices.is_empty());
        check_patch_indices(node, has_patches.then_some(0))?;
        return DeviceArray::empty(node.data_type());
    };
    let halves = Halves {
        codes: (code_numbers.buffer, code_numbers.at),
        rights: (right_parts.buffer, right_parts.at),
        right_bits,
        len: node.len,
        width_bytes: node.width()?,
    };
    let valid = codes.validity_bits();
    let valid = valid.as_ref().map(|(bits, first)| (bits, *first));
    let mut to = alloc(job, node.values_bytes()?)?;
    let mut checks = Checks::new();
    let cell = checks.join(halves, LeftParts::Dictionary(lefts), valid, &mut to, 0)?;
    if let Some(at) = checks.run(job.stream)?.first_wrong(cell) {
        let n = lefts.len();
        return Err(node.wrong(format_args!(
            "ALP-RD: expected codes below {n}, but the code at index {at} is out of range"
        )));
    }
    if let Some(patched) = patched {
        patch_lefts(job, &patched, halves, &mut to)?;
    }
    job.array(node.data_type(), Validity::from_array(job, codes)?, vec![Some(to.freeze(job.stream)?)])
}

/// Patches left parts. Gathers the right parts at the patched positions, joins them with the
/// patched left parts, and writes the joined values at the patched positions.
fn patch_lefts(job: &Job<'_>, patched: &Patched<'_>, halves: Halves<'_>, to: &mut BufferMut) -> Result<()> {
    let (node, width) = (&job.node, halves.width_bytes);
    let (Some(indices), Some(lefts)) = (numbers(patched.indices), numbers(patched.values)) else {
        return Ok(());
    };
    let (len, first) = (indices.len, patched.offset as u64);
    let words = Words { at: 0, len, width_bytes: indices.width_bytes };
    let mut places = alloc(job, len.saturating_mul(words.width_bytes))?;
    let mut checks = Checks::new();
    checks.map(indices.buffer, indices.at, &mut places, words, &[Step::Add(first.wrapping_neg())])?;
    checks.run(job.stream)?;
    let places = places.freeze(job.stream)?;
    let bytes = len.saturating_mul(width);
    let mut rights = alloc(job, bytes)?;
    let mut checks = Checks::new();
    let places = Numbers { buffer: &places, at: 0, ..indices };
    let (buffer, at) = halves.rights;
    // An index out of bounds is detected when the patches are written.
    checks.take(places, None, Source { buffer: Some(buffer), at, len: halves.len }, &mut rights, 0, width)?;
    checks.run(job.stream)?;
    let rights = rights.freeze(job.stream)?;
    let halves = Halves { codes: (lefts.buffer, lefts.at), rights: (&rights, 0), len, ..halves };
    let mut values = alloc(job, bytes)?;
    let mut checks = Checks::new();
    let cell = checks.join(halves, LeftParts::Inline, None, &mut values, 0)?;
    if let Some(at) = checks.run(job.stream)?.first_wrong(cell) {
        let bits = 8 * width - halves.right_bits as usize;
        return Err(
            node.wrong(format_args!("ALP-RD: the left part at index {at} does not fit into {bits} bits"))
        );
    }
    let values = values.freeze(job.stream)?;
    let patches = Patches { indices, first, values: Source { buffer: Some(&values), at: 0, len } };
    let mut checks = Checks::new();
    let cell = checks.patch(patches, to, Words { at: 0, len: node.len, width_bytes: width }, &[])?;
    check_patch_indices(node, checks.run(job.stream)?.first_wrong(cell))
}

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

fn timestamp(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let (days, second) = (job.child(0)?, ticks(node)? as u64);
    let factors = [date_time_parts::SECONDS_PER_DAY as u64 * second, second, 1];
    let parts = factors.into_iter().enumerate();
    let parts = parts.map(|(i, factor)| Ok(integers(job.child(i)?).map(|part| (part, factor))));
    let Some(parts) = parts.collect::<Result<Option<Vec<Part<'_>>>>>()? else {
        return DeviceArray::empty(node.data_type());
    };
    let valid = days.validity_bits();
    let valid = valid.as_ref().map(|(bits, first)| (bits, *first));
    let mut to = alloc(job, node.values_bytes()?)?;
    let mut checks = Checks::new();
    let cell = checks.sum(&parts, valid, &mut to, 0)?;
    if let Some(at) = checks.run(job.stream)?.first_wrong(cell) {
        return Err(node.wrong(format_args!("timestamps: the sum at index {at} does not fit into 64 bits")));
    }
    job.array(node.data_type(), Validity::from_array(job, days)?, vec![Some(to.freeze(job.stream)?)])
}

fn bytes(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let validity = job.validity(node.has_validity(0)?.then_some(0))?;
    let Some(stored) = job.take_buffer(0, 1)? else { return DeviceArray::empty(node.data_type()) };
    let bits = take::bits_of_bytes(job.stream, &stored, node.len)?;
    job.array(node.data_type(), validity, vec![Some(bits)])
}
