//! Decodes the columns of a batch.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::take::byte_aligned_bits;
use crossdock_arrays::{DeviceArray, DeviceBatch, Projection, import_batch};
use crossdock_memory::{Result, Stream};
use crossdock_plugin_api::{Call, CallSettings, CallStream, Error, TaskGroup, Tasks};

use crate::context::{Context, File};
use crate::layout::{Kind, Layout};
use crate::segments::Segments;
use crate::tree::{Builder, covering};

/// A needed column.
#[derive(Clone)]
pub struct Column {
    /// The position of the column in the file.
    pub index: usize,
    /// The needed fields of a struct; `None` for all fields.
    pub fields: Option<Projection>,
}

/// The columns of a batch, which tasks decode.
pub struct Columns {
    tasks: TaskGroup,
    /// The decoded pieces of the columns, in the order of the rows.
    decoded: Arc<Mutex<Vec<Option<DeviceArray>>>>,
    /// The column of each piece.
    columns: Vec<usize>,
}

impl Columns {
    /// Starts the jobs, each of which decodes a piece of a column. The column is given by its
    /// position in the batch, and its pieces are in the order of the rows. The jobs use `streams`
    /// in turn, because jobs on the same stream would wait for each other.
    pub fn start<F>(
        tasks: &Tasks,
        settings: &CallSettings,
        streams: &[Stream],
        jobs: Vec<(usize, F)>,
    ) -> Result<Self>
    where
        F: FnOnce(&Call<'_>, &Stream) -> Result<DeviceArray> + Send + 'static,
    {
        let columns = jobs.iter().map(|(column, _)| *column).collect();
        let decoded = Arc::new(Mutex::new(vec![None; jobs.len()]));
        let task = |(i, ((_, job), stream)): (usize, ((usize, F), &Stream))| {
            let (mut settings, stream, decoded) = (settings.clone(), stream.clone(), decoded.clone());
            move || {
                // SAFETY: `stream` lives until the call has returned.
                settings.stream = unsafe { CallStream::new(stream.raw()) };
                let array = settings.enter(|call| job(call, &stream))?;
                let mut decoded = decoded.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(place) = decoded.get_mut(i) {
                    *place = Some(array);
                }
                Ok(())
            }
        };
        let all = jobs.into_iter().zip(streams.iter().cycle()).enumerate().map(task);
        Ok(Self { tasks: tasks.start(all)?, decoded, columns })
    }

    /// Waits for the columns, and concatenates their pieces on `stream`. Calls `check` regularly.
    /// If `check` returns an error, the wait ends.
    pub fn wait(self, stream: &Stream, check: impl Fn() -> Result<()>) -> Result<Vec<DeviceArray>> {
        self.tasks.wait(check)?;
        let decoded = std::mem::take(&mut *self.decoded.lock().unwrap_or_else(PoisonError::into_inner));
        let n = self.columns.iter().max().map_or(0, |last| last + 1);
        let mut columns: Vec<Vec<DeviceArray>> = vec![Vec::new(); n];
        for (i, array) in self.columns.iter().zip(decoded) {
            let missing = || Error::internal("a task that decodes a column has no result");
            columns.get_mut(*i).ok_or_else(missing)?.push(array.ok_or_else(missing)?);
        }
        columns.into_iter().map(|pieces| concatenate(pieces, stream)).collect()
    }
}

/// Concatenates the pieces of a column.
fn concatenate(mut pieces: Vec<DeviceArray>, stream: &Stream) -> Result<DeviceArray> {
    let missing = || Error::internal("a column has no piece");
    if pieces.len() < 2 {
        return pieces.pop().ok_or_else(missing);
    }
    let data_type = pieces.first().ok_or_else(missing)?.data_type().clone();
    let schema = Arc::new(Schema::new(vec![Field::new("", data_type, true)]));
    let batch = |piece: DeviceArray| {
        DeviceBatch::try_new(schema.clone(), piece.len(), vec![piece])?.with_default_device(stream.device())
    };
    let batches = pieces.into_iter().map(batch).collect::<Result<Vec<_>>>()?;
    DeviceBatch::concatenate(&batches, stream)?.into_columns().pop().ok_or_else(missing)
}

/// Decodes columns of a batch.
pub struct Decoder {
    pub context: Context,
    pub file: Arc<File>,
    pub segments: Segments,
}

impl Decoder {
    pub fn column(
        &self,
        call: &Call<'_>,
        column: &Column,
        rows: &Range<u64>,
        stream: &Stream,
    ) -> Result<DeviceArray> {
        let (layout, field) = self.file.footer.column(column.index)?;
        let named = (field.name().as_str(), layout, field);
        self.array(call, named, column.fields.as_ref(), rows, stream)
            .map_err(|error| error.context(format_args!("column '{}'", field.name())))
    }

