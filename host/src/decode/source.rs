//! Resolves the sources of programs.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{self, Taken};
use crossdock_kernels::{Checks, IntType, Step, Words};
use crossdock_memory::{Buffer, EncodedBuffers};
use crossdock_plugin_api::{EncodedNode, Operator, Result};

use super::errors::invalid_entry;
use super::pass::{Chain, Failure, Inputs, Link, Outcome, Run, WordSource, array_of, no_chain, values_of};
use super::rows::packed_from;
use super::run::run_all;

impl<'a> Run<'a> {
    /// The source of a chain that begins with `link`, and whether `steps` are already applied to
    /// its words. `codes` is the chain that decodes a dictionary's codes. It is empty if the codes
    /// are already decoded. `is_temporary` states whether the words are used only during the
    /// decoding.
    pub fn source(
        &mut self,
        codes: &'a [Link<'a>],
        link: &Link<'a>,
        steps: &[Step],
        is_temporary: bool,
    ) -> Outcome<(WordSource<'a>, bool)> {
        let Link { node, program, .. } = link;
        let width = self.words.width_bytes;
        let source = match program.source {
            Operator::Load { buffer, at } => {
                // The result may contain the buffer.
                let own = EncodedBuffers::new();
                let buffers = if is_temporary { self.inputs.buffers } else { &own };
                let buffer = buffer_of(*node, buffer, buffers)?;
                let buffer = buffer.ok_or_else(|| node.wrong("the buffer has no bytes"))?;
                WordSource::Words(buffer, at as usize)
            }
            Operator::Unpack { buffer, bits, first } => {
                match buffer_of(*node, buffer, self.inputs.buffers)? {
                    Some(buffer) => {
                        let (buffer, first) = packed_from(buffer, bits, first)?;
                        WordSource::Packed { buffer, bits: bits as u32, first }
                    }
                    // All words of width 0 bits have the value 0.
                    None => WordSource::Counted { base: 0, step: 0 },
                }
            }
            Operator::Sequence { base, step } => WordSource::Counted { base, step },
            Operator::Child(child) => {
                let array = (self.inputs.children)(*node, child)?;
                self.merge_validity(array.validity_bits())?;
                WordSource::Words(values_of(array)?.clone(), array.offset() * width)
            }
            Operator::Cast(child) => {
                let array = (self.inputs.children)(*node, child)?;
                self.merge_validity(array.validity_bits())?;
                let (buffer, data_type) = (values_of(array)?.clone(), array.data_type());
                let width_bytes = data_type.primitive_width().unwrap_or(0);
                let (at, of) = (
                    array.offset() * width_bytes,
                    IntType { width_bytes, signed: data_type.is_signed_integer() },
                );
                let is_same = width_bytes == width;
                if is_same { WordSource::Words(buffer, at) } else { WordSource::Cast { buffer, at, of } }
            }
            Operator::Term { child, factor } => {
                let mut terms = vec![((self.inputs.children)(*node, child)?, factor)];
                for operator in &program.then {
                    if let Operator::Term { child, factor } = *operator {
                        terms.push(((self.inputs.children)(*node, child)?, factor));
                    }
                }
                self.merge_validity(terms.first().and_then(|(array, _)| array.validity_bits()))?;
                WordSource::Sum(terms)
            }
            Operator::Join { codes, rights, right_bits, n_lefts, lefts } => {
                let codes = (self.inputs.children)(*node, codes.into())?;
                self.merge_validity(codes.validity_bits())?;
                let lefts = lefts.get(..n_lefts.into()).unwrap_or_default().to_vec();
                let (rights, right_bits) = ((self.inputs.children)(*node, rights.into())?, right_bits.into());
                WordSource::Join { codes, rights, right_bits, lefts }
            }
            Operator::Dictionary { codes: child, values } => {
                let values = self.apply_steps((self.inputs.children)(*node, values)?, steps)?;
                let n = values.len();
                let taken = match codes {
                    [] => take::take(self.stream, &values, (self.inputs.children)(*node, child)?)?,
                    codes => match self.packed_codes(codes, &values)? {
                        Ok(source) => return Ok((source, true)),
                        Err(codes) => take::take(self.stream, &values, &codes)?,
                    },
                };
                let expected = format_args!("dictionary: expected codes below {n}");
                return Ok((self.taken_source(*node, taken, expected)?, true));
            }
            Operator::Runs { ends, values, first } => {
                let (ends, values) =
                    ((self.inputs.children)(*node, ends)?, (self.inputs.children)(*node, values)?);
                let (values, len) = (self.apply_steps(values, steps)?, self.words.len);
                if values.validity_bits().is_none() && take::numbers(ends).is_some() {
                    return Ok((WordSource::Runs { ends, values, first }, true));
                }
                let taken = take::expand_runs(self.stream, &values, ends, first, len)?;
                let expected =
                    format_args!("run-end: expected ascending ends that cover {len} values from {first} on");
                return Ok((self.taken_source(*node, taken, expected)?, true));
            }
            _ => return Err(node.wrong("the program does not begin with a source operator").into()),
        };
        Ok((source, false))
    }

    /// The codes that a chain decodes to, as a source that looks up `values`. Returns the decoded
    /// codes instead unless the codes are packed and all values are valid.
    fn packed_codes(
        &mut self,
        codes: &'a [Link<'a>],
        values: &DeviceArray,
    ) -> Outcome<std::result::Result<WordSource<'a>, DeviceArray>> {
        let (first_link, link) = (codes.first().ok_or_else(no_chain)?, codes.last().ok_or_else(no_chain)?);
        let mut run = Run::new(link, self.words.len, self.inputs, self.stream);
        if let Operator::Unpack { buffer, bits: bits @ 1.., first } = first_link.program.source
            && values.validity_bits().is_none()
        {
            let node = first_link.node;
            let buffer = buffer_of(node, buffer, self.inputs.buffers)
                .map_err(|error| first_link.with_context(error))?;
            let buffer =
                buffer.ok_or_else(|| first_link.with_context(node.wrong("the buffer has no bytes")))?;
            let (steps, patch_steps) = run.steps(codes)?;
            if !patch_steps.is_empty() {
                return Err(
                    link.with_context(node.wrong("the codes have patches, which must be applied first"))
                );
            }
            let (buffer, first) = packed_from(buffer, bits, first)?;
            self.merge_validity(run.validity.clone())?;
            let (width_bytes, values, validity) = (link.program.width, values.clone(), run.validity);
            let bits = bits as u32;
            return Ok(Ok(WordSource::Codes { buffer, bits, first, width_bytes, steps, validity, values }));
        }
        let data_type = if link.program.width == 1 { DataType::UInt8 } else { DataType::UInt16 };
        let schema = Arc::new(Schema::new(vec![Field::new("", data_type, true)]));
        let chains = [Chain { links: codes.to_vec(), schema: &schema, is_temporary: true }];
        let children = |node: EncodedNode<'_>, child| (self.inputs.children)(node, child);
        let inputs = Inputs { children: &children, ..self.inputs };
        let decoded = run_all(&chains, inputs, self.stream).map_err(Failure::InContext)?;
        let column = decoded.into_iter().next().and_then(|batch| batch.into_columns().into_iter().next());
        Ok(Err(column.ok_or_else(no_chain)?))
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
        let values = to.freeze(self.stream)?;
        array_of(values, words.len, array.validity_bits(), array.data_type(), self.stream)
    }

    fn taken_source(
        &mut self,
        node: EncodedNode<'_>,
        taken: Taken,
        expected: std::fmt::Arguments<'_>,
    ) -> Result<WordSource<'a>> {
        let array = taken.map_err(|at| invalid_entry(node, expected, at))?;
        self.merge_validity(array.validity_bits())?;
        Ok(WordSource::Words(values_of(&array)?.clone(), 0))
    }
}

fn buffer_of(node: EncodedNode<'_>, buffer: u32, buffers: &EncodedBuffers) -> Result<Option<Buffer>> {
    // SAFETY: one thread decodes the array, so no other call takes the node's buffers. The array's
    // producer guarantees that each buffer has its declared address and length.
    unsafe { node.take_buffer(buffer as usize).map(|taken| buffers.add(taken)) }
}
