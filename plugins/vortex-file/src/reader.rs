//! Reads batches of a file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{DataType, Field, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, Projection, call_stream, expect_schema, export_batch, export_schema,
    import_schema_ref,
};
use crossdock_memory::{Device, Memory, Result, StoredSource, Stream};
use crossdock_plugin_api::{
    BatchStream, Call, CallSettings, CancelFlag, Error, Fragment, Honoured, Input, Owned, Predicate,
    ReadRequest, TaskGroup, abi, intersection,
};

use crate::batches;
use crate::columns::{Column, Columns, Decoder, Piece};
use crate::context::{Context, File};
use crate::footer::Footer;
use crate::fragments::{Chunks, Token, rows_of_fragment};
use crate::layout::{Kind, Layout};
use crate::segments::Segments;
use crate::tree::for_each_segment;
use crate::zones::{matching, rows_of};

/// The stream of batches of a file.
pub struct Reader {
    name: String,
    context: Context,
    file: Arc<File>,
    schema: SchemaRef,
    columns: Vec<Column>,
    batches: std::vec::IntoIter<Range<u64>>,
    honoured: Honoured,
    rows_done: u64,
    /// The stream on which segments are copied to the device. It is separate, so that the copies of
    /// a column overlap with the decoding of other columns. `None` for the CPU.
    uploads: Option<Stream>,
    /// The streams on which columns are decoded, one for each thread. Empty for the CPU.
    streams: Vec<Stream>,
    /// The batches that follow the last one.
    ahead: VecDeque<Started>,
    /// Ends the tasks of these batches.
    cancel: CancelFlag,
}

/// The minimum number of chunks in a piece of a column.
const PIECE_CHUNKS: usize = 32;

/// The number of bytes whose copy takes about as long as the calls that decode a segment.
const SEGMENT_COST: u64 = 1 << 20;

/// The same for a segment with values of variable length. The host waits several times for lengths.
const TEXT_COST: u64 = 4 * SEGMENT_COST;

/// The number of batches that are loaded and decoded ahead on a device.
const DEVICE_BATCHES_AHEAD: usize = 2;

/// A batch that tasks read.
struct Started {
    rows: Range<u64>,
    work: Work,
}

enum Work {
    /// A task loads the segments.
    Loading { task: TaskGroup, segments: Arc<Mutex<Option<Segments>>> },
    /// Tasks load and decode the columns.
    Decoding(Columns),
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Reader {
    pub fn open(context: &Context, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Self> {
        let Input::Source(source) = input else {
            return Err(Error::invalid_argument("the input is capsules, expected bytes"));
        };
        let name = source.name().to_owned();
        Self::open_source(context, call, StoredSource::new(source), &name, request)
            .map_err(|error| error.context(format_args!("'{name}'")))
    }

    fn open_source(
        context: &Context,
        call: &Call<'_>,
        source: std::result::Result<StoredSource, crossdock_plugin_api::Source>,
        name: &str,
        request: &ReadRequest<'_>,
    ) -> Result<Self> {
        let source = source.map_err(|_| {
            Error::unsupported(
                "a Vortex file is read from its end, but the input is a pipe: store it in a file first",
            )
        })?;
        let warn = &mut |text: &str| context.host.log(abi::LOG_WARN, &format!("'{name}': {text}"));
        let footer = Footer::read(&source, warn)?;
        if let Some(expected) = request.schema {
            // SAFETY: the plugin boundary requires the caller to pass a valid ArrowSchema that
            // lives until the call returns.
            expect_schema(&footer.schema, &unsafe { import_schema_ref(expected) }?)?;
        }
        let selection = request.selection;
        // If a requested column does not exist, the host reports it.
        let projection = selection.columns.as_ref().map(|paths| Projection::new(&footer.schema, paths));
        let honours_columns = matches!(projection, Some(Ok(_)));
        let projection = projection.and_then(Result::ok);
        let schema = match &projection {
            Some(projection) => Arc::new(projection.schema(&footer.schema)?),
            None => footer.schema.clone(),
        };
        let all = 0..footer.schema.fields().len();
        let columns = match &projection {
            None => all.map(|index| Column { index, fields: None }).collect::<Vec<_>>(),
            Some(projection) => all
                .filter_map(|index| Some(Column { index, fields: projection.get(index)?.cloned() }))
                .collect(),
        };
        let n_file_rows = footer.root.rows;
        let file =
            Arc::new(File { segments: footer.segments.clone().into(), source: Arc::new(source), footer });
        let piece = match request.fragment {
            Some(token) => Token::find(token, n_file_rows, file.source.len())?,
            None => 0..n_file_rows,
        };
        let mut needed = selection.rows_of_piece(piece);
        let pruned = prune(context, call, &file, &selection.predicates)?;
        if let Some(matching) = &pruned {
            needed = intersection(&needed, matching);
        }
        let layouts = columns.iter().map(|column| Ok(file.footer.column(column.index)?.0));
        let layouts = layouts.collect::<Result<Vec<&Layout>>>()?;
        let memory_limit_bytes = context.host.session().map_or(0, |session| session.memory_limit_bytes);
        let is_cpu = call.device() == Device::CPU;
        let device_bytes = if is_cpu { None } else { Some(memory_bytes(&context.memory, call.device())?) };
        let batches =
            batches::divide(&needed, &layouts, &schema, selection, (device_bytes, memory_limit_bytes));
        let n_rows = needed.iter().map(|rows| rows.end - rows.start).sum();
        let honoured = Honoured {
            columns: honours_columns,
            rows: selection.rows.is_some(),
            n_rows: Some(n_rows),
            prunes: pruned.is_some(),
            ..Honoured::default()
        };
        let uploads = (!is_cpu).then(|| context.memory.create_stream(call.device())).transpose()?;
        let n_streams = if is_cpu { 0 } else { context.tasks.width().max(1) };
        let streams = (0..n_streams).map(|_| context.memory.create_stream(call.device()));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            name: name.to_owned(),
            context: context.clone(),
            schema,
            columns,
            batches: batches.into_iter(),
            honoured,
            rows_done: 0,
            uploads,
            streams,
            ahead: VecDeque::new(),
            cancel: CancelFlag::new(),
            file,
        })
    }

