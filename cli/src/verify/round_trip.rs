//! Writes tables with a plugin and reads them back, as a host does.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use crossdock::api::{
    BatchStreamHandle, CallSettings, Capsule, Capsules, Code, Device, Error, Format, Input, Options, Owned,
    ReadRequest, Result, WriterHandle, abi,
};
use crossdock_arrays::{
    Arrays, DataStream, DeviceBatch, DeviceStream, export_schema, import_batch, import_schema, on_cpu,
};
use crossdock_memory::Memory;

use super::case::{Check, Stop, failed, not_offered, skipped};
use super::context::CaseContext;
use super::counted_objects::{self, CapsuleKind, ReleaseCounts};
use super::coverage::{self, Part};
use super::subject::Subject;
use super::tables::{FORMS, Form, columns, together};
use super::test_io::{TestSink, TestSource};

/// A format that the plugin reads and that the suite has inputs for.
pub struct Readable {
    /// The importer's description of the format.
    pub format: Format,
    /// The capsules that the suite makes as input. `None` if the input is the output of the
    /// plugin's own exporter.
    pub kind: Option<CapsuleKind>,
    /// The format as described by the interface that receives the suite's batches: the importer if
    /// the suite makes capsules, otherwise the exporter. The two interfaces may support different
    /// devices.
    pub batch_format: Format,
    /// The name that every column has after reading, if the format does not store names.
    column_name: Option<String>,
}

/// The output of a writer.
pub enum WriterOutput {
    Bytes(Vec<u8>),
    Capsules(Vec<Capsule>),
}

/// A table that was read.
pub struct ReadTable {
    pub schema: SchemaRef,
    pub batches: Vec<DeviceBatch>,
}

/// The formats that the plugin reads and that the suite has inputs for.
pub fn readable(context: &CaseContext, subject: &Subject) -> Check<Vec<Readable>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let written = writable(context, subject).unwrap_or_default();
    let readable = formats.iter().filter_map(|format| {
        let kind = CapsuleKind::of(format);
        let batch_format = match kind {
            Some(_) => device_for(context, format).map(|_| format)?,
            None => written.iter().find(|other| other.name == format.name)?,
        };
        let column_name = match kind {
            Some(_) => None,
            None => column_name(context, subject, format, batch_format),
        };
        Some(Readable { format: format.clone(), kind, batch_format: batch_format.clone(), column_name })
    });
    let readable: Vec<_> = readable.collect();
    if readable.is_empty() {
        return Err(not_offered(format!(
            "the plugin reads no Arrow capsules on {} or the CPU, and no format that it writes",
            context.device
        )));
    }
    Ok(readable)
}

/// Returns the name that the format gives every column, which may be empty. Returns `None` if the
/// format also accepts other names.
fn column_name(
    context: &CaseContext,
    subject: &Subject,
    format: &Format,
    batch_format: &Format,
) -> Option<String> {
    let all = columns(&mut context.random(), FORMS[0]);
    let accepted = context.accepted(subject, batch_format, all).ok()?;
    let is_readable = |column: &RecordBatch| can_be_read_back(subject, format, batch_format, column);
    if accepted.iter().any(is_readable) {
        return None;
    }
    let format_name = |column: &RecordBatch| {
        let (call, counts) = (subject.call(), ReleaseCounts::default());
        let empty = write(subject, &call, batch_format, &column.schema(), &[], &counts).ok()?;
        let mut stream = open(subject, &call, format, empty.into_input(), None).ok()?;
        let schema = import_schema(&stream.schema().ok()?).ok()?;
        let [field] = schema.fields().as_ref() else { return None };
        let renamed = renamed(column, field.name())?;
        is_readable(&renamed).then(|| field.name().clone())
    };
    let empty_name = |column: &RecordBatch| is_readable(&renamed(column, "")?).then(String::new);
    accepted.iter().find_map(|column| empty_name(column).or_else(|| format_name(column)))
}

