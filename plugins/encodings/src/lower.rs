//! Nodes as programs, which the host runs on devices by its own kernels, in one pass with what is above and below.

use crossdock_arrays::take::Slot;
use crossdock_plugin_api::{Operator, Result};

use crate::cpu::alp::Scale;
use crate::kinds::chain::{BIT_PACKED, FRAME, ZIGZAG, ptype};
use crate::kinds::numbers::{alp_of, floats};
use crate::kinds::repeat::{DICTIONARY, RUNS, SEQUENCE, in_runs, runs_of, sequence_of};
use crate::node::Node;
use crate::wire::PType;
use crate::wire::metadata::{BitPacked, Patches, reference};

/// The node's program; `None` where kernels of words are not all that it takes.
pub fn lower(node: &Node<'_>) -> Result<Option<Vec<Operator>>> {
    if !matches!(Slot::of(node.data_type()), Some(Slot::Bytes(1 | 2 | 4 | 8))) {
        return Ok(None);
    }
    Ok(Some(match node.raw.encoding() {
        "vortex.primitive" => {
            with_validity(vec![Operator::Load { buffer: 0, at: 0 }], node.expect_children_and_validity(0)?, 0)
        }
        BIT_PACKED => {
            let packed = BitPacked::read(node.metadata(), ptype(node)?, node.len)?;
            let (bits, first) = (packed.bit_width.into(), packed.offset.into());
            let n = packed.patches.as_ref().map_or(0, Patches::n_children);
            let mut operators = vec![Operator::Unpack { buffer: 0, bits, first }];
            operators.extend(packed.patches.as_ref().map(|told| patch(told, 0)));
            with_validity(operators, node.expect_children_and_validity(n)?, n)
        }
        FRAME => vec![Operator::Child(0), Operator::Add(reference(node.metadata(), ptype(node)?)?.bits)],
        ZIGZAG => vec![Operator::Child(0), Operator::ZigZag],
        "vortex.alp" => {
            let alp = alp_of(node)?;
            let factors = match floats(node)? {
                PType::F32 => {
                    Scale::<f32>::new(alp.exp_e, alp.exp_f)?.factors().map(|f| u64::from(f.to_bits()))
                }
                _ => Scale::<f64>::new(alp.exp_e, alp.exp_f)?.factors().map(f64::to_bits),
            };
            let mut operators = vec![Operator::Child(0), Operator::ToFloat];
            operators.extend(factors.map(Operator::Scale));
            operators.extend(alp.patches.as_ref().map(|told| patch(told, 1)));
            operators
        }
        SEQUENCE => {
            let told = sequence_of(node)?;
            vec![Operator::Sequence { base: told.base.bits, step: told.multiplier as u64 }]
        }
        // Codes in runs are looked up once a run instead.
        DICTIONARY if in_runs(node)?.is_none() => vec![Operator::Dictionary { codes: 0, values: 1 }],
        RUNS => vec![Operator::Runs { ends: 0, values: 1, first: runs_of(node)?.offset as u64 }],
        _ => return Ok(None),
    }))
}

/// Patches, which are children from number `first` on.
fn patch(told: &Patches, first: u32) -> Operator {
    Operator::Patch { indices: first, values: first + 1, first: told.offset as u64 }
}

/// The last child says which values are valid, if it is there.
fn with_validity(mut operators: Vec<Operator>, is_there: bool, child: usize) -> Vec<Operator> {
    operators.extend(is_there.then_some(Operator::Validity(child as u32)));
    operators
}
