//! Writes tables as tensors.
//!
//! The elements of a tensor are contiguous in a file, after its shape. So the writer keeps the
//! batches in host memory until the end.

use std::collections::HashSet;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::layout::ChildRule;
use crossdock_arrays::{DeviceArray, call_stream, count_nulls, import_batch};
use crossdock_memory::{Buffer, Device, Error, Memory, Result, Stream};
use crossdock_plugin_api::{BatchWriter, Call, Capsule, ColumnPlan, Host, Owned, Sink, Verdict, abi};

use crate::element::Element;
use crate::field::{Form, lost_metadata, to_form};
use crate::npy;
use crate::numpy::EXTENSION;
use crate::output::Output;
use crate::safetensors::{self, Outgoing};
use crate::shape::Shape;
use crate::zip::{ArchiveWriter, Compression};

/// The number of bytes that are converted at once.
const PIECE_BYTES: usize = 64 << 10;

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    SafeTensors,
    Npy,
    Npz(Compression),
}

impl Target {
    /// The form in which a column is written.
    fn form(self, field: &arrow_schema::Field) -> Result<Form> {
        let form = to_form(field)?;
        if self != Self::SafeTensors {
            return Ok(form);
        }
        safetensors::check_name(field.name())?;
        match form.element.safetensors_name() {
            Some(_) => Ok(form),
            None => Err(Error::unsupported(format!(
                "column '{}' of type {}: safetensors has numbers and booleans only; leave it out, or write npz",
                field.name(),
                field.data_type()
            ))),
        }
    }

    /// The forms of all columns.
    ///
    /// # Errors
    /// If the format cannot store the table.
    fn forms(self, schema: &Schema) -> Result<Vec<Form>> {
        let fields = schema.fields();
        if self == Self::Npy && fields.len() != 1 {
            return Err(Error::unsupported(format!(
                "the table has {} columns, but an npy file has one array: choose one column, or write npz",
                fields.len()
            )));
        }
        if fields.is_empty() {
            return Err(Error::unsupported(
                "the table has no columns, so no tensor would contain its row count",
            ));
        }
        let mut names = HashSet::new();
        if let Some(twice) = fields.iter().find(|field| !names.insert(field.name())) {
            return Err(Error::unsupported(format!(
                "two columns have the name '{}', expected different names",
                twice.name()
            )));
        }
        fields.iter().map(|field| self.form(field)).collect()
    }
}

/// Returns a verdict for each column. The data is on device `from`.
pub fn plan(target: Target, schema: &Schema, from: Device) -> Vec<ColumnPlan> {
    let table = if schema.fields().is_empty() { None } else { target.forms(schema).err() };
    let verdict = |field: &arrow_schema::FieldRef| match (target.form(field), &table) {
        (Err(error), _) => (Verdict::Unsupported, error.message().to_owned()),
        (Ok(_), Some(error)) if target == Target::Npy => (Verdict::Unsupported, error.message().to_owned()),
        (Ok(_), _) if target == Target::Npz(Compression::Deflate) => {
            (Verdict::Converted, "compressed with deflate".to_owned())
        }
        (Ok(form), _) if form.is_bits => (Verdict::Converted, "bits become bytes".to_owned()),
        (Ok(_), _) if from != Device::CPU => (Verdict::Copied, "copied to the host".to_owned()),
        (Ok(_), _) => (Verdict::ZeroCopy, "written from the buffers".to_owned()),
    };
    let plan = |field: &arrow_schema::FieldRef| {
        let (verdict, reason) = verdict(field);
        ColumnPlan { name: field.name().clone(), verdict, to: Device::CPU, reason }
    };
    schema.fields().iter().map(plan).collect()
}

/// Writes batches of one schema.
pub struct Writer {
    target: Target,
    host: Host,
    memory: Memory,
    /// A stream of the CPU.
    stream: Stream,
    schema: SchemaRef,
    columns: Vec<Column>,
    n_rows: u64,
    n_batches: u64,
    out: Output,
}