    /// Decodes rows of the chosen fields of a layout of the column `name`.
    pub fn array(
        &self,
        call: &Call<'_>,
        (name, layout, field): (&str, &Layout, &Field),
        chosen: Option<&Projection>,
        rows: &Range<u64>,
        stream: &Stream,
    ) -> Result<DeviceArray> {
        let (Kind::Struct { validity, fields }, DataType::Struct(types)) = (&layout.kind, field.data_type())
        else {
            let array = self.decode(call, (name, layout, field), rows)?;
            return match chosen {
                Some(chosen) => project(array, field, chosen),
                None => Ok(array),
            };
        };
        let len = usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX);
        let validity = match validity {
            Some(validity) => {
                let field = Field::new("", DataType::Boolean, false);
                let bools = self.decode(call, (name, validity, &field), rows)?;
                let bits = bools.buffers().get(1).cloned().flatten();
                bits.map(|bits| byte_aligned_bits(stream, &bits, bools.offset(), len)).transpose()?
            }
            None => None,
        };
        let mut children = Vec::new();
        for (i, (layout, field)) in fields.iter().zip(types).enumerate() {
            let chosen = match chosen.map(|chosen| chosen.get(i)) {
                None => None,
                Some(Some(chosen)) => chosen,
                Some(None) => continue,
            };
            let child = self.array(call, (name, layout, field), chosen, rows, stream);
            children.push(child.map_err(|error| error.context(format_args!("field '{}'", field.name())))?);
        }
        let data_type = match chosen {
            Some(chosen) => chosen.data_type(field.data_type())?,
            None => field.data_type().clone(),
        };
        let null_count = if validity.is_some() { None } else { Some(0) };
        DeviceArray::try_new(data_type, len, 0, null_count, vec![validity], children, None)
    }

    fn decode(
        &self,
        call: &Call<'_>,
        (name, layout, field): (&str, &Layout, &Field),
        rows: &Range<u64>,
    ) -> Result<DeviceArray> {
        let Context { host, memory, .. } = &self.context;
        let covered = covering(layout, rows);
        let builder = Builder::new(host, memory, &self.file.footer.encodings, &self.segments);
        // The host's plans name the column by the name of the array's type.
        let field = field.clone().with_name(name);
        let array = builder.array(layout, &field, covered.clone())?;
        let needed = rows.start - covered.start..rows.end - covered.start;
        let needed = (covered != *rows).then_some(needed);
        let batch = host.decode(call, array, needed)?;
        let schema = Arc::new(Schema::new(vec![field.with_name("")]));
        let batch = import_batch(batch, &schema, memory)?;
        batch
            .into_columns()
            .into_iter()
            .next()
            .ok_or_else(|| Error::internal("a decoded batch has no column"))
    }
}

/// The chosen fields of an array of structs.
fn project(array: DeviceArray, field: &Field, chosen: &Projection) -> Result<DeviceArray> {
    let len = array.len();
    let schema = Arc::new(Schema::new(vec![field.clone()]));
    let path = Projection::nested(chosen.clone());
    let projected = Arc::new(path.schema(&schema)?);
    let batch = path.batch(&DeviceBatch::try_new(schema, len, vec![array])?, &projected)?;
    batch.into_columns().into_iter().next().ok_or_else(|| Error::internal("a projected batch has no column"))
}
