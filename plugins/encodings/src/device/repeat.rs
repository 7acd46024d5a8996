//! Decodes dictionaries, runs and constants.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take;
use crossdock_kernels::{Checks, Numbers, Source, Words};
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use super::{OnDevice, alloc, supports_takeable};
use crate::job::Job;
use crate::kinds::repeat::{
    CONSTANT, DICTIONARY, RUNS, by_codes, long_data, read_scalar, run_end_metadata, scalar_bytes,
};
use crate::kinds::slots::{self, Slot};
use crate::nested::Rows;
use crate::single::{self, slot_value};
use crate::validity::Validity;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: DICTIONARY, supports: supports_takeable, decode: dict },
    OnDevice { id: RUNS, supports: supports_takeable, decode: runs },
    OnDevice { id: CONSTANT, supports: supports_takeable, decode: constant },
];

fn dict(job: &Job<'_>) -> Result<DeviceArray> {
    by_codes(job, take_values, expand_runs)
}

/// Looks up the value of each code.
pub fn take_values(job: &Job<'_>, codes: &DeviceArray, values: &DeviceArray) -> Result<DeviceArray> {
    let taken = take::take(job.stream, values, codes).map_err(|error| error.context(job.node.raw.path()))?;
    taken.map_err(|at| {
        job.node.wrong(format_args!(
            "dictionary: expected codes below {}, but the code at index {at} is out of range",
            values.len()
        ))
    })
}

fn runs(job: &Job<'_>) -> Result<DeviceArray> {
    expand_runs(job, job.child(0)?, run_end_metadata(&job.node)?.offset, job.child(1)?)
}

/// Repeats each run's value up to the run's end.
pub fn expand_runs(
    job: &Job<'_>,
    ends: &DeviceArray,
    offset: usize,
    values: &DeviceArray,
) -> Result<DeviceArray> {
    let len = job.node.len;
    let taken = take::expand_runs(job.stream, values, ends, offset as u64, len);
    taken.map_err(|error| error.context(job.node.raw.path()))?.map_err(|at| {
        job.node.wrong(format_args!(
            "run-end: expected strictly increasing ends, the last of which is at least {offset} + {len}, but the end at index {at} is invalid"
        ))
    })
}

/// Repeats one value.
pub fn constant(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let bytes = scalar_bytes(job)?;
    let scalar = read_scalar(node, &bytes)?;
    let Some(slot) = slots::slot(node) else {
        return Rows::first(job)?.take(job, &single::on_device(job, &scalar)?);
    };
    let fill = slot_value(node, &scalar, 0)?;
    let value = fill.as_ref();
    let all = |set: bool| {
        let mut bits = alloc(job, node.len.div_ceil(8))?;
        job.stream.fill(&mut bits, 0, node.len.div_ceil(8), if set { 0xff } else { 0 })?;
        bits.freeze(job.stream)
    };
    let slots = match slot {
        Slot::Bit => all(value.is_some_and(|slot_value| slot_value.bit))?,
        Slot::Bytes(width) => repeat(job, value.map_or([0; 32], |slot_value| slot_value.slot), width)?,
    };
    let validity = match value {
        Some(_) => Validity::all_valid(),
        None => Validity { bits: Some(all(false)?), null_count: Some(node.len) },
    };
    slots::array(job, slots, long_data(job, value)?.map(Some).into_iter(), validity)
}

/// Repeats one slot of `width` bytes for each value of the node.
fn repeat(job: &Job<'_>, slot: [u8; 32], width: usize) -> Result<Buffer> {
    let len = job.node.len;
    let mut to = alloc(job, len.saturating_mul(width))?;
    let mut checks = Checks::new();
    if width <= 8 {
        let word = slot.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        checks.sequence(word, 0, &mut to, Words { at: 0, len, width_bytes: width }, &[])?;
        checks.run(job.stream)?;
        return to.freeze(job.stream);
    }
    // Wide values are expanded as one run.
    let value = job.copy(slot.get(..width).unwrap_or_default())?;
    let end = job.copy(&(len as u64).to_ne_bytes())?;
    let ends = Numbers { buffer: &end, at: 0, len: 1, width_bytes: 8 };
    if len > 0 {
        let source = Source { buffer: Some(&value), at: 0, len: 1 };
        checks.expand_runs(ends, 0, source, &mut to, 0, len, width)?;
        checks.run(job.stream)?;
    }
    to.freeze(job.stream)
}
