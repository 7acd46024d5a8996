//! Runs a node's program and the programs of its sources in one pass of the host's kernels.

use std::ops::Range;

use arrow_schema::{DataType, SchemaRef};
use crossdock_arrays::take::{self, Validity};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_kernels::{Checks, IntType, Integers, Numbers, Packed, Patches, Source, Step, Words};
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{EncodedNode, Error, Operator, Result};

use super::program::Program;
use super::rows::patches_within;
use crate::plugin::Plugin;

/// Adds the plugin to an error, and also the node's path unless the message already names the node.
pub(super) fn with_context(error: Error, plugin: &Plugin, node: EncodedNode<'_>) -> Error {
    plugin.note_panic(&error);
    if error.message().starts_with(node.encoding()) || error.message().contains(&node.path()) {
        return error.context(plugin);
    }
    error.context(format_args!("{plugin}: {}", node.path()))
}

/// A node with its program and its plugin.
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

/// The source of a program's words.
pub(super) enum WordSource {
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
}

/// Decodes the last node of the chain. Each node is the source of the next node, or contains the
/// dictionary codes of the next node.
pub(super) fn run<'a>(
    chain: &[Link<'a>],
    schema: &SchemaRef,
    children: &'a Children<'a>,
    stream: &'a Stream,
) -> Result<DeviceBatch> {
    let link = chain.last().ok_or_else(no_chain)?;
    let run = || -> Outcome<DeviceBatch> {
        let too_long = |_| link.node.wrong("the node has more values than this machine can address");
        let len = usize::try_from(link.rows.end - link.rows.start).map_err(too_long)?;
        let data_type = schema.fields().first().map(|field| field.data_type());
        let data_type = data_type.ok_or_else(|| Error::internal("a node has no type"))?;
        let column = if len == 0 {
            DeviceArray::empty(data_type)?
        } else {
            Run::new(link, len, children, stream).array(chain, data_type)?
        };
        Ok(DeviceBatch::try_new(schema.clone(), len, vec![column])?)
    };
    run().map_err(|failure| match link.with_context(failure) {
        Failure::InContext(error) | Failure::Bare(error) => error,
    })
}

pub(super) fn no_chain() -> Error {
    Error::internal("a chain without programs cannot be run")
}

pub(super) struct Run<'a> {
    pub words: Words,
    pub children: &'a Children<'a>,
    pub stream: &'a Stream,
    pub validity: Option<Validity>,
}

/// Patches that are applied between two steps of a program.
pub(super) struct PatchStep<'c, 'a> {
    link: &'c Link<'a>,
    patches: Patches<'a>,
    /// The number of steps that precede the patches.
    after: usize,
}

impl<'a> Run<'a> {
    /// Starts a run over `len` words, which have the width of the words of `link`.
    pub fn new(link: &Link<'a>, len: usize, children: &'a Children<'a>, stream: &'a Stream) -> Self {
        let words = Words { at: 0, len, width_bytes: link.program.width };
        Self { words, children, stream, validity: None }
    }

