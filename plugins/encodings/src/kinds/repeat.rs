//! Decodes dictionaries, runs, constants, sparse arrays and sequences.

use crossdock_arrays::DeviceArray;
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Device, EncodedNode, Result};

use super::numbers::BIT_PACKED_KIND;
use super::slots::{self, Slot, Source, by_integers, by_width};
use super::{Kind, fixed_size, no_children};
use crate::children::{Child, Children};
use crate::cpu::{bits, constants, dictionary, run_end, sequence, sparse};
use crate::device;
use crate::job::Job;
use crate::node::{Node, in_node};
use crate::single::{SlotValue, slot_value};
use crate::validity::Validity;
use crate::wire::metadata::{BitPacked, Dict, RunEnd, Sequence, Sparse};
use crate::wire::scalar::Scalar;

use super::chain::{BIT_PACKED, ptype};

pub(crate) const CONSTANT: &str = "vortex.constant";
pub(crate) const DICTIONARY: &str = "vortex.dict";
pub(crate) const RUNS: &str = "vortex.runend";
pub(crate) const SPARSE: &str = "vortex.sparse";
pub(crate) const SEQUENCE: &str = "vortex.sequence";

const RUNS_KIND: Kind = Kind {
    id: RUNS,
    check: check_runs,
    children: runs_children,
    size: slots::size,
    plan: None,
    decode: runs,
};

pub const KINDS: &[Kind] = &[
    Kind {
        id: DICTIONARY,
        check: check_dict,
        children: dict_children,
        size: slots::size,
        plan: Some(plan_dict),
        decode: dict,
    },
    RUNS_KIND,
    Kind {
        id: CONSTANT,
        check: check_constant,
        children: no_children,
        size: slots::size,
        plan: None,
        decode: constant,
    },
    Kind {
        id: SPARSE,
        check: check_sparse,
        children: sparse_children,
        size: slots::size,
        plan: None,
        decode: sparse,
    },
    Kind {
        id: SEQUENCE,
        check: check_sequence,
        children: no_children,
        size: fixed_size,
        plan: None,
        decode: sequence,
    },
];

fn check_dict(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)
}

fn dict_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, Dict::read(node.metadata()))?;
    let nullable_codes = metadata.codes_nullable.unwrap_or(node.is_nullable());
    let (codes, values) = (metadata.codes_ptype.arrow(), node.data_type().clone());
    Ok(Children::new([
        Child::with_nulls("codes", codes, nullable_codes, node.len),
        Child::with_nulls("the dictionary's values", values, node.is_nullable(), metadata.values_len),
    ]))
}

/// Returns the node of the codes if it is run-end encoded. In this case, the code of each run is
/// looked up once, and the value is repeated.
pub(crate) fn codes_in_runs<'a>(node: &Node<'a>) -> Result<Option<Node<'a>>> {
    let codes = node.child(0)?;
    if codes.raw.encoding() != RUNS || slots::slot(node).is_none() {
        return Ok(None);
    }
    RUNS_KIND.check(&codes)?;
    Ok(Some(codes))
}

/// Returns the node of the codes if it is bit-packed without patches and nulls. Then the host looks
/// up the codes while it unpacks them.
fn packed_codes<'a>(node: &Node<'a>) -> Result<Option<(Node<'a>, BitPacked)>> {
    let (codes, values) = (node.child(0)?, node.child(1)?);
    let is_plain = codes.raw.encoding() == BIT_PACKED && codes.raw.n_children() == 0 && !values.is_nullable();
    // For wider values, looking up codes block by block is not faster than unpacking all codes
    // first.
    let is_narrow = matches!(slots::slot(node), Some(Slot::Bytes(1 | 2 | 4 | 8)));
    if !is_plain || !is_narrow || !codes.data_type().is_unsigned_integer() {
        return Ok(None);
    }
    BIT_PACKED_KIND.check(&codes)?;
    let packed = in_node(&codes, BitPacked::read(codes.metadata(), ptype(&codes)?, codes.len))?;
    Ok(Some((codes, packed)))
}

