//! Writes tables as tensors.
//!
//! The elements of a tensor are contiguous in a file, after its shape. So the writer keeps the
//! batches in host memory until the end.

use std::collections::HashSet;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::layout::ChildRule;
use crossdock_arrays::{
    DeviceArray, ExtensionNumber, call_stream, count_nulls, field_type_name, import_batch,
};
use crossdock_memory::{Buffer, Device, Error, HostView, Memory, Result, Stream};
use crossdock_plugin_api::{
    BatchWriter, BufferedSink, Call, Capsule, ColumnPlan, Host, Owned, Sink, Verdict, abi,
};

use crate::element::Element;
use crate::encode::{Bits, check_times, days, normalise, times, unpack};
use crate::field::{Form, lost_metadata, to_form};
use crate::npy;
use crate::numpy::EXTENSION;
use crate::safetensors::{self, Outgoing};
use crate::shape::Shape;
use crate::zip::{self, ArchiveWriter, Compression};

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
        if let Element::Extension(number) = form.element {
            self.check_number(field.name(), number)?;
        }
        match self {
            Self::Npy => return Ok(form),
            Self::Npz(_) => {
                zip::check_name(field.name()).map_err(|why| {
                    Error::unsupported(format!(
                        "column '{}': its name is not supported in an archive: {why}; rename it",
                        field.name()
                    ))
                })?;
                return Ok(form);
            }
            Self::SafeTensors => safetensors::check_name(field.name())?,
        }
        match form.element.safetensors_name() {
            Some(_) => Ok(form),
            None => Err(Error::unsupported(format!(
                "column '{}' of type {}: safetensors has numbers and booleans only; leave it out, or write npz",
                field.name(),
                field_type_name(field)
            ))),
        }
    }

    /// Checks that the format has a type of numbers that Arrow does not have.
    fn check_number(self, column: &str, number: ExtensionNumber) -> Result<()> {
        let element = Element::Extension(number);
        let (in_safetensors, in_numpy) =
            (element.safetensors_name().is_some(), element.numpy_name().is_some());
        let (format, is_stored) = match self {
            Self::SafeTensors => ("safetensors", in_safetensors),
            Self::Npy | Self::Npz(_) => ("NumPy", in_numpy),
        };
        if is_stored {
            return Ok(());
        }
        let advice = match (in_safetensors, in_numpy) {
            (true, _) => "write safetensors, or cast it",
            (_, true) => "write npz, or cast it",
            _ => "cast it",
        };
        Err(Error::unsupported(format!("column '{column}': {format} has no {}: {advice}", number.name())))
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
        (Ok(form), _) if form.element == Element::Days => {
            (Verdict::Converted, "days become numbers of 8 bytes".to_owned())
        }
        (Ok(form), _) if form.element.has_nat() => (Verdict::Converted, "nulls become NaT".to_owned()),
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
    out: BufferedSink,
}

struct Column {
    form: Form,
    chunks: Vec<Chunk>,
}

/// The elements of a column in a batch, in host memory.
struct Chunk {
    values: Buffer,
    /// `None` if no element is null.
    validity: Option<Buffer>,
    /// The first element in the buffers.
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
            out: BufferedSink::new(sink),
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
            let Some(column) = self.columns.get_mut(i) else { continue };
            let chunk = chunk(array, &column.form.element, &self.stream);
            let chunk = chunk.map_err(|error| error.context(format_args!("column '{name}'")))?;
            column.chunks.extend(chunk);
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
        for chunk in &self.chunks {
            call.check_cancelled()?;
            let validity = chunk.validity(stream)?;
            let validity = validity.as_ref().map(|bytes| Bits { bytes, first: chunk.first % 8 });
            let view = chunk.view(self.form.width(), stream)?;
            match self.form.element {
                _ if self.form.is_bits => {
                    unpack(Bits { bytes: &view, first: chunk.first % 8 }, chunk.len, f)?;
                }
                Element::Bool => normalise(&view, f)?,
                Element::Time(_) => times(&view, validity, f)?,
                Element::Days => days(&view, validity, f)?,
                _ => f(&view)?,
            }
        }
        Ok(())
    }
}

impl Chunk {
    /// The elements, which have `width` bytes each; bits if the width is `None`.
    fn view(&self, width: Option<usize>, stream: &Stream) -> Result<HostView<'_>> {
        match width {
            Some(width) => self.values.host_view_of(self.first * width, self.len * width, stream),
            None => bits_of(&self.values, self.first, self.len, stream),
        }
    }

    fn validity(&self, stream: &Stream) -> Result<Option<HostView<'_>>> {
        self.validity.as_ref().map(|bits| bits_of(bits, self.first, self.len, stream)).transpose()
    }
}

/// The bytes with bits of a bitmap.
fn bits_of<'a>(bits: &'a Buffer, first: usize, len: usize, stream: &Stream) -> Result<HostView<'a>> {
    bits.host_view_of(first / 8, (first % 8 + len).div_ceil(8), stream)
}

/// The elements of an array. `None` if it has no elements.
///
/// # Errors
/// Unsupported if a row or an element is null, except that times and days may be null; or if a time
/// equals NumPy's NaT.
fn chunk(array: &DeviceArray, element: &Element, stream: &Stream) -> Result<Option<Chunk>> {
    let (mut array, mut is_within_row) = (array.clone(), false);
    let nulls = loop {
        let nulls = count_nulls(&[&array], stream)?.first().copied().unwrap_or(0);
        let is_element = array.children().is_empty();
        if nulls > 0 && !(is_element && element.has_nat()) {
            let what = if is_within_row { "values within rows" } else { "rows" };
            return Err(Error::unsupported(format!(
                "{nulls} of {} {what} are null, but a tensor has no nulls: fill or drop them, or leave the column out",
                array.len()
            )));
        }
        let (Some(child), ChildRule::Times(n)) = (array.children().first(), array.layout().child_rule) else {
            break nulls;
        };
        // The list refers to a part of its child.
        array = child.slice(array.offset() * n, array.len() * n)?;
        is_within_row = true;
    };
    let buffer = |i: usize| array.buffers().get(i).cloned().flatten();
    let Some(values) = buffer(1).filter(|_| !array.is_empty()) else { return Ok(None) };
    let validity = if nulls > 0 { buffer(0) } else { None };
    let chunk = Chunk { values, validity, first: array.offset(), len: array.len() };
    if matches!(element, Element::Time(_)) {
        let validity = chunk.validity(stream)?;
        let validity = validity.as_ref().map(|bytes| Bits { bytes, first: chunk.first % 8 });
        check_times(&chunk.view(Some(element.width()), stream)?, validity)?;
    }
    Ok(Some(chunk))
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