/// The same column under another name.
fn renamed(column: &RecordBatch, name: &str) -> Option<RecordBatch> {
    let field = column.schema().field(0).clone().with_name(name);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), column.columns().to_vec()).ok()
}

/// Returns whether the format can be opened with the column's schema as the expected schema.
/// Columns that cannot be written count as readable, because another case reports them.
fn can_be_read_back(subject: &Subject, format: &Format, batch_format: &Format, column: &RecordBatch) -> bool {
    let schema: SchemaRef = Arc::new(without_metadata(&column.schema()));
    let empty = write(subject, &subject.call(), batch_format, &schema, &[], &ReleaseCounts::default());
    let Ok(empty) = empty else { return true };
    match open(subject, &subject.call(), format, empty.into_input(), Some(&schema)) {
        Err(error) => !matches!(error.code(), Code::INVALID_ARGUMENT | Code::UNSUPPORTED),
        Ok(_) => true,
    }
}

/// The byte formats that the plugin both reads and writes.
pub fn byte_formats(context: &CaseContext, subject: &Subject) -> Check<Vec<Readable>> {
    let is_bytes =
        |readable: &Readable| readable.kind.is_none() && readable.format.bytes && readable.batch_format.bytes;
    let formats: Vec<_> = readable(context, subject)?.into_iter().filter(is_bytes).collect();
    if formats.is_empty() {
        return Err(not_offered("the plugin has no byte format that it both reads and writes"));
    }
    Ok(formats)
}

/// The formats that the plugin writes, on a device on which the suite can make batches.
pub fn writable(context: &CaseContext, subject: &Subject) -> Check<Vec<Format>> {
    let formats = subject.exporter()?.formats().map_err(|error| failed("formats", "a list", error))?;
    if formats.is_empty() {
        return Err(not_offered("the plugin's exporter has no formats"));
    }
    let usable: Vec<_> = formats.into_iter().filter(|format| device_for(context, format).is_some()).collect();
    if usable.is_empty() {
        return Err(skipped(format!(
            "the plugin's exporter accepts no batches on {} or the CPU",
            context.device
        )));
    }
    Ok(usable)
}

