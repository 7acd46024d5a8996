//! Programs, run by kernels: those of a node and of the nodes below it that are its source, in one pass.

use arrow_schema::SchemaRef;
use crossdock_arrays::take::{self, Taken, Validity};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_kernels::{Checks, Numbers, Packed, Patches, Source, Step, Words};
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{EncodedNode, Error, Operator, Result};

use super::program::Program;

/// A node and its program.
pub(super) struct Link<'a> {
    pub node: EncodedNode<'a>,
    pub program: &'a Program,
}

/// What was decoded of the children that a node's program needs, on the stream's device.
pub(super) type Children<'a> = dyn Fn(EncodedNode<'_>, u32) -> Result<&'a DeviceArray> + 'a;

/// Makes the array of the last link, each of whose nodes is the source of the next.
pub(super) fn run<'a>(
    chain: &[Link<'a>],
    schema: &SchemaRef,
    children: &'a Children<'a>,
    stream: &'a Stream,
) -> Result<DeviceBatch> {
    let [first, ..] = chain else { return Err(Error::internal("a chain of no programs was to be run")) };
    let n = first.node.length();
    let len = usize::try_from(n).map_err(|_| first.node.wrong("its values are more than there can be"))?;
    let data_type = schema.fields().first().map(|field| field.data_type());
    let data_type = data_type.ok_or_else(|| Error::internal("a node without a type"))?;
    let column = if len == 0 {
        DeviceArray::empty(data_type)?
    } else {
        let mut run = Run {
            words: Words { at: 0, len, width_bytes: first.program.width },
            children,
            stream,
            validity: None,
        };
        let values = run.values(chain)?;
        let null_count = if run.validity.is_none() { Some(0) } else { None };
        let bits = run.validity.map(|(bits, at)| take::from_first_bit(stream, &bits, at, len)).transpose()?;
        let buffers = vec![bits, Some(values)];
        DeviceArray::try_new(data_type.clone(), len, 0, null_count, buffers, Vec::new(), None)?
    };
    DeviceBatch::try_new(schema.clone(), len, vec![column])
}

struct Run<'a> {
    words: Words,
    children: &'a Children<'a>,
    stream: &'a Stream,
    validity: Option<Validity>,
}

/// Where words come from.
enum From {
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
}

/// Values that are put in place of others.
struct Put<'a> {
    node: EncodedNode<'a>,
    patches: Patches<'a>,
    /// How many of the steps come before it.
    after: usize,
}

impl<'a> Run<'a> {
    /// All words. Every step is taken by whatever writes a word first: values of a dictionary and of runs go through them before
    /// they are written many times, and patches through those that come after them.
    fn values(&mut self, chain: &[Link<'a>]) -> Result<Buffer> {
        let (mut steps, mut puts) = (Vec::new(), Vec::new());
        for Link { node, program } in chain {
            for operator in &program.then {
                match *operator {
                    Operator::Add(word) => steps.push(Step::Add(word)),
                    Operator::Xor(word) => steps.push(Step::Xor(word)),
                    Operator::ZigZag => steps.push(Step::ZigZag),
                    Operator::ToFloat => steps.push(Step::ToFloat),
                    Operator::Scale(bits) => steps.push(Step::Scale(bits)),
                    Operator::Patch { indices, values, first } => {
                        let patches = self.patches(*node, indices, values, first)?;
                        puts.extend(patches.map(|patches| Put { node: *node, patches, after: steps.len() }));
                    }
                    Operator::Validity(child) => self.valid_where(*node, child)?,
                    _ => return Err(node.wrong("a source stands among its program's steps")),
                }
            }
        }
        let link = chain.first().ok_or_else(|| Error::internal("a chain of no programs was to be run"))?;
        let bytes = self.words.len.saturating_mul(self.words.width_bytes);
        let (from, steps_left) = self.source(link, &steps)?;
        if let From::Words(buffer, at) = &from {
            let aligned = (buffer.address() + *at as u64).is_multiple_of(self.words.width_bytes as u64);
            if steps_left.is_empty() && puts.is_empty() && aligned {
                return buffer.slice(*at, bytes);
            }
        }
        let mut to = self.stream.memory().alloc(self.stream, bytes)?;
        let mut checks = Checks::new();
        match &from {
            From::Words(buffer, at) => checks.map(buffer, *at, &mut to, self.words, steps_left)?,
            From::Packed { buffer, bits, first } => {
                let packed = Packed { buffer, bits: *bits, first: *first };
                checks.unpack(packed, &mut to, self.words, steps_left)?;
            }
            From::Counted { base, step } => checks.sequence(*base, *step, &mut to, self.words, steps_left)?,
        }
        // The first patches are put by the same launch; others may have the same places.
        for Put { node, patches, after } in puts {
            let after = steps.get(after..).unwrap_or_default();
            let cell = checks.patch(patches, &mut to, self.words, after)?;
            if let Some(number) = std::mem::take(&mut checks).run(self.stream)?.first_wrong(cell) {
                return Err(node.wrong(format_args!(
                    "patches: expected indices that rise, each within the array, got another as number {number}"
                )));
            }
        }
        checks.run(self.stream)?;
        to.freeze(self.stream)
    }

    /// Where the words come from, and the steps that they have not been through.
    fn source<'s>(&mut self, link: &Link<'a>, steps: &'s [Step]) -> Result<(From, &'s [Step])> {
        let Link { node, program } = link;
        let width = self.words.width_bytes;
        Ok(match program.source {
            Operator::Load { buffer, at } => {
                let buffer =
                    buffer_of(*node, buffer)?.ok_or_else(|| node.wrong("its buffer has no bytes"))?;
                (From::Words(buffer, at as usize), steps)
            }
            Operator::Unpack { buffer, bits, first } => match buffer_of(*node, buffer)? {
                Some(buffer) => (From::Packed { buffer, bits: bits as u32, first: first as usize }, steps),
                // No bits at all: every word is 0 before the steps.
                None => (From::Counted { base: 0, step: 0 }, steps),
            },
            Operator::Sequence { base, step } => (From::Counted { base, step }, steps),
            Operator::Child(child) => {
                let array = (self.children)(*node, child)?;
                self.also(array.may_be_null())?;
                (From::Words(values_of(array)?.clone(), array.offset() * width), steps)
            }
            Operator::Dictionary { codes, values } => {
                let (codes, values) = ((self.children)(*node, codes)?, (self.children)(*node, values)?);
                let values = self.stepped(values, steps)?;
                let n = values.len();
                let taken = take::take(self.stream, &values, codes)?;
                (self.taken(*node, taken, format_args!("dictionary: expected codes below {n}"))?, &[])
            }
            Operator::Runs { ends, values, first } => {
                let (ends, values) = ((self.children)(*node, ends)?, (self.children)(*node, values)?);
                let (values, len) = (self.stepped(values, steps)?, self.words.len);
                let taken = take::expand_runs(self.stream, &values, ends, first, len)?;
                let expected =
                    format_args!("run-end: expected ends that rise, the last of {len} after {first} or more");
                (self.taken(*node, taken, expected)?, &[])
            }
            _ => return Err(node.wrong("its program has no source")),
        })
    }

