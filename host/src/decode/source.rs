//! Resolves the sources of programs.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, Taken};
use crossdock_kernels::{Checks, IntType, Packed, Step, Words};
use crossdock_memory::Buffer;
use crossdock_plugin_api::{EncodedNode, Operator, Result};

use super::rows::packed_from;
use super::run::{Link, Outcome, Run, WordSource, no_chain, values_of, words_of};

impl<'a> Run<'a> {
    /// The source of a chain that begins with `link`, and the steps that remain to be applied to
    /// its words. `codes` is the chain that decodes a dictionary's codes. It is empty if the codes
    /// are already decoded.
    pub fn source<'s>(
        &mut self,
        codes: &[Link<'a>],
        link: &Link<'a>,
        steps: &'s [Step],
    ) -> Outcome<(WordSource, &'s [Step])> {
        let Link { node, program, .. } = link;
        let width = self.words.width_bytes;
        Ok(match program.source {
            Operator::Load { buffer, at } => {
                let buffer =
                    buffer_of(*node, buffer)?.ok_or_else(|| node.wrong("the buffer has no bytes"))?;
                (WordSource::Words(buffer, at as usize), steps)
            }
            Operator::Unpack { buffer, bits, first } => match buffer_of(*node, buffer)? {
                Some(buffer) => {
                    let (buffer, first) = packed_from(buffer, bits, first)?;
                    (WordSource::Packed { buffer, bits: bits as u32, first }, steps)
                }
                // All words of width 0 bits have the value 0.
                None => (WordSource::Counted { base: 0, step: 0 }, steps),
            },
            Operator::Sequence { base, step } => (WordSource::Counted { base, step }, steps),
            Operator::Child(child) => {
                let array = (self.children)(*node, child)?;
                self.merge_validity(array.validity_bits())?;
                (WordSource::Words(values_of(array)?.clone(), array.offset() * width), steps)
            }
            Operator::Cast(child) => {
                let array = (self.children)(*node, child)?;
                self.merge_validity(array.validity_bits())?;
                let (buffer, data_type) = (values_of(array)?.clone(), array.data_type());
                let width_bytes = data_type.primitive_width().unwrap_or(0);
                let (at, of) = (
                    array.offset() * width_bytes,
                    IntType { width_bytes, signed: data_type.is_signed_integer() },
                );
                let is_same = width_bytes == width;
                (
                    if is_same { WordSource::Words(buffer, at) } else { WordSource::Cast { buffer, at, of } },
                    steps,
                )
            }
            Operator::Dictionary { codes: child, values } => {
                let values = self.apply_steps((self.children)(*node, values)?, steps)?;
                let n = values.len();
                let taken = match codes {
                    [] => take::take(self.stream, &values, (self.children)(*node, child)?)?,
                    codes => self.take_by(codes, &values)?,
                };
                (self.taken_source(*node, taken, format_args!("dictionary: expected codes below {n}"))?, &[])
            }
            Operator::Runs { ends, values, first } => {
                let (ends, values) = ((self.children)(*node, ends)?, (self.children)(*node, values)?);
                let (values, len) = (self.apply_steps(values, steps)?, self.words.len);
                let taken = take::expand_runs(self.stream, &values, ends, first, len)?;
                let expected =
                    format_args!("run-end: expected ascending ends that cover {len} values from {first} on");
                (self.taken_source(*node, taken, expected)?, &[])
            }
            _ => return Err(node.wrong("the program does not begin with a source operator").into()),
        })
    }

    /// Looks up `values` by the codes that a chain decodes to. The lookup takes one kernel launch
    /// if the codes are packed and all values are valid.
    fn take_by(&self, codes: &[Link<'a>], values: &DeviceArray) -> Outcome<Taken> {
        let (first_link, link) = (codes.first().ok_or_else(no_chain)?, codes.last().ok_or_else(no_chain)?);
        let Words { len, width_bytes, .. } = self.words;
        let mut run = Run::new(link, len, self.children, self.stream);
        if let Operator::Unpack { buffer, bits: bits @ 1.., first } = first_link.program.source
            && values.validity_bits().is_none()
        {
            let node = first_link.node;
            let buffer = buffer_of(node, buffer).map_err(|error| first_link.with_context(error))?;
            let buffer =
                buffer.ok_or_else(|| first_link.with_context(node.wrong("the buffer has no bytes")))?;
            let (steps, patch_steps) = run.steps(codes)?;
            if !patch_steps.is_empty() {
                return Err(
                    link.with_context(node.wrong("the codes have patches, which must be applied first"))
                );
            }
            let (buffer, first) = packed_from(buffer, bits, first)?;
            let packed = Packed { buffer: &buffer, bits: bits as u32, first };
            let valid = run.validity.as_ref().map(|(bits, first)| (bits, *first));
            let mut to = self.stream.memory().alloc(self.stream, len.saturating_mul(width_bytes))?;
            let mut checks = Checks::new();
            let from = words_of(values, 0..values.len(), width_bytes)?;
            let cell =
                checks.take_packed(packed, link.program.width, &steps, valid, from, &mut to, self.words)?;
            if let Some(at) = checks.run(self.stream)?.first_wrong(cell) {
                return Ok(Err(at));
            }
            return Ok(Ok(run.with_values(to.freeze(self.stream)?, values.data_type())?));
        }
        let data_type = if link.program.width == 1 { DataType::UInt8 } else { DataType::UInt16 };
        let codes = run.array(codes, &data_type).map_err(|failure| link.with_context(failure))?;
        Ok(take::take(self.stream, values, &codes)?)
    }

    /// Returns the array's words after the steps are applied to them.
    fn apply_steps(&self, array: &DeviceArray, steps: &[Step]) -> Result<DeviceArray> {
        if steps.is_empty() || array.is_empty() {
            return Ok(array.clone());
        }
        let words = Words { at: 0, len: array.len(), width_bytes: self.words.width_bytes };
        let mut to = self.stream.memory().alloc(self.stream, words.len * words.width_bytes)?;
        let mut checks = Checks::new();
        checks.map(values_of(array)?, array.offset() * words.width_bytes, &mut to, words, steps)?;
        checks.run(self.stream)?;
        let validity = array.validity_bits();
        let bits = validity
            .map(|(bits, at)| take::byte_aligned_bits(self.stream, &bits, at, words.len))
            .transpose()?;
        let buffers = vec![bits, Some(to.freeze(self.stream)?)];
        let data_type = array.data_type().clone();
        DeviceArray::try_new(data_type, words.len, 0, array.null_count(), buffers, Vec::new(), None)
    }

    fn taken_source(
        &mut self,
        node: EncodedNode<'_>,
        taken: Taken,
        expected: std::fmt::Arguments<'_>,
    ) -> Result<WordSource> {
        let array = taken.map_err(|at| {
            node.wrong(format_args!("{expected}, but the entry at position {at} is invalid"))
        })?;
        self.merge_validity(array.validity_bits())?;
        Ok(WordSource::Words(values_of(&array)?.clone(), 0))
    }
}

fn buffer_of(node: EncodedNode<'_>, buffer: u32) -> Result<Option<Buffer>> {
    // SAFETY: one thread decodes the array, so no other call takes the node's buffers. The array's
    // producer guarantees that each buffer has its declared address and length.
    unsafe { node.take_buffer(buffer as usize).map(|taken| Buffer::from_encoded(taken)) }
}