/// Returns the device of batches for a format: the case's device if the format supports it, else
/// the CPU. A host chooses the device in the same way.
fn device_for(context: &CaseContext, format: &Format) -> Option<Device> {
    let has_device = CapsuleKind::of(format).is_none_or(CapsuleKind::has_device);
    if has_device && format.accepts_device(context.device.r#type) {
        return Some(context.device);
    }
    format.accepts_device(Device::CPU.r#type).then_some(Device::CPU)
}

impl CaseContext {
    /// The record batch as a table on the device for a format.
    pub fn table_for(&self, batch_format: &Format, batch: &RecordBatch) -> Check<Vec<DeviceBatch>> {
        let device = device_for(self, batch_format);
        let no_device =
            || skipped(format!("'{}' accepts no batches on {} or the CPU", batch_format.name, self.device));
        self.table(batch, device.ok_or_else(no_device)?)
    }

    /// Returns the columns, each in its own batch, that are supported according to the exporter's
    /// plan.
    pub fn accepted(
        &self,
        subject: &Subject,
        format: &Format,
        columns: Vec<RecordBatch>,
    ) -> Check<Vec<RecordBatch>> {
        let mut accepted = Vec::new();
        for column in columns {
            // The case `exporter.plan` reports a plan that fails.
            let plans = plan(self, subject, format, &column.schema());
            if plans.is_ok_and(|plans| {
                plans.iter().all(|plan| plan.verdict != crossdock::api::Verdict::Unsupported)
            }) {
                accepted.push(column);
            }
        }
        Ok(accepted)
    }

    /// Returns false if an importer of Arrow capsules reports that the table is unsupported. Other
    /// cases report other errors.
    fn is_accepted(
        &self,
        subject: &Subject,
        format: &Format,
        kind: CapsuleKind,
        table: &RecordBatch,
    ) -> bool {
        let Ok(batches) = self.table_for(format, table) else { return true };
        let capsules = kind.capsules(&table.schema(), &batches, subject.stream(), &ReleaseCounts::default());
        let Ok(capsules) = capsules else { return true };
        let read = read(self, subject, format, Input::Capsules(Capsules::from(capsules)), None);
        read.err().is_none_or(|error| error.code() != Code::UNSUPPORTED)
    }

    /// Tables of one form for a format. Capsules get one table with all columns that the plugin
    /// accepts. A format that the plugin's exporter has to write first gets one table for each
    /// column that the exporter accepts.
    pub fn tables(&self, subject: &Subject, readable: &Readable, form: Form) -> Check<Vec<RecordBatch>> {
        let all = columns(&mut self.random(), form);
        if let Some(kind) = readable.kind {
            let is_accepted = |table: &RecordBatch| self.is_accepted(subject, &readable.format, kind, table);
            let whole: Vec<_> = together(&all).into_iter().collect();
            if whole.iter().all(is_accepted) {
                return Ok(whole);
            }
            let accepted: Vec<_> = all.into_iter().filter(is_accepted).collect();
            if accepted.is_empty() {
                let place = format!("'{}', reading Arrow capsules", readable.format.name);
                return Err(failed(place, "columns of at least one type to be accepted", "all are rejected"));
            }
            return Ok(together(&accepted).into_iter().collect());
        }
        let all = match &readable.column_name {
            Some(name) => all.iter().filter_map(|column| renamed(column, name)).collect(),
            None => all,
        };
        let accepted = self.accepted(subject, &readable.batch_format, all)?;
        // If a format stores a type as another type, the plugin may reject an expected schema with
        // the original type.
        let (readable_columns, rejected): (Vec<_>, Vec<_>) = accepted
            .into_iter()
            .partition(|column| can_be_read_back(subject, &readable.format, &readable.batch_format, column));
        match rejected.first() {
            Some(first) if readable_columns.is_empty() => {
                let place = format!("'{}', reading what was written", readable.format.name);
                let expected = format!("a column of {}, or of any type", first.schema().field(0).data_type());
                Err(failed(place, expected, "all are rejected"))
            }
            _ => Ok(readable_columns),
        }
    }

    /// The first of [`CaseContext::tables`].
    pub fn first_table(
        &self,
        subject: &Subject,
        readable: &Readable,
        form: Form,
    ) -> Check<Option<RecordBatch>> {
        Ok(self.tables(subject, readable, form)?.into_iter().next())
    }
}

/// The exporter's plan for the columns.
pub fn plan(
    context: &CaseContext,
    subject: &Subject,
    format: &Format,
    schema: &SchemaRef,
) -> Result<Vec<crossdock::api::ColumnPlan>> {
    let exporter = subject.exporter().map_err(to_error)?;
    let raw = export_schema(schema)?;
    let device = device_for(context, format).unwrap_or(Device::CPU);
    coverage::record_data_call();
    exporter.plan(&subject.call(), &format.name, &raw, device, &Options::new())
}

/// Converts the end of a case to an error.
pub fn to_error(stop: Stop) -> Error {
    Error::unsupported(format!("{stop:?}"))
}

/// Begins a writer. A byte format writes to `sink`.
pub fn begin(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    schema: &SchemaRef,
    sink: &Arc<TestSink>,
) -> Result<WriterHandle> {
    let sink = format.bytes.then(|| sink.sink());
    let raw = export_schema(schema)?;
    coverage::record_data_call();
    subject.exporter().map_err(to_error)?.begin(call, &format.name, &raw, &Options::new(), sink)
}

/// Writes a table.
pub fn write(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    schema: &SchemaRef,
    batches: &[DeviceBatch],
    counts: &ReleaseCounts,
) -> Result<WriterOutput> {
    let sink = Arc::new(TestSink::default());
    let capsules = write_to(subject, call, format, schema, batches, counts, &sink)?;
    Ok(if format.bytes { WriterOutput::Bytes(sink.bytes()) } else { WriterOutput::Capsules(capsules) })
}

/// Writes a table. A byte format writes its bytes to `sink`.
pub fn write_to(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    schema: &SchemaRef,
    batches: &[DeviceBatch],
    counts: &ReleaseCounts,
    sink: &Arc<TestSink>,
) -> Result<Vec<Capsule>> {
    let mut writer = begin(subject, call, format, schema, sink)?;
    let mut capsules = Vec::new();
    for batch in batches {
        capsules.extend(writer.write(call, counted_objects::batch(batch, subject.stream(), counts)?)?);
    }
    capsules.extend(writer.finish(call)?);
    if !batches.is_empty() {
        coverage::record_exercised(Part::write(&format.name));
    }
    Ok(capsules)
}

impl WriterOutput {
    pub fn into_input(self) -> Input {
        match self {
            WriterOutput::Bytes(bytes) => Input::Source(TestSource::of(&bytes).source()),
            WriterOutput::Capsules(capsules) => Input::Capsules(Capsules::from(capsules)),
        }
    }
}

/// Makes the input for a format: Arrow capsules, or the output of the plugin's own exporter.
pub fn input(
    subject: &Subject,
    readable: &Readable,
    schema: &SchemaRef,
    batches: &[DeviceBatch],
    counts: &ReleaseCounts,
) -> Result<Input> {
    match readable.kind {
        Some(kind) => {
            let capsules = kind.capsules(schema, batches, subject.stream(), counts)?;
            Ok(Input::Capsules(Capsules::from(capsules)))
        }
        None => {
            let output = write(subject, &subject.call(), &readable.batch_format, schema, batches, counts)?;
            Ok(output.into_input())
        }
    }
}

/// Opens an input, with an expected schema if there is one.
pub fn open(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    input: Input,
    schema: Option<&SchemaRef>,
) -> Result<BatchStreamHandle> {
    let schema = schema.map(|schema| export_schema(schema)).transpose()?;
    coverage::record_data_call();
    subject.importer().map_err(to_error)?.open(
        call,
        input,
        &ReadRequest::new(&format.name).with_schema(schema.as_deref()),
    )
}

/// Reads a stream to its end.
pub fn drain(stream: &mut BatchStreamHandle, call: &CallSettings, memory: &Memory) -> Result<ReadTable> {
    let schema: SchemaRef = Arc::new(import_schema(&stream.schema()?)?);
    let mut batches = Vec::new();
    while let Some(batch) = stream.next(call)? {
        batches.push(import_batch(batch, &schema, memory)?);
    }
    Ok(ReadTable { schema, batches })
}

/// Reads an input to its end.
pub fn read(
    context: &CaseContext,
    subject: &Subject,
    format: &Format,
    input: Input,
    schema: Option<&SchemaRef>,
) -> Result<ReadTable> {
    let call = subject.call();
    let mut stream = open(subject, &call, format, input, schema)?;
    let memory = context.session(Device::CPU).map_err(to_error)?.memory().clone();
    let table = drain(&mut stream, &call, &memory)?;
    if !table.batches.is_empty() {
        coverage::record_exercised(Part::read(&format.name));
    }
    Ok(table)
}

/// Reads a table. If the suite does not make the input itself, the plugin writes it first.
pub fn read_back(
    context: &CaseContext,
    subject: &Subject,
    readable: &Readable,
    table: &RecordBatch,
    counts: &ReleaseCounts,
) -> Check<Result<ReadTable>> {
    let batches = context.table_for(&readable.batch_format, table)?;
    let schema = table.schema();
    let input = match input(subject, readable, &schema, &batches, counts) {
        Ok(input) => input,
        Err(error) => return Ok(Err(error)),
    };
    Ok(read(context, subject, &readable.format, input, expected_schema(readable, &schema).as_ref()))
}

/// The expected schema to pass to `open`. Capsules need none, because they contain a schema.
pub fn expected_schema(readable: &Readable, schema: &SchemaRef) -> Option<SchemaRef> {
    readable.kind.is_none().then(|| Arc::new(without_metadata(schema)))
}

/// Returns a schema with the same names and types but without metadata.
pub fn without_metadata(schema: &Schema) -> Schema {
    let plain = |field: &Arc<arrow_schema::Field>| {
        let field = field.as_ref().clone();
        field.with_metadata(arrow_schema::Metadata::new())
    };
    Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>())
}

