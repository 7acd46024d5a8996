//! Where the words of a program come from.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, Taken};
use crossdock_kernels::{Checks, IntType, Packed, Step, Words};
use crossdock_memory::Buffer;
use crossdock_plugin_api::{EncodedNode, Operator, Result};

use super::run::{From, Link, Outcome, Run, no_chain, values_of, words_of};

impl<'a> Run<'a> {
    /// Where the words of a chain that begins with `link` come from, and the steps that they have not been through. `codes` is
    /// the chain that a dictionary's codes come from, if they are not decoded yet.
    pub fn source<'s>(
        &mut self,
        codes: &[Link<'a>],
        link: &Link<'a>,
        steps: &'s [Step],
    ) -> Outcome<(From, &'s [Step])> {
        let Link { node, program, .. } = link;
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
            Operator::Cast(child) => {
                let array = (self.children)(*node, child)?;
                self.also(array.may_be_null())?;
                let (buffer, data_type) = (values_of(array)?.clone(), array.data_type());
                let width_bytes = data_type.primitive_width().unwrap_or(0);
                let (at, of) = (
                    array.offset() * width_bytes,
                    IntType { width_bytes, signed: data_type.is_signed_integer() },
                );
                let is_same = width_bytes == width;
                (if is_same { From::Words(buffer, at) } else { From::Cast { buffer, at, of } }, steps)
            }
            Operator::Dictionary { codes: child, values } => {
                let values = self.stepped((self.children)(*node, values)?, steps)?;
                let n = values.len();
                let taken = match codes {
                    [] => take::take(self.stream, &values, (self.children)(*node, child)?)?,
                    codes => self.take_by(codes, &values)?,
                };
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
            _ => return Err(node.wrong("its program has no source").into()),
        })
    }

    /// The values that the codes number which a chain makes: unpacked and looked up in one launch, where they are packed, and
    /// every value is valid.
    fn take_by(&self, codes: &[Link<'a>], values: &DeviceArray) -> Outcome<Taken> {
        let (first_link, link) = (codes.first().ok_or_else(no_chain)?, codes.last().ok_or_else(no_chain)?);
        let Words { len, width_bytes, .. } = self.words;
        let mut run = Run::new(link, len, self.children, self.stream);
        if let Operator::Unpack { buffer, bits: bits @ 1.., first } = first_link.program.source
            && values.may_be_null().is_none()
        {
            let node = first_link.node;
            let buffer = buffer_of(node, buffer).map_err(|error| first_link.named(error))?;
            let buffer = buffer.ok_or_else(|| first_link.named(node.wrong("its buffer has no bytes")))?;
            let (steps, puts) = run.steps(codes)?;
            if !puts.is_empty() {
                return Err(link.named(node.wrong("its codes have patches, which were to be put before")));
            }
            let packed = Packed { buffer: &buffer, bits: bits as u32, first: first as usize };
            let valid = run.validity.as_ref().map(|(bits, first)| (bits, *first));
            let mut to = self.stream.memory().alloc(self.stream, len.saturating_mul(width_bytes))?;
            let mut checks = Checks::new();
            let from = words_of(values, width_bytes)?;
            let cell =
                checks.take_packed(packed, link.program.width, &steps, valid, from, &mut to, self.words)?;
            if let Some(at) = checks.run(self.stream)?.first_wrong(cell) {
                return Ok(Err(at));
            }
            return Ok(Ok(run.with_values(to.freeze(self.stream)?, values.data_type())?));
        }
        let data_type = if link.program.width == 1 { DataType::UInt8 } else { DataType::UInt16 };
        let codes = run.array(codes, &data_type).map_err(|failure| link.named(failure))?;
        Ok(take::take(self.stream, values, &codes)?)
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
}

fn buffer_of(node: EncodedNode<'_>, buffer: u32) -> Result<Option<Buffer>> {
    // SAFETY: this is who decodes the node, on one thread; who made the array vouches for its buffers.
    unsafe { node.take_buffer(buffer as usize).map(|taken| Buffer::of_encoded(taken)) }
}