    /// Lists pieces of the file of at least 16 MiB, and of at least as many rows as the chunks that
    /// hold most of the bytes.
    pub fn fragments(&self) -> Result<Vec<Fragment>> {
        let File { source, footer, .. } = &*self.file;
        let (n_rows, file_bytes) = (footer.root.rows, source.len());
        let layouts = self.columns.iter().map(|column| Ok(footer.column(column.index)?.0));
        let layouts = layouts.collect::<Result<Vec<&Layout>>>()?;
        let chunks = |layout: &&Layout| {
            let mut bytes = 0u64;
            for_each_needed_segment(layout, None, &(0..n_rows), &mut |index| {
                bytes = bytes.saturating_add(self.segment_bytes(index));
            });
            let n_chunks = batches::boundaries(&[layout]).len() as u64 + 1;
            Chunks { rows: n_rows.div_ceil(n_chunks), bytes }
        };
        let max_rows = rows_of_fragment(n_rows, file_bytes, layouts.iter().map(chunks).collect());
        let parts = batches::cut(&[0..n_rows], max_rows, &batches::boundaries(&layouts));
        // A file without rows is one fragment, which contains its schema.
        let parts = if parts.is_empty() { vec![0..0] } else { parts };
        let segments = |rows: &Range<u64>| {
            let mut segments = BTreeSet::new();
            for layout in &layouts {
                for_each_needed_segment(layout, None, rows, &mut |index| {
                    segments.insert(index);
                });
            }
            segments
        };
        let segments = parts.iter().map(segments).collect::<Vec<_>>();
        let mut n_uses: BTreeMap<u32, u64> = BTreeMap::new();
        segments.iter().flatten().for_each(|index| *n_uses.entry(*index).or_default() += 1);
        // The bytes of a segment that several fragments need are divided between them, so that the
        // sum over all fragments is the size of the segments.
        let bytes = |index: &u32| Some(self.segment_bytes(*index) / n_uses.get(index)?);
        let fragment = |(rows, segments): (Range<u64>, &BTreeSet<u32>)| Fragment {
            token: Token { begin: rows.start, end: rows.end, n_rows, file_bytes }.write(),
            n_rows: Some(rows.end - rows.start),
            bytes: segments.iter().filter_map(bytes).sum(),
            statistics: None,
        };
        Ok(parts.into_iter().zip(&segments).map(fragment).collect())
    }

