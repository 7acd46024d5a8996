//! Converts from one format to another, optionally through intermediate formats.

mod plan;
mod report;
mod via;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow_schema::SchemaRef;
use crossdock_arrays::DeviceBatch;
use crossdock_isolation::MIN_LIMIT_TO_READ_AHEAD;
use crossdock_plugin_api::{Options, Progress};

pub use plan::{ColumnReport, PlanReport};
pub use report::{Report, Stage};
use via::Via;

use crate::column_name::ColumnName;
use crate::error::{Error, Result};
use crate::filter::Predicate;
use crate::plugin::Plugin;
use crate::read_options::ReadOptions;
use crate::reader::Reader;
use crate::scan::{Batches, Scan, ScanOptions, ScanSource};
use crate::session::Session;
use crate::sink::Output;
use crate::source::Input;
use crate::writer::{WriteOptions, Writer};

/// Settings of a conversion.
pub struct Conversion {
    session: Session,
    read: ReadOptions,
    write: WriteOptions,
    vias: Vec<String>,
    via: Options,
    nulls: Option<String>,
    keeps_options: bool,
    storage: Options,
}

impl Session {
    /// Starts the settings of a conversion. By default, the host recognises the format of the
    /// input, and the output's file extension selects the output's format.
    pub fn conversion(&self) -> Conversion {
        Conversion {
            session: self.clone(),
            read: ReadOptions::default(),
            write: WriteOptions::default(),
            vias: Vec::new(),
            via: Options::new(),
            nulls: None,
            keeps_options: false,
            storage: Options::new(),
        }
    }
}

impl Conversion {
    /// Sets the plugin or the format to read with.
    pub fn from(mut self, name: impl Into<String>) -> Self {
        self.read.from = Some(name.into());
        self
    }

    /// Sets the plugin or the format to write with.
    pub fn to(mut self, name: impl Into<String>) -> Self {
        self.write.to = Some(name.into());
        self
    }

    /// Adds an intermediate format, by the name of a plugin or a format. Every batch is exported to
    /// this format and imported again. Batches pass through the intermediate formats in the order
    /// of the calls.
    pub fn via(mut self, name: impl Into<String>) -> Self {
        self.vias.push(name.into());
        self
    }

    /// Sets options of the formats of [`Self::via`]. Each format receives the options that it
    /// supports for reading and for writing.
    pub fn via_options(mut self, options: Options) -> Self {
        self.via = options;
        self
    }

    /// Sets how formats without nulls handle null values: "error" or "mask". Formats that can
    /// represent nulls ignore the setting.
    pub fn nulls(mut self, how: impl Into<String>) -> Self {
        self.nulls = Some(how.into());
        self
    }

    /// Selects the columns to convert, in the given order.
    pub fn columns(mut self, columns: impl IntoIterator<Item = impl Into<ColumnName>>) -> Self {
        self.read.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Selects the rows to convert: ascending ranges of positions in the input.
    pub fn rows(mut self, rows: Vec<Range<u64>>) -> Self {
        self.read.rows = Some(rows);
        self
    }

    /// Converts only the rows that fulfil all predicates.
    pub fn filter(mut self, predicates: Vec<Predicate>) -> Self {
        self.read.filter = predicates;
        self
    }

    /// Sets options of the plugin that opens URIs, for [`Self::run_files`].
    pub fn storage(mut self, options: Options) -> Self {
        self.storage = options;
        self
    }

    /// Sets the maximum number of rows to convert.
    pub fn limit(mut self, rows: u64) -> Self {
        self.read.limit = Some(rows);
        self
    }

    /// Sets options of the format that is read.
    pub fn read_options(mut self, options: Options) -> Self {
        self.read.options = options;
        self
    }

    /// Gives the output the options of the input that [`Self::write_options`] do not set, such as
    /// its compression, if the same plugin reads and writes and knows them.
    pub fn keep_options(mut self) -> Self {
        self.keeps_options = true;
        self
    }

    /// Sets options of the format that is written.
    pub fn write_options(mut self, options: Options) -> Self {
        self.write.options = options;
        self
    }

    /// Sets a callback that receives the number of input bytes read so far, and the input's total
    /// number of bytes (0 if unknown).
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.read.progress = Some(progress);
        self
    }

    /// Runs the conversion. After an error or cancellation, no output remains.
    pub fn run(self, input: Input, output: Output) -> Result<Report> {
        // A batch from a pipe is written at once, because the next one may arrive much later.
        let collects = !matches!(input, Input::Pipe(_));
        let open =
            |session: &Session, read: &ReadOptions| Ok(Origin::Reader(Box::new(session.read(input, read)?)));
        self.run_from(open, output, collects)
    }