    /// Returns the array that the chain decodes to.
    pub fn array(mut self, chain: &[Link<'a>], data_type: &DataType) -> Outcome<DeviceArray> {
        let values = self.values(chain)?;
        Ok(self.with_values(values, data_type)?)
    }

    /// Returns an array of `values`, with the validity that the run collected.
    pub fn with_values(self, values: Buffer, data_type: &DataType) -> Result<DeviceArray> {
        let len = self.words.len;
        let null_count = if self.validity.is_none() { Some(0) } else { None };
        let bits = self
            .validity
            .map(|(bits, at)| take::byte_aligned_bits(self.stream, &bits, at, len))
            .transpose()?;
        let buffers = vec![bits, Some(values)];
        DeviceArray::try_new(data_type.clone(), len, 0, null_count, buffers, Vec::new(), None)
    }

    /// Writes all words. A step is applied when a word is first written. Steps are applied to the
    /// values of a dictionary or of runs before these values are repeated. Patches are changed only
    /// by the steps that follow them.
    fn values(&mut self, chain: &[Link<'a>]) -> Outcome<Buffer> {
        let dictionary =
            chain.iter().position(|link| matches!(link.program.source, Operator::Dictionary { .. }));
        let (codes, chain) = chain.split_at_checked(dictionary.unwrap_or(0)).ok_or_else(no_chain)?;
        let (steps, patch_steps) = self.steps(chain)?;
        let link = chain.first().ok_or_else(no_chain)?;
        let bytes = self.words.len.saturating_mul(self.words.width_bytes);
        let (from, steps_left) =
            self.source(codes, link, &steps).map_err(|error| link.with_context(error))?;
        if let WordSource::Words(buffer, at) = &from {
            let aligned = (buffer.address() + *at as u64).is_multiple_of(self.words.width_bytes as u64);
            if steps_left.is_empty() && patch_steps.is_empty() && aligned {
                return Ok(buffer.slice(*at, bytes)?);
            }
        }
        let mut to = self.stream.memory().alloc(self.stream, bytes)?;
        let (mut checks, mut patch_steps) = (Checks::new(), patch_steps.into_iter().peekable());
        match &from {
            WordSource::Words(buffer, at) => checks.map(buffer, *at, &mut to, self.words, steps_left)?,
            WordSource::Packed { buffer, bits, first } => {
                let packed = Packed { buffer, bits: *bits, first: *first };
                // Patches that precede or follow all steps run in the same pass.
                match patch_steps.next_if(|patch| patch.after == 0 || patch.after == steps_left.len()) {
                    None => checks.unpack(packed, &mut to, self.words, steps_left)?,
                    Some(PatchStep { link, patches, after }) => {
                        let (words, stepped) = (self.words, after == 0);
                        let cell =
                            checks.unpack_patched(packed, &mut to, words, steps_left, patches, stepped)?;
                        self.check_patches(link, std::mem::take(&mut checks), cell)?;
                    }
                }
            }
            WordSource::Counted { base, step } => {
                checks.sequence(*base, *step, &mut to, self.words, steps_left)?
            }
            WordSource::Cast { buffer, at, of } => {
                let integers = Integers { buffer, at: *at, len: self.words.len, of: *of };
                checks.widen(integers, &mut to, self.words, steps_left)?;
            }
        }
        // The remaining patches run one after the other, because two sets of patches may contain
        // the same index.
        for PatchStep { link, patches, after } in patch_steps {
            let after = steps.get(after..).unwrap_or_default();
            let cell = checks.patch(patches, &mut to, self.words, after)?;
            self.check_patches(link, std::mem::take(&mut checks), cell)?;
        }
        checks.run(self.stream)?;
        Ok(to.freeze(self.stream)?)
    }

    fn check_patches(&self, link: &Link<'_>, checks: Checks<'_>, cell: usize) -> Outcome<()> {
        match checks.run(self.stream)?.first_wrong(cell) {
            None => Ok(()),
            Some(number) => Err(link.with_context(link.node.wrong(format_args!(
                "patches: expected ascending indices within the array, but the index at position {number} is invalid"
            )))),
        }
    }

    /// The steps that are applied to a chain's words, and the patches of the chain.
    pub fn steps<'c>(&mut self, chain: &'c [Link<'a>]) -> Outcome<(Vec<Step>, Vec<PatchStep<'c, 'a>>)> {
        let (mut steps, mut patch_steps) = (Vec::new(), Vec::new());
        for link in chain {
            for operator in &link.program.then {
                self.step(link, *operator, &mut steps, &mut patch_steps)
                    .map_err(|error| link.with_context(error))?;
            }
        }
        Ok((steps, patch_steps))
    }

    fn step<'c>(
        &mut self,
        link: &'c Link<'a>,
        operator: Operator,
        steps: &mut Vec<Step>,
        patch_steps: &mut Vec<PatchStep<'c, 'a>>,
    ) -> Result<()> {
        match operator {
            Operator::Add(word) => steps.push(Step::Add(word)),
            Operator::Xor(word) => steps.push(Step::Xor(word)),
            Operator::ZigZag => steps.push(Step::ZigZag),
            Operator::ToFloat => steps.push(Step::ToFloat),
            Operator::Scale(bits) => steps.push(Step::Scale(bits)),
            Operator::Patch { indices, values, first } => {
                let patches = self.patches(link, indices, values, first)?;
                patch_steps.extend(patches.map(|patches| PatchStep { link, patches, after: steps.len() }));
            }
            Operator::Validity(child) => self.valid_where(link.node, child)?,
            _ => return Err(link.node.wrong("a source operator follows the first operator of the program")),
        }
        Ok(())
    }

    fn patches(&self, link: &Link<'a>, indices: u32, values: u32, first: u64) -> Result<Option<Patches<'a>>> {
        let node = link.node;
        let (indices, values) = ((self.children)(node, indices)?, (self.children)(node, values)?);
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
            values: words_of(values, within, self.words.width_bytes)?,
        }))
    }

    /// Adds a null at each index at which a boolean child is false.
    fn valid_where(&mut self, node: EncodedNode<'a>, child: u32) -> Result<()> {
        let booleans = (self.children)(node, child)?;
        self.merge_validity(Some((values_of(booleans)?.clone(), booleans.offset())))
    }

    pub fn merge_validity(&mut self, validity: Option<Validity>) -> Result<()> {
        let before = self.validity.take();
        self.validity = take::merge_validity(self.stream, before, validity, self.words.len)?;
        Ok(())
    }
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
