//! Reads batches from an input through an importer.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{
    DeviceBatch, Level, PendingBatch, export_schema, import_pending_result, import_schema, validate,
};
use crossdock_isolation::truncated::guarded;
use crossdock_plugin_api::{
    BatchStreamHandle, ByteSource, CallSettings, Capsule, Device, Error as ApiError, Input as ApiInput,
    Options, ReadRequest, Source, Validate,
};

use crate::error::{Error, Result};
use crate::foreign_memory;
use crate::place::move_batch;
use crate::plugin::Plugin;
use crate::read_options::ReadOptions;
use crate::registry::{Choice, Registry, Way};
use crate::selection::{Remaining, Request};
use crate::session::Session;
use crate::source::{FileSource, Input, PipeSource};
use crate::stated_rows::StatedRows;
use crate::tracing_hooks::{self, Producer, TracedDrop};
use crate::whole_ranges;

/// After batches with this number of bytes in total, the pages of a mapped input are released.
/// Therefore, only a bounded part of a large file is in memory.
const TRIM_BYTES: u64 = 128 << 20;

/// Files with fewer bytes are read instead of mapped, because creating and removing a mapping and
/// its page faults would take longer.
const MIN_MAPPED_BYTES: u64 = 1 << 20;

/// An opened input: batches with one schema.
pub struct Reader {
    // The stream is dropped before the plugin that created it.
    stream: TracedDrop<BatchStreamHandle>,
    plugin: Arc<Plugin>,
    session: Session,
    call: CallSettings,
    /// The schema of the stream's batches, before the host chooses columns.
    stream_schema: SchemaRef,
    schema: SchemaRef,
    format: Arc<str>,
    name: Arc<str>,
    /// The inputs; none for capsules.
    inputs: Vec<Input>,
    untrimmed_bytes: u64,
    ended: bool,
    /// The error after which the reader returns no more batches.
    failed: Option<ApiError>,
    remaining: Remaining,
    /// The number of rows that the reader returns in total, if it is known.
    n_rows: Option<u64>,
    write_options: Options,
    stated_rows: StatedRows,
}

impl Session {
    /// Recognises the plugin and the format of `input`. `from` is the name of a plugin or a format.
    pub fn recognise(&self, input: &Input, from: Option<&str>) -> Result<Choice> {
        let plugins = self.plugins_without_warnings(from.as_slice());
        let (n_head, n_tail) = Registry::new(&plugins).magic_bytes();
        let (head, tail) = (input.head(n_head)?, input.tail(n_tail)?);
        self.choose(from, |registry| registry.choose_input(from, &head, &tail, input.name()))
    }

    /// Opens an input with a new instance of its plugin.
    ///
    /// # Errors
    /// [`Error::Usage`] or [`Error::Unrecognised`] if the format is unclear, [`Error::Plugin`] if
    /// the plugin cannot read the input.
    pub fn read(&self, input: Input, options: &ReadOptions) -> Result<Reader> {
        let choice = self.recognise(&input, options.from.as_deref())?;
        let plugin = self.instance_for_task(&choice.plugin, "read")?;
        self.read_by(Choice { plugin, ..choice }, vec![input], options, Request::new(options)?)
    }

    /// Opens an input with the session's own instance of its plugin. This is faster than
    /// [`Self::read`], but the ledger does not show the input's memory separately.
    pub fn read_shared(&self, input: Input, options: &ReadOptions) -> Result<Reader> {
        self.read_several(vec![input], options)
    }

    /// Opens several inputs as one table. The first input decides the format, which must be read
    /// from several inputs at once ([`Format::several`](crossdock_plugin_api::Format::several)) if
    /// there is more than one.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no input, or if the format is read from one input at a time;
    /// the errors of [`Self::read`].
    pub fn read_several(&self, inputs: Vec<Input>, options: &ReadOptions) -> Result<Reader> {
        let first = inputs.first().ok_or_else(|| Error::usage("expected at least one input"))?;
        let choice = self.recognise(first, options.from.as_deref())?;
        let plugin = self.working_instance(choice.plugin)?;
        self.read_by(Choice { plugin, ..choice }, inputs, options, Request::new(options)?)
    }

    /// Like [`Self::read_shared`]. [`Reader::position`] is the number of rows of the input up to
    /// the last requested row, because the importer leaves out no row before it.
    pub(crate) fn read_with_positions(&self, input: Input, options: &ReadOptions) -> Result<Reader> {
        let choice = self.recognise(&input, options.from.as_deref())?;
        let plugin = self.working_instance(choice.plugin)?;
        let request = Request::new(options)?.with_positions();
        self.read_by(Choice { plugin, ..choice }, vec![input], options, request)
    }

