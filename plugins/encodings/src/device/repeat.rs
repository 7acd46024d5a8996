//! Values that are written once and meant often.

use crossdock_arrays::DeviceArray;
use crossdock_kernels::{Checks, Numbers, Patches, Source, Words};
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use super::chain::misplaced;
use super::{OnDevice, bitmap, bits_of_bytes, both, bytes_of_bits, has_slots, room};
use crate::job::Job;
use crate::kinds::repeat::{by_codes, long_data, runs_of, scalar_bytes, scalar_of, sequence_of, sparse_of};
use crate::kinds::slots::{self, Slot};
use crate::node::Node;
use crate::single::one;
use crate::validity::Validity;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: "vortex.dict", suits: has_slots, decode: dict },
    OnDevice { id: "vortex.runend", suits: has_slots, decode: runs },
    OnDevice { id: "vortex.constant", suits: has_slots, decode: constant },
    OnDevice { id: "vortex.sparse", suits: has_words, decode: sparse },
    OnDevice { id: "vortex.sequence", suits: has_slots, decode: sequence },
];

/// Patches are words: no decimals of 16 bytes, and no text.
fn has_words(node: &Node<'_>) -> Result<bool> {
    Ok(slots::slot(node).is_some_and(|slot| slot == Slot::Bit || matches!(slot, Slot::Bytes(1..=8))))
}

/// Values of a slot each, as bytes: bits become a byte each first.
struct Slots {
    buffer: Option<Buffer>,
    at: usize,
    width: usize,
    len: usize,
}

impl Slots {
    fn of(job: &Job<'_>, array: &DeviceArray, slot: Slot) -> Result<Self> {
        let buffer = array.buffers().get(1).cloned().flatten().filter(|_| !array.is_empty());
        Ok(match slot {
            Slot::Bytes(width) => Self { buffer, at: array.offset() * width, width, len: array.len() },
            Slot::Bit => {
                let bytes = buffer.map(|bits| bytes_of_bits(job, &bits, array.offset(), array.len()));
                Self { buffer: bytes.transpose()?, at: 0, width: 1, len: array.len() }
            }
        })
    }

    /// Which values are valid, a byte each; `None`: all of them.
    fn of_validity(job: &Job<'_>, array: &DeviceArray) -> Result<Option<Self>> {
        let Some((bits, offset)) = bitmap(array) else { return Ok(None) };
        let bytes = bytes_of_bits(job, bits, offset, array.len())?;
        Ok(Some(Self { buffer: Some(bytes), at: 0, width: 1, len: array.len() }))
    }

    fn source(&self) -> Source<'_> {
        Source { buffer: self.buffer.as_ref(), at: self.at, len: self.len }
    }
}

/// From values to those that the node has of them, in order.
type Lead<'a> = dyn Fn(&Slots) -> Result<Buffer> + 'a;

/// The node's array, of values and validity that `lead` leads to.
fn led(job: &Job<'_>, values: &DeviceArray, outer: Validity, lead: &Lead<'_>) -> Result<DeviceArray> {
    let slot = slots::slot(&job.node).ok_or_else(|| job.node.wrong("its values have no slots"))?;
    let mut made = lead(&Slots::of(job, values, slot)?)?;
    if slot == Slot::Bit {
        made = bits_of_bytes(job, &made, job.node.len)?;
    }
    let inner = match Slots::of_validity(job, values)? {
        Some(valid) => {
            let bytes = lead(&valid)?;
            Validity { bits: Some(bits_of_bytes(job, &bytes, job.node.len)?), null_count: None }
        }
        None => Validity::all(),
    };
    let variadic = values.layout().variadic;
    let data: Vec<_> = values.buffers().iter().skip(2).filter(|_| variadic).cloned().collect();
    slots::array(job, made, data.into_iter(), both(job, outer, inner)?)
}

