//! Reads batches of a file.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{Fields, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, Projection, call_stream, expect_schema, export_batch, export_schema,
    import_schema_ref,
};
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, Call, Device, Error, Fragment, Honoured, Host, Input, Options, Owned, ReadRequest, Result,
    Selection, Tasks, abi, intersection,
};

use crate::bytes::File;
use crate::columns;
use crate::footer::Footer;
use crate::fragments::Token;
use crate::lane::{Limits, Part};
use crate::plan::{self, BATCH_PARTS, Group};
use crate::prune::prune;
use crate::rows::count;
use crate::running::{Job, Running};
use crate::{settings, statistics};

/// The part of the memory limit that the metadata may use.
const METADATA_PARTS: u64 = 4;
/// The part of the memory limit that a page may use. Each thread decodes one page.
const PAGE_PARTS: u64 = 4;
/// The part of the memory limit that bytes of the file may use, before they are decompressed.
const WINDOW_PARTS: u64 = 16;
/// The part of the memory limit that the batches that are being decoded may use.
const AHEAD_PARTS: u64 = 4;
/// The size of the batches that are being decoded if there is no memory limit, in bytes.
const AHEAD_BYTES: u64 = 1 << 30;
/// The number of columns for each thread that are decoded ahead for a device. With two, a read of
/// 20 million rows and 21 columns takes 53 ms on a machine with an H200 and 16 cores, with four or
/// eight 40 ms.
const DEVICE_COLUMNS_AHEAD: usize = 4;
/// The greatest number of parts that are decoded at the same time.
const MAX_RUNNING: usize = 64;
/// The greatest number of fragments.
const MAX_FRAGMENTS: usize = 1 << 16;

/// The interfaces of the host that a reader uses.
#[derive(Clone)]
pub struct Context {
    pub host: Host,
    pub memory: Memory,
    pub tasks: Tasks,
}

/// The stream of batches of a file.
pub struct Reader {
    name: String,
    job: Arc<Job>,
    schema: SchemaRef,
    selection: Selection,
    device: Device,
    memory_limit_bytes: u64,
    groups: std::vec::IntoIter<Group>,
    /// The parts of the last row group that have not begun, and the size of a row.
    parts: VecDeque<(Part, f64)>,
    running: VecDeque<Running>,
    honoured: Honoured,
    write_options: Options,
    rows_done: u64,
}