fn plan_dict(node: &Node<'_>, on: Device) -> Result<Vec<bool>> {
    let mut decoded = vec![false; node.raw.end() - node.raw.index() - 1];
    let mut set = |child: EncodedNode<'_>| {
        let place = decoded.get_mut(child.index() - node.raw.index() - 1);
        place.into_iter().for_each(|flag| *flag = true);
    };
    match codes_in_runs(node)? {
        Some(codes) => codes.raw.children().for_each(&mut set),
        None if on == Device::CPU && packed_codes(node)?.is_some() => {}
        None => set(node.raw.child(0)?),
    }
    set(node.raw.child(1)?);
    Ok(decoded)
}

/// Looks up the values of codes.
pub(crate) type TakeValues = fn(&Job<'_>, &DeviceArray, &DeviceArray) -> Result<DeviceArray>;
/// Repeats the values of runs. The arguments after the job are the ends of the runs, the offset of
/// the first value, and the values of the runs.
pub(crate) type ExpandRuns = fn(&Job<'_>, &DeviceArray, usize, &DeviceArray) -> Result<DeviceArray>;

/// Looks up the codes of a dictionary. The codes are plain or run-end encoded.
pub(crate) fn by_codes(
    job: &Job<'_>,
    take_values: TakeValues,
    expand_runs: ExpandRuns,
) -> Result<DeviceArray> {
    let values = job.child(1)?;
    // Run-end encoded codes may already be decoded, if the caller did not request a plan.
    if let Ok(codes) = job.child(0) {
        return take_values(job, codes, values);
    }
    let node = codes_in_runs(&job.node)?
        .ok_or_else(|| job.node.wrong("the codes were not decoded before their parent"))?;
    let (ends, run_codes) = (job.decoded(node.raw.child(0)?)?, job.decoded(node.raw.child(1)?)?);
    let run_values = take_values(&job.part(run_codes.len()), run_codes, values)?;
    expand_runs(job, ends, run_end_metadata(&node)?.offset, &run_values)
}

fn dict(job: &Job<'_>) -> Result<DeviceArray> {
    let packed = if job.child(0).is_err() { packed_codes(&job.node)? } else { None };
    match packed {
        Some((codes, packed)) => unpacked(job, &codes, &packed, job.child(1)?),
        None => by_codes(job, take_values, expand_runs),
    }
}

/// Looks up the value of each packed code.
fn unpacked(
    job: &Job<'_>,
    codes: &Node<'_>,
    packed: &BitPacked,
    values: &DeviceArray,
) -> Result<DeviceArray> {
    let bytes = job.take_buffer_of(codes.raw, 0, 1)?;
    let bytes = bytes.as_ref().map(|bytes| bytes.host_view(job.stream)).transpose()?;
    let bytes: &[u8] = bytes.as_ref().map_or(&[], |view| view);
    let packed = dictionary::Packed { bytes, width: packed.bit_width, offset: packed.offset as usize };
    let source = Source::new(job, values)?;
    let slots = by_width!(job, job.node.width()?, V => {
        let values = source.slots::<V>()?;
        job.make_values(job.node.len, &mut |to: &mut [V]| match codes.width()? {
            1 => dictionary::take_packed::<u8, V>(&packed, values, to),
            2 => dictionary::take_packed::<u16, V>(&packed, values, to),
            4 => dictionary::take_packed::<u32, V>(&packed, values, to),
            _ => dictionary::take_packed::<u64, V>(&packed, values, to),
        })
    });
    let slots = slots.map_err(|error| error.context(job.node.raw.path()))?;
    slots::array(job, slots, source.data(), Validity::all_valid())
}

/// Looks up the value of each code.
fn take_values(job: &Job<'_>, codes: &DeviceArray, values: &DeviceArray) -> Result<DeviceArray> {
    let node = &job.node;
    let codes_source = Source::from_validity(job, codes)?;
    let valid = codes_source.valid()?;
    let with_path = |error: crossdock_plugin_api::Error| error.context(node.raw.path());
    let Some(slot) = slots::slot(node) else {
        return device::repeat::take_values(job, codes, values);
    };
    let source = Source::new(job, values)?;
    by_integers!(job, codes, indices => {
        let slots = match slot {
            Slot::Bit => slots::bitmap(job, &mut |to| {
                dictionary::take_bits(indices, valid, source.bools()?, to).map_err(with_path)
            }),
            Slot::Bytes(width) => by_width!(job, width, V => {
                let values = source.slots::<V>()?;
                let null = <V>::default();
                job.make_values(node.len, &mut |to: &mut [V]| dictionary::take(indices, valid, values, null, to).map_err(with_path))
            }),
        }?;
        let validity = match source.valid()? {
            Some(bits) => slots::validity(job, &mut |to| dictionary::take_bits(indices, valid, bits, to).map_err(with_path))?,
            None => Validity::from_array(job, codes)?,
        };
        slots::array(job, slots, source.data(), validity)
    })
}

pub(crate) fn run_end_metadata(node: &Node<'_>) -> Result<RunEnd> {
    in_node(node, RunEnd::read(node.metadata(), node.len))
}

fn check_runs(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    run_end_metadata(node).map(drop)
}

fn runs_children(node: &Node<'_>) -> Result<Children> {
    let metadata = run_end_metadata(node)?;
    let values = node.data_type().clone();
    Ok(Children::new([
        Child::all_valid("ends of runs", metadata.ends_ptype.arrow(), metadata.num_runs),
        Child::with_nulls("values of runs", values, node.is_nullable(), metadata.num_runs),
    ]))
}

fn runs(job: &Job<'_>) -> Result<DeviceArray> {
    expand_runs(job, job.child(0)?, run_end_metadata(&job.node)?.offset, job.child(1)?)
}

/// Repeats each run's value up to the run's end.
fn expand_runs(
    job: &Job<'_>,
    ends: &DeviceArray,
    offset: usize,
    values: &DeviceArray,
) -> Result<DeviceArray> {
    let node = &job.node;
    let with_path = |error: crossdock_plugin_api::Error| error.context(node.raw.path());
    let Some(slot) = slots::slot(node) else {
        return device::repeat::expand_runs(job, ends, offset, values);
    };
    let source = Source::new(job, values)?;
    by_integers!(job, ends, ends => {
        let slots = match slot {
            Slot::Bit => slots::bitmap(job, &mut |to| {
                run_end::expand_bits(ends, source.bools()?, offset, to, node.len).map_err(with_path)
            }),
            Slot::Bytes(width) => by_width!(job, width, V => {
                let values = source.slots::<V>()?;
                job.make_values(node.len, &mut |to: &mut [V]| run_end::expand(ends, values, offset, to).map_err(with_path))
            }),
        }?;
        let validity = match source.valid()? {
            Some(bits) => slots::validity(job, &mut |to| {
                run_end::expand_bits(ends, bits, offset, to, node.len).map_err(with_path)
            })?,
            None => Validity::all_valid(),
        };
        slots::array(job, slots, source.data(), validity)
    })
}

/// The bytes of the node's scalar value.
pub(crate) fn scalar_bytes(job: &Job<'_>) -> Result<Vec<u8>> {
    let bytes = job.take_buffer(0, 1)?;
    let bytes = bytes.as_ref().map(|bytes| bytes.host_view(job.stream)).transpose()?;
    Ok(bytes.map_or_else(Vec::new, |view| view.to_vec()))
}

pub(crate) fn read_scalar<'a>(node: &Node<'_>, bytes: &'a [u8]) -> Result<Scalar<'a>> {
    in_node(node, Scalar::read(bytes, &node.field))
}

pub(crate) fn long_data(job: &Job<'_>, slot_value: Option<&SlotValue>) -> Result<Option<Buffer>> {
    let Some(bytes) = slot_value.and_then(|slot_value| slot_value.long.as_deref()) else { return Ok(None) };
    job.copy(bytes).map(Some)
}

fn check_constant(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(1)
}

fn constant(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let Some(slot) = slots::slot(node) else { return device::repeat::constant(job) };
    let bytes = scalar_bytes(job)?;
    let scalar = read_scalar(node, &bytes)?;
    let fill = slot_value(node, &scalar, 0)?;
    let value = fill.as_ref();
    let slots = match slot {
        Slot::Bit => slots::bitmap(job, &mut |to| {
            bits::fill(to, node.len, value.is_some_and(|slot_value| slot_value.bit))
        })?,
        Slot::Bytes(width) => {
            let slot = value.map_or([0; 32], |slot_value| slot_value.slot);
            let slot = slot.get(..width).unwrap_or_default();
            job.make(node.len.saturating_mul(width), &mut |to| constants::repeat(slot, to))?
        }
    };
    let validity = match value {
        Some(_) => Validity::all_valid(),
        None => Validity {
            null_count: Some(node.len),
            ..slots::validity(job, &mut |to| bits::fill(to, node.len, false))?
        },
    };
    slots::array(job, slots, long_data(job, value)?.map(Some).into_iter(), validity)
}

pub(crate) fn sparse_metadata(node: &Node<'_>) -> Result<Sparse> {
    in_node(node, Sparse::read(node.metadata(), node.len))
}

fn check_sparse(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(1)?;
    sparse_metadata(node).map(drop)
}

fn sparse_children(node: &Node<'_>) -> Result<Children> {
    let patches = sparse_metadata(node)?.patches;
    let (indices, values) = (patches.indices_ptype.arrow(), node.data_type().clone());
    Ok(Children::new([
        Child::all_valid("indices of patches", indices, patches.len),
        Child::with_nulls("values of patches", values, node.is_nullable(), patches.len),
    ]))
}

fn sparse(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let Some(slot) = slots::slot(node) else { return device::sparse::sparse(job) };
    let offset = sparse_metadata(node)?.patches.offset;
    let (indices, values) = (job.child(0)?, job.child(1)?);
    let bytes = scalar_bytes(job)?;
    let scalar = read_scalar(node, &bytes)?;
    let with_path = |error: crossdock_plugin_api::Error| error.context(node.raw.path());
    let source = Source::new(job, values)?;
    let fill = slot_value(node, &scalar, source.data().count())?;
    let value = fill.as_ref();
    by_integers!(job, indices, indices => {
        let slots = match slot {
            Slot::Bit => slots::bitmap(job, &mut |to| {
                let bit = value.is_some_and(|slot_value| slot_value.bit);
                sparse::decode_bits(bit, indices, offset, source.bools()?, to, node.len).map_err(with_path)
            }),
            Slot::Bytes(width) => by_width!(job, width, V => {
                let values = source.slots::<V>()?;
                let slot = value.map_or([0; 32], |slot_value| slot_value.slot);
                let fill = read_slot::<V>(&slot);
                job.make_values(node.len, &mut |to: &mut [V]| {
                    sparse::decode(fill, indices, offset, values, to).map_err(with_path)
                })
            }),
        }?;
        let validity = match (source.valid()?, value) {
            (None, Some(_)) => Validity::all_valid(),
            (valid, _) => slots::validity(job, &mut |to| {
                let all = vec![u8::MAX; bits::bitmap_bytes(indices.len())];
                let valid = match valid {
                    Some(valid) => valid,
                    None => bits::Bits::new(&all, 0, indices.len())?,
                };
                sparse::decode_bits(value.is_some(), indices, offset, valid, to, node.len).map_err(with_path)
            })?,
        };
        let long = long_data(job, value)?.map(Some);
        slots::array(job, slots, source.data().chain(long), validity)
    })
}

/// Reads a value from the first bytes of a slot.
fn read_slot<T: crate::job::Plain>(slot: &[u8; 32]) -> T {
    // SAFETY: `Plain` allows any bytes as a value of `T`, and no implementor has more than the
    // slot's 32 bytes.
    unsafe { slot.as_ptr().cast::<T>().read_unaligned() }
}

pub(crate) fn sequence_metadata(node: &Node<'_>) -> Result<Sequence> {
    in_node(node, Sequence::read(node.metadata(), ptype(node)?, node.len))
}

fn check_sequence(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    sequence_metadata(node).map(drop)
}

fn sequence(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let metadata = sequence_metadata(node)?;
    let (base, step) = (metadata.base.bits, metadata.multiplier as u64);
    macro_rules! fill {
        ($t:ty) => {
            job.make_values(node.len, &mut |to: &mut [$t]| {
                sequence::fill(base as $t, step as $t, to);
                Ok(())
            })
        };
    }
    let values = match node.width()? {
        1 => fill!(u8),
        2 => fill!(u16),
        4 => fill!(u32),
        _ => fill!(u64),
    }?;
    job.array(node.data_type(), Validity::all_valid(), vec![Some(values)])
}
