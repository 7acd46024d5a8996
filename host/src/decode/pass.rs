//! Prepares passes of the host's kernels. One pass decodes a node and its sources.

use std::ops::Range;

use arrow_schema::{DataType, SchemaRef};
use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, Validity};
use crossdock_kernels::{
    Checks, Halves, IntType, Integers, LeftParts, Numbers, Packed, Patches, Source, Step, Words,
};
use crossdock_memory::{ALIGNMENT, Buffer, BufferMut, EncodedBuffers, Stream};
use crossdock_plugin_api::{EncodedNode, Error, Operator, Result};

use super::checks::{Cell, Check, Expected, PendingChecks};
use super::errors::with_context;
use super::program::Program;
use super::rows::patches_within;
use crate::plugin::Plugin;

/// A node with its program and its plugin.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub node: EncodedNode<'a>,
    pub program: &'a Program,
    pub plugin: &'a Plugin,
    /// The rows of the node that are decoded. The program computes only these.
    pub rows: &'a Range<u64>,
}

impl Link<'_> {
    /// Adds the context of this node to an error, unless the error already has the context of
    /// another node.
    pub fn with_context(&self, failure: impl Into<Failure>) -> Failure {
        match failure.into() {
            Failure::Bare(error) => Failure::InContext(with_context(error, self.plugin, self.node)),
            in_context => in_context,
        }
    }
}

/// An error that occurs while a chain of nodes is decoded.
pub(super) enum Failure {
    /// The error already names the plugin and the node.
    InContext(Error),
    Bare(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Bare(error)
    }
}

pub(super) type Outcome<T> = std::result::Result<T, Failure>;

/// A function that returns a decoded child of a node, on the stream's device.
pub(super) type Children<'a> = dyn Fn(EncodedNode<'_>, u32) -> Result<&'a DeviceArray> + 'a;

/// A node to decode, and the nodes whose programs run in the same pass.
pub(super) struct Chain<'a> {
    /// The last link is the node to decode. Each node is the source of the next node, or contains
    /// the dictionary codes of the next node.
    pub links: Vec<Link<'a>>,
    pub schema: &'a SchemaRef,
    /// Whether the values may share an allocation with the values of other chains. The allocation
    /// is freed when all of them are released.
    pub is_temporary: bool,
}

impl<'a> Chain<'a> {
    fn last(&self) -> Result<&Link<'a>> {
        self.links.last().ok_or_else(no_chain)
    }

    /// Calls `f`, and adds the context of the last node to an error without context.
    pub fn in_context<T>(&self, f: impl FnOnce() -> Outcome<T>) -> Result<T> {
        f().map_err(|failure| match self.last().map(|link| link.with_context(failure)) {
            Ok(Failure::InContext(error) | Failure::Bare(error)) | Err(error) => error,
        })
    }
}

/// What programs read.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub children: &'a Children<'a>,
    /// Holds the buffers that no result contains.
    pub buffers: &'a EncodedBuffers,
    pub checks: &'a PendingChecks<'a>,
}