    fn next_batch(&mut self, call: &Call<'_>) -> Result<Option<DeviceBatch>> {
        call.check_cancelled()?;
        let stream = call_stream(&self.context.memory, call, call.device())?;
        let next = match self.ahead.pop_front() {
            Some(next) => Some(next),
            None => self.start(call, &stream)?,
        };
        let Some(Started { rows, work }) = next else { return Ok(None) };
        let columns = match work {
            Work::Decoding(columns) => {
                self.start_ahead(call, &stream, DEVICE_BATCHES_AHEAD)?;
                columns.wait(&stream, || self.check_cancelled(call))?
            }
            Work::Loading { task, segments } => {
                task.wait(|| self.check_cancelled(call))?;
                let segments = segments.lock().unwrap_or_else(PoisonError::into_inner).take();
                let missing = || Error::internal("the task that loads segments has no result");
                let segments = segments.ok_or_else(missing)?;
                // The segments of the next batch are loaded while this batch is decoded.
                self.start_ahead(call, &stream, 1)?;
                self.decode_all(call, segments, &rows, &stream)?
            }
        };
        let n_rows = rows.end - rows.start;
        self.rows_done += n_rows;
        call.progress(self.rows_done, self.honoured.n_rows.unwrap_or(0));
        let len = usize::try_from(n_rows).map_err(|_| Error::out_of_memory("a batch has too many rows"))?;
        DeviceBatch::try_new(self.schema.clone(), len, columns)?.with_default_device(call.device()).map(Some)
    }

    /// Starts the `n` batches that follow the current one.
    fn start_ahead(&mut self, call: &Call<'_>, stream: &Stream, n: usize) -> Result<()> {
        while self.ahead.len() < n
            && let Some(next) = self.start(call, stream)?
        {
            self.ahead.push_back(next);
        }
        Ok(())
    }

    fn check_cancelled(&self, call: &Call<'_>) -> Result<()> {
        call.check_cancelled().inspect_err(|_| self.cancel.cancel())
    }

    /// Starts the next batch; `None` if there is none. On a device, a task for each column loads
    /// the column's segments and decodes the column. On the CPU, a task loads the segments.
    fn start(&mut self, call: &Call<'_>, stream: &Stream) -> Result<Option<Started>> {
        let Some(rows) = self.batches.next() else { return Ok(None) };
        let work = match &self.uploads {
            Some(uploads) => {
                let mut columns = Vec::with_capacity(self.columns.len());
                for (i, column) in self.columns.iter().enumerate() {
                    let (_, field) = self.file.footer.column(column.index)?;
                    let segment_cost = if is_text(field.data_type()) { TEXT_COST } else { SEGMENT_COST };
                    let mut cost = 0;
                    let pieces = self.pieces(column, &rows)?.into_iter().map(|rows| {
                        let needed = self.needed_segments(slice::from_ref(column), &rows)?;
                        cost +=
                            needed.iter().map(|index| segment_cost + self.segment_bytes(*index)).sum::<u64>();
                        let load = self.load_job(needed, uploads);
                        Ok(Piece { column: i, load, decode: self.decode_job(column, rows) })
                    });
                    let pieces = pieces.collect::<Result<Vec<_>>>()?;
                    columns.push((cost, pieces));
                }
                // The columns that take the longest to decode are loaded first, so that little is
                // left to do when the last column is loaded.
                columns.sort_by_key(|(cost, _)| Reverse(*cost));
                let pieces = columns.into_iter().flat_map(|(_, pieces)| pieces).collect();
                let settings = self.settings(call);
                Work::Decoding(Columns::start_loads(&self.context.tasks, &settings, &self.streams, pieces)?)
            }
            None => self.start_loading(call, stream, &rows)?,
        };
        Ok(Some(Started { rows, work }))
    }

    /// Divides rows of a column with many chunks into pieces that are decoded at the same time.
    fn pieces(&self, column: &Column, rows: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let (layout, _) = self.file.footer.column(column.index)?;
        let boundaries = batches::boundaries(&[layout]);
        let n_chunks = boundaries.range(rows.start..rows.end).count();
        let n_pieces = (n_chunks / PIECE_CHUNKS).clamp(1, self.streams.len().max(1)) as u64;
        let piece_rows = (rows.end - rows.start).div_ceil(n_pieces);
        Ok(batches::cut(slice::from_ref(rows), piece_rows, &boundaries))
    }

