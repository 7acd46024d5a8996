//! Runs programs. The programs of a node and of its sources run in one pass of the host's kernels,
//! and the passes of many nodes run at the same time.

use crossdock_arrays::DeviceBatch;
use crossdock_kernels::Checks;
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{Error, Result};

use super::checks::PendingChecks;
use super::left_parts::patch_lefts;
use super::pass::{Blocks, Chain, Inputs, Pass, Place};

/// Decodes the nodes of chains that do not depend on each other. Each kernel is launched once for
/// all of them.
pub(super) fn run_all<'a>(
    chains: &'a [Chain<'a>],
    inputs: Inputs<'a>,
    stream: &'a Stream,
) -> Result<Vec<DeviceBatch>> {
    let passes = chains.iter().map(|chain| chain.in_context(|| Pass::new(chain, inputs, stream)));
    let mut passes = passes.collect::<Result<Vec<_>>>()?;
    let blocks = write(Blocks::alloc(&mut passes, stream)?, &passes, inputs.checks, stream)?;
    let arrays = passes.into_iter().map(|pass| {
        let Pass { chain, place, words, .. } = pass;
        let (len, bytes) = (words.len, words.len.saturating_mul(words.width_bytes));
        chain.in_context(|| {
            let values = match place {
                Place::InSource => pass.source_words()?,
                Place::None => None,
                Place::In(block) => {
                    let block = blocks.get(block).ok_or_else(|| Error::internal("a pass has no output"))?;
                    Some(block.slice(words.at, bytes)?)
                }
            };
            let schema = chain.schema.clone();
            let array = pass.array(values, stream)?;
            Ok(DeviceBatch::try_new(schema, len, vec![array])?)
        })
    });
    arrays.collect()
}

/// Runs the passes, which write to the blocks.
fn write(
    mut blocks: Blocks,
    passes: &[Pass<'_>],
    pending: &PendingChecks<'_>,
    stream: &Stream,
) -> Result<Vec<Buffer>> {
    let writing = || passes.iter().filter(|pass| matches!(pass.place, Place::In(_)));
    let (mut checks, mut cells) = (Checks::new(), Vec::new());
    for pass in writing() {
        let cell = pass.chain.in_context(|| Ok(pass.push(&mut checks, blocks.get(pass)?)?))?;
        cells.extend(cell);
    }
    pending.start(checks, cells, stream)?;
    patch_lefts(writing(), &mut blocks, pending, stream)?;
    // The remaining patches of a pass run one after the other, because two sets of patches may
    // contain the same index.
    for round in 0.. {
        let (mut checks, mut cells) = (Checks::new(), Vec::new());
        for pass in writing() {
            let skipped = usize::from(pass.fused_patches().is_some());
            let Some(patch) = pass.patches.get(round + skipped) else { continue };
            let steps = pass.steps.get(patch.after..).unwrap_or_default();
            let to = blocks.get(pass)?;
            let cell = pass.chain.in_context(|| Ok(checks.patch(patch.patches, to, pass.words, steps)?))?;
            cells.push((cell, patch.check()));
        }
        if cells.is_empty() {
            break;
        }
        pending.start(checks, cells, stream)?;
    }
    blocks.freeze(stream)
}
