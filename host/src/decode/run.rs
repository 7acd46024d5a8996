//! Programs, run by kernels: those of a node and of the nodes below it that are its source, in one pass.

use arrow_schema::{DataType, SchemaRef};
use crossdock_arrays::take::{self, Validity};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_kernels::{Checks, IntType, Integers, Numbers, Packed, Patches, Source, Step, Words};
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{EncodedNode, Error, Operator, Result};

use super::program::Program;
use crate::plugin::Plugin;

/// An error about a node, with the plugin that decodes it, and the way to it unless it says that already.
pub(super) fn named(error: Error, plugin: &Plugin, node: EncodedNode<'_>) -> Error {
    plugin.heed(&error);
    if error.message().starts_with(node.encoding()) || error.message().contains(&node.path()) {
        return error.context(plugin);
    }
    error.context(format_args!("{plugin}: {}", node.path()))
}

/// A node, its program, and whose that is.
pub(super) struct Link<'a> {
    pub node: EncodedNode<'a>,
    pub program: &'a Program,
    pub plugin: &'a Plugin,
}

impl Link<'_> {
    /// What went wrong with it, which is no fault of the nodes that are run with it.
    pub fn named(&self, failure: impl Into<Failure>) -> Failure {
        match failure.into() {
            Failure::Unnamed(error) => Failure::Named(named(error, self.plugin, self.node)),
            told => told,
        }
    }
}

/// What went wrong in a chain.
pub(super) enum Failure {
    /// It says with which node, and whose that is.
    Named(Error),
    Unnamed(Error),
}

impl std::convert::From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Unnamed(error)
    }
}

pub(super) type Outcome<T> = std::result::Result<T, Failure>;

/// What was decoded of the children that a node's program needs, on the stream's device.
pub(super) type Children<'a> = dyn Fn(EncodedNode<'_>, u32) -> Result<&'a DeviceArray> + 'a;

/// Where words come from.
pub(super) enum From {
    /// Those from a byte of a buffer on.
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
    /// Integers of another width, from a byte of a buffer on.
    Cast {
        buffer: Buffer,
        at: usize,
        of: IntType,
    },
}

/// Makes the array of the last link, each of whose nodes is the source of the next, or has its codes.
pub(super) fn run<'a>(
    chain: &[Link<'a>],
    schema: &SchemaRef,
    children: &'a Children<'a>,
    stream: &'a Stream,
) -> Result<DeviceBatch> {
    let link = chain.last().ok_or_else(no_chain)?;
    let run = || -> Outcome<DeviceBatch> {
        let too_long = |_| link.node.wrong("its values are more than there can be");
        let len = usize::try_from(link.node.length()).map_err(too_long)?;
        let data_type = schema.fields().first().map(|field| field.data_type());
        let data_type = data_type.ok_or_else(|| Error::internal("a node without a type"))?;
        let column = if len == 0 {
            DeviceArray::empty(data_type)?
        } else {
            Run::new(link, len, children, stream).array(chain, data_type)?
        };
        Ok(DeviceBatch::try_new(schema.clone(), len, vec![column])?)
    };
    run().map_err(|failure| match link.named(failure) {
        Failure::Named(error) | Failure::Unnamed(error) => error,
    })
}

pub(super) fn no_chain() -> Error {
    Error::internal("a chain of no programs was to be run")
}

pub(super) struct Run<'a> {
    pub words: Words,
    pub children: &'a Children<'a>,
    pub stream: &'a Stream,
    pub validity: Option<Validity>,
}

/// Values that are put in place of others.
pub(super) struct Put<'c, 'a> {
    link: &'c Link<'a>,
    patches: Patches<'a>,
    /// How many of the steps come before it.
    after: usize,
}

impl<'a> Run<'a> {
    /// For words such as a link's.
    pub fn new(link: &Link<'a>, len: usize, children: &'a Children<'a>, stream: &'a Stream) -> Self {
        let words = Words { at: 0, len, width_bytes: link.program.width };
        Self { words, children, stream, validity: None }
    }