struct Column {
    form: Form,
    chunks: Vec<Chunk>,
}

/// The elements of a column in a batch, in host memory.
struct Chunk {
    values: Buffer,
    /// The first element in the buffer.
    first: usize,
    len: usize,
}

impl Writer {
    /// Begins to write to `sink`. Logs a warning if the schema has metadata that the format does
    /// not store.
    ///
    /// # Errors
    /// If the format cannot store the table.
    pub fn begin(
        target: Target,
        schema: SchemaRef,
        sink: Sink,
        host: &Host,
        memory: &Memory,
    ) -> Result<Self> {
        let forms = target.forms(&schema)?;
        warn_of_lost_metadata(target, &schema, host);
        Ok(Self {
            target,
            host: host.clone(),
            memory: memory.clone(),
            stream: memory.default_stream(Device::CPU)?,
            schema,
            columns: forms.into_iter().map(|form| Column { form, chunks: Vec::new() }).collect(),
            n_rows: 0,
            n_batches: 0,
            out: Output::new(sink),
        })
    }

    fn add(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<()> {
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        if !batch.metadata().is_empty() && self.n_batches == 0 {
            self.host.log(abi::LOG_WARN, "the metadata of batches is not written: a tensor has none");
        }
        let device = batch.device();
        let batch = if device == Device::CPU {
            batch
        } else {
            batch.move_to(&call_stream(&self.memory, call, device)?, Device::CPU)?
        };
        self.n_rows += batch.len() as u64;
        for (i, array) in batch.columns().iter().enumerate() {
            let name = self.schema.fields().get(i).map_or("", |field| field.name());
            let chunk = chunk(array, &self.stream);
            let chunk = chunk.map_err(|error| error.context(format_args!("column '{name}'")))?;
            if let (Some(column), Some(chunk)) = (self.columns.get_mut(i), chunk) {
                column.chunks.push(chunk);
            }
        }
        Ok(())
    }

    fn write_file(&mut self, call: &Call<'_>) -> Result<()> {
        let Self { schema, columns, stream, out, n_rows, .. } = self;
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let named = || names.iter().copied().zip(columns.iter());
        match self.target {
            Target::Npy => {
                for (_, column) in named() {
                    out.write(&npy::header(&column.form.element, &column.shape(*n_rows)?)?)?;
                    column.for_each_piece(call, stream, &mut |bytes| out.write(bytes))?;
                }
            }
            Target::Npz(compression) => {
                let mut archive = ArchiveWriter::new(compression);
                for (name, column) in named() {
                    let header = npy::header(&column.form.element, &column.shape(*n_rows)?)?;
                    archive.member(out, &format!("{name}{EXTENSION}"), &mut |f| {
                        f(&header)?;
                        column.for_each_piece(call, stream, f)
                    })?;
                }
                archive.finish(out)?;
            }
            Target::SafeTensors => {
                let tensors = named().map(|(name, column)| {
                    let dtype = column.form.element.safetensors_name();
                    let dtype =
                        dtype.ok_or_else(|| Error::internal("a column's type is not of safetensors"))?;
                    Ok(Outgoing { name, dtype, shape: column.shape(*n_rows)? })
                });
                let (header, order) =
                    safetensors::header(&tensors.collect::<Result<Vec<_>>>()?, schema.metadata())?;
                out.write(&header)?;
                for column in order.iter().filter_map(|i| columns.get(*i)) {
                    column.for_each_piece(call, stream, &mut |bytes| out.write(bytes))?;
                }
            }
        }
        out.flush()
    }
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        self.add(call, batch).map_err(|error| error.context(format_args!("batch {}", self.n_batches)))?;
        self.n_batches += 1;
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        self.write_file(call)?;
        Ok(Vec::new())
    }
}

