//! Writes batches as text. The threads of the session format parts of the batches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{AnyDictionaryArray, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use crossdock_arrays::{call_stream, import_batch};
use crossdock_arrow::from_host;
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Owned, Result, TaskGroup, Tasks, Verdict, abi,
};

use crate::output::Output;

/// The number of rows that a thread formats at once.
const PART_ROWS: usize = 16 << 10;
/// The number of bytes of the buffers of the rows that a thread formats at once.
const PART_BYTES: u64 = 4 << 20;

/// Formats batches.
pub trait Format: Send + Sync {
    /// The text before the first row.
    fn head(&self, schema: &Schema) -> Vec<u8>;

    /// The text of the rows.
    ///
    /// # Errors
    /// Unsupported with the name of the column if a value has no text.
    fn rows(&self, batch: &RecordBatch) -> Result<Vec<u8>>;

    /// Why columns of this type have no text; `None` if they have one.
    fn problem(&self, field: &Field) -> Option<String>;

    /// Why tables with this schema have no text, although all columns have one.
    fn table_problem(&self, schema: &Schema) -> Option<String>;
}

/// The position of each row's value in the values of a dictionary. It has no meaning for nulls.
pub fn keys_of(dictionary: &dyn AnyDictionaryArray) -> Vec<usize> {
    // Keys of a dictionary without values cannot be normalized.
    match dictionary.values().is_empty() {
        true => Vec::new(),
        false => dictionary.normalized_keys(),
    }
}

/// The plan for each column.
pub fn plan(format: &dyn Format, schema: &Schema) -> Vec<ColumnPlan> {
    let plan = |field: &FieldRef| {
        let (verdict, reason) = match format.problem(&in_utc(field)) {
            Some(why) => (Verdict::Unsupported, why),
            None => (Verdict::Converted, "written as text".to_string()),
        };
        ColumnPlan { name: field.name().clone(), verdict, to: Device::CPU, reason }
    };
    schema.fields().iter().map(plan).collect()
}

/// Text that is being formatted.
type Formatting = (TaskGroup, Arc<Mutex<Vec<u8>>>);

/// Writes batches of one schema.
pub struct Writer {
    format: Arc<dyn Format>,
    /// The schema of the batches.
    schema: SchemaRef,
    /// The schema with the offset 0 instead of the names of time zones, which arrow-rs does not
    /// know. Timestamps are written in UTC.
    in_utc: SchemaRef,
    memory: Memory,
    tasks: Tasks,
    pending: VecDeque<Formatting>,
    out: Output,
}

impl Writer {
    /// Writes the text before the first row.
    ///
    /// # Errors
    /// Unsupported with the name of the column if a column has no text; then nothing is written.
    /// The error of the sink.
    pub fn new(
        format: Arc<dyn Format>,
        schema: Schema,
        out: impl FnOnce() -> Result<Output>,
        memory: &Memory,
        tasks: &Tasks,
    ) -> Result<Self> {
        for field in schema.fields() {
            if let Some(why) = format.problem(&in_utc(field)) {
                let (name, data_type) = (field.name(), field.data_type());
                return Err(Error::unsupported(format!(
                    "column '{name}' is {data_type}: {why}",
                    data_type = crossdock_arrays::type_name(data_type)
                )));
            }
        }
        if let Some(why) = format.table_problem(&schema) {
            return Err(Error::unsupported(why));
        }
        let mut out = out()?;
        out.write(&format.head(&schema))?;
        let fields: Fields = schema.fields().iter().map(in_utc).collect();
        Ok(Self {
            format,
            schema: schema.into(),
            in_utc: Schema::new(fields).into(),
            memory: memory.clone(),
            tasks: tasks.clone(),
            pending: VecDeque::new(),
            out,
        })
    }

    /// Writes the oldest parts until at most `most` parts are pending.
    fn write_until(&mut self, call: &Call<'_>, most: usize) -> Result<()> {
        while self.pending.len() > most {
            let Some((group, text)) = self.pending.pop_front() else { break };
            group.wait(|| call.check_cancelled())?;
            let text = std::mem::take(&mut *text.lock().unwrap_or_else(PoisonError::into_inner));
            self.out.write(&text)?;
        }
        Ok(())
    }
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let mut batch = import_batch(batch, &self.schema, &self.memory)?;
        let stream = call_stream(&self.memory, call, Device::CPU)?;
        batch.resolve_sizes(&stream)?;
        let row_bytes = batch.buffer_bytes() / (batch.len() as u64).max(1) + 1;
        let part_rows = usize::try_from(PART_BYTES / row_bytes).unwrap_or(PART_ROWS).clamp(1, PART_ROWS);
        let rows = from_host(&batch, &self.in_utc, &stream)?;
        drop(batch);
        for begin in (0..rows.num_rows()).step_by(part_rows) {
            let part = rows.slice(begin, part_rows.min(rows.num_rows() - begin));
            let text = Arc::new(Mutex::default());
            let (format, to) = (self.format.clone(), text.clone());
            let job = move || {
                *to.lock().unwrap_or_else(PoisonError::into_inner) = format.rows(&part)?;
                Ok(())
            };
            self.pending.push_back((self.tasks.start([job])?, text));
            self.write_until(call, self.tasks.width())?;
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        self.write_until(call, 0)?;
        self.out.finish()?;
        Ok(Vec::new())
    }
}

/// Replaces the time zone of a field and of the fields in it by the offset 0.
fn in_utc(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(in_utc).collect()),
        DataType::List(inner) => DataType::List(in_utc(inner)),
        DataType::LargeList(inner) => DataType::LargeList(in_utc(inner)),
        DataType::ListView(inner) => DataType::ListView(in_utc(inner)),
        DataType::LargeListView(inner) => DataType::LargeListView(in_utc(inner)),
        DataType::FixedSizeList(inner, n) => DataType::FixedSizeList(in_utc(inner), *n),
        DataType::Map(inner, sorted) => DataType::Map(in_utc(inner), *sorted),
        DataType::Dictionary(keys, values) => {
            let values = in_utc(&FieldRef::new(Field::new("", values.as_ref().clone(), true)));
            DataType::Dictionary(keys.clone(), Box::new(values.data_type().clone()))
        }
        _ => return field.clone(),
    };
    FieldRef::new(field.as_ref().clone().with_data_type(data_type))
}
