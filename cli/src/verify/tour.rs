//! Tables in and out of a plugin, as a host would do it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use crossdock::api::{
    BatchStreamHandle, CallSettings, Capsule, Capsules, Code, Device, Error, Format, Input, Options, Owned,
    Result, WriterHandle, abi,
};
use crossdock_arrays::{
    Arrays, DataStream, DeviceBatch, DeviceStream, export_schema, import_batch, import_schema, on_cpu,
};
use crossdock_memory::Memory;

use super::case::{Check, Stop, failed, not_offered, skipped};
use super::coverage::{self, Part};
use super::lent::{self, Bytes, Counts, Kind, Written};
use super::subject::{Ground, Subject};
use super::tables::{FORMS, Form, columns, together};

/// A format that the suite can have read.
pub struct Readable {
    /// As the importer has it.
    pub format: Format,
    /// How Arrow arrays are fed to it; without it, what the plugin itself writes is.
    pub kind: Option<Kind>,
    /// As whoever takes the batches has it: the importer that is fed with them, or the exporter that writes what is read. The two may
    /// take batches on different devices.
    pub taker: Format,
    /// What a column is called when it comes back, where the format has no place for its name.
    renamed: Option<String>,
}

/// What a writer gave.
pub enum Given {
    Bytes(Vec<u8>),
    Capsules(Vec<Capsule>),
}

/// What an importer gave.
pub struct Read {
    pub schema: SchemaRef,
    pub batches: Vec<DeviceBatch>,
}

/// The formats that the plugin reads and the suite has something for.
pub fn readable(ground: &Ground, subject: &Subject) -> Check<Vec<Readable>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let written = writable(ground, subject).unwrap_or_default();
    let known = formats.iter().filter_map(|format| {
        let kind = Kind::of(format);
        let taker = match kind {
            Some(_) => device_for(ground, format).map(|_| format)?,
            None => written.iter().find(|other| other.name == format.name)?,
        };
        let renamed = if kind.is_none() { column_name(ground, subject, format, taker) } else { None };
        Some(Readable { format: format.clone(), kind, taker: taker.clone(), renamed })
    });
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return Err(not_offered(format!(
            "the plugin reads no Arrow capsules that lie on {} or the CPU, and writes nothing that it reads",
            ground.device
        )));
    }
    Ok(known)
}

/// A format may have a name of its own for its column, or none, and then refuses a schema with another.
fn column_name(ground: &Ground, subject: &Subject, format: &Format, taker: &Format) -> Option<String> {
    let all = columns(&mut ground.random(), FORMS[0]);
    let accepted = ground.accepted(subject, taker, all).ok()?;
    let comes_back = |column: &RecordBatch| comes_back(subject, format, taker, column);
    if accepted.iter().any(comes_back) {
        return None;
    }
    let own_name = |column: &RecordBatch| {
        let (call, counts) = (subject.call(), Counts::default());
        let none = write(subject, &call, taker, &column.schema(), &[], &counts).ok()?;
        let mut stream = open(subject, &call, format, none.into_input(), None).ok()?;
        let schema = import_schema(&stream.schema().ok()?).ok()?;
        let [field] = schema.fields().as_ref() else { return None };
        let renamed = renamed(column, field.name())?;
        comes_back(&renamed).then(|| field.name().clone())
    };
    let nameless = |column: &RecordBatch| comes_back(&renamed(column, "")?).then(String::new);
    accepted.iter().find_map(|column| nameless(column).or_else(|| own_name(column)))
}

/// The same column under another name.
fn renamed(column: &RecordBatch, name: &str) -> Option<RecordBatch> {
    let field = column.schema().field(0).clone().with_name(name);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), column.columns().to_vec()).ok()
}

/// Whether what is written of such a column may be asked to be one again. What cannot be written so is another case's.
fn comes_back(subject: &Subject, format: &Format, taker: &Format, column: &RecordBatch) -> bool {
    let schema: SchemaRef = Arc::new(bare(&column.schema()));
    let none = write(subject, &subject.call(), taker, &schema, &[], &Counts::default());
    let Ok(none) = none else { return true };
    match open(subject, &subject.call(), format, none.into_input(), Some(&schema)) {
        Err(error) => !matches!(error.code(), Code::INVALID_ARGUMENT | Code::UNSUPPORTED),
        Ok(_) => true,
    }
}