/// The source of a program's words.
pub(super) enum WordSource<'a> {
    /// A buffer of words, and the byte offset of the first word.
    Words(Buffer, usize),
    Packed {
        buffer: Buffer,
        bits: u32,
        first: usize,
    },
    Counted {
        base: u64,
        step: u64,
    },
    /// A buffer of integers that are cast to the width of the words, and the byte offset `at` of
    /// the first integer.
    Cast {
        buffer: Buffer,
        at: usize,
        of: IntType,
    },
    /// Values that are repeated up to their ends. All values are valid.
    Runs {
        ends: &'a DeviceArray,
        values: DeviceArray,
        first: u64,
    },
    /// Values that packed codes refer to. All values are valid.
    Codes {
        buffer: Buffer,
        bits: u32,
        first: usize,
        width_bytes: usize,
        steps: Vec<Step>,
        validity: Option<Validity>,
        values: DeviceArray,
    },
    /// The sum of integers times factors.
    Sum(Vec<(&'a DeviceArray, u64)>),
    /// Left parts, to which codes refer, and right parts.
    Join {
        codes: &'a DeviceArray,
        rights: &'a DeviceArray,
        right_bits: u32,
        lefts: Vec<u16>,
    },
}

pub(super) fn no_chain() -> Error {
    Error::internal("a chain without programs cannot be run")
}

/// The inputs of one pass of the kernels, which decodes a node.
pub(super) struct Pass<'a> {
    pub chain: &'a Chain<'a>,
    /// The first node that follows the nodes of the dictionary codes.
    first: &'a Link<'a>,
    data_type: &'a DataType,
    pub words: Words,
    pub source: WordSource<'a>,
    /// A step is applied when a word is first written. Steps are applied to the values of a
    /// dictionary or of runs before these values are repeated.
    pub steps: Vec<Step>,
    /// The number of steps, from the last step backward, that are applied to the words.
    n_steps_left: usize,
    /// Patches are changed only by the steps that follow them.
    pub patches: Vec<PatchStep<'a>>,
    /// Left parts that replace left parts of the dictionary.
    pub left_patches: Option<PatchStep<'a>>,
    validity: Option<Validity>,
    pub place: Place,
}

/// The number of bytes of a left part.
const LEFT_BYTES: usize = 2;

/// Where the values of a pass are written.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// There are no values.
    None,
    /// The values are words of the source that no step changes.
    InSource,
    /// The index of a block. The offset is in the words of the pass.
    In(usize),
}

impl<'a> Pass<'a> {
    pub fn new(chain: &'a Chain<'a>, inputs: Inputs<'a>, stream: &'a Stream) -> Outcome<Self> {
        let link = chain.last()?;
        let too_long = |_| link.node.wrong("the node has more values than this machine can address");
        let len = usize::try_from(link.rows.end - link.rows.start).map_err(too_long)?;
        let data_type = chain.schema.fields().first().map(|field| field.data_type());
        let data_type = data_type.ok_or_else(|| Error::internal("a node has no type"))?;
        let dictionary =
            chain.links.iter().position(|link| matches!(link.program.source, Operator::Dictionary { .. }));
        let (codes, links) = chain.links.split_at_checked(dictionary.unwrap_or(0)).ok_or_else(no_chain)?;
        let mut run = Run::new(link, len, inputs, stream);
        let first = links.first().ok_or_else(no_chain)?;
        if len == 0 {
            let source = WordSource::Counted { base: 0, step: 0 };
            return Ok(Self {
                chain,
                first,
                data_type,
                words: run.words,
                source,
                steps: Vec::new(),
                n_steps_left: 0,
                patches: Vec::new(),
                left_patches: None,
                validity: None,
                place: Place::None,
            });
        }
        let (steps, patches) = run.steps(links)?;
        let (source, are_stepped) = run
            .source(codes, first, &steps, chain.is_temporary)
            .map_err(|error| first.with_context(error))?;
        let n_steps_left = if are_stepped { 0 } else { steps.len() };
        let mut place = Place::In(0);
        if let WordSource::Words(buffer, at) = &source {
            let aligned = (buffer.address() + *at as u64).is_multiple_of(run.words.width_bytes as u64);
            if n_steps_left == 0 && patches.is_empty() && aligned {
                place = Place::InSource;
            }
        }
        let Run { words, validity, left_patches, .. } = run;
        Ok(Self {
            chain,
            first,
            data_type,
            words,
            source,
            steps,
            n_steps_left,
            patches,
            left_patches,
            validity,
            place,
        })
    }

    fn steps_left(&self) -> &[Step] {
        if self.n_steps_left == 0 { &[] } else { &self.steps }
    }

    /// The words of the source.
    pub fn source_words(&self) -> Result<Option<Buffer>> {
        let WordSource::Words(buffer, at) = &self.source else {
            return Err(Error::internal("the source of a pass has no words"));
        };
        buffer.slice(*at, self.words.len.saturating_mul(self.words.width_bytes)).map(Some)
    }

