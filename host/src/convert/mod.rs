//! The main job: from one format to another, through any number of others.

mod plan;
mod report;
mod via;

use std::sync::Arc;
use std::time::Instant;

use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Options, Progress};

pub use plan::{ColumnReport, PlanReport};
pub use report::{Report, Stage};
use via::Via;

use crate::error::{Error, Result};
use crate::reader::{ReadOptions, Reader};
use crate::session::Session;
use crate::sink::Output;
use crate::source::Input;
use crate::writer::{WriteOptions, Writer};

/// A conversion to be set up.
pub struct Conversion {
    session: Session,
    read: ReadOptions,
    write: WriteOptions,
    vias: Vec<String>,
    via: Options,
    nulls: Option<String>,
    columns: Option<Vec<String>>,
}

impl Session {
    /// A conversion: everything that the input holds, recognised by its bytes, written as the output's name says.
    pub fn conversion(&self) -> Conversion {
        Conversion {
            session: self.clone(),
            read: ReadOptions::default(),
            write: WriteOptions::default(),
            vias: Vec::new(),
            via: Options::new(),
            nulls: None,
            columns: None,
        }
    }
}

impl Conversion {
    /// The plugin or the format to read with.
    pub fn from(mut self, name: impl Into<String>) -> Self {
        self.read.from = Some(name.into());
        self
    }

    /// The plugin or the format to write with.
    pub fn to(mut self, name: impl Into<String>) -> Self {
        self.write.to = Some(name.into());
        self
    }

    /// Sends every batch out through this plugin or format, as capsules, and back in. Several are passed in order.
    pub fn via(mut self, name: impl Into<String>) -> Self {
        self.vias.push(name.into());
        self
    }

    /// What formats that batches are sent through understand: each is told those of them that it does, both ways.
    pub fn via_options(mut self, options: Options) -> Self {
        self.via = options;
        self
    }

    /// What formats that have no nulls do with them: "error" or "mask". Those that have nulls are not told.
    pub fn nulls(mut self, how: impl Into<String>) -> Self {
        self.nulls = Some(how.into());
        self
    }

    /// Only these columns, in this order.
    pub fn columns(mut self, columns: Vec<String>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// What the format that is read understands.
    pub fn read_options(mut self, options: Options) -> Self {
        self.read.options = options;
        self
    }

    /// What the format that is written understands.
    pub fn write_options(mut self, options: Options) -> Self {
        self.write.options = options;
        self
    }

    /// Hears of the input's bytes that were read, and the total (0 if unknown).
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.read.progress = Some(progress);
        self
    }

    /// Does it. On any failure, cancellation included, the output does not appear.
    pub fn run(self, input: Input, output: Output) -> Result<Report> {
        let start = Instant::now();
        let Self { session, read, mut write, vias, via: wishes, columns, nulls } = self;
        let named = vias.iter().chain(&read.from).chain(&write.to).map(String::as_str);
        session.plugins_quiet_about(&named.collect::<Vec<_>>());
        let copied = || session.account().usage().copied;
        let before = copied();
        let opened = Instant::now();
        let reader = session.read(input, &read)?;
        let mut read_stage = Stage::new("read", reader.plugin().name(), reader.format());
        read_stage.time = opened.elapsed();
        let columns = columns.map(|names| indices(&reader, &names)).transpose()?;
        let schema = match &columns {
            None => reader.schema().clone(),
            Some(columns) => {
                Arc::new(reader.schema().project(columns).map_err(|error| Error::usage(error.to_string()))?)
            }
        };
        // Whoever has nulls, and so does not ask what to do with them, need not be told.
        let mut told = wishes.clone();
        if let Some(how) = nulls {
            if session.choose_output(output.target(), write.to.as_deref())?.format.understands("nulls") {
                write.options = write.options.with("nulls", &how);
            }
            told = told.with("nulls", how);
        }
        let mut passes = Vec::new();
        for name in &vias {
            let via = Via::begin(&session, name, &schema, &told)?;
            passes.push((Stage::new("via", via.plugin().name(), via.format()), via));
        }
        all_understood(&wishes, &passes)?;
        let opened = Instant::now();
        let writer = session.write(output, &schema, &write)?;
        let mut write_stage = Stage::new("write", writer.plugin().name(), writer.format());
        write_stage.time = opened.elapsed();

        let mut line =
            Line { read_stage, passes, write_stage, move_stage: Stage::new("move", "host", "cpu"), writer };
        let mut reader = reader;
        let mut arrive_stage = Stage::new("move", "host", &session.device().to_string());
        while let Some(batch) = line.read_stage.time(|| reader.next_as_given())? {
            line.read_stage.count(&batch);
            let batch = if batch.device() == session.device() {
                batch
            } else {
                let before = copied();
                let batch = arrive_stage.time(|| reader.place(batch))?;
                arrive_stage.count(&batch);
                arrive_stage.copied += copied().since(before);
                batch
            };
            let batch = match &columns {
                None => batch,
                Some(columns) => {
                    batch.select(columns).map_err(|e| Error::data("cannot select columns", e))?
                }
            };
            line.push(batch)?;
        }
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

/// A wish that nobody hears is a misspelt one.
fn all_understood(options: &Options, passes: &[(Stage, Via)]) -> Result<()> {
    match options.iter().find(|(key, _)| !passes.iter().any(|(_, via)| via.understands(key))) {
        None => Ok(()),
        Some((key, _)) => {
            let through: Vec<_> = passes.iter().map(|(_, via)| via.format()).collect();
            let through = if through.is_empty() { "none".into() } else { through.join(", ") };
            Err(Error::usage(format!(
                "option '{key}': none of the formats that batches are sent through understands it ({through})"
            )))
        }
    }
}

fn indices(reader: &Reader, names: &[String]) -> Result<Vec<usize>> {
    let schema = reader.schema();
    let index = |name: &String| {
        let mut hits = schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
        match (hits.next(), hits.next()) {
            (Some((i, _)), None) => Ok(i),
            (Some(_), Some(_)) => Err(Error::usage(format!("several columns are called '{name}'"))),
            _ => {
                let known: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
                Err(Error::usage(format!("there is no column '{name}'; columns: {}", known.join(", "))))
            }
        }
    };
    names.iter().map(index).collect()
}

/// Everything behind the reader.
struct Line {
    read_stage: Stage,
    passes: Vec<(Stage, Via)>,
    move_stage: Stage,
    write_stage: Stage,
    writer: Writer,
}

impl Line {
    /// Sends a batch through the vias and into the output.
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
        let capsules = self.write_stage.time(|| self.writer.write(batch))?;
        // A format of bytes has none; if there are any, this is their end.
        drop(capsules);
        Ok(())
    }

    /// The stages up to the host's own, the host's own, and the last.
    fn finish(mut self) -> Result<(Vec<Stage>, Stage, Stage)> {
        let mut done = Vec::new();
        // Each via's last words still pass through those behind it.
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