    fn read_by(
        &self,
        choice: Choice,
        inputs: Vec<Input>,
        options: &ReadOptions,
        mut request: Request,
    ) -> Result<Reader> {
        let Choice { plugin, format } = choice;
        let call = CallSettings { progress: options.progress.clone(), ..self.call_for_bytes() };
        let name = inputs.first().map_or("", Input::name);
        if inputs.len() > 1 && !format.several {
            return Err(Error::usage(format!(
                "'{name}' and {} further inputs: the format {} is read from one input at a time",
                inputs.len() - 1,
                format.name
            )));
        }
        let what = format!("read '{name}' as {}", format.name);
        for input in &inputs {
            if let Input::File(file) = input
                && call.device != Device::CPU
                && should_read_unmapped(file)
            {
                file.leave_unmapped();
            }
        }
        let several = format.several;
        let uses_predicates = format.filters && !request.knows_positions;
        let (format, what): (Arc<str>, Arc<str>) = (format.name.as_str().into(), what.into());
        let token = options.fragment.as_ref().filter(|_| inputs.len() == 1);
        let (fragment, piece_rows) = match inputs.first() {
            Some(input) => self.checked_piece(input, &plugin, &format, token)?,
            None => (None, None),
        };
        request.restrict(fragment, piece_rows);
        let options = &options.options;
        let requested = request.selection.columns.clone();
        let open = |request: &mut Request| {
            let source = |input: &Input| {
                Source::new(tracing_hooks::source(whole_ranges::source(input.shared()), plugin.account()))
            };
            let input = match inputs.as_slice() {
                [input] if !several => ApiInput::Source(source(input)),
                inputs => ApiInput::Sources(inputs.iter().map(source).collect()),
            };
            let (plugin, call, what) = (plugin.clone(), call.clone(), what.clone());
            let format = format.clone();
            Reader::open(self, plugin, call, format, input, Columns::Unknown, options, request, what)
        };
        let mut reader = open(&mut request)?;
        if !uses_predicates {
            request.selection.predicates.clear();
        }
        // Only after the first attempt, the types of predicates are known. In addition, the
        // importer may not have found a name that contains dots, which the reader has resolved. At
        // the second attempt, the importer can read only the requested columns and rows. An input
        // of unknown length can be read only once.
        let is_resolved = request.selection.columns != requested || !request.selection.predicates.is_empty();
        if is_resolved && inputs.iter().all(|input| input.source().len().is_some()) {
            reader = open(&mut request)?;
        }
        reader.inputs = inputs;
        Ok(reader)
    }

    /// Opens external objects in capsules as `format`, the name of a format or a plugin. `schema`
    /// is required for formats without schemas of their own.
    ///
    /// # Errors
    /// [`Error::Usage`] if `format` is not a format of capsules, [`Error::Plugin`] if the plugin
    /// cannot read the objects.
    pub fn read_capsules(
        &self,
        format: &str,
        capsules: Vec<Capsule>,
        schema: Option<&Schema>,
        options: &Options,
    ) -> Result<Reader> {
        let chosen = self.capsule_format(format, Way::In)?;
        let plugin = self.instance_for_task(chosen.plugin(), "read")?;
        chosen.with_plugin(plugin).read(capsules, schema, options)
    }
}

/// Whether a file for a device is read instead of mapped.
fn should_read_unmapped(file: &FileSource) -> bool {
    file.len().unwrap_or(0) < MIN_MAPPED_BYTES || file.has_single_pages()
}

/// What the caller states about an input's columns.
pub(crate) enum Columns<'a> {
    /// Nothing, because the format contains a schema.
    Unknown,
    /// The schema, for formats that contain no schema.
    Expected(&'a Schema),
}

