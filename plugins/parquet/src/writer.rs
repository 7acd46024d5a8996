//! Writes batches to a file.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use crossdock_arrays::{call_stream, import_batch};
use crossdock_arrow::from_host;
use crossdock_memory::{BufferMut, Memory, Stream};
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, Device, Error, Host, Owned, Result, Sink, Tasks, abi,
};
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::arrow::{ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use crate::error::{text_of, writing};
use crate::reader::Context;
use crate::settings::Settings;
use crate::sink::{HostSink, SinkError};
use crate::types::check;
use crate::units::{stated_schema, stored_rows, stored_schema};

/// The number of rows that a task encodes.
const PART_ROWS: usize = 1 << 17;
/// The part of the memory limit that the encoded pages of a row group may use.
const GROUP_PARTS: u64 = 4;
/// The memory that the crate needs for a part of a batch, as a multiple of the part's size.
const COPIES: u64 = 2;

/// Writes batches of one schema.
pub struct Writer {
    file: SerializedFileWriter<HostSink>,
    factory: ArrowRowGroupWriterFactory,
    sink_error: SinkError,
    schema: SchemaRef,
    /// The schema of the file, which can have other units.
    stored: SchemaRef,
    group: Option<Group>,
    n_groups: usize,
    group_rows: usize,
    /// The greatest size of the encoded pages of a row group, in bytes.
    group_bytes: u64,
    host: Host,
    memory: Memory,
    tasks: Tasks,
    /// Memory of the host of the size that the crate allocates. It is not used. It makes the
    /// crate's memory count against the session's budget.
    reserved: Option<BufferMut>,
    has_warned: bool,
}

/// A row group that is being written.
struct Group {
    columns: Vec<Arc<Mutex<Column>>>,
    n_rows: usize,
}

/// The writers of the leaves of a column.
struct Column {
    field: FieldRef,
    leaves: Vec<ArrowColumnWriter>,
}

impl Column {
    fn error(&self, error: &ParquetError) -> Error {
        Error::unsupported(format!("column '{}': {}", self.field.name(), text_of(error)))
    }

    fn write(&mut self, array: &ArrayRef) -> Result<()> {
        let field = self.field.clone();
        let leaves = compute_leaves(&field, array).map_err(|error| self.error(&error))?;
        if leaves.len() != self.leaves.len() {
            return Err(Error::internal(format!(
                "column '{}' has {} leaves, expected {}",
                field.name(),
                leaves.len(),
                self.leaves.len()
            )));
        }
        for (leaf, writer) in leaves.iter().zip(&mut self.leaves) {
            if let Err(error) = writer.write(leaf) {
                return Err(self.error(&error));
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Vec<ArrowColumnChunk>> {
        let leaves = std::mem::take(&mut self.leaves);
        leaves.into_iter().map(|leaf| leaf.close().map_err(|error| self.error(&error))).collect()
    }

    fn memory_bytes(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.memory_size() as u64).sum()
    }
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// Unsupported if Parquet has no type for a column.
    pub fn begin(
        call: &Call<'_>,
        schema: Schema,
        settings: &Settings,
        sink: Sink,
        context: &Context,
    ) -> Result<Self> {
        call.check_cancelled()?;
        schema.fields().iter().try_for_each(check)?;
        let stored = Arc::new(stored_schema(&schema));
        let sink_error = SinkError::default();
        let sink = HostSink { sink, error: sink_error.clone() };
        let (file, factory) = writing(|| {
            let mut properties = settings.properties(&stored);
            add_encoded_arrow_schema_to_metadata(&stated_schema(&schema), &mut properties);
            let options =
                ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
            ArrowWriter::try_new_with_options(sink, stored.clone(), options)
                .and_then(ArrowWriter::into_serialized_writer)
                .map_err(|error| of_file(&error, &sink_error))
        })?;
        let Context { host, memory, tasks } = context.clone();
        let limit = host.session().map_or(0, |session| session.memory_limit_bytes);
        Ok(Self {
            file,
            factory,
            sink_error,
            schema: Arc::new(schema),
            stored,
            group: None,
            n_groups: 0,
            group_rows: settings.group_rows,
            group_bytes: if limit == 0 { u64::MAX } else { limit / GROUP_PARTS },
            host,
            memory,
            tasks,
            reserved: None,
            has_warned: false,
        })
    }

    /// Begins a row group, unless one is being written.
    fn group(&mut self) -> Result<&mut Group> {
        if self.group.is_none() {
            let writers = writing(|| {
                let writers = self.factory.create_column_writers(self.n_groups);
                writers.map_err(|error| of_file(&error, &self.sink_error))
            })?;
            let descriptor = self.file.schema_descr();
            let mut writers = writers.into_iter();
            let mut leaves = vec![0usize; self.stored.fields().len()];
            for leaf in 0..descriptor.num_columns() {
                if let Some(n) = leaves.get_mut(descriptor.get_column_root_idx(leaf)) {
                    *n += 1;
                }
            }
            let column = |(field, n): (&FieldRef, usize)| {
                let leaves = writers.by_ref().take(n).collect();
                Arc::new(Mutex::new(Column { field: field.clone(), leaves }))
            };
            let columns = self.stored.fields().iter().zip(leaves).map(column).collect();
            self.group = Some(Group { columns, n_rows: 0 });
        }
        self.group.as_mut().ok_or_else(|| Error::internal("no row group was begun"))
    }

    /// Runs `f` for each column of the row group on the threads of the session.
    fn for_columns<T: Send + 'static>(
        &self,
        call: &Call<'_>,
        f: impl Fn(usize, &mut Column) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        let columns = self.group.as_ref().map(|group| group.columns.as_slice()).unwrap_or_default();
        let f = Arc::new(f);
        let results = Arc::new(Mutex::new(columns.iter().map(|_| None).collect::<Vec<Option<T>>>()));
        let job = |(i, column): (usize, &Arc<Mutex<Column>>)| {
            let (f, column, results) = (f.clone(), column.clone(), results.clone());
            move || {
                let mut column = column.lock().unwrap_or_else(PoisonError::into_inner);
                let result = writing(|| f(i, &mut column));
                let result = result.map_err(|error| match error.message().starts_with("column '") {
                    true => error,
                    false => error.context(format_args!("column '{}'", column.field.name())),
                })?;
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(place) = results.get_mut(i) {
                    *place = Some(result);
                }
                Ok(())
            }
        };
        self.tasks.start(columns.iter().enumerate().map(job))?.wait(|| call.check_cancelled())?;
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Error::internal("a task that writes a column has no result");
        results.iter_mut().map(|result| result.take().ok_or_else(missing)).collect()
    }

    /// Writes rows. Until they are encoded, they need `bytes` bytes of memory.
    fn write_part(&mut self, call: &Call<'_>, part: RecordBatch, bytes: u64, stream: &Stream) -> Result<()> {
        let kept = self.memory_bytes();
        self.reserve(kept.saturating_add(bytes), stream)?;
        self.group()?.n_rows += part.num_rows();
        self.for_columns(call, move |i, column| {
            let missing = || Error::internal(format!("there is no column {i}"));
            let array = part.columns().get(i).ok_or_else(missing)?;
            column.write(array)
        })?;
        Ok(())
    }

    /// The memory of the row group that is being written.
    fn memory_bytes(&self) -> u64 {
        let columns = self.group.iter().flat_map(|group| &group.columns);
        columns.map(|column| column.lock().unwrap_or_else(PoisonError::into_inner).memory_bytes()).sum()
    }

    /// Writes the row group to the sink.
    fn end_group(&mut self, call: &Call<'_>) -> Result<()> {
        let chunks = self.for_columns(call, |_, column| column.close())?;
        self.group = None;
        self.n_groups += 1;
        let (file, sink_error) = (&mut self.file, &self.sink_error);
        writing(|| {
            let mut group = file.next_row_group().map_err(|error| of_file(&error, sink_error))?;
            for chunk in chunks.into_iter().flatten() {
                call.check_cancelled()?;
                chunk.append_to_row_group(&mut group).map_err(|error| of_file(&error, sink_error))?;
            }
            group.close().map_err(|error| of_file(&error, sink_error))?;
            Ok(())
        })
    }

    /// Counts `bytes` against the session's budget.
    fn reserve(&mut self, bytes: u64, stream: &Stream) -> Result<()> {
        if self.group_bytes == u64::MAX
            || self.reserved.as_ref().is_some_and(|reserved| reserved.len() as u64 >= bytes)
        {
            return Ok(());
        }
        self.reserved = None;
        let reserved = self.memory.alloc(stream, usize::try_from(bytes).unwrap_or(usize::MAX));
        let what = "memory for encoding: write smaller batches or row groups, or raise the memory limit";
        self.reserved = Some(reserved.map_err(|error| error.context(what))?);
        Ok(())
    }
}

/// An error of the file's writer, which may be one of the sink.
fn of_file(error: &ParquetError, sink_error: &SinkError) -> Error {
    sink_error.take().unwrap_or_else(|| Error::unsupported(text_of(error)))
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let mut batch = import_batch(batch, &self.schema, &self.memory)?;
        if !batch.metadata().is_empty() && !std::mem::replace(&mut self.has_warned, true) {
            self.host
                .log(abi::LOG_WARN, "a Parquet file cannot store the metadata of batches, which are dropped");
        }
        if self.schema.fields().is_empty() && !batch.is_empty() {
            return Err(Error::unsupported("a Parquet file cannot store rows without columns"));
        }
        let stream = call_stream(&self.memory, call, Device::CPU)?;
        batch.resolve_sizes(&stream)?;
        let mut rows = from_host(&batch, &self.schema, &stream)?;
        let mut converted = 0;
        if self.stored != self.schema {
            converted = batch.buffer_bytes();
            self.reserve(self.memory_bytes().saturating_add(converted), &stream)?;
            rows = writing(|| stored_rows(&rows, &self.stored))?;
        }
        let mut begin = 0;
        while begin < batch.len() {
            let left = self.group_rows - self.group.as_ref().map_or(0, |group| group.n_rows);
            let n_rows = left.min(batch.len() - begin).min(PART_ROWS);
            let bytes = batch.slice(begin, n_rows)?.buffer_bytes();
            let bytes = converted.saturating_add(bytes.saturating_mul(COPIES));
            self.write_part(call, rows.slice(begin, n_rows), bytes, &stream)?;
            begin += n_rows;
            let n_rows = self.group.as_ref().map_or(0, |group| group.n_rows);
            if n_rows >= self.group_rows || self.memory_bytes() > self.group_bytes {
                self.end_group(call)?;
            }
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        if self.group.is_some() {
            self.end_group(call)?;
        }
        let (file, sink_error) = (&mut self.file, &self.sink_error);
        writing(|| file.finish().map(drop).map_err(|error| of_file(&error, sink_error)))?;
        self.reserved = None;
        Ok(Vec::new())
    }
}
