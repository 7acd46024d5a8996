//! Executes a plan: allocates the memory, copies, and creates the arrays.

use crossdock_kernels::Jobs;
use crossdock_memory::{Buffer, Copies, Error, Result, Stream};

use super::plan::{Node, Plan};
use crate::DeviceArray;

/// Executes the plan: allocates on the device of `target`, copies on `copier`, and adjusts offsets
/// on `target`.
pub(super) fn build(plan: Plan<'_>, target: &Stream, copier: &Stream) -> Result<Vec<DeviceArray>> {
    let mut block = target.memory().alloc(target, plan.bytes)?;
    copier.wait(&target.record()?)?;
    let mut copies = Copies::new();
    for piece in plan.pieces.iter().filter(|piece| piece.bits.is_none()) {
        copies.push(&mut block, piece.to, piece.from, piece.at, piece.bytes)?;
    }
    copies.submit(copier)?;
    target.wait(&copier.record()?)?;
    let mut jobs = Jobs::new();
    for piece in &plan.pieces {
        if let Some((first, len)) = piece.bits {
            jobs.shift_bits(piece.from, first, len, &mut block, piece.to)?;
        }
    }
    for rebase in &plan.rebases {
        let at = plan.pieces.get(rebase.piece).map_or(0, |piece| piece.to);
        jobs.rebase_offsets(&mut block, at, rebase.n, rebase.width, rebase.base)?;
    }
    jobs.launch(target)?;
    let block = block.freeze(target)?;
    let mut arrays: Vec<Option<DeviceArray>> = plan.nodes.iter().map(|_| None).collect();
    // In the plan, children follow their parents. The loop runs in reverse order, so that the
    // children of each node have been created before the node.
    for (i, node) in plan.nodes.iter().enumerate().rev() {
        let array = array(node, &plan, &block, &mut arrays)?;
        if let Some(slot) = arrays.get_mut(i) {
            *slot = Some(array);
        }
    }
    arrays.into_iter().take(plan.roots).map(|array| array.ok_or_else(missing)).collect()
}

fn missing() -> Error {
    Error::internal("an array of a plan was not created")
}

fn array(
    node: &Node<'_>,
    plan: &Plan<'_>,
    block: &Buffer,
    arrays: &mut [Option<DeviceArray>],
) -> Result<DeviceArray> {
    let source = node.array;
    let buffers = node
        .pieces
        .iter()
        .map(|piece| match piece.and_then(|piece| plan.pieces.get(piece)) {
            Some(piece) => block.slice(piece.to, piece.bytes).map(Some),
            None => Ok(None),
        })
        .collect::<Result<_>>()?;
    let mut take = |i: usize| arrays.get_mut(i).and_then(Option::take).ok_or_else(missing);
    let children = node.children.iter().map(|i| take(*i)).collect::<Result<_>>()?;
    let dictionary = node.dictionary.map(|i| take(i).map(Box::new)).transpose()?;
    DeviceArray {
        data_type: source.data_type().clone(),
        len: node.len,
        offset: node.offset,
        null_count: source.null_count_of(node.len),
        declares_no_nulls: source.declares_no_nulls,
        buffers,
        children,
        dictionary,
        view_sizes: None,
        depth: 1,
        device: None,
    }
    .checked()
}