impl Reader {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn open(
        session: &Session,
        plugin: Arc<Plugin>,
        call: CallSettings,
        format: Arc<str>,
        input: ApiInput,
        columns: Columns<'_>,
        options: &Options,
        request: &mut Request,
        name: Arc<str>,
    ) -> Result<Self> {
        session.check_cancelled()?;
        let failed = |error| plugin.failed(&*name, error);
        let expected = match columns {
            Columns::Expected(schema) => Some(export_schema(schema).map_err(failed)?),
            Columns::Unknown => None,
        };
        let (importer, account) = (plugin.importer()?, plugin.account());
        let progress = call.progress.map(|progress| tracing_hooks::progress(progress, account));
        let call = CallSettings { progress, ..call };
        let selection = &request.selection;
        let api_request = ReadRequest::new(&format)
            .with_schema(expected.as_deref())
            .with_options(options)
            .with_selection(selection)
            .with_fragment(request.fragment.as_deref());
        let open = || importer.open(&call, input, &api_request);
        let opened = account.trace_host_call("importer.open", open).map_err(failed)?;
        let mut stream = TracedDrop::new(opened, account, "stream.release");
        let schema = account.trace_host_call("stream.get_schema", || stream.schema());
        let mut schema = Arc::new(schema.and_then(|schema| import_schema(&schema)).map_err(failed)?);
        let stream_schema = schema.clone();
        let honoured = stream.honoured();
        let write_options = stream.write_options().map_err(failed)?;
        let stated_rows = StatedRows::new(honoured, &request.selection);
        let remaining = Remaining::new(request, honoured, &mut schema, session)?;
        Ok(Self {
            stream,
            session: session.clone(),
            call,
            stream_schema,
            schema,
            format,
            name,
            inputs: Vec::new(),
            untrimmed_bytes: 0,
            ended: false,
            failed: None,
            n_rows: honoured.n_rows.and_then(|n_rows| remaining.count(n_rows)),
            write_options,
            stated_rows,
            remaining,
            plugin,
        })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The number of rows that the reader returns in total, if the importer states it.
    pub fn n_rows(&self) -> Option<u64> {
        self.n_rows
    }

    /// The number of rows of the stream's batches so far, before the selection of rows.
    pub(crate) fn position(&self) -> u64 {
        self.remaining.position()
    }

    /// Options with which a writer stores data as the input does, such as its compression. A format
    /// of the same plugin may have these options.
    pub fn write_options(&self) -> &Options {
        &self.write_options
    }

    /// The name of the input for messages.
    pub(crate) fn input_name(&self) -> &str {
        self.inputs.first().map_or(&self.name, Input::name)
    }

    /// The input, if it is a pipe.
    pub(crate) fn pipe(&self) -> Option<Arc<PipeSource>> {
        self.inputs.iter().find_map(|input| match input {
            Input::Pipe(pipe) => Some(pipe.clone()),
            _ => None,
        })
    }

    /// The plugin that reads.
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    pub(crate) fn shared_plugin(&self) -> Arc<Plugin> {
        self.plugin.clone()
    }

    /// The name of the format.
    pub fn format(&self) -> &str {
        &self.format
    }

    /// Returns the next batch, on the session's device; `None` at the end. The batch's layout has
    /// been checked, and its contents too if the session validates them. After an error, every
    /// further call fails.
    ///
    /// # Errors
    /// [`Error::Plugin`] if the plugin fails, [`Error::Data`] if its batch is malformed. After
    /// [`Error::Cancelled`] because of the session's cancel flag, the reader can continue.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<DeviceBatch>> {
        let Some(batch) = self.next_unmoved()? else { return Ok(None) };
        self.move_to_session(batch).map(Some)
    }

    /// Like [`Self::next`], but does not wait for a number of rows that is on the device. The host
    /// reads the number if it needs the number: to select rows or split batches, to move the batch
    /// to another device, to validate contents, or to check a number of rows that the plugin
    /// states.
    ///
    /// # Errors
    /// The errors of [`Self::next`].
    pub fn next_pending(&mut self) -> Result<Option<PendingBatch>> {
        let Some(batch) = self.next_checked(true)? else { return Ok(None) };
        if batch.device() == self.session.device() {
            return Ok(Some(batch));
        }
        let settled = self.settle(batch);
        self.note_failure(&settled);
        self.move_to_session(settled?).map(|batch| Some(batch.into()))
    }

    /// Moves a batch to the session's device.
    pub(crate) fn move_to_session(&mut self, batch: DeviceBatch) -> Result<DeviceBatch> {
        let moved = move_batch(&self.session, batch, self.session.device());
        self.note_failure(&moved);
        moved
    }

    /// Returns the next batch, on the device on which the plugin created it. The plugin may create
    /// it in host memory, because some formats support only host memory.
    pub(crate) fn next_unmoved(&mut self) -> Result<Option<DeviceBatch>> {
        let Some(batch) = self.next_checked(false)? else { return Ok(None) };
        let settled = self.settle(batch);
        self.note_failure(&settled);
        settled.map(Some)
    }

    /// Returns the rows of a batch of the plugin.
    fn settle(&self, batch: PendingBatch) -> Result<DeviceBatch> {
        let settled = batch.into_settled(self.session.stream());
        settled.map_err(|error| Error::data(format!("{} returned a malformed batch", self.plugin), error))
    }

    /// Returns the next batch. If `pending`, the number of its rows may be on the device.
    fn next_checked(&mut self, pending: bool) -> Result<Option<PendingBatch>> {
        self.session.check_cancelled()?;
        if let Some(failed) = &self.failed {
            let again = failed.clone().context("an earlier read failed");
            return Err(self.plugin.failed(format!("continue to {}", self.name), again));
        }
        if self.ended {
            return Ok(None);
        }
        let next = guarded(|| self.next_selected(pending));
        self.ended = matches!(next, Ok(None));
        self.note_failure(&next);
        next
    }

