//! Decodes integers, and ALP floats over integers.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Device, Result};

use super::chain::{self, BIT_PACKED, Chain, FRAME, Patched, ZIGZAG};
use super::{Kind, fixed_size};
use crate::children::{Child, Children};
use crate::cpu::alp::Scale;
use crate::job::Job;
use crate::node::{Node, in_node};
use crate::wire::PType;
use crate::wire::metadata::Alp;

pub(super) const BIT_PACKED_KIND: Kind = Kind {
    id: BIT_PACKED,
    check: chain::check_bit_packed,
    children: chain::bit_packed_children,
    size: fixed_size,
    plan: Some(plan_integers),
    decode: integers,
};
const FRAME_KIND: Kind =
    Kind { id: FRAME, check: chain::check_frame, children: chain::frame_children, ..BIT_PACKED_KIND };
const ZIGZAG_KIND: Kind =
    Kind { id: ZIGZAG, check: chain::check_zigzag, children: chain::zigzag_children, ..BIT_PACKED_KIND };

pub const KINDS: &[Kind] = &[
    BIT_PACKED_KIND,
    FRAME_KIND,
    ZIGZAG_KIND,
    Kind {
        id: "vortex.alp",
        check: check_alp,
        children: alp_children,
        size: fixed_size,
        plan: Some(plan_alp),
        decode: alp,
    },
];

fn flags(node: &Node<'_>) -> Vec<bool> {
    vec![false; node.raw.end() - node.raw.index() - 1]
}

fn plan_integers(node: &Node<'_>, _: Device) -> Result<Vec<bool>> {
    let mut decoded = flags(node);
    Chain::new(Node::new(node.raw)?)?.plan(node, &mut decoded);
    Ok(decoded)
}

fn integers(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let chain = Chain::new(Node::new(node.raw)?)?;
    let (values, validity) = match node.width()? {
        1 => chain.decode(job, |v: u8| v),
        2 => chain.decode(job, |v: u16| v),
        4 => chain.decode(job, |v: u32| v),
        _ => chain.decode(job, |v: u64| v),
    }?;
    job.array(node.data_type(), validity, vec![values])
}

pub(crate) fn floats(node: &Node<'_>) -> Result<PType> {
    match node.data_type() {
        DataType::Float32 => Ok(PType::F32),
        DataType::Float64 => Ok(PType::F64),
        other => Err(node.wrong(format_args!(
            "the type is {other}, expected float or double",
            other = crossdock_arrays::type_name(other)
        ))),
    }
}

pub(crate) fn alp_metadata(node: &Node<'_>) -> Result<Alp> {
    in_node(node, Alp::read(node.metadata(), floats(node)?, node.len))
}

fn check_alp(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    alp_metadata(node).map(drop)
}

fn alp_children(node: &Node<'_>) -> Result<Children> {
    let integers = if floats(node)? == PType::F32 { DataType::Int32 } else { DataType::Int64 };
    let mut children = vec![Child::with_nulls("encoded integers", integers, node.is_nullable(), node.len)];
    if let Some(patches) = alp_metadata(node)?.patches {
        children.extend(patches.children(node, node.data_type().clone(), node.is_nullable())?);
    }
    Ok(Children::new(children))
}

fn plan_alp(node: &Node<'_>, _: Device) -> Result<Vec<bool>> {
    let mut decoded = flags(node);
    Chain::new(node.child(0)?)?.plan(node, &mut decoded);
    for patches in node.raw.children().skip(1) {
        let place = decoded.get_mut(patches.index() - node.raw.index() - 1);
        place.into_iter().for_each(|flag| *flag = true);
    }
    Ok(decoded)
}

fn alp(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let alp = alp_metadata(node)?;
    let chain = Chain::new(node.child(0)?)?;
    let patched = alp.patches.as_ref().map(|patches| Patched::new(job, node, 1, patches)).transpose()?;
    let (values, validity) = match floats(node)? {
        PType::F32 => {
            let scale = Scale::<f32>::new(alp.exp_e, alp.exp_f)?;
            chain.decode_and(job, move |v: u32| scale.decode(v), &|to| {
                patched.as_ref().map_or(Ok(()), |p| p.apply(job, to, |v| v))
            })
        }
        _ => {
            let scale = Scale::<f64>::new(alp.exp_e, alp.exp_f)?;
            chain.decode_and(job, move |v: u64| scale.decode(v), &|to| {
                patched.as_ref().map_or(Ok(()), |p| p.apply(job, to, |v| v))
            })
        }
    }?;
    job.array(node.data_type(), validity, vec![values])
}
