//! Batches out of an input, through an importer.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{DeviceBatch, Level, export_schema, import_result, import_schema, validate};
use crossdock_isolation::truncated::guarded;
use crossdock_plugin_api::{
    BatchStreamHandle, ByteSource, CallSettings, Capsule, Device, Error as ApiError, Input as ApiInput,
    Options, Progress, Source, Validate,
};

use crate::error::{Error, Result};
use crate::outside;
use crate::place::move_batch;
use crate::plugin::Plugin;
use crate::registry::{Choice, Registry, Way};
use crate::session::Session;
use crate::source::{FileSource, Input};
use crate::traced::{self, Ended, Maker};

/// After this many bytes of batches, pages of a mapped input are given back, so that reading a file of any size keeps
/// a bounded part of it in memory.
const TRIM_BYTES: u64 = 128 << 20;

/// Making a mapping, its page faults and its end cost as much as reading so many bytes.
const WORTH_A_MAPPING: u64 = 1 << 20;

/// What to read, and as what.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// A plugin's or a format's name; recognised if not given.
    pub from: Option<String>,
    /// What the format understands.
    pub options: Options,
    /// Hears of bytes read, and the total (0 if unknown).
    pub progress: Option<Arc<Progress>>,
}

/// An opened input: batches with one schema.
pub struct Reader {
    // The stream ends before the plugin that made it.
    stream: Ended<BatchStreamHandle>,
    plugin: Arc<Plugin>,
    session: Session,
    call: CallSettings,
    schema: SchemaRef,
    format: Arc<str>,
    name: Arc<str>,
    input: Option<Input>,
    untrimmed_bytes: u64,
    ended: bool,
    /// How it failed: nothing more comes.
    failed: Option<ApiError>,
}

impl Session {
    /// Which plugin reads `input`, and as which format.
    pub fn recognise(&self, input: &Input, from: Option<&str>) -> Result<Choice> {
        let plugins = self.plugins_quiet_about(from.as_slice());
        let head = input.head(Registry::new(&plugins).head_bytes())?;
        self.choose(from, |registry| registry.choose_input(from, &head, input.name()))
    }

    /// Opens an input.
    ///
    /// # Errors
    /// [`Error::Usage`] where the format is unclear; what the plugin says where it cannot read it.
    pub fn read(&self, input: Input, options: &ReadOptions) -> Result<Reader> {
        let choice = self.recognise(&input, options.from.as_deref())?;
        let plugin = self.fresh(&choice.plugin, "read")?;
        self.read_by(Choice { plugin, ..choice }, input, options)
    }

    /// The same by the session's own instance of the plugin: nothing is made for it, and its memory is counted with all
    /// that the instance has.
    pub fn read_shared(&self, input: Input, options: &ReadOptions) -> Result<Reader> {
        let choice = self.recognise(&input, options.from.as_deref())?;
        let plugin = self.usable(choice.plugin)?;
        self.read_by(Choice { plugin, ..choice }, input, options)
    }

    fn read_by(&self, choice: Choice, input: Input, options: &ReadOptions) -> Result<Reader> {
        let Choice { plugin, format } = choice;
        let call = CallSettings { progress: options.progress.clone(), ..self.call_for_bytes() };
        let what = format!("read '{}' as {}", input.name(), format.name);
        if let Input::File(file) = &input
            && call.device != Device::CPU
            && self.is_better_read(file)
        {
            file.leave_unmapped();
        }
        let api_input = ApiInput::Source(Source::new(traced::source(input.shared(), plugin.account())));
        let (format, what) = (format.name.as_str().into(), what.into());
        let mut reader =
            Reader::open(self, plugin, call, format, api_input, Columns::Unknown, &options.options, what)?;
        reader.input = Some(input);
        Ok(reader)
    }

    /// Whether a file that goes to a device is read into pinned memory rather than mapped. That memory counts: where the budget
    /// is not far beyond the file, the file is mapped.
    fn is_better_read(&self, file: &FileSource) -> bool {
        let bytes = file.len().unwrap_or(0);
        let has_room = self.host().backend().limit_bytes().is_none_or(|limit| bytes <= limit as u64 / 4);
        has_room && (bytes < WORTH_A_MAPPING || file.has_single_pages())
    }

    /// Opens foreign objects in capsules as `format`, a format's or a plugin's name. `schema` is what they hold, for formats that have none of their own.
    pub fn read_capsules(
        &self,
        format: &str,
        capsules: Vec<Capsule>,
        schema: Option<&Schema>,
        options: &Options,
    ) -> Result<Reader> {
        let chosen = self.capsule_format(format, Way::In)?;
        let plugin = self.fresh(chosen.plugin(), "read")?;
        chosen.of(plugin).read(capsules, schema, options)
    }
}

