//! Executes a plan: allocates the memory, copies, and creates the arrays.

use crossdock_kernels::{BitRange, Checks, Jobs, Step, Words};
use crossdock_memory::{Buffer, BufferMut, Copies, Error, Result, Stream};
use crossdock_plugin_api::abi;

use super::plan::{Node, Plan};
use crate::DeviceArray;

/// The minimum number of copies that a kernel of a CUDA device makes. One launch replaces up to 56
/// calls of the driver, which runs the calls of all threads one after the other.
const MIN_KERNEL_COPIES: usize = 4;

/// Executes the plan on `stream`: makes one allocation, submits all copies together, then writes
/// bitmaps and adjusts offsets.
pub(super) fn build(plan: Plan, roots: Vec<Node>, stream: &Stream) -> Result<Vec<DeviceArray>> {
    let mut block = stream.memory().alloc(stream, plan.bytes)?;
    let mut jobs = Jobs::new();
    if stream.device().r#type == abi::DEVICE_CUDA && plan.copies.len() >= MIN_KERNEL_COPIES {
        for copied in &plan.copies {
            jobs.copy_range(&copied.from, copied.at, copied.bytes, &mut block, copied.to)?;
        }
    } else {
        let mut copies = Copies::new();
        for copied in &plan.copies {
            copies.push(&mut block, copied.to, &copied.from, copied.at, copied.bytes)?;
        }
        copies.submit(stream)?;
    }
    for bitmap in &plan.bitmaps {
        let parts = bitmap.parts.iter().map(|(bits, len)| BitRange {
            bits: bits.as_ref().map(|(buffer, first)| (buffer, *first)),
            len: *len,
        });
        jobs.concatenate_bits(&parts.collect::<Vec<_>>(), &mut block, bitmap.to)?;
    }
    for part in &plan.views {
        let before = u32::try_from(part.buffers_before).map_err(|_| super::too_long())?;
        jobs.renumber_views(&mut block, part.to, part.n, before)?;
    }
    for rebase in &plan.rebases {
        jobs.rebase_offsets(&mut block, rebase.to, rebase.n, rebase.width, rebase.base)?;
    }
    jobs.launch(stream)?;
    let mut ends = Checks::new();
    for part in &plan.ends {
        let words = |first: usize, len: usize| Words {
            at: part.to + first * part.width,
            len,
            width_bytes: part.width,
        };
        let before = part.n.saturating_sub(1);
        if before > 0 {
            ends.map(&part.from, part.at, &mut block, words(0, before), &[Step::Add(part.add as u64)])?;
        }
        ends.sequence(part.last as u64, 0, &mut block, words(before, 1), &[])?;
    }
    ends.run(stream)?;
    renumber(&plan, &mut block)?;
    let block = block.freeze(stream)?;
    roots.into_iter().map(|node| array(node, &block)).collect()
}

/// Adjusts the offsets of dense unions: adds the total length of the child in all preceding arrays.
/// Runs on the host, after all copies have run.
fn renumber(plan: &Plan, block: &mut BufferMut) -> Result<()> {
    if plan.unions.is_empty() {
        return Ok(());
    }
    let bytes = block.host_slice_mut();
    let bytes = bytes.ok_or_else(|| Error::internal("the host cannot write the concatenated arrays"))?;
    for part in &plan.unions {
        // Offsets of values with an unknown type id are not changed.
        let mut before = [0i32; 256];
        part.before.iter().for_each(|(id, n)| before[usize::from(*id as u8)] = *n);
        // The buffer of type ids is at a lower position than the buffer of offsets.
        let Some((ids, offsets)) = bytes.split_at_mut_checked(part.offsets) else { continue };
        let ids = ids.get(part.ids..).unwrap_or_default();
        for (id, offset) in ids.iter().zip(offsets.as_chunks_mut::<4>().0).take(part.n) {
            *offset = i32::from_ne_bytes(*offset).wrapping_add(before[usize::from(*id)]).to_ne_bytes();
        }
    }
    Ok(())
}

fn array(node: Node, block: &Buffer) -> Result<DeviceArray> {
    let ranges = node.buffers.into_iter();
    let mut buffers = ranges
        .map(|range| range.map(|(at, bytes)| block.slice(at, bytes)).transpose())
        .collect::<Result<Vec<_>>>()?;
    buffers.extend(node.shared);
    let children = node.children.into_iter().map(|child| array(child, block)).collect::<Result<_>>()?;
    DeviceArray::try_new(node.data_type, node.len, 0, node.null_count, buffers, children, node.dictionary)
}