    /// Converts files of one schema to one output, one after another. The rows and the limit apply
    /// to the rows of all files together. In the report, the stage "read" includes moves to the
    /// session's device. `map`: whether the files may be mapped.
    ///
    /// # Errors
    /// [`Error::Usage`] that names the file and the column if the schemas differ. After an error or
    /// cancellation, no output remains.
    pub fn run_files(mut self, files: Vec<PathBuf>, map: bool, output: Output) -> Result<Report> {
        let storage = std::mem::take(&mut self.storage);
        let open = |session: &Session, read: &ReadOptions| {
            let options =
                ScanOptions { read: read.clone(), storage, prefetch: 0, map, ..ScanOptions::default() };
            let scan = session.scan(ScanSource::Files(files), options)?;
            Ok(Origin::Scan(scan.batches()?, scan))
        };
        self.run_from(open, output, true)
    }

    /// `collects`: whether a plugin in a process of its own may receive several batches at a time.
    fn run_from(
        self,
        open: impl FnOnce(&Session, &ReadOptions) -> Result<Origin>,
        output: Output,
        collects: bool,
    ) -> Result<Report> {
        let start = Instant::now();
        let Self { session, mut read, mut write, vias, via: via_options, nulls, keeps_options, .. } = self;
        read.write_options = keeps_options;
        let named = vias.iter().chain(&read.from).chain(&write.to).map(String::as_str);
        session.plugins_without_warnings(&named.collect::<Vec<_>>());
        let copied = || session.account().usage().copied;
        let before = copied();
        let opened = Instant::now();
        let mut reader = open(&session, &read)?;
        let mut read_stage = Stage::new("read", reader.plugin().name(), reader.format());
        read_stage.time = opened.elapsed();
        let schema = reader.schema().clone();
        let written = session.choose_output(output.target(), write.to.as_deref())?;
        if written.plugin.name() == reader.plugin().name() {
            // The output is stored as the input, unless the caller sets the option.
            let is_default =
                |(key, _): &(&str, &str)| written.format.has_option(key) && write.options.get(key).is_none();
            let defaults: Vec<_> = reader.write_options().iter().filter(is_default).collect();
            write.options =
                defaults.into_iter().fold(write.options, |all, (key, value)| all.with(key, value));
        }
        // Only formats that cannot represent nulls have the option "nulls". Other formats would
        // reject the option.
        let mut pass_options = via_options.clone();
        if let Some(how) = nulls {
            if written.format.has_option("nulls") {
                write.options = write.options.with("nulls", &how);
            }
            pass_options = pass_options.with("nulls", how);
        }
        let begin_pass = |name: &String| -> Result<(Stage, Via)> {
            let via = Via::begin(&session, name, &schema, &pass_options)?;
            Ok((Stage::new("via", via.plugin().name(), via.format()), via))
        };
        let passes = vias.iter().map(begin_pass).collect::<Result<Vec<_>>>()?;
        check_all_supported(&via_options, &passes)?;
        let opened = Instant::now();
        let writer = session.write(output, &schema, &write)?;
        let mut write_stage = Stage::new("write", writer.plugin().name(), writer.format());
        write_stage.time = opened.elapsed();

        let limit_bytes = session.host().backend().limit_bytes();
        let collects = collects && limit_bytes.is_none_or(|bytes| bytes as u64 >= MIN_LIMIT_TO_READ_AHEAD);
        let move_stage = Stage::new("move", "host", "cpu");
        let mut line = Line { read_stage, passes, write_stage, move_stage, writer, collects };
        let arrive_stage = line.push_all(&session, &mut reader)?;
        line.read_stage.copied = reader.plugin().account().usage().copied;
        drop(reader);
        let (mut stages, mut moved, write_stage) = line.finish()?;
        moved.copied = copied().since(before).since(arrive_stage.copied);
        if arrive_stage.batches > 0 {
            stages.insert(1, arrive_stage);
        }
        if moved.batches > 0 || moved.copied.bytes() > 0 {
            stages.push(moved);
        }
        stages.push(write_stage);
        Ok(Report { stages, time: start.elapsed() })
    }
}

/// Where the batches come from.
enum Origin {
    Reader(Box<Reader>),
    Scan(Batches, Scan),
}

impl Origin {
    fn plugin(&self) -> &Plugin {
        match self {
            Self::Reader(reader) => reader.plugin(),
            Self::Scan(_, scan) => scan.plugin(),
        }
    }

    fn format(&self) -> &str {
        match self {
            Self::Reader(reader) => reader.format(),
            Self::Scan(_, scan) => scan.format(),
        }
    }

    fn write_options(&self) -> &Options {
        match self {
            Self::Reader(reader) => reader.write_options(),
            Self::Scan(_, scan) => scan.write_options(),
        }
    }