/// The formats of bytes that the plugin both reads and writes.
pub fn byte_formats(ground: &Ground, subject: &Subject) -> Check<Vec<Readable>> {
    let own = |readable: &Readable| readable.kind.is_none() && readable.format.bytes && readable.taker.bytes;
    let formats: Vec<_> = readable(ground, subject)?.into_iter().filter(own).collect();
    if formats.is_empty() {
        return Err(not_offered("the plugin has no format of bytes that it reads and writes"));
    }
    Ok(formats)
}

/// The formats that the plugin writes of batches that the suite can make.
pub fn writable(ground: &Ground, subject: &Subject) -> Check<Vec<Format>> {
    let formats = subject.exporter()?.formats().map_err(|error| failed("formats", "a list", error))?;
    if formats.is_empty() {
        return Err(not_offered("the plugin's exporter has no formats"));
    }
    let taken: Vec<_> = formats.into_iter().filter(|format| device_for(ground, format).is_some()).collect();
    if taken.is_empty() {
        return Err(skipped(format!(
            "the plugin's exporter takes no batches on {} or the CPU",
            ground.device
        )));
    }
    Ok(taken)
}

/// Where batches for a format are to be, as it is told by who takes them: the case's device, or else the CPU, as a host has it.
fn device_for(ground: &Ground, format: &Format) -> Option<Device> {
    let kind_knows = Kind::of(format).is_none_or(Kind::knows_devices);
    if kind_knows && format.takes(ground.device.r#type) {
        return Some(ground.device);
    }
    format.takes(Device::CPU.r#type).then_some(Device::CPU)
}

impl Ground {
    /// The record batch where the format of who takes it wants it.
    pub fn table_for(&self, taker: &Format, batch: &RecordBatch) -> Check<Vec<DeviceBatch>> {
        let device = device_for(self, taker);
        let nowhere = || skipped(format!("'{}' takes no batches on {} or the CPU", taker.name, self.device));
        self.table(batch, device.ok_or_else(nowhere)?)
    }

    /// Which of the columns the plugin says that it can write. The columns are each in a batch of its own.
    pub fn accepted(
        &self,
        subject: &Subject,
        format: &Format,
        columns: Vec<RecordBatch>,
    ) -> Check<Vec<RecordBatch>> {
        let mut accepted = Vec::new();
        for column in columns {
            // What cannot even be planned is what `exporter.plan` looks at.
            let can = plan(self, subject, format, &column.schema());
            if can.is_ok_and(|plans| {
                plans.iter().all(|plan| plan.verdict != crossdock::api::Verdict::Unsupported)
            }) {
                accepted.push(column);
            }
        }
        Ok(accepted)
    }

    /// Whether an importer of Arrow's structs has a place for the columns: it may say that it has not. What else goes wrong with
    /// them is for others to find.
    fn takes(&self, subject: &Subject, format: &Format, kind: Kind, table: &RecordBatch) -> bool {
        let Ok(batches) = self.table_for(format, table) else { return true };
        let capsules = kind.capsules(&table.schema(), &batches, subject.stream(), &Counts::default());
        let Ok(capsules) = capsules else { return true };
        let read = read(self, subject, format, Input::Capsules(Capsules::from(capsules)), None);
        read.err().is_none_or(|error| error.code() != Code::UNSUPPORTED)
    }

    /// Tables of one form for a format: all columns in one, or where the plugin's own exporter has to write them first, each
    /// that it takes in one of its own.
    pub fn tables(&self, subject: &Subject, readable: &Readable, form: Form) -> Check<Vec<RecordBatch>> {
        let all = columns(&mut self.random(), form);
        if let Some(kind) = readable.kind {
            let takes = |table: &RecordBatch| self.takes(subject, &readable.format, kind, table);
            let whole: Vec<_> = together(&all).into_iter().collect();
            if whole.iter().all(takes) {
                return Ok(whole);
            }
            let taken: Vec<_> = all.into_iter().filter(takes).collect();
            if taken.is_empty() {
                let place = format!("'{}', reading Arrow's structs", readable.format.name);
                return Err(failed(place, "columns of some type", "those of each are refused"));
            }
            return Ok(together(&taken).into_iter().collect());
        }
        let all = match &readable.renamed {
            Some(name) => all.iter().filter_map(|column| renamed(column, name)).collect(),
            None => all,
        };
        let accepted = self.accepted(subject, &readable.taker, all)?;
        // A format may write a type in the place of another, and then refuses to have been given that one.
        let (kept, refused): (Vec<_>, Vec<_>) = accepted
            .into_iter()
            .partition(|column| comes_back(subject, &readable.format, &readable.taker, column));
        match refused.first() {
            Some(first) if kept.is_empty() => {
                let place = format!("'{}', reading what was written", readable.format.name);
                let expected = format!("a column of {}, or of any type", first.schema().field(0).data_type());
                Err(failed(place, expected, "all are refused"))
            }
            _ => Ok(kept),
        }
    }

    /// The first of them.
    pub fn first_table(
        &self,
        subject: &Subject,
        readable: &Readable,
        form: Form,
    ) -> Check<Option<RecordBatch>> {
        Ok(self.tables(subject, readable, form)?.into_iter().next())
    }
}

/// What would become of the columns.
pub fn plan(
    ground: &Ground,
    subject: &Subject,
    format: &Format,
    schema: &SchemaRef,
) -> Result<Vec<crossdock::api::ColumnPlan>> {
    let exporter = subject.exporter().map_err(lost)?;
    let raw = export_schema(schema)?;
    let device = device_for(ground, format).unwrap_or(Device::CPU);
    coverage::called();
    exporter.plan(&subject.call(), &format.name, &raw, device, &Options::new())
}

/// A case's end, where an error is asked for.
pub fn lost(stop: Stop) -> Error {
    Error::unsupported(format!("{stop:?}"))
}

/// A writer of a format, and where its bytes go if it is one of bytes.
pub fn begin(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    schema: &SchemaRef,
    to: &Arc<Written>,
) -> Result<WriterHandle> {
    let sink = format.bytes.then(|| to.sink());
    let raw = export_schema(schema)?;
    coverage::called();
    subject.exporter().map_err(lost)?.begin(call, &format.name, &raw, &Options::new(), sink)
}

/// Writes a table.
pub fn write(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    schema: &SchemaRef,
    batches: &[DeviceBatch],
    counts: &Counts,
) -> Result<Given> {
    let to = Arc::new(Written::default());
    let capsules = write_to(subject, call, format, schema, batches, counts, &to)?;
    Ok(if format.bytes { Given::Bytes(to.bytes()) } else { Given::Capsules(capsules) })
}

/// The same, the bytes of which go there.
pub fn write_to(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    schema: &SchemaRef,
    batches: &[DeviceBatch],
    counts: &Counts,
    to: &Arc<Written>,
) -> Result<Vec<Capsule>> {
    let mut writer = begin(subject, call, format, schema, to)?;
    let mut capsules = Vec::new();
    for batch in batches {
        capsules.extend(writer.write(call, lent::batch(batch, subject.stream(), counts)?)?);
    }
    capsules.extend(writer.finish(call)?);
    if !batches.is_empty() {
        coverage::exercised(Part::write(&format.name));
    }
    Ok(capsules)
}

impl Given {
    pub fn into_input(self) -> Input {
        match self {
            Given::Bytes(bytes) => Input::Source(Bytes::of(&bytes).source()),
            Given::Capsules(capsules) => Input::Capsules(Capsules::from(capsules)),
        }
    }
}

/// What a format is to read: Arrow's structs, or what the plugin itself wrote.
pub fn input(
    subject: &Subject,
    readable: &Readable,
    schema: &SchemaRef,
    batches: &[DeviceBatch],
    counts: &Counts,
) -> Result<Input> {
    match readable.kind {
        Some(kind) => {
            let capsules = kind.capsules(schema, batches, subject.stream(), counts)?;
            Ok(Input::Capsules(Capsules::from(capsules)))
        }
        None => {
            let given = write(subject, &subject.call(), &readable.taker, schema, batches, counts)?;
            Ok(given.into_input())
        }
    }
}

/// Opens a format. What a format without types of its own gives is asked for.
pub fn open(
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    input: Input,
    schema: Option<&SchemaRef>,
) -> Result<BatchStreamHandle> {
    let schema = schema.map(|schema| export_schema(schema)).transpose()?;
    coverage::called();
    subject.importer().map_err(lost)?.open(call, &format.name, input, schema.as_ref(), &Options::new())
}

/// All that a stream gives.
pub fn drain(stream: &mut BatchStreamHandle, call: &CallSettings, memory: &Memory) -> Result<Read> {
    let schema: SchemaRef = Arc::new(import_schema(&stream.schema()?)?);
    let mut batches = Vec::new();
    while let Some(batch) = stream.next(call)? {
        batches.push(import_batch(batch, &schema, memory)?);
    }
    Ok(Read { schema, batches })
}

/// Reads all of an input.
pub fn read(
    ground: &Ground,
    subject: &Subject,
    format: &Format,
    input: Input,
    schema: Option<&SchemaRef>,
) -> Result<Read> {
    let call = subject.call();
    let mut stream = open(subject, &call, format, input, schema)?;
    let memory = ground.session(Device::CPU).map_err(lost)?.memory().clone();
    let read = drain(&mut stream, &call, &memory)?;
    if !read.batches.is_empty() {
        coverage::exercised(Part::read(&format.name));
    }
    Ok(read)
}

/// What a table becomes when it is read, and when the plugin writes what it reads, written first.
pub fn round(
    ground: &Ground,
    subject: &Subject,
    readable: &Readable,
    table: &RecordBatch,
    counts: &Counts,
) -> Check<Result<Read>> {
    let batches = ground.table_for(&readable.taker, table)?;
    let schema = table.schema();
    let input = match input(subject, readable, &schema, &batches, counts) {
        Ok(input) => input,
        Err(error) => return Ok(Err(error)),
    };
    Ok(read(ground, subject, &readable.format, input, expected(readable, &schema).as_ref()))
}

/// The schema to ask for: none where the format has one of its own.
pub fn expected(readable: &Readable, schema: &SchemaRef) -> Option<SchemaRef> {
    readable.kind.is_none().then(|| Arc::new(bare(schema)))
}

/// The same types and names, without metadata.
pub fn bare(schema: &Schema) -> Schema {
    let plain = |field: &Arc<arrow_schema::Field>| {
        let field = field.as_ref().clone();
        field.with_metadata(arrow_schema::Metadata::new())
    };
    Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>())
}