/// Imports the batches from Arrow capsules.
pub fn import_capsules(capsules: Vec<Capsule>, memory: &Memory) -> Result<ReadTable> {
    let mut schema: Option<SchemaRef> = None;
    let mut arrays: Vec<Owned<abi::ArrowDeviceArray>> = Vec::new();
    let mut drain = |stream: &mut dyn Arrays, stream_schema: Owned<abi::ArrowSchema>| -> Result<SchemaRef> {
        while let Some(array) = stream.next()? {
            arrays.push(array);
        }
        Ok(Arc::new(import_schema(&stream_schema)?))
    };
    let mut single = Vec::new();
    for capsule in capsules {
        match capsule.name().to_bytes() {
            b"arrow_schema" => schema = Some(Arc::new(import_schema(&capsule.take::<abi::ArrowSchema>()?)?)),
            b"arrow_array" => single.push(on_cpu(capsule.take::<abi::ArrowArray>()?)),
            b"arrow_device_array" => single.push(capsule.take::<abi::ArrowDeviceArray>()?),
            b"arrow_array_stream" => {
                let mut stream = DataStream::new(capsule.take()?);
                let stream_schema = stream.schema()?;
                schema = Some(drain(&mut stream, stream_schema)?);
            }
            b"arrow_device_array_stream" => {
                let mut stream = DeviceStream::new(capsule.take()?);
                let stream_schema = stream.schema()?;
                schema = Some(drain(&mut stream, stream_schema)?);
            }
            other => {
                let name = String::from_utf8_lossy(other).into_owned();
                return Err(Error::unsupported(format!("a capsule '{name}'")));
            }
        }
    }
    let schema = schema.ok_or_else(|| Error::bad_data("the capsules have no schema"))?;
    let import = |array: Owned<abi::ArrowDeviceArray>| {
        let raw = abi::Batch { array: array.into_raw(), ..abi::Batch::new() };
        // SAFETY: `array` owned a valid array, which moved into the batch.
        import_batch(unsafe { Owned::new(raw) }, &schema, memory)
    };
    let batches = arrays.into_iter().chain(single).map(import).collect::<Result<_>>()?;
    Ok(ReadTable { schema, batches })
}

/// Describes the first difference between a table that was read and the expected batches. Schemas
/// are not compared, because other cases compare them.
pub fn difference(subject: &Subject, table: &ReadTable, expected: &[DeviceBatch]) -> Result<Option<String>> {
    let rows = |batches: &[DeviceBatch]| batches.iter().map(DeviceBatch::len).sum::<usize>();
    let (n_rows, n_expected) = (rows(&table.batches), rows(expected));
    if n_rows != n_expected {
        return Ok(Some(format!("{n_rows} rows, expected {n_expected}")));
    }
    let Some(first) = expected.first().filter(|_| n_rows > 0) else { return Ok(None) };
    let normalize = |batch: &DeviceBatch| {
        let batch = batch.clone().with_metadata(arrow_schema::Metadata::new());
        batch.with_schema(first.schema().clone())?.move_to(subject.stream(), Device::CPU)
    };
    let join = |batches: &[DeviceBatch]| {
        let batches = batches.iter().map(normalize).collect::<Result<Vec<_>>>()?;
        DeviceBatch::concatenate(&batches, subject.stream())
    };
    crossdock_arrays::first_difference(&join(&table.batches)?, &join(expected)?, subject.stream())
}