/// What is known of an input's columns before it is opened.
pub(crate) enum Columns<'a> {
    /// Nothing: the format tells.
    Unknown,
    /// What they are to be: for formats that do not tell.
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
        name: Arc<str>,
    ) -> Result<Self> {
        session.check_cancelled()?;
        let failed = |error| plugin.failed(&*name, error);
        let expected = match columns {
            Columns::Expected(schema) => Some(export_schema(schema).map_err(failed)?),
            Columns::Unknown => None,
        };
        let (importer, account) = (plugin.importer()?, plugin.account());
        let progress = call.progress.map(|progress| traced::progress(progress, account));
        let call = CallSettings { progress, ..call };
        let open = || importer.open(&call, &format, input, expected.as_ref(), options);
        let opened = account.call("importer.open", open).map_err(failed)?;
        let mut stream = Ended::new(opened, account, "stream.release");
        let schema = account.call("stream.get_schema", || stream.schema());
        let schema = Arc::new(schema.and_then(|schema| import_schema(&schema)).map_err(failed)?);
        Ok(Self {
            stream,
            session: session.clone(),
            call,
            schema,
            format,
            name,
            input: None,
            untrimmed_bytes: 0,
            ended: false,
            failed: None,
            plugin,
        })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Who reads.
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    /// As what it is read.
    pub fn format(&self) -> &str {
        &self.format
    }

    /// The next batch, on the session's device, `None` at the end. Its layout has been checked, and its contents as the session
    /// says. After a failure there is none: what would come then may not be what comes next.
    ///
    /// # Errors
    /// What the plugin says, or what is wrong with what it gave. [`Error::Cancelled`] of a session leaves the reader as it was.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<DeviceBatch>> {
        let Some(batch) = self.next_as_given()? else { return Ok(None) };
        self.place(batch).map(Some)
    }

    /// A batch as it was given, on the session's device.
    pub(crate) fn place(&mut self, batch: DeviceBatch) -> Result<DeviceBatch> {
        let placed = move_batch(&self.session, batch, self.session.device());
        self.note_failure(&placed);
        placed
    }

    /// The same where the plugin gave it: formats that know host memory alone give batches there.
    pub(crate) fn next_as_given(&mut self) -> Result<Option<DeviceBatch>> {
        self.session.check_cancelled()?;
        if let Some(failed) = &self.failed {
            let again = ApiError::new(failed.code(), failed.message()).context("it has failed before");
            return Err(self.plugin.failed(format!("go on with '{}'", self.name), again));
        }
        if self.ended {
            return Ok(None);
        }
        let next = guarded(|| self.next_of_stream());
        self.ended = matches!(next, Ok(None));
        self.note_failure(&next);
        next
    }

    fn note_failure<T>(&mut self, next: &Result<T>) {
        self.failed = next.as_ref().err().map(|error| ApiError::new(error.code(), error.one_line()));
    }

    fn next_of_stream(&mut self) -> Result<Option<DeviceBatch>> {
        self.check_input()?;
        let account = self.plugin.account();
        let next = account.call("stream.get_next", || {
            let next = self.stream.next(&self.call)?;
            Ok(next.map(|batch| traced::crossing(batch, account, Maker::Plugin)))
        });
        let next = next.map_err(|error| self.plugin.failed(&*self.name, error))?;
        let Some(raw) = next else { return Ok(None) };
        let (raw, place) = if self.is_charged() {
            let (raw, place) = outside::with_place(raw);
            (raw, Some(place))
        } else {
            (raw, None)
        };
        let wrong = |error| Error::data(format!("{} gave a wrong batch", self.plugin), error);
        let batch = import_result(raw, &self.schema, self.session.stream()).map_err(wrong)?;
        if let Some(place) = place {
            let input = self.input.as_ref().and_then(Input::in_memory);
            let input = input.map(|bytes| (bytes.as_ptr() as u64, bytes.len() as u64)).into_iter().collect();
            outside::charge(&batch, &place, account, input)
                .map_err(|error| self.plugin.failed(&*self.name, error))?;
        }
        // By default bytes are validated by the plugin that reads them; whoever asks for it does not trust the plugin.
        if self.session.validate_structs() == Validate::Full {
            validate(&batch, Level::Full, self.session.stream()).map_err(wrong)?;
        }
        self.untrimmed_bytes = self.untrimmed_bytes.saturating_add(batch.bytes());
        Ok(Some(batch))
    }

    /// Whether there is a budget that batches in memory of the plugin's own count against. What comes out of capsules is the memory of
    /// who made those, and the process of an isolated plugin has a limit of its own.
    fn is_charged(&self) -> bool {
        let has_budget = self.session.host().backend().limit_bytes().is_some();
        has_budget && self.input.is_some() && !self.plugin.is_isolated()
    }

    /// Before each look at the input, the last one included, which finds its end: so a file that was cut short on the
    /// way is always noticed.
    fn check_input(&mut self) -> Result<()> {
        let Some(Input::File(file)) = &self.input else { return Ok(()) };
        if self.untrimmed_bytes >= TRIM_BYTES {
            self.untrimmed_bytes = 0;
            file.trim();
        }
        file.check_length()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A plugin may have a thread that waits for more of a pipe; its stream's release, which follows, waits for that.
        if let (Some(Input::Pipe(pipe)), false) = (&self.input, self.ended) {
            pipe.close();
        }
    }
}

impl Iterator for Reader {
    type Item = Result<DeviceBatch>;

    /// A failure once, and then the end.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed.is_some() { None } else { Reader::next(self).transpose() }
    }
}