impl Reader {
    pub fn open(context: &Context, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Self> {
        let Input::Source(source) = input else {
            return Err(Error::invalid_argument("the input is capsules, expected bytes"));
        };
        let name = source.name().to_owned();
        let open = || {
            call.check_cancelled()?;
            Self::open_file(context, call.device(), File::new(source)?, &name, request)
        };
        open().map_err(|error| error.context(format_args!("'{name}'")))
    }

    fn open_file(
        context: &Context,
        device: Device,
        file: File,
        name: &str,
        request: &ReadRequest<'_>,
    ) -> Result<Self> {
        let limit = context.host.session().map_or(0, |session| session.memory_limit_bytes);
        let part_of_limit = |parts: u64| if limit == 0 { u64::MAX } else { limit / parts };
        let footer = Footer::read(&file, part_of_limit(METADATA_PARTS))?;
        // The memory of unused windows would count against the limit.
        let file = if limit == 0 { file.with_kept_windows() } else { file };
        if let Some(why) = &footer.ignored_schema {
            let text = format!("'{name}': Arrow's schema in the metadata is ignored: {why}");
            context.host.log(abi::LOG_WARN, &text);
        }
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
        let columns = columns::columns(&footer, projection.as_ref())?;
        let mut needed = needed_rows(&footer, &file, request)?;
        let find = |path: &[String]| columns::find(&footer, path);
        let pruned = prune(&file, &footer, &selection.predicates, find)?;
        if let Some(matching) = &pruned {
            needed = intersection(&needed, matching);
        }
        let honoured = Honoured {
            columns: honours_columns,
            rows: selection.rows.is_some(),
            n_rows: Some(count(&needed)),
            prunes: pruned.is_some(),
            ..Honoured::default()
        };
        let write_options = match selection.write_options {
            true => settings::of_file(&footer),
            false => Options::new(),
        };
        let n_leaves = columns.iter().map(|column| column.leaves.len()).sum();
        let limits = Limits {
            page_bytes: part_of_limit(PAGE_PARTS),
            window_bytes: file.window_bytes(part_of_limit(WINDOW_PARTS), n_leaves),
            column_bytes: (limit > 0).then_some(limit / BATCH_PARTS / (columns.len() as u64).max(1)),
        };
        let groups = plan::groups(&footer, &needed, &columns)?.into_iter();
        let is_on_host = device == Device::CPU || limit > 0;
        let n_streams = if is_on_host { 0 } else { context.tasks.width().max(1) };
        let streams = (0..n_streams).map(|_| context.memory.create_stream(device));
        let streams = streams.collect::<Result<_>>()?;
        let job = Job { context: context.clone(), file: Arc::new(file), footer, columns, limits, streams };
        Ok(Self {
            name: name.to_owned(),
            job: Arc::new(job),
            schema,
            selection: selection.clone(),
            device,
            memory_limit_bytes: limit,
            groups,
            parts: VecDeque::new(),
            running: VecDeque::new(),
            honoured,
            write_options,
            rows_done: 0,
        })
    }

    /// Lists the row groups.
    pub fn fragments(&self) -> Result<Vec<Fragment>> {
        let Job { context, footer, file, columns, .. } = &*self.job;
        let n_groups = footer.metadata.num_row_groups();
        let per_fragment = n_groups.div_ceil(MAX_FRAGMENTS).max(1);
        // A file without row groups is one fragment, which contains its schema.
        let begins = (0..n_groups.max(1)).step_by(per_fragment);
        let fragment = |begin: usize| {
            let end = (begin + per_fragment).min(n_groups);
            let mut bytes = 0u64;
            for index in begin..end {
                let group = footer.row_group(index)?;
                let leaves = columns.iter().flat_map(|column| &column.leaves);
                let chunks = leaves.filter_map(|leaf| group.columns().get(*leaf));
                bytes += chunks.map(|chunk| chunk.compressed_size().unsigned_abs()).sum::<u64>();
            }
            let token = Token {
                begin: begin as u64,
                end: end as u64,
                n_groups: n_groups as u64,
                n_rows: footer.n_rows(),
                file_bytes: file.len(),
            };
            let n_rows = footer.rows_of(end).start - footer.rows_of(begin).start;
            let statistics = match end - begin {
                1 => Some(statistics::of_row_group(footer, begin, &context.memory)?),
                _ => None,
            };
            Ok(Fragment { token: token.write(), n_rows: Some(n_rows), bytes, statistics })
        };
        begins.map(fragment).collect()
    }

    /// Starts parts until all threads have work, or until their memory exceeds the budget.
    ///
    /// # Errors
    /// If `must_start`, the error of the first part, unless a part is being decoded.
    fn fill(&mut self, must_start: bool) -> Result<()> {
        let n_columns = self.job.columns.len().max(1);
        // Columns that a device decodes wait for the device, and the device for the host.
        let per_thread = if self.job.streams.is_empty() { 2 } else { DEVICE_COLUMNS_AHEAD };
        let n_ahead = per_thread * self.job.context.tasks.width();
        let ahead = match self.memory_limit_bytes {
            0 => AHEAD_BYTES,
            limit => limit / AHEAD_PARTS,
        };
        while self.running.len() < MAX_RUNNING
            && (self.running.len() < 2 || self.running.len() * n_columns < n_ahead)
            && self.running.iter().map(Running::bytes).sum::<u64>() < ahead
        {
            let Some((part, row_bytes)) = self.next_part() else { return Ok(()) };
            match Running::start(&self.job, part.clone(), row_bytes) {
                Ok(running) => self.running.push_back(running),
                // The batches before it free memory when they have been used.
                Err(error) => {
                    self.parts.push_front((part, row_bytes));
                    return if must_start && self.running.is_empty() { Err(error) } else { Ok(()) };
                }
            }
        }
        Ok(())
    }

    fn next_part(&mut self) -> Option<(Part, f64)> {
        if self.parts.is_empty() {
            let group = self.groups.next()?;
            let step =
                plan::batch_rows(&self.selection, self.device, self.memory_limit_bytes, group.row_bytes);
            let Job { footer, columns, context, streams, .. } = &*self.job;
            let uses_device = !streams.is_empty();
            let parts = plan::parts(footer, &group, step, columns, context.tasks.width(), uses_device);
            self.parts.extend(parts.into_iter().map(|part| (part, group.row_bytes)));
        }
        self.parts.pop_front()
    }

    fn next_batch(&mut self, call: &Call<'_>) -> Result<Option<DeviceBatch>> {
        call.check_cancelled()?;
        self.fill(true)?;
        let Some(running) = self.running.front_mut() else { return Ok(None) };
        let (n_rows, columns, has_more) = running.next(call)?;
        // The threads decode the next batches while this batch is used.
        if !has_more {
            self.running.pop_front();
        }
        self.fill(false)?;
        self.rows_done += n_rows as u64;
        call.progress(self.rows_done, self.honoured.n_rows.unwrap_or(0));
        let columns = self.move_columns(call, n_rows, columns)?;
        let batch = DeviceBatch::try_new(self.schema.clone(), n_rows, columns)?;
        batch.with_default_device(call.device()).map(Some)
    }

    /// Moves the columns that were decoded on the host to the device of the call, together.
    fn move_columns(
        &self,
        call: &Call<'_>,
        n_rows: usize,
        mut columns: Vec<DeviceArray>,
    ) -> Result<Vec<DeviceArray>> {
        let is_elsewhere = |column: &DeviceArray| column.device() != call.device();
        let elsewhere: Vec<_> = columns.iter().filter(|column| is_elsewhere(column)).cloned().collect();
        if elsewhere.is_empty() {
            return Ok(columns);
        }
        let fields = self.schema.fields().iter().zip(&columns).filter(|(_, column)| is_elsewhere(column));
        let schema = Schema::new(fields.map(|(field, _)| field.clone()).collect::<Fields>());
        let batch = DeviceBatch::try_new(Arc::new(schema), n_rows, elsewhere)?;
        let moved = batch.move_for_call(&self.job.context.memory, call, call.device())?;
        let places = columns.iter_mut().filter(|column| is_elsewhere(column));
        for (place, column) in places.zip(moved.into_columns()) {
            *place = column;
        }
        Ok(columns)
    }
}

impl BatchStream for Reader {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let batch = self.next_batch(call).map_err(|error| error.context(format_args!("'{}'", self.name)))?;
        let Some(batch) = batch else { return Ok(None) };
        let stream = call_stream(&self.job.context.memory, call, batch.device())?;
        export_batch(&batch, false, &stream).map(Some)
    }

    fn honoured(&self) -> Honoured {
        self.honoured
    }

    fn write_options(&self) -> Options {
        self.write_options.clone()
    }
}

/// The needed rows of the file or of a fragment, as ascending ranges of positions in the file.
fn needed_rows(footer: &Footer, file: &File, request: &ReadRequest<'_>) -> Result<Vec<Range<u64>>> {
    let piece = match request.fragment {
        Some(token) => {
            let n_groups = footer.metadata.num_row_groups() as u64;
            let groups = Token::find(token, n_groups, footer.n_rows(), file.len())?;
            let begin = |group: u64| footer.rows_of(usize::try_from(group).unwrap_or(usize::MAX - 1)).start;
            begin(groups.start)..begin(groups.end)
        }
        None => 0..footer.n_rows(),
    };
    Ok(request.selection.rows_of_piece(piece))
}