/// The batches in what an exporter gave, where it gave Arrow's structs.
pub fn consume(capsules: Vec<Capsule>, memory: &Memory) -> Result<Read> {
    let mut schema: Option<SchemaRef> = None;
    let mut arrays: Vec<Owned<abi::ArrowDeviceArray>> = Vec::new();
    let mut stream_of = |stream: &mut dyn Arrays, own: Owned<abi::ArrowSchema>| -> Result<SchemaRef> {
        while let Some(array) = stream.next()? {
            arrays.push(array);
        }
        Ok(Arc::new(import_schema(&own)?))
    };
    let mut single = Vec::new();
    for capsule in capsules {
        match capsule.name().to_bytes() {
            b"arrow_schema" => schema = Some(Arc::new(import_schema(&capsule.take::<abi::ArrowSchema>()?)?)),
            b"arrow_array" => single.push(on_cpu(capsule.take::<abi::ArrowArray>()?)),
            b"arrow_device_array" => single.push(capsule.take::<abi::ArrowDeviceArray>()?),
            b"arrow_array_stream" => {
                let mut stream = DataStream::new(capsule.take()?);
                let own = stream.schema()?;
                schema = Some(stream_of(&mut stream, own)?);
            }
            b"arrow_device_array_stream" => {
                let mut stream = DeviceStream::new(capsule.take()?);
                let own = stream.schema()?;
                schema = Some(stream_of(&mut stream, own)?);
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
        // SAFETY: the array was ours, and is moved into a struct that has its release.
        import_batch(unsafe { Owned::new(raw) }, &schema, memory)
    };
    let batches = arrays.into_iter().chain(single).map(import).collect::<Result<_>>()?;
    Ok(Read { schema, batches })
}

/// Where what was read differs from the table, in words. Schemas are made alike first: types that differ are another case's.
pub fn difference(subject: &Subject, read: &Read, given: &[DeviceBatch]) -> Result<Option<String>> {
    let rows = |batches: &[DeviceBatch]| batches.iter().map(DeviceBatch::len).sum::<usize>();
    let (got, expected) = (rows(&read.batches), rows(given));
    if got != expected {
        return Ok(Some(format!("{got} rows, expected {expected}")));
    }
    let Some(first) = given.first().filter(|_| got > 0) else { return Ok(None) };
    let alike = |batch: &DeviceBatch| {
        let batch = batch.clone().with_metadata(arrow_schema::Metadata::new());
        batch.with_schema(first.schema().clone())?.move_to(subject.stream(), Device::CPU)
    };
    let join = |batches: &[DeviceBatch]| {
        let batches = batches.iter().map(alike).collect::<Result<Vec<_>>>()?;
        DeviceBatch::concatenate(&batches, subject.stream())
    };
    crossdock_arrays::first_difference(&join(&read.batches)?, &join(given)?, subject.stream())
}