/// Whole numbers of an array of integers; `None` where there are none.
fn numbers(array: &DeviceArray) -> Option<Numbers<'_>> {
    let width_bytes = array.data_type().primitive_width()?;
    let buffer = array.buffers().get(1)?.as_ref()?;
    Some(Numbers { buffer, at: array.offset() * width_bytes, len: array.len(), width_bytes })
}

fn dict(job: &Job<'_>) -> Result<DeviceArray> {
    by_codes(job, named, expanded)
}

fn named(job: &Job<'_>, codes: &DeviceArray, values: &DeviceArray) -> Result<DeviceArray> {
    let Some(names) = numbers(codes).filter(|_| !codes.is_empty()) else {
        return DeviceArray::empty(job.node.data_type());
    };
    let lead = |slots: &Slots| {
        let mut to = room(job, job.node.len.saturating_mul(slots.width))?;
        let mut checks = Checks::new();
        let cell = checks.take(names, bitmap(codes), slots.source(), &mut to, 0, slots.width)?;
        match checks.run(job.stream)?.first_wrong(cell) {
            None => to.freeze(job.stream),
            Some(at) => Err(job.node.wrong(format_args!(
                "dictionary: expected codes below {}, got another as number {at}",
                slots.len
            ))),
        }
    };
    led(job, values, Validity::of(job, codes)?, &lead)
}

fn runs(job: &Job<'_>) -> Result<DeviceArray> {
    expanded(job, job.child(0)?, runs_of(&job.node)?.offset, job.child(1)?)
}

fn expanded(job: &Job<'_>, ends: &DeviceArray, offset: usize, values: &DeviceArray) -> Result<DeviceArray> {
    let lead = |slots: &Slots| {
        let mut to = room(job, job.node.len.saturating_mul(slots.width))?;
        let mut checks = Checks::new();
        let wrong = match numbers(ends).filter(|ends| ends.len > 0) {
            Some(ends) => {
                let (source, len) = (slots.source(), job.node.len);
                let cell = checks.expand_runs(ends, offset as u64, source, &mut to, 0, len, slots.width)?;
                checks.run(job.stream)?.first_wrong(cell)
            }
            None => (job.node.len > 0).then_some(0),
        };
        match wrong {
            None => to.freeze(job.stream),
            Some(at) => Err(job.node.wrong(format_args!(
                "run-end: expected ends that rise, the last of {} after {offset} or more, got another as number {at}",
                job.node.len
            ))),
        }
    };
    led(job, values, Validity::all(), &lead)
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
    let mut made = patched(word, &Slots::of(job, values, slot)?)?;
    if slot == Slot::Bit {
        made = bits_of_bytes(job, &made, node.len)?;
    }
    let valid = match (Slots::of_validity(job, values)?, &fill) {
        (None, Some(_)) => None,
        (Some(valid), _) => Some(valid),
        // The patches are what there is.
        (None, None) => {
            let mut ones = room(job, values.len())?;
            job.stream.fill(&mut ones, 0, values.len(), 1)?;
            Some(Slots { buffer: Some(ones.freeze(job.stream)?), at: 0, width: 1, len: values.len() })
        }
    };
    let validity = match valid {
        Some(valid) => {
            let bytes = patched(fill.is_some().into(), &valid)?;
            Validity { bits: Some(bits_of_bytes(job, &bytes, node.len)?), null_count: None }
        }
        None => Validity::all(),
    };
    slots::array(job, made, std::iter::empty(), validity)
}

fn sequence(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let told = sequence_of(node)?;
    let words = Words { at: 0, len: node.len, width_bytes: node.width()? };
    let mut to = room(job, words.len.saturating_mul(words.width_bytes))?;
    let mut checks = Checks::new();
    checks.sequence(told.base.bits, told.multiplier as u64, &mut to, words, &[])?;
    checks.run(job.stream)?;
    job.array(node.data_type(), Validity::all(), vec![Some(to.freeze(job.stream)?)])
}
