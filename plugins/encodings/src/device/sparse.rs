//! Decodes sparse nodes.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, Slots, numbers};
use crossdock_kernels::{Checks, Patches, Source, Words};
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use super::{OnDevice, alloc, check_patch_indices, supports_takeable};
use crate::job::Job;
use crate::kinds::repeat::{SPARSE, read_scalar, scalar_bytes, sparse_metadata};
use crate::kinds::slots::{self, Slot};
use crate::nested::{Rows, concatenate};
use crate::single::{self, slot_value};
use crate::validity::Validity;
use crate::wire::scalar::Scalar;

pub(super) const KINDS: &[OnDevice] = &[OnDevice { id: SPARSE, supports: supports_takeable, decode: sparse }];

/// Decodes a fill value with patches.
pub fn sparse(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let bytes = scalar_bytes(job)?;
    let scalar = read_scalar(node, &bytes)?;
    match slots::slot(node) {
        Some(slot @ (Slot::Bit | Slot::Bytes(1..=8))) => words(job, &scalar, slot),
        _ => rows(job, &scalar),
    }
}

/// Creates a buffer that is filled with `word`. The values of `from` replace the fill value at the
/// node's indices.
fn patched(job: &Job<'_>, word: u64, from: Source<'_>, width: usize) -> Result<Buffer> {
    let node = &job.node;
    let first = sparse_metadata(node)?.patches.offset as u64;
    let words = Words { at: 0, len: node.len, width_bytes: width };
    let mut to = alloc(job, node.len.saturating_mul(width))?;
    let mut checks = Checks::new();
    checks.sequence(word, 0, &mut to, words, &[])?;
    let put = numbers(job.child(0)?).filter(|indices| indices.len > 0);
    let put = put.map(|indices| Patches { indices, first, values: from });
    let cell = put.map(|put| checks.patch(put, &mut to, words, &[])).transpose()?;
    let results = checks.run(job.stream)?;
    check_patch_indices(node, cell.and_then(|cell| results.first_wrong(cell)))?;
    to.freeze(job.stream)
}

/// Decodes values of up to 8 bytes.
fn words(job: &Job<'_>, scalar: &Scalar<'_>, slot: Slot) -> Result<DeviceArray> {
    let (node, values) = (&job.node, job.child(1)?);
    let fill = slot_value(node, scalar, 0)?;
    let word = match (&fill, slot) {
        (None, _) => 0,
        (Some(value), Slot::Bit) => value.bit.into(),
        (Some(value), Slot::Bytes(_)) => value.slot.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)),
    };
    let from = Slots::of(job.stream, values, slot)?;
    let mut slots = patched(job, word, from.source(), from.width)?;
    if slot == Slot::Bit {
        slots = take::bits_of_bytes(job.stream, &slots, node.len)?;
    }
    let valid = match (Slots::of_validity(job.stream, values)?, &fill) {
        (None, Some(_)) => None,
        (Some(valid), _) => Some(valid),
        // The fill value is null, so only the patches are valid.
        (None, None) => Some(Slots::all_valid(job.stream, values.len())?),
    };
    let validity = match valid {
        Some(valid) => {
            let bytes = patched(job, fill.is_some().into(), valid.source(), valid.width)?;
            Validity { bits: Some(take::bits_of_bytes(job.stream, &bytes, node.len)?), null_count: None }
        }
        None => Validity::all_valid(),
    };
    slots::array(job, slots, std::iter::empty(), validity)
}

/// Decodes values that [`words`] does not support: patches row indices, then takes the rows. The
/// fill value is the last row.
fn rows(job: &Job<'_>, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let values = job.child(1)?;
    let (n, width) = (values.len(), take::row_width(values.len()));
    let mut row_indices = alloc(job, n.saturating_mul(width))?;
    let mut checks = Checks::new();
    checks.sequence(0, 1, &mut row_indices, Words { at: 0, len: n, width_bytes: width }, &[])?;
    checks.run(job.stream)?;
    let row_indices = row_indices.freeze(job.stream)?;
    let numbers = patched(job, n as u64, Source { buffer: Some(&row_indices), at: 0, len: n }, width)?;
    Rows::new(numbers, width)
        .take(job, &concatenate(job, &[values.clone(), single::on_device(job, scalar)?])?)
}