    /// The array that a chain makes.
    pub fn array(mut self, chain: &[Link<'a>], data_type: &DataType) -> Outcome<DeviceArray> {
        let values = self.values(chain)?;
        Ok(self.with_values(values, data_type)?)
    }

    /// The array of what was made, with the nulls that were found on the way.
    pub fn with_values(self, values: Buffer, data_type: &DataType) -> Result<DeviceArray> {
        let len = self.words.len;
        let null_count = if self.validity.is_none() { Some(0) } else { None };
        let bits =
            self.validity.map(|(bits, at)| take::from_first_bit(self.stream, &bits, at, len)).transpose()?;
        let buffers = vec![bits, Some(values)];
        DeviceArray::try_new(data_type.clone(), len, 0, null_count, buffers, Vec::new(), None)
    }

    /// All words. Every step is taken by whatever writes a word first: values of a dictionary and of runs go through them before
    /// they are written many times, and patches through those that come after them.
    fn values(&mut self, chain: &[Link<'a>]) -> Outcome<Buffer> {
        let names = chain.iter().position(|link| matches!(link.program.source, Operator::Dictionary { .. }));
        let (codes, chain) = chain.split_at_checked(names.unwrap_or(0)).ok_or_else(no_chain)?;
        let (steps, puts) = self.steps(chain)?;
        let link = chain.first().ok_or_else(no_chain)?;
        let bytes = self.words.len.saturating_mul(self.words.width_bytes);
        let (from, steps_left) = self.source(codes, link, &steps).map_err(|error| link.named(error))?;
        if let From::Words(buffer, at) = &from {
            let aligned = (buffer.address() + *at as u64).is_multiple_of(self.words.width_bytes as u64);
            if steps_left.is_empty() && puts.is_empty() && aligned {
                return Ok(buffer.slice(*at, bytes)?);
            }
        }
        let mut to = self.stream.memory().alloc(self.stream, bytes)?;
        let (mut checks, mut puts) = (Checks::new(), puts.into_iter().peekable());
        match &from {
            From::Words(buffer, at) => checks.map(buffer, *at, &mut to, self.words, steps_left)?,
            From::Packed { buffer, bits, first } => {
                let packed = Packed { buffer, bits: *bits, first: *first };
                // In the same pass, if they go through all steps or none.
                match puts.next_if(|put| put.after == 0 || put.after == steps_left.len()) {
                    None => checks.unpack(packed, &mut to, self.words, steps_left)?,
                    Some(Put { link, patches, after }) => {
                        let (words, stepped) = (self.words, after == 0);
                        let cell =
                            checks.unpack_patched(packed, &mut to, words, steps_left, patches, stepped)?;
                        self.all_put(link, std::mem::take(&mut checks), cell)?;
                    }
                }
            }
            From::Counted { base, step } => checks.sequence(*base, *step, &mut to, self.words, steps_left)?,
            From::Cast { buffer, at, of } => {
                let integers = Integers { buffer, at: *at, len: self.words.len, of: *of };
                checks.widen(integers, &mut to, self.words, steps_left)?;
            }
        }
        // What is left: the first with what is not launched yet, each other after it, since they may have the same places.
        for Put { link, patches, after } in puts {
            let after = steps.get(after..).unwrap_or_default();
            let cell = checks.patch(patches, &mut to, self.words, after)?;
            self.all_put(link, std::mem::take(&mut checks), cell)?;
        }
        checks.run(self.stream)?;
        Ok(to.freeze(self.stream)?)
    }

    fn all_put(&self, link: &Link<'_>, checks: Checks<'_>, cell: usize) -> Outcome<()> {
        match checks.run(self.stream)?.first_wrong(cell) {
            None => Ok(()),
            Some(number) => Err(link.named(link.node.wrong(format_args!(
                "patches: expected indices that rise, each within the array, got another as number {number}"
            )))),
        }
    }

    /// What is done to the words of a chain's source, and which are put in the places of others.
    pub fn steps<'c>(&mut self, chain: &'c [Link<'a>]) -> Outcome<(Vec<Step>, Vec<Put<'c, 'a>>)> {
        let (mut steps, mut puts) = (Vec::new(), Vec::new());
        for link in chain {
            for operator in &link.program.then {
                self.step(link, *operator, &mut steps, &mut puts).map_err(|error| link.named(error))?;
            }
        }
        Ok((steps, puts))
    }

    fn step<'c>(
        &mut self,
        link: &'c Link<'a>,
        operator: Operator,
        steps: &mut Vec<Step>,
        puts: &mut Vec<Put<'c, 'a>>,
    ) -> Result<()> {
        match operator {
            Operator::Add(word) => steps.push(Step::Add(word)),
            Operator::Xor(word) => steps.push(Step::Xor(word)),
            Operator::ZigZag => steps.push(Step::ZigZag),
            Operator::ToFloat => steps.push(Step::ToFloat),
            Operator::Scale(bits) => steps.push(Step::Scale(bits)),
            Operator::Patch { indices, values, first } => {
                let patches = self.patches(link.node, indices, values, first)?;
                puts.extend(patches.map(|patches| Put { link, patches, after: steps.len() }));
            }
            Operator::Validity(child) => self.valid_where(link.node, child)?,
            _ => return Err(link.node.wrong("a source stands among its program's steps")),
        }
        Ok(())
    }

    fn patches(
        &self,
        node: EncodedNode<'a>,
        indices: u32,
        values: u32,
        first: u64,
    ) -> Result<Option<Patches<'a>>> {
        let (indices, values) = ((self.children)(node, indices)?, (self.children)(node, values)?);
        if indices.is_empty() {
            return Ok(None);
        }
        // Their type may have nulls if the node's has, but a patch is there because of its value.
        if values.count_nulls(self.stream)? > 0 {
            return Err(node.wrong("its patches have nulls, expected values"));
        }
        let index_width = indices.data_type().primitive_width().unwrap_or(0);
        Ok(Some(Patches {
            indices: Numbers {
                buffer: values_of(indices)?,
                at: indices.offset() * index_width,
                len: indices.len(),
                width_bytes: index_width,
            },
            first,
            values: words_of(values, self.words.width_bytes)?,
        }))
    }

    /// Null also where a child of truth values is false.
    fn valid_where(&mut self, node: EncodedNode<'a>, child: u32) -> Result<()> {
        let truths = (self.children)(node, child)?;
        self.also(Some((values_of(truths)?.clone(), truths.offset())))
    }

    pub fn also(&mut self, validity: Option<Validity>) -> Result<()> {
        let before = self.validity.take();
        self.validity = take::both(self.stream, before, validity, self.words.len)?;
        Ok(())
    }
}

/// The buffer of an array that has values.
pub(super) fn values_of(array: &DeviceArray) -> Result<&Buffer> {
    let buffer = array.buffers().get(1).and_then(Option::as_ref);
    buffer.ok_or_else(|| Error::internal("an array with values has no buffer of them"))
}

/// An array's words, of so many bytes each.
pub(super) fn words_of(array: &DeviceArray, width_bytes: usize) -> Result<Source<'_>> {
    let buffer = if array.is_empty() { None } else { Some(values_of(array)?) };
    Ok(Source { buffer, at: array.offset() * width_bytes, len: array.len() })
}
