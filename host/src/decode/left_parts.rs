//! Replaces the left parts of joined words.

use crossdock_kernels::{Checks, Halves, LeftParts, Numbers, Patches, Source, Step, Words};
use crossdock_memory::{ALIGNMENT, Buffer, Stream};
use crossdock_plugin_api::{Error, Result};

use super::checks::{Check, Expected, PendingChecks};
use super::pass::{Blocks, Pass, PatchStep, WordSource, values_of};

/// A pass with left parts that replace left parts of the dictionary.
struct Replaced<'s> {
    pass: &'s Pass<'s>,
    patch: &'s PatchStep<'s>,
    /// The buffer of right parts, and the byte at which the right parts begin.
    rights: (&'s Buffer, usize),
    right_bits: u32,
    /// The byte at which the positions of the patches begin in their block.
    positions_at: usize,
    /// The byte at which the words of the patches begin in their block.
    words_at: usize,
}

/// Patches the left parts of passes. Gathers the right parts at the patched positions, joins them
/// with the patched left parts, and writes the joined words.
pub(super) fn patch_lefts<'s, Passes: Iterator<Item = &'s Pass<'s>>>(
    passes: Passes,
    blocks: &mut Blocks,
    pending: &PendingChecks<'_>,
    stream: &Stream,
) -> Result<()> {
    let (mut replaced, mut positions_bytes, mut words_bytes) = (Vec::new(), 0usize, 0usize);
    for pass in passes {
        let Some(patch) = &pass.left_patches else { continue };
        let WordSource::Join { rights, right_bits, .. } = &pass.source else {
            return Err(Error::internal("words without left parts have patches of left parts"));
        };
        let rights = (values_of(rights)?, rights.offset() * pass.words.width_bytes);
        let (right_bits, positions_at, words_at) = (*right_bits, positions_bytes, words_bytes);
        let Numbers { len, width_bytes, .. } = patch.patches.indices;
        positions_bytes = add_aligned(positions_bytes, len, width_bytes)?;
        words_bytes = add_aligned(words_bytes, len, pass.words.width_bytes)?;
        replaced.push(Replaced { pass, patch, rights, right_bits, positions_at, words_at });
    }
    if replaced.is_empty() {
        return Ok(());
    }
    let mut positions = stream.memory().alloc(stream, positions_bytes)?;
    let mut checks = Checks::new();
    for Replaced { patch: PatchStep { patches, .. }, positions_at, .. } in &replaced {
        let Numbers { buffer, at, len, width_bytes } = patches.indices;
        let words = Words { at: *positions_at, len, width_bytes };
        checks.map(buffer, at, &mut positions, words, &[Step::Add(patches.first.wrapping_neg())])?;
    }
    checks.run(stream)?;
    let positions = positions.freeze(stream)?;

    let mut rights = stream.memory().alloc(stream, words_bytes)?;
    let mut checks = Checks::new();
    for Replaced { pass, patch, rights: (buffer, at), positions_at, words_at, .. } in &replaced {
        let numbers = Numbers { buffer: &positions, at: *positions_at, ..patch.patches.indices };
        let source = Source { buffer: Some(buffer), at: *at, len: pass.words.len };
        // A position out of range is detected when the words are written.
        checks.take(numbers, None, source, &mut rights, *words_at, pass.words.width_bytes)?;
    }
    checks.run(stream)?;
    let rights = rights.freeze(stream)?;

    let mut words = stream.memory().alloc(stream, words_bytes)?;
    let (mut checks, mut cells) = (Checks::new(), Vec::new());
    for Replaced { pass, patch, right_bits, words_at, .. } in &replaced {
        let Source { buffer, at, len } = patch.patches.values;
        let Some(lefts) = buffer else { continue };
        let halves = Halves {
            codes: (lefts, at),
            rights: (&rights, *words_at),
            right_bits: *right_bits,
            len,
            width_bytes: pass.words.width_bytes,
        };
        let cell = checks.join(halves, LeftParts::Inline, None, &mut words, *words_at)?;
        cells.push((cell, Check { expected: Expected::LeftPatches, ..patch.check() }));
    }
    pending.start(checks, cells, stream)?;
    let words = words.freeze(stream)?;

    let (mut checks, mut cells) = (Checks::new(), Vec::new());
    for Replaced { pass, patch, words_at, .. } in &replaced {
        let Patches { indices, first, .. } = patch.patches;
        let values = Source { buffer: Some(&words), at: *words_at, len: indices.len };
        let patches = Patches { indices, first, values };
        cells.push((checks.patch(patches, blocks.get(pass)?, pass.words, &[])?, patch.check()));
    }
    pending.start(checks, cells, stream)
}

fn add_aligned(bytes: usize, len: usize, width_bytes: usize) -> Result<usize> {
    let end = len.checked_mul(width_bytes).and_then(|more| bytes.checked_add(more));
    end.and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
        .ok_or_else(|| Error::out_of_memory("the patches exceed the address space"))
}