    /// The first patches, if they run in the same pass as the source. They precede or follow all
    /// steps.
    pub fn fused_patches(&self) -> Option<&PatchStep<'a>> {
        let is_packed = matches!(self.source, WordSource::Packed { .. });
        let fits = |patch: &&PatchStep<'_>| patch.after == 0 || patch.after == self.n_steps_left;
        self.patches.first().filter(fits).filter(|_| is_packed)
    }

    /// Adds the job that writes the words. Returns its check, if it has one.
    pub fn push<'s>(&'s self, checks: &mut Checks<'s>, to: &mut BufferMut) -> Result<Option<Cell>> {
        let Self { words, .. } = *self;
        let steps = self.steps_left();
        let (cell, expected) = match &self.source {
            WordSource::Words(buffer, at) => {
                checks.map(buffer, *at, to, words, steps)?;
                return Ok(None);
            }
            WordSource::Packed { buffer, bits, first } => {
                let packed = Packed { buffer, bits: *bits, first: *first };
                let Some(patch) = self.fused_patches() else {
                    checks.unpack(packed, to, words, steps)?;
                    return Ok(None);
                };
                let is_before = patch.after == 0;
                let cell = checks.unpack_patched(packed, to, words, steps, patch.patches, is_before)?;
                return Ok(Some((cell, patch.check())));
            }
            WordSource::Counted { base, step } => {
                checks.sequence(*base, *step, to, words, steps)?;
                return Ok(None);
            }
            WordSource::Cast { buffer, at, of } => {
                let integers = Integers { buffer, at: *at, len: words.len, of: *of };
                checks.widen(integers, to, words, steps)?;
                return Ok(None);
            }
            WordSource::Runs { ends, values, first } => {
                let ends = take::numbers(ends).ok_or_else(|| Error::internal("runs have no ends"))?;
                let values = words_of(values, 0..values.len(), words.width_bytes)?;
                let Words { at, len, width_bytes } = words;
                let cell = checks.expand_runs(ends, *first, values, to, at, len, width_bytes)?;
                (cell, Expected::RunEnds { len, first: *first })
            }
            WordSource::Sum(terms) => {
                let integers = |(array, factor): &(&'s DeviceArray, u64)| Ok((integers_of(array)?, *factor));
                let parts = terms.iter().map(integers).collect::<Result<Vec<_>>>()?;
                (checks.sum(&parts, self.validity(), to, words.at)?, Expected::Sums)
            }
            WordSource::Join { codes, rights, right_bits, lefts } => {
                let halves = Halves {
                    codes: (values_of(codes)?, 2 * codes.offset()),
                    rights: (values_of(rights)?, words.width_bytes * rights.offset()),
                    right_bits: *right_bits,
                    len: words.len,
                    width_bytes: words.width_bytes,
                };
                let cell =
                    checks.join(halves, LeftParts::Dictionary(lefts), self.validity(), to, words.at)?;
                (cell, Expected::LeftCodes { n_lefts: lefts.len() })
            }
            WordSource::Codes { buffer, bits, first, width_bytes, steps, validity, values } => {
                let packed = Packed { buffer, bits: *bits, first: *first };
                let validity = validity.as_ref().map(|(bits, first)| (bits, *first));
                let (n_values, values) =
                    (values.len(), words_of(values, 0..values.len(), words.width_bytes)?);
                let cell = checks.take_packed(packed, *width_bytes, steps, validity, values, to, words)?;
                (cell, Expected::Codes { n_values })
            }
        };
        Ok(Some((cell, Check { node: self.first.node.index(), expected })))
    }

    fn validity(&self) -> Option<(&Buffer, usize)> {
        self.validity.as_ref().map(|(bits, first)| (bits, *first))
    }

    pub fn array(self, values: Option<Buffer>, stream: &Stream) -> Result<DeviceArray> {
        match values {
            None => DeviceArray::empty(self.data_type),
            Some(values) => array_of(values, self.words.len, self.validity, self.data_type, stream),
        }
    }
}