    fn note_failure<T>(&mut self, next: &Result<T>) {
        self.failed = next.as_ref().err().map(Error::to_api_error);
    }

    fn next_selected(&mut self, pending: bool) -> Result<Option<PendingBatch>> {
        loop {
            if let Some(batch) = self.remaining.next() {
                return Ok(Some(batch.into()));
            }
            if self.remaining.has_all() {
                return Ok(None);
            }
            let Some(batch) = self.next_of_stream(pending)? else { return Ok(None) };
            if batch.known_rows().is_none() {
                let columns = batch.with_columns(|batch| self.remaining.columns_of(batch.clone()));
                return columns.map(Some).map_err(|error| self.plugin.failed(&*self.name, error));
            }
            let batch = self.settle(batch)?;
            self.remaining.add(batch).map_err(|error| self.plugin.failed(&*self.name, error))?;
        }
    }

    /// Whether batches may be returned without the number of their rows.
    fn ignores_rows(&self) -> bool {
        self.session.validate_structs() != Validate::Full
            && self.stated_rows.is_unknown()
            && self.remaining.keeps_batches()
    }

    /// Returns the next batch of the plugin. If `pending`, the number of its rows may be unknown.
    fn next_of_stream(&mut self, pending: bool) -> Result<Option<PendingBatch>> {
        self.check_input()?;
        let account = self.plugin.account();
        let next = account.trace_host_call("stream.get_next", || {
            let next = self.stream.next(&self.call)?;
            Ok(next.map(|batch| tracing_hooks::batch(batch, account, Producer::Plugin)))
        });
        let next = next.map_err(|error| self.plugin.failed(&*self.name, error))?;
        let wrong = |error| Error::data(format!("{} returned a malformed batch", self.plugin), error);
        let Some(raw) = next else {
            let wrong = |error| Error::data(format!("{} returned too few batches", self.plugin), error);
            return self.stated_rows.end().map(|()| None).map_err(wrong);
        };
        let (raw, charge_slot) = foreign_memory::with_charge_slot(raw, self.is_charged());
        let stream = self.session.stream();
        let pending_batch = import_pending_result(raw, &self.stream_schema, stream).map_err(wrong)?;
        if !pending || !self.ignores_rows() {
            pending_batch.rows(stream).map_err(wrong)?;
        }
        if let Some(rows) = pending_batch.known_rows() {
            self.stated_rows.add(rows).map_err(wrong)?;
        }
        let batch = pending_batch.padded();
        if let Some(slot) = charge_slot {
            let inputs = self.inputs.iter().filter_map(Input::in_memory);
            let inputs = inputs.map(|bytes| (bytes.as_ptr() as u64, bytes.len() as u64)).collect();
            foreign_memory::charge(batch, &slot, account, inputs)
                .map_err(|error| self.plugin.failed(&*self.name, error))?;
        }
        // By default, the plugin validates the bytes that it reads. With full validation, the host
        // also validates the batch. It has already validated the batches of an isolated plugin.
        if self.session.validate_structs() == Validate::Full && !self.plugin.is_isolated() {
            validate(&pending_batch.settle(stream).map_err(wrong)?, Level::Full, stream).map_err(wrong)?;
        }
        self.untrimmed_bytes = self.untrimmed_bytes.saturating_add(batch.buffer_bytes());
        Ok(Some(pending_batch))
    }

    /// Whether foreign memory in batches is charged against the budget. Capsules are not charged,
    /// because their memory belongs to their producer. Isolated plugins are not charged, because
    /// their process has its own limit.
    fn is_charged(&self) -> bool {
        let has_budget = self.session.host().backend().limit_bytes().is_some();
        has_budget && !self.inputs.is_empty() && !self.plugin.is_isolated()
    }

    /// Checks the input's length before each read, also before the read that finds the end.
    /// Therefore, the truncation of a file during reading always causes an error.
    fn check_input(&mut self) -> Result<()> {
        let must_trim = self.untrimmed_bytes >= TRIM_BYTES;
        if must_trim {
            self.untrimmed_bytes = 0;
        }
        for input in &self.inputs {
            let Input::File(file) = input else { continue };
            if must_trim {
                file.trim();
            }
            file.check_length()?;
        }
        Ok(())
    }

    /// Drops the reader after its last batch.
    pub(crate) fn end(self) {
        let plugin = self.plugin.clone();
        drop(self);
        plugin.end();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The plugin may have a thread that waits for a pipe. Releasing the stream waits for this
        // thread, so the pipe is closed first.
        if let (Some(pipe), false) = (self.pipe(), self.ended) {
            pipe.close();
        }
    }
}

impl Iterator for Reader {
    type Item = Result<DeviceBatch>;

    /// After an error, the next call returns `None`.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed.is_some() { None } else { Reader::next(self).transpose() }
    }
}