    fn schema(&self) -> &SchemaRef {
        match self {
            Self::Reader(reader) => reader.schema(),
            Self::Scan(_, scan) => scan.schema(),
        }
    }

    fn next_unmoved(&mut self) -> Result<Option<DeviceBatch>> {
        match self {
            Self::Reader(reader) => reader.next_unmoved(),
            Self::Scan(batches, _) => batches.next().transpose(),
        }
    }

    fn move_to_session(&mut self, batch: DeviceBatch) -> Result<DeviceBatch> {
        match self {
            Self::Reader(reader) => reader.move_to_session(batch),
            // A scan moves its batches itself.
            Self::Scan(..) => Ok(batch),
        }
    }
}

/// Rejects an option that no format of the conversion supports, because its name is probably
/// misspelt.
fn check_all_supported(options: &Options, passes: &[(Stage, Via)]) -> Result<()> {
    match options.iter().find(|(key, _)| !passes.iter().any(|(_, via)| via.supports(key))) {
        None => Ok(()),
        Some((key, _)) => {
            let formats: Vec<_> = passes.iter().map(|(_, via)| via.format()).collect();
            let formats = if formats.is_empty() { "none".into() } else { formats.join(", ") };
            Err(Error::usage(format!(
                "option '{key}': no format that batches pass through supports this option; the formats are: {formats}"
            )))
        }
    }
}

/// The stages of a conversion, and the writer of the last stage.
struct Line {
    read_stage: Stage,
    passes: Vec<(Stage, Via)>,
    move_stage: Stage,
    write_stage: Stage,
    writer: Writer,
    /// Whether a plugin in a process of its own may receive several batches at a time.
    collects: bool,
}

impl Line {
    /// Passes every batch of the reader to the next stage. Returns the stage that moves batches to
    /// the session's device.
    fn push_all(&mut self, session: &Session, reader: &mut Origin) -> Result<Stage> {
        let copied = || session.account().usage().copied;
        let mut arrive_stage = Stage::new("move", "host", &session.device().to_string());
        while let Some(batch) = self.read_stage.time(|| reader.next_unmoved())? {
            self.read_stage.count(&batch);
            let batch = if batch.device() == session.device() {
                batch
            } else {
                let before = copied();
                let batch = arrive_stage.time(|| reader.move_to_session(batch))?;
                arrive_stage.count(&batch);
                arrive_stage.copied += copied().since(before);
                batch
            };
            self.push(batch)?;
        }
        Ok(arrive_stage)
    }

    /// Passes a batch through the intermediate formats and writes it.
    fn push(&mut self, batch: DeviceBatch) -> Result<()> {
        let mut batches = vec![batch];
        for (stage, via) in &mut self.passes {
            let mut out = Vec::new();
            for batch in batches {
                out.extend(stage.time(|| via.pass(batch))?);
            }
            out.iter().for_each(|batch| stage.count(batch));
            batches = out;
        }
        batches.into_iter().try_for_each(|batch| self.write(batch))
    }

    fn write(&mut self, batch: DeviceBatch) -> Result<()> {
        let from = batch.device();
        let batch = self.move_stage.time(|| self.writer.place(batch))?;
        if batch.device() != from {
            self.move_stage.count(&batch);
        }
        self.write_stage.rows += batch.len() as u64;
        self.write_stage.batches += 1;
        let Self { writer, collects, .. } = self;
        let capsules = self.write_stage.time(|| match collects {
            true => writer.write_with_more_to_follow(batch),
            false => writer.write(batch),
        })?;
        // A conversion has no consumer of capsules. If the format returned capsules, they are
        // released here.
        drop(capsules);
        Ok(())
    }

    /// Finishes all stages. Returns the stages that precede the move between devices, the stage of
    /// the move, and the last stage.
    fn finish(mut self) -> Result<(Vec<Stage>, Stage, Stage)> {
        let mut done = Vec::new();
        // The last batches of each intermediate format pass through the intermediate formats that
        // follow.
        while !self.passes.is_empty() {
            let (mut stage, via) = self.passes.remove(0);
            let plugin = via.plugin().clone();
            let rest = stage.time(|| via.finish())?;
            rest.iter().for_each(|batch| stage.count(batch));
            rest.into_iter().try_for_each(|batch| self.push(batch))?;
            stage.copied = plugin.account().usage().copied;
            done.push(stage);
        }
        let Self { read_stage, move_stage, mut write_stage, writer, .. } = self;
        let plugin = writer.shared_plugin();
        write_stage.bytes = write_stage.time(|| writer.finish())?.bytes_written;
        write_stage.copied = plugin.account().usage().copied;
        let mut stages = vec![read_stage];
        stages.append(&mut done);
        Ok((stages, move_stage, write_stage))
    }
}