/// The allocations to which passes write.
pub(super) struct Blocks(Vec<BufferMut>);

impl Blocks {
    /// Allocates one block for all temporary values, and one block for each other pass.
    pub fn alloc(passes: &mut [Pass<'_>], stream: &Stream) -> Result<Self> {
        let (mut sizes, mut shared) = (Vec::new(), None);
        for Pass { chain, words, place, .. } in passes {
            let Place::In(index) = place else { continue };
            let bytes = words.len.saturating_mul(words.width_bytes);
            *index = if chain.is_temporary { *shared.get_or_insert(sizes.len()) } else { sizes.len() };
            match sizes.get_mut(*index) {
                Some(size) => {
                    words.at = *size;
                    *size = size.saturating_add(bytes).next_multiple_of(ALIGNMENT);
                }
                None => sizes.push(bytes.next_multiple_of(ALIGNMENT)),
            }
        }
        let blocks = sizes.into_iter().map(|bytes| stream.memory().alloc(stream, bytes));
        Ok(Self(blocks.collect::<Result<_>>()?))
    }

    /// The block to which a pass writes.
    pub fn get(&mut self, pass: &Pass<'_>) -> Result<&mut BufferMut> {
        let block = if let Place::In(index) = pass.place { self.0.get_mut(index) } else { None };
        block.ok_or_else(|| Error::internal("a pass has no output"))
    }

    /// Makes the blocks immutable.
    pub fn freeze(self, stream: &Stream) -> Result<Vec<Buffer>> {
        self.0.into_iter().map(|block| block.freeze(stream)).collect()
    }
}

/// Prepares the source of a pass.
pub(super) struct Run<'a> {
    pub words: Words,
    pub inputs: Inputs<'a>,
    pub stream: &'a Stream,
    pub validity: Option<Validity>,
    left_patches: Option<PatchStep<'a>>,
}

/// Patches that are applied between two steps of a program.
pub(super) struct PatchStep<'a> {
    pub link: &'a Link<'a>,
    pub patches: Patches<'a>,
    /// The number of steps that precede the patches.
    pub after: usize,
}

impl PatchStep<'_> {
    pub fn check(&self) -> Check {
        Check { node: self.link.node.index(), expected: Expected::PatchIndices }
    }
}

/// An array of `len` values with a validity.
pub(super) fn array_of(
    values: Buffer,
    len: usize,
    validity: Option<Validity>,
    data_type: &DataType,
    stream: &Stream,
) -> Result<DeviceArray> {
    let null_count = if validity.is_none() { Some(0) } else { None };
    let bits = validity.map(|(bits, at)| take::byte_aligned_bits(stream, &bits, at, len)).transpose()?;
    DeviceArray::try_new(data_type.clone(), len, 0, null_count, vec![bits, Some(values)], Vec::new(), None)
}

impl<'a> Run<'a> {
    /// Starts a run over `len` words, which have the width of the words of `link`.
    pub fn new(link: &Link<'a>, len: usize, inputs: Inputs<'a>, stream: &'a Stream) -> Self {
        let words = Words { at: 0, len, width_bytes: link.program.width };
        Self { words, inputs, stream, validity: None, left_patches: None }
    }

