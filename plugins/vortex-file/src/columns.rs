//! Decodes the columns of a batch.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// The columns of a batch, which tasks decode. Dropping it ends the tasks.
pub struct Columns(Arc<Work>);

/// What the tasks of a batch share.
struct Work {
    /// The tasks that were started. A task adds those that it starts before it returns.
    groups: Mutex<Vec<TaskGroup>>,
    /// Whether no further piece is to be loaded.
    has_ended: AtomicBool,
    /// The decoded pieces of the columns. Each piece has the position of its column in the batch,
    /// and the pieces of a column are in the order of the rows.
    decoded: Mutex<Vec<(usize, Option<DeviceArray>)>>,
}

impl Work {
    fn new(columns: impl Iterator<Item = usize>) -> Arc<Self> {
        let decoded = columns.map(|column| (column, None)).collect();
        Arc::new(Self {
            groups: Mutex::default(),
            has_ended: AtomicBool::new(false),
            decoded: Mutex::new(decoded),
        })
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn add(&self, group: TaskGroup) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).push(group);
    }

    fn pop(&self) -> Option<TaskGroup> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn set(&self, piece: usize, array: DeviceArray) {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = decoded.get_mut(piece) {
            *place = Some(array);
        }
    }
}

/// A piece of a column, which `load` loads and `decode` decodes.
pub struct Piece<L, D> {
    /// The position of the column in the batch.
    pub column: usize,
    pub load: L,
    pub decode: D,
}

/// The maximum number of pieces of a batch that are loaded at the same time, each by several
/// threads. If each thread loaded a piece of its own, all pieces would be complete only near the
/// end, and nothing could be decoded in the meantime. With one load at a time, threads would be
/// idle when it ends. On an H100 with 16 cores, three loads take 10.5 ms for a file of 0.4 GB, one
/// load 14 ms, and sixteen 12 ms.
const CONCURRENT_LOADS: usize = 3;

/// A piece that no lane has begun to load.
struct Waiting<L, D> {
    number: usize,
    piece: Piece<L, D>,
    /// The stream on which the piece is decoded.
    stream: Stream,
}

/// Loads pieces, one after the other.
struct Lane<L, D> {
    waiting: Arc<Mutex<VecDeque<Waiting<L, D>>>>,
    work: Arc<Work>,
    tasks: Tasks,
    settings: CallSettings,
}

impl<T, L, D> Lane<L, D>
where
    T: Send + 'static,
    L: FnOnce(&Call<'_>) -> Result<T> + Send + 'static,
    D: FnOnce(&Call<'_>, &Stream, T) -> Result<DeviceArray> + Send + 'static,
{
    /// Loads the next piece, and starts a task that decodes it and a task that loads another one.
    fn run(self) -> Result<()> {
        let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(Waiting { number, piece, stream }) = next.filter(|_| !self.work.has_ended()) else {
            return Ok(());
        };
        let Piece { load, decode, .. } = piece;
        let loaded = self.settings.enter(load).inspect_err(|_| self.work.end())?;
        let (settings, work) = (self.settings.clone(), self.work.clone());
        self.work.add(self.tasks.start([move || {
            let decode = |call: &Call<'_>, stream: &Stream| decode(call, stream, loaded);
            on_stream(settings, &stream, decode)
                .map(|array| work.set(number, array))
                .inspect_err(|_| work.end())
        }])?);
        let (work, tasks) = (self.work.clone(), self.tasks.clone());
        work.add(tasks.start([move || self.run()])?);
        Ok(())
    }
}

impl Columns {
    /// Starts the jobs, each of which decodes the column at a position in the batch.
    pub fn start<F>(
        tasks: &Tasks,
        settings: &CallSettings,
        stream: &Stream,
        jobs: Vec<(usize, F)>,
    ) -> Result<Self>
    where
        F: FnOnce(&Call<'_>, &Stream) -> Result<DeviceArray> + Send + 'static,
    {
        let columns = Self(Work::new(jobs.iter().map(|(column, _)| *column)));
        let task = |(i, (_, job)): (usize, (usize, F))| {
            let (settings, stream, work) = (settings.clone(), stream.clone(), columns.0.clone());
            move || on_stream(settings, &stream, job).map(|array| work.set(i, array))
        };
        columns.0.add(tasks.start(jobs.into_iter().enumerate().map(task))?);
        Ok(columns)
    }

    /// Starts to load pieces of columns, in this order, and to decode each of them when it is
    /// loaded. Pieces are decoded on `streams` in turn, because those on the same stream would wait
    /// for each other.
    pub fn start_loads<T, L, D>(
        tasks: &Tasks,
        settings: &CallSettings,
        streams: &[Stream],
        pieces: Vec<Piece<L, D>>,
    ) -> Result<Self>
    where
        T: Send + 'static,
        L: FnOnce(&Call<'_>) -> Result<T> + Send + 'static,
        D: FnOnce(&Call<'_>, &Stream, T) -> Result<DeviceArray> + Send + 'static,
    {
        // If not all lanes can be started, dropping `columns` ends the tasks of those that were.
        let columns = Self(Work::new(pieces.iter().map(|piece| piece.column)));
        let n_lanes = pieces.len().min(CONCURRENT_LOADS);
        let pieces = pieces.into_iter().zip(streams.iter().cloned().cycle());
        let wait = |(number, (piece, stream))| Waiting { number, piece, stream };
        let waiting = pieces.enumerate().map(wait).collect();
        let waiting = Arc::new(Mutex::new(waiting));
        let lane = |_| {
            let (waiting, work) = (waiting.clone(), columns.0.clone());
            let lane = Lane { waiting, work, tasks: tasks.clone(), settings: settings.clone() };
            move || lane.run()
        };
        columns.0.add(tasks.start((0..n_lanes).map(lane))?);
        Ok(columns)
    }

    /// Waits for the columns, and concatenates their pieces on `stream`. Calls `check` regularly.
    /// If `check` returns an error, the wait ends.
    pub fn wait(self, stream: &Stream, check: impl Fn() -> Result<()>) -> Result<Vec<DeviceArray>> {
        while let Some(group) = self.0.pop() {
            group.wait(&check)?;
        }
        let decoded = std::mem::take(&mut *self.0.decoded.lock().unwrap_or_else(PoisonError::into_inner));
        let n = decoded.iter().map(|(column, _)| column + 1).max().unwrap_or(0);
        let mut columns: Vec<Vec<DeviceArray>> = vec![Vec::new(); n];
        for (column, array) in decoded {
            let missing = || Error::internal("a task that decodes a column has no result");
            columns.get_mut(column).ok_or_else(missing)?.push(array.ok_or_else(missing)?);
        }
        columns.into_iter().map(|pieces| concatenate(pieces, stream)).collect()
    }
}

impl Drop for Columns {
    fn drop(&mut self) {
        self.0.end();
        // Dropping a group waits for its tasks, which may add groups.
        while let Some(group) = self.0.pop() {
            drop(group);
        }
    }
}

/// Runs a job in a call whose stream is `stream`.
fn on_stream<T>(
    mut settings: CallSettings,
    stream: &Stream,
    job: impl FnOnce(&Call<'_>, &Stream) -> Result<T>,
) -> Result<T> {
    // SAFETY: `stream` lives until the call has returned.
    settings.stream = unsafe { CallStream::new(stream.raw()) };
    settings.enter(|call| job(call, stream))
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
