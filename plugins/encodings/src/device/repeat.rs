//! Values that are written once and meant often.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, Slots, numbers};
use crossdock_kernels::{Checks, Numbers, Patches, Source, Words};
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use super::{OnDevice, has_slots, misplaced, room};
use crate::job::Job;
use crate::kinds::repeat::{
    DICTIONARY, RUNS, by_codes, long_data, runs_of, scalar_bytes, scalar_of, sparse_of,
};
use crate::kinds::slots::{self, Slot};
use crate::node::Node;
use crate::single::one;
use crate::validity::Validity;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: DICTIONARY, suits: has_slots, decode: dict },
    OnDevice { id: RUNS, suits: has_slots, decode: runs },
    OnDevice { id: "vortex.constant", suits: has_slots, decode: constant },
    OnDevice { id: "vortex.sparse", suits: has_words, decode: sparse },
];

/// Patches are words: no decimals of 16 bytes, and no text.
fn has_words(node: &Node<'_>) -> Result<bool> {
    Ok(slots::slot(node).is_some_and(|slot| slot == Slot::Bit || matches!(slot, Slot::Bytes(1..=8))))
}

fn dict(job: &Job<'_>) -> Result<DeviceArray> {
    by_codes(job, named, expanded)
}

fn named(job: &Job<'_>, codes: &DeviceArray, values: &DeviceArray) -> Result<DeviceArray> {
    take::take(job.stream, values, codes)?.map_err(|at| {
        job.node.wrong(format_args!(
            "dictionary: expected codes below {}, got another as number {at}",
            values.len()
        ))
    })
}

fn runs(job: &Job<'_>) -> Result<DeviceArray> {
    expanded(job, job.child(0)?, runs_of(&job.node)?.offset, job.child(1)?)
}

fn expanded(job: &Job<'_>, ends: &DeviceArray, offset: usize, values: &DeviceArray) -> Result<DeviceArray> {
    let len = job.node.len;
    take::expand_runs(job.stream, values, ends, offset as u64, len)?.map_err(|at| {
        job.node.wrong(format_args!(
            "run-end: expected ends that rise, the last of {len} after {offset} or more, got another as number {at}"
        ))
    })
}

fn constant(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let bytes = scalar_bytes(job)?;
    let fill = one(node, &scalar_of(node, &bytes)?, 0)?;
    let value = fill.as_ref();
    let all = |set: bool| {
        let mut bits = room(job, node.len.div_ceil(8))?;
        job.stream.fill(&mut bits, 0, node.len.div_ceil(8), if set { 0xff } else { 0 })?;
        bits.freeze(job.stream)
    };
    let made = match slots::slot(node) {
        Some(Slot::Bit) => all(value.is_some_and(|one| one.bit))?,
        Some(Slot::Bytes(width)) => repeat(job, value.map_or([0; 32], |one| one.slot), width)?,
        None => return Err(node.wrong("its values have no slots")),
    };
    let validity = match value {
        Some(_) => Validity::all(),
        None => Validity { bits: Some(all(false)?), null_count: Some(node.len) },
    };
    slots::array(job, made, long_data(job, value)?.map(Some).into_iter(), validity)
}

/// One value of `width` bytes, as often as the node is long.
fn repeat(job: &Job<'_>, slot: [u8; 32], width: usize) -> Result<Buffer> {
    let len = job.node.len;
    let mut to = room(job, len.saturating_mul(width))?;
    let mut checks = Checks::new();
    if width <= 8 {
        let word = slot.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        checks.sequence(word, 0, &mut to, Words { at: 0, len, width_bytes: width }, &[])?;
        checks.run(job.stream)?;
        return to.freeze(job.stream);
    }
    // One run of it.
    let copy = |from: &[u8], to: &mut [u8]| {
        to.copy_from_slice(from);
        Ok(())
    };
    let slot = slot.get(..width).unwrap_or_default();
    let value = job.make(width, |to| copy(slot, to))?;
    let end = job.make(8, |to| copy(&(len as u64).to_ne_bytes(), to))?;
    let ends = Numbers { buffer: &end, at: 0, len: 1, width_bytes: 8 };
    if len > 0 {
        let source = Source { buffer: Some(&value), at: 0, len: 1 };
        checks.expand_runs(ends, 0, source, &mut to, 0, len, width)?;
        checks.run(job.stream)?;
    }
    to.freeze(job.stream)
}

fn sparse(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let first = sparse_of(node)?.patches.offset as u64;
    let (indices, values) = (job.child(0)?, job.child(1)?);
    let bytes = scalar_bytes(job)?;
    let fill = one(node, &scalar_of(node, &bytes)?, 0)?;
    let slot = slots::slot(node).ok_or_else(|| node.wrong("its values have no slots"))?;
    // All of one word, and then those of `from` in their places.
    let patched = |word: u64, from: &Slots| -> Result<Buffer> {
        let words = Words { at: 0, len: node.len, width_bytes: from.width };
        let mut to = room(job, node.len.saturating_mul(from.width))?;
        let mut checks = Checks::new();
        checks.sequence(word, 0, &mut to, words, &[])?;
        let put = numbers(indices).filter(|indices| indices.len > 0);
        let put = put.map(|indices| Patches { indices, first, values: from.source() });
        let cell = put.map(|put| checks.patch(put, &mut to, words, &[])).transpose()?;
        let found = checks.run(job.stream)?;
        misplaced(node, cell.and_then(|cell| found.first_wrong(cell)))?;
        to.freeze(job.stream)
    };
    let word = match (&fill, slot) {
        (None, _) => 0,
        (Some(one), Slot::Bit) => one.bit.into(),
        (Some(one), Slot::Bytes(_)) => one.slot.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)),
    };
    let mut made = patched(word, &Slots::of(job.stream, values, slot)?)?;
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
            let bytes = patched(fill.is_some().into(), &valid)?;
            Validity { bits: Some(take::bits_of_bytes(job.stream, &bytes, node.len)?), null_count: None }
        }
        None => Validity::all(),
    };
    slots::array(job, made, std::iter::empty(), validity)
}