    /// An array of words, each through `steps`.
    fn stepped(&self, array: &DeviceArray, steps: &[Step]) -> Result<DeviceArray> {
        if steps.is_empty() || array.is_empty() {
            return Ok(array.clone());
        }
        let words = Words { at: 0, len: array.len(), width_bytes: self.words.width_bytes };
        let mut to = self.stream.memory().alloc(self.stream, words.len * words.width_bytes)?;
        let mut checks = Checks::new();
        checks.map(values_of(array)?, array.offset() * words.width_bytes, &mut to, words, steps)?;
        checks.run(self.stream)?;
        let validity = array.may_be_null();
        let bits =
            validity.map(|(bits, at)| take::from_first_bit(self.stream, &bits, at, words.len)).transpose()?;
        let buffers = vec![bits, Some(to.freeze(self.stream)?)];
        let data_type = array.data_type().clone();
        DeviceArray::try_new(data_type, words.len, 0, array.null_count(), buffers, Vec::new(), None)
    }

    fn taken(
        &mut self,
        node: EncodedNode<'_>,
        taken: Taken,
        expected: std::fmt::Arguments<'_>,
    ) -> Result<From> {
        let array = taken.map_err(|at| node.wrong(format_args!("{expected}, got another as number {at}")))?;
        self.also(array.may_be_null())?;
        Ok(From::Words(values_of(&array)?.clone(), 0))
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
        let (width, index_width) =
            (self.words.width_bytes, indices.data_type().primitive_width().unwrap_or(0));
        Ok(Some(Patches {
            indices: Numbers {
                buffer: values_of(indices)?,
                at: indices.offset() * index_width,
                len: indices.len(),
                width_bytes: index_width,
            },
            first,
            values: Source {
                buffer: Some(values_of(values)?),
                at: values.offset() * width,
                len: values.len(),
            },
        }))
    }

    /// Null also where a child of truth values is false.
    fn valid_where(&mut self, node: EncodedNode<'a>, child: u32) -> Result<()> {
        let truths = (self.children)(node, child)?;
        self.also(Some((values_of(truths)?.clone(), truths.offset())))
    }

    fn also(&mut self, validity: Option<Validity>) -> Result<()> {
        let before = self.validity.take();
        self.validity = take::both(self.stream, before, validity, self.words.len)?;
        Ok(())
    }
}

/// The buffer of an array that has values.
fn values_of(array: &DeviceArray) -> Result<&Buffer> {
    let buffer = array.buffers().get(1).and_then(Option::as_ref);
    buffer.ok_or_else(|| Error::internal("an array with values has no buffer of them"))
}

fn buffer_of(node: EncodedNode<'_>, buffer: u32) -> Result<Option<Buffer>> {
    // SAFETY: this is who decodes the node, on one thread; who made the array vouches for its buffers.
    unsafe { node.take_buffer(buffer as usize).map(|taken| Buffer::of_encoded(taken)) }
}