    /// A job that loads segments. The loads of all columns are on one stream, so that they overlap
    /// with the decoding of other columns.
    fn load_job(
        &self,
        needed: BTreeSet<u32>,
        uploads: &Stream,
    ) -> impl FnOnce(&Call<'_>) -> Result<Segments> + Send + use<> {
        let (context, file, uploads) = (self.context.clone(), self.file.clone(), uploads.clone());
        move |call: &Call<'_>| {
            let Context { memory, loader, .. } = &context;
            let source = (&file.source, &file.segments);
            Segments::load(call, source, &needed, (memory, loader), &uploads)
        }
    }

    /// A job that decodes rows of a column.
    fn decode_job(
        &self,
        column: &Column,
        rows: Range<u64>,
    ) -> impl FnOnce(&Call<'_>, &Stream, Segments) -> Result<DeviceArray> + Send + use<> {
        let (context, file, column) = (self.context.clone(), self.file.clone(), column.clone());
        move |call: &Call<'_>, stream: &Stream, segments: Segments| {
            Decoder { context, file, segments }.column(call, &column, &rows, stream)
        }
    }

    fn start_loading(&self, call: &Call<'_>, stream: &Stream, rows: &Range<u64>) -> Result<Work> {
        let needed = self.needed_segments(&self.columns, rows)?;
        let segments = Arc::new(Mutex::new(None));
        let (loaded, context, file) = (segments.clone(), self.context.clone(), self.file.clone());
        let (settings, stream) = (self.settings(call), stream.clone());
        let job = move || {
            let Context { memory, loader, .. } = &context;
            let source = (&file.source, &file.segments);
            let load = |call: &Call<'_>| Segments::load(call, source, &needed, (memory, loader), &stream);
            let segments = settings.enter(load)?;
            *loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(segments);
            Ok(())
        };
        Ok(Work::Loading { task: self.context.tasks.start([job])?, segments })
    }

    /// The size of a segment in bytes; 0 if there is no such segment.
    fn segment_bytes(&self, index: u32) -> u64 {
        self.file.segments.get(index as usize).map_or(0, |segment| u64::from(segment.bytes))
    }

    /// The segments that rows of columns need.
    fn needed_segments(&self, columns: &[Column], rows: &Range<u64>) -> Result<BTreeSet<u32>> {
        let mut needed = BTreeSet::new();
        for column in columns {
            let (layout, _) = self.file.footer.column(column.index)?;
            for_each_needed_segment(layout, column.fields.as_ref(), rows, &mut |index| {
                needed.insert(index);
            });
        }
        Ok(needed)
    }

    /// The settings of tasks, which may outlive the call that starts them.
    fn settings(&self, call: &Call<'_>) -> CallSettings {
        CallSettings {
            cancel: self.cancel.clone(),
            validate: call.validate(),
            byte_budget: call.byte_budget(),
            ..CallSettings::new(call.device())
        }
    }

    /// Decodes the columns on the threads of the session.
    fn decode_all(
        &self,
        call: &Call<'_>,
        segments: Segments,
        rows: &Range<u64>,
        stream: &Stream,
    ) -> Result<Vec<DeviceArray>> {
        let decoder = Arc::new(Decoder { context: self.context.clone(), file: self.file.clone(), segments });
        if self.columns.len() < 2 || self.context.tasks.width() < 2 {
            let decode = |column: &Column| decoder.column(call, column, rows, stream);
            return self.columns.iter().map(decode).collect();
        }
        let cancel = CancelFlag::new();
        let settings = CallSettings { cancel: cancel.clone(), ..self.settings(call) };
        let job = |column: &Column| {
            let (decoder, column, rows) = (decoder.clone(), column.clone(), rows.clone());
            move |call: &Call<'_>, stream: &Stream| decoder.column(call, &column, &rows, stream)
        };
        let jobs = self.columns.iter().map(job).enumerate().collect();
        let columns = Columns::start(&self.context.tasks, &settings, stream, jobs)?;
        columns.wait(stream, || call.check_cancelled().inspect_err(|_| cancel.cancel()))
    }
}

/// Whether the values have variable lengths.
fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// The size of a device's memory in bytes; 0 if it is unknown.
fn memory_bytes(memory: &Memory, device: Device) -> Result<u64> {
    let devices = memory.devices()?;
    Ok(devices.iter().find(|info| info.device == device).map_or(0, |info| info.memory_bytes))
}