impl Column {
    fn shape(&self, n_rows: u64) -> Result<Shape> {
        let dims = std::iter::once(n_rows).chain(self.form.row_dims.iter().copied()).collect();
        Shape::new(dims, self.form.element.width())
    }

    /// Passes the elements to `f`, as they are in a file.
    fn for_each_piece(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for Chunk { values, first, len } in &self.chunks {
            call.check_cancelled()?;
            let width = self.form.element.width();
            if self.form.is_bits {
                let view = values.host_view_of(first / 8, (first % 8 + len).div_ceil(8), stream)?;
                unpack(&view, first % 8, *len, f)?;
                continue;
            }
            let view = values.host_view_of(first * width, len * width, stream)?;
            if self.form.element == Element::Bool { normalise(&view, f)? } else { f(&view)? }
        }
        Ok(())
    }
}

/// Converts bits to bytes.
fn unpack(bits: &[u8], first: usize, len: usize, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut piece = Vec::with_capacity(PIECE_BYTES.min(len));
    for i in first..first + len {
        piece.push(bits.get(i / 8).map_or(0, |byte| byte >> (i % 8) & 1));
        if piece.len() == PIECE_BYTES {
            f(&piece)?;
            piece.clear();
        }
    }
    if piece.is_empty() { Ok(()) } else { f(&piece) }
}

/// Replaces bytes that are not 0 by 1, because other bytes are no booleans in a file.
fn normalise(bytes: &[u8], f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        if piece.iter().all(|byte| *byte <= 1) {
            f(piece)?;
        } else {
            f(&piece.iter().map(|byte| u8::from(*byte != 0)).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// The elements of an array without nulls. `None` if it has no elements.
fn chunk(array: &DeviceArray, stream: &Stream) -> Result<Option<Chunk>> {
    let (mut array, mut is_within_row) = (array.clone(), false);
    loop {
        let nulls = count_nulls(&[&array], stream)?.first().copied().unwrap_or(0);
        if nulls > 0 {
            let what = if is_within_row { "values within rows" } else { "rows" };
            return Err(Error::unsupported(format!(
                "{nulls} of {} {what} are null, but a tensor has no nulls: fill or drop them, or leave the column out",
                array.len()
            )));
        }
        let (Some(child), ChildRule::Times(n)) = (array.children().first(), array.layout().child_rule) else {
            break;
        };
        // The list refers to a part of its child.
        array = child.slice(array.offset() * n, array.len() * n)?;
        is_within_row = true;
    }
    let values = array.buffers().get(1).and_then(Option::as_ref).filter(|_| !array.is_empty());
    Ok(values.map(|values| Chunk { values: values.clone(), first: array.offset(), len: array.len() }))
}

fn warn_of_lost_metadata(target: Target, schema: &Schema, host: &Host) {
    let mut lost = Vec::new();
    if target != Target::SafeTensors {
        lost.extend(schema.metadata().iter().map(|(key, _)| format!("'{key}' of the schema")));
    }
    for field in schema.fields() {
        let name = field.name();
        lost.extend(lost_metadata(field).into_iter().map(|what| format!("{what} of column '{name}'")));
    }
    if !lost.is_empty() {
        host.log(abi::LOG_WARN, &format!("metadata that is not written: {}", lost.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_bytes() {
        let unpacked = |bits: &[u8], first, len| {
            let mut bytes = Vec::new();
            unpack(bits, first, len, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
            bytes
        };
        assert_eq!(unpacked(&[0b1010_0110, 0b1], 1, 8), [1, 1, 0, 0, 1, 0, 1, 1]);
        assert!(unpacked(&[], 0, 0).is_empty());
        assert_eq!(unpacked(&vec![0xff; 10_000], 3, 79_000), vec![1; 79_000]);
    }

    #[test]
    fn booleans_become_0_and_1() {
        let mut bytes = Vec::new();
        normalise(&[0, 1, 2, 255, 0], &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
        assert_eq!(bytes, [0, 1, 1, 1, 0]);
    }
}
