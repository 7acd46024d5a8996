//! Lowers nodes to programs. The host fuses the program of a node with the programs of its parent
//! and children, and runs them with its kernels.

use crossdock_arrays::take::Slot;
use crossdock_plugin_api::{Operator, Result};

use crate::cpu::alp::Scale;
use crate::cpu::alprd::{Cut, MAX_DICTIONARY};
use crate::cpu::date_time_parts;
use crate::kinds::chain::{BIT_PACKED, FRAME, ZIGZAG, ptype};
use crate::kinds::numbers::{alp_metadata, floats};
use crate::kinds::parts::{ALP_RD, TIMESTAMP, alprd_metadata, ticks};
use crate::kinds::repeat::{
    CONSTANT, DICTIONARY, RUNS, SEQUENCE, codes_in_runs, read_scalar, run_end_metadata, sequence_metadata,
};
use crate::node::{Node, in_node};
use crate::single::slot_value;
use crate::wire::PType;
use crate::wire::metadata::{BitPacked, Patches, reference};

/// The node's program. `None` if the operators on words of 1 to 8 bytes cannot decode the node.
pub fn lower(node: &Node<'_>) -> Result<Option<Vec<Operator>>> {
    if !matches!(Slot::of(node.data_type()), Some(Slot::Bytes(1 | 2 | 4 | 8))) {
        return Ok(None);
    }
    Ok(Some(match node.raw.encoding() {
        "vortex.primitive" => {
            with_validity(vec![Operator::Load { buffer: 0, at: 0 }], node.has_validity(0)?, 0)
        }
        BIT_PACKED => {
            let packed = BitPacked::read(node.metadata(), ptype(node)?, node.len)?;
            let (bits, first) = (packed.bit_width.into(), packed.offset.into());
            let n = packed.patches.as_ref().map_or(0, Patches::n_children);
            let mut operators = vec![Operator::Unpack { buffer: 0, bits, first }];
            operators.extend(packed.patches.as_ref().map(|patches| patch(patches, 0)));
            with_validity(operators, node.has_validity(n)?, n)
        }
        FRAME => vec![Operator::Child(0), Operator::Add(reference(node.metadata(), ptype(node)?)?.bits)],
        ZIGZAG => vec![Operator::Child(0), Operator::ZigZag],
        "vortex.alp" => {
            let alp = alp_metadata(node)?;
            let factors = match floats(node)? {
                PType::F32 => {
                    Scale::<f32>::new(alp.exp_e, alp.exp_f)?.factors().map(|f| u64::from(f.to_bits()))
                }
                _ => Scale::<f64>::new(alp.exp_e, alp.exp_f)?.factors().map(f64::to_bits),
            };
            let mut operators = vec![Operator::Child(0), Operator::ToFloat];
            operators.extend(factors.map(Operator::Scale));
            operators.extend(alp.patches.as_ref().map(|patches| patch(patches, 1)));
            operators
        }
        SEQUENCE => {
            let sequence = sequence_metadata(node)?;
            vec![Operator::Sequence { base: sequence.base.bits, step: sequence.multiplier as u64 }]
        }
        CONSTANT => {
            // A constant on a device has no program, because `lower` must not wait for a copy.
            let Some(bytes) = node.host_copy(0)? else { return Ok(None) };
            let value = slot_value(node, &read_scalar(node, &bytes)?, 0)?;
            let word = value.and_then(|value| value.slot.first_chunk().map(|word| u64::from_le_bytes(*word)));
            let Some(base) = word else { return Ok(None) };
            vec![Operator::Sequence { base, step: 0 }]
        }
        ALP_RD => alprd(node)?,
        TIMESTAMP => {
            let second = ticks(node)? as u64;
            let factors = [date_time_parts::SECONDS_PER_DAY as u64 * second, second, 1];
            (0..).zip(factors).map(|(child, factor)| Operator::Term { child, factor }).collect()
        }
        // No program, because `device::repeat` decodes run-end encoded codes with only one lookup
        // per run.
        DICTIONARY if codes_in_runs(node)?.is_none() => vec![Operator::Dictionary { codes: 0, values: 1 }],
        RUNS => vec![Operator::Runs { ends: 0, values: 1, first: run_end_metadata(node)?.offset as u64 }],
        _ => return Ok(None),
    }))
}

fn alprd(node: &Node<'_>) -> Result<Vec<Operator>> {
    let metadata = alprd_metadata(node)?;
    let (right_bits, dictionary) = (metadata.right_bit_width, metadata.dictionary.as_slice());
    match floats(node)? {
        PType::F32 => in_node(node, Cut::<u32>::new(right_bits, dictionary)).map(drop),
        _ => in_node(node, Cut::<u64>::new(right_bits, dictionary)).map(drop),
    }?;
    // `Cut::new` has checked the number of bits and the number of left parts.
    let mut lefts = [0; MAX_DICTIONARY];
    lefts.iter_mut().zip(dictionary).for_each(|(to, left)| *to = *left);
    let (right_bits, n_lefts) = (right_bits as u8, dictionary.len() as u8);
    let mut operators = vec![Operator::Join { codes: 0, rights: 1, right_bits, n_lefts, lefts }];
    operators.extend(metadata.patches.as_ref().map(|patches| {
        let first = patches.offset as u64;
        Operator::PatchLeft { indices: 2, lefts: 3, first }
    }));
    Ok(operators)
}

/// Returns the operator for patches. The patches are the children from index `first` on.
fn patch(patches: &Patches, first: u32) -> Operator {
    Operator::Patch { indices: first, values: first + 1, first: patches.offset as u64 }
}

/// Adds the operator for the node's validity child, if it has one.
fn with_validity(mut operators: Vec<Operator>, has_validity: bool, child: usize) -> Vec<Operator> {
    operators.extend(has_validity.then_some(Operator::Validity(child as u32)));
    operators
}
