//! Values most of which are one and the same, and others in their places.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, Slots, numbers};
use crossdock_kernels::{Checks, Patches, Source, Words};
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use super::{OnDevice, is_taken, misplaced, room};
use crate::job::Job;
use crate::kinds::repeat::{SPARSE, scalar_bytes, scalar_of, sparse_of};
use crate::kinds::slots::{self, Slot};
use crate::nested::{Rows, concatenate};
use crate::single::{self, one};
use crate::validity::Validity;
use crate::wire::scalar::Scalar;

pub(super) const KINDS: &[OnDevice] = &[OnDevice { id: SPARSE, suits: is_taken, decode: sparse }];

/// One value for most, and others in their places.
pub fn sparse(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let bytes = scalar_bytes(job)?;
    let scalar = scalar_of(node, &bytes)?;
    match slots::slot(node) {
        Some(slot @ (Slot::Bit | Slot::Bytes(1..=8))) => words(job, &scalar, slot),
        _ => rows(job, &scalar),
    }
}

/// Places for values: all of one word, and then those of `from` where the node's indices say.
fn patched(job: &Job<'_>, word: u64, from: Source<'_>, width: usize) -> Result<Buffer> {
    let node = &job.node;
    let first = sparse_of(node)?.patches.offset as u64;
    let words = Words { at: 0, len: node.len, width_bytes: width };
    let mut to = room(job, node.len.saturating_mul(width))?;
    let mut checks = Checks::new();
    checks.sequence(word, 0, &mut to, words, &[])?;
    let put = numbers(job.child(0)?).filter(|indices| indices.len > 0);
    let put = put.map(|indices| Patches { indices, first, values: from });
    let cell = put.map(|put| checks.patch(put, &mut to, words, &[])).transpose()?;
    let found = checks.run(job.stream)?;
    misplaced(node, cell.and_then(|cell| found.first_wrong(cell)))?;
    to.freeze(job.stream)
}

/// Values of up to 8 bytes are put in their places themselves.
fn words(job: &Job<'_>, scalar: &Scalar<'_>, slot: Slot) -> Result<DeviceArray> {
    let (node, values) = (&job.node, job.child(1)?);
    let fill = one(node, scalar, 0)?;
    let word = match (&fill, slot) {
        (None, _) => 0,
        (Some(one), Slot::Bit) => one.bit.into(),
        (Some(one), Slot::Bytes(_)) => one.slot.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)),
    };
    let from = Slots::of(job.stream, values, slot)?;
    let mut made = patched(job, word, from.source(), from.width)?;
    if slot == Slot::Bit {
        made = take::bits_of_bytes(job.stream, &made, node.len)?;
    }
    let valid = match (Slots::of_validity(job.stream, values)?, &fill) {
        (None, Some(_)) => None,
        (Some(valid), _) => Some(valid),
        // The patches are what there is.
        (None, None) => Some(Slots::all_valid(job.stream, values.len())?),
    };
    let validity = match valid {
        Some(valid) => {
            let bytes = patched(job, fill.is_some().into(), valid.source(), valid.width)?;
            Validity { bits: Some(take::bits_of_bytes(job.stream, &bytes, node.len)?), null_count: None }
        }
        None => Validity::all(),
    };
    slots::array(job, made, std::iter::empty(), validity)
}

/// Of others their numbers are, that of the one value coming after all others'.
fn rows(job: &Job<'_>, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let values = job.child(1)?;
    let (n, width) = (values.len(), take::row_width(values.len()));
    let mut counted = room(job, n.saturating_mul(width))?;
    let mut checks = Checks::new();
    checks.sequence(0, 1, &mut counted, Words { at: 0, len: n, width_bytes: width }, &[])?;
    checks.run(job.stream)?;
    let counted = counted.freeze(job.stream)?;
    let numbers = patched(job, n as u64, Source { buffer: Some(&counted), at: 0, len: n }, width)?;
    Rows::of(numbers, width).take(job, &concatenate(job, &[values.clone(), single::on_device(job, scalar)?])?)
}