impl BatchStream for Reader {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let batch = self.next_batch(call).map_err(|error| error.context(format_args!("'{}'", self.name)))?;
        let Some(batch) = batch else { return Ok(None) };
        let stream = call_stream(&self.context.memory, call, batch.device())?;
        export_batch(&batch, false, &stream).map(Some)
    }

    fn honoured(&self) -> Honoured {
        self.honoured
    }
}

impl Footer {
    /// The layout and the type of a column.
    pub fn column(&self, index: usize) -> Result<(&Layout, &Field)> {
        let missing = || Error::internal(format!("there is no column {index}"));
        if !self.is_table {
            return Ok((&self.root, &self.field));
        }
        let field = self.schema.fields().get(index).ok_or_else(missing)?;
        match &self.root.kind {
            Kind::Struct { fields, .. } => Ok((fields.get(index).ok_or_else(missing)?, field)),
            _ => Err(Error::unsupported(
                "the columns of the table are not separate layouts, expected the layout vortex.struct",
            )),
        }
    }

    /// The layout and the type of the column or field at a path. `None` if it has no layout.
    fn at_path(&self, path: &[String]) -> Option<(&Layout, &Field)> {
        let (first, rest) = path.split_first()?;
        let index = self.schema.fields().iter().position(|field| field.name() == first)?;
        let (mut layout, mut field) = self.column(index).ok()?;
        for name in rest {
            let (Kind::Struct { fields, .. }, DataType::Struct(types)) = (&layout.kind, field.data_type())
            else {
                return None;
            };
            let index = types.iter().position(|field| field.name() == name)?;
            (layout, field) = (fields.get(index)?, types.get(index)?);
        }
        Some((layout, field))
    }
}

/// The rows that can fulfil the predicates, as ascending ranges. `None` if the file has no
/// statistics for them.
fn prune(
    context: &Context,
    call: &Call<'_>,
    file: &Arc<File>,
    predicates: &[Predicate],
) -> Result<Option<Vec<Range<u64>>>> {
    let mut pruned: Option<Vec<Range<u64>>> = None;
    let mut by_column: BTreeMap<&[String], Vec<&Predicate>> = BTreeMap::new();
    for predicate in predicates {
        by_column.entry(&predicate.column).or_default().push(predicate);
    }
    for (path, predicates) in by_column {
        let Some((layout, field)) = file.footer.at_path(path) else { continue };
        let Some(zones) = &layout.zones else { continue };
        let stream = context.memory.default_stream(Device::CPU)?;
        let settings = CallSettings { validate: call.validate(), ..CallSettings::new(Device::CPU) };
        let table = settings.enter(|call| {
            let rows = 0..zones.layout.rows;
            let mut needed = BTreeSet::new();
            for_each_needed_segment(&zones.layout, None, &rows, &mut |index| {
                needed.insert(index);
            });
            let source = (&file.source, &file.segments);
            let segments =
                Segments::load(call, source, &needed, (&context.memory, &context.loader), &stream)?;
            let decoder = Decoder { context: context.clone(), file: file.clone(), segments };
            decoder.array(call, ("", &zones.layout, &zones.table.field), None, &rows, &stream)
        });
        let in_zones = |error: Error| error.context(format_args!("the zones of column '{}'", path.join(".")));
        let (table, n_rows) = (table.map_err(in_zones)?, layout.rows);
        let flags = matching(&zones.table, &table, n_rows, field.data_type(), &predicates, &stream);
        if let Some(flags) = flags.map_err(in_zones)? {
            let rows = rows_of(&flags, zones.table.zone_rows, n_rows);
            pruned = Some(pruned.map_or_else(|| rows.clone(), |pruned| intersection(&pruned, &rows)));
        }
    }
    Ok(pruned)
}

/// Calls `f` with each segment that rows of the chosen fields of a layout need.
fn for_each_needed_segment(
    layout: &Layout,
    chosen: Option<&Projection>,
    rows: &Range<u64>,
    f: &mut dyn FnMut(u32),
) {
    let Kind::Struct { validity, fields } = &layout.kind else { return for_each_segment(layout, rows, f) };
    if let Some(validity) = validity {
        for_each_segment(validity, rows, f);
    }
    for (i, field) in fields.iter().enumerate() {
        match chosen.map(|chosen| chosen.get(i)) {
            None => for_each_needed_segment(field, None, rows, f),
            Some(Some(chosen)) => for_each_needed_segment(field, chosen, rows, f),
            Some(None) => {}
        }
    }
}
