//! Decodes values in blocks of 1024: FastLanes delta and run-length encoding.

use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::Result;

use super::chain::ptype;
use super::slots::{self, Source, by_integers, by_width};
use super::{Kind, fixed_size};
use crate::children::{Child, Children};
use crate::cpu::fastlanes::BLOCK;
use crate::cpu::{bits, delta, rle};
use crate::job::{Job, Values};
use crate::node::{Node, in_node};
use crate::validity::Validity;
use crate::wire::metadata::{Delta, Rle};

pub(crate) const DELTA: &str = "fastlanes.delta";
pub(crate) const RLE: &str = "fastlanes.rle";

pub const KINDS: &[Kind] = &[
    Kind {
        id: DELTA,
        check: check_delta,
        children: delta_children,
        size: fixed_size,
        plan: None,
        decode: delta,
    },
    Kind { id: RLE, check: check_rle, children: rle_children, size: fixed_size, plan: None, decode: rle },
];

pub(crate) fn delta_metadata(node: &Node<'_>) -> Result<Delta> {
    in_node(node, Delta::read(node.metadata(), node.len))
}

fn check_delta(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    delta_metadata(node).map(drop)
}

fn delta_children(node: &Node<'_>) -> Result<Children> {
    let metadata = delta_metadata(node)?;
    let lanes = BLOCK / (8 * ptype(node)?.bytes());
    Ok(Children::with_validity([
        Child::all_valid("bases", node.data_type().clone(), metadata.deltas_len / BLOCK * lanes),
        Child::all_valid("differences", node.data_type().clone(), metadata.deltas_len),
    ]))
}

fn delta(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let offset = delta_metadata(node)?.offset as usize;
    let (bases, deltas) = (Values::new(job.child(0)?, job.stream)?, Values::new(job.child(1)?, job.stream)?);
    macro_rules! sum {
        ($t:ty) => {
            job.make_values(node.len, &mut |to: &mut [$t]| {
                in_node(node, delta::decode(bases.get::<$t>()?, deltas.get()?, offset, to))
            })
        };
    }
    let values = match node.width()? {
        1 => sum!(u8),
        2 => sum!(u16),
        4 => sum!(u32),
        _ => sum!(u64),
    }?;
    let validity = job.validity(node.has_validity(2)?.then_some(2))?;
    job.array(node.data_type(), validity, vec![Some(values)])
}

pub(crate) fn rle_metadata(node: &Node<'_>) -> Result<Rle> {
    in_node(node, Rle::read(node.metadata(), node.len))
}

fn check_rle(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    rle_metadata(node).map(drop)
}

fn rle_children(node: &Node<'_>) -> Result<Children> {
    let metadata = rle_metadata(node)?;
    let (indices, offsets) = (metadata.indices_ptype.arrow(), metadata.values_idx_offsets_ptype.arrow());
    Ok(Children::new([
        Child::all_valid("values of blocks", node.data_type().clone(), metadata.values_len),
        Child::with_nulls("indices of values", indices, node.is_nullable(), metadata.indices_len),
        Child::all_valid("offsets of dictionaries", offsets, metadata.values_idx_offsets_len),
    ]))
}

fn rle(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let offset = rle_metadata(node)?.offset as usize;
    let (stored, indices, begins) = (job.child(0)?, job.child(1)?, job.child(2)?);
    let (stored, validity_source) = (Values::new(stored, job.stream)?, Source::from_validity(job, indices)?);
    let valid = validity_source.valid()?;
    let begins = &slots::counts(job, begins)?[..];
    let values = by_width!(job, node.width()?, V => {
        let values = stored.get::<V>()?;
        by_integers!(job, indices, indices => {
            let runs = rle::Runs { values, indices, valid, begins };
            job.make_values(node.len, &mut |to: &mut [V]| in_node(node, runs.decode(offset, <V>::default(), to)))
        })
    })?;
    let validity = match valid {
        Some(valid) => {
            let valid = valid.slice(offset, node.len)?;
            let bits = job.make(bits::bitmap_bytes(node.len), &mut |to| valid.copy_to(to))?;
            Validity { bits: Some(bits), null_count: None }
        }
        None => Validity::all_valid(),
    };
    job.array(node.data_type(), validity, vec![Some(values)])
}