    /// The steps that are applied to a chain's words, and the patches of the chain.
    pub fn steps(&mut self, chain: &'a [Link<'a>]) -> Outcome<(Vec<Step>, Vec<PatchStep<'a>>)> {
        let (mut steps, mut patch_steps) = (Vec::new(), Vec::new());
        for link in chain {
            for operator in &link.program.then {
                self.step(link, *operator, &mut steps, &mut patch_steps)
                    .map_err(|error| link.with_context(error))?;
            }
        }
        Ok((steps, patch_steps))
    }

    fn step(
        &mut self,
        link: &'a Link<'a>,
        operator: Operator,
        steps: &mut Vec<Step>,
        patch_steps: &mut Vec<PatchStep<'a>>,
    ) -> Result<()> {
        match operator {
            Operator::Add(word) => steps.push(Step::Add(word)),
            Operator::Xor(word) => steps.push(Step::Xor(word)),
            Operator::ZigZag => steps.push(Step::ZigZag),
            Operator::ToFloat => steps.push(Step::ToFloat),
            Operator::Scale(bits) => steps.push(Step::Scale(bits)),
            Operator::Patch { indices, values, first } => {
                let patches = self.patches(link, indices, values, first, self.words.width_bytes)?;
                patch_steps.extend(patches.map(|patches| PatchStep { link, patches, after: steps.len() }));
            }
            Operator::PatchLeft { indices, lefts, first } => {
                let patches = self.patches(link, indices, lefts, first, LEFT_BYTES)?;
                self.left_patches = patches.map(|patches| PatchStep { link, patches, after: 0 });
            }
            // The source has all terms.
            Operator::Term { .. } => {}
            Operator::Validity(child) => self.valid_where(link.node, child)?,
            _ => return Err(link.node.wrong("a source operator follows the first operator of the program")),
        }
        Ok(())
    }

    fn patches(
        &self,
        link: &Link<'a>,
        indices: u32,
        values: u32,
        first: u64,
        width_bytes: usize,
    ) -> Result<Option<Patches<'a>>> {
        let node = link.node;
        let (indices, values) =
            ((self.inputs.children)(node, indices)?, (self.inputs.children)(node, values)?);
        let within = if *link.rows == (0..node.length()) {
            0..indices.len()
        } else {
            patches_within(indices, first, self.words.len, self.stream)?
        };
        if within.is_empty() {
            return Ok(None);
        }
        // The type of patches may be nullable if the node's type is, but no patch value may be
        // null.
        if values.count_nulls(self.stream)? > 0 {
            return Err(node.wrong("the patches have nulls, expected none"));
        }
        let index_width = indices.data_type().primitive_width().unwrap_or(0);
        Ok(Some(Patches {
            indices: Numbers {
                buffer: values_of(indices)?,
                at: (indices.offset() + within.start) * index_width,
                len: within.len(),
                width_bytes: index_width,
            },
            first,
            values: words_of(values, within, width_bytes)?,
        }))
    }

    /// Adds a null at each index at which a boolean child is false.
    fn valid_where(&mut self, node: EncodedNode<'a>, child: u32) -> Result<()> {
        let booleans = (self.inputs.children)(node, child)?;
        self.merge_validity(Some((values_of(booleans)?.clone(), booleans.offset())))
    }

    pub fn merge_validity(&mut self, validity: Option<Validity>) -> Result<()> {
        let before = self.validity.take();
        self.validity = take::merge_validity(self.stream, before, validity, self.words.len)?;
        Ok(())
    }
}

/// Returns the integers of an array.
fn integers_of(array: &DeviceArray) -> Result<Integers<'_>> {
    let width_bytes = array.data_type().primitive_width().unwrap_or(0);
    Ok(Integers {
        buffer: values_of(array)?,
        at: array.offset() * width_bytes,
        len: array.len(),
        of: IntType { width_bytes, signed: array.data_type().is_signed_integer() },
    })
}

/// Returns an array's buffer of values.
pub(super) fn values_of(array: &DeviceArray) -> Result<&Buffer> {
    let buffer = array.buffers().get(1).and_then(Option::as_ref);
    buffer.ok_or_else(|| Error::internal("an array has no buffer of values"))
}

/// Returns the words of an array at the given positions. They have `width_bytes` bytes each.
pub(super) fn words_of(array: &DeviceArray, at: Range<usize>, width_bytes: usize) -> Result<Source<'_>> {
    let buffer = if at.is_empty() { None } else { Some(values_of(array)?) };
    Ok(Source { buffer, at: (array.offset() + at.start) * width_bytes, len: at.len() })
}
