//! Writes batches to a sink.

use std::collections::VecDeque;

use arrow_schema::SchemaRef;
use crossdock_arrays::{check_nullability, import_batch};
use crossdock_memory::{Device, Memory, Result, Stream};
use crossdock_plugin_api::{BatchWriter, BufferedSink, Call, Capsule, Owned, Sink, Tasks, abi};

use super::dictionaries::Dictionaries;
use super::flatten::Flattener;
use super::message::{Flat, Kind, Outgoing};
use crate::codec::Codec;
use crate::footer_metadata;
use crate::limits::max_bytes_ahead;
use crate::wire::frame::{END_OF_STREAM, FILE_HEAD_BYTES, MAGIC};
use crate::wire::{Block, Schema, footer, message_write};

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A file, whose footer allows random access.
    File,
    /// A stream, which is sequential and suitable for pipes.
    Stream,
}

/// The options that the caller has chosen, and the session's memory limit.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The format of the output.
    pub form: Form,
    /// The codec with which buffers are compressed.
    pub codec: Option<Codec>,
    /// The memory limit of the session; 0 for no limit.
    pub memory_limit_bytes: u64,
}

/// Writes batches of one schema.
pub struct Writer {
    settings: Settings,
    memory: Memory,
    tasks: Tasks,
    /// A stream of the CPU, on which batches are flattened.
    stream: Stream,
    schema: Schema,
    footer_metadata: Vec<(String, String)>,
    dictionaries: Dictionaries,
    /// Messages whose buffers are still being compressed or copied from a device.
    pending: VecDeque<Outgoing>,
    out: BufferedSink,
    dictionary_blocks: Vec<Block>,
    batch_blocks: Vec<Block>,
}

impl Writer {
    /// Begins to write a file or stream to `sink`.
    pub fn begin(
        settings: Settings,
        schema: SchemaRef,
        sink: Sink,
        memory: &Memory,
        tasks: &Tasks,
    ) -> Result<Self> {
        let is_file = settings.form == Form::File;
        let (schema, footer_metadata) =
            if is_file { footer_metadata::split(schema) } else { (schema, Vec::new()) };
        let schema = Schema::assign_ids(schema)?;
        let mut out = BufferedSink::new(sink);
        if is_file {
            out.write(MAGIC)?;
            out.pad(FILE_HEAD_BYTES - MAGIC.len() as u64)?;
        }
        let head = message_write::schema(&schema, out.position())?;
        out.write(&head)?;
        Ok(Self {
            settings,
            memory: memory.clone(),
            tasks: tasks.clone(),
            stream: memory.default_stream(Device::CPU)?,
            schema,
            footer_metadata,
            dictionaries: Dictionaries::new(!is_file),
            pending: VecDeque::new(),
            out,
            dictionary_blocks: Vec::new(),
            batch_blocks: Vec::new(),
        })
    }

    /// Flattens a batch and appends its messages to the pending messages. Returns how many messages
    /// may stay pending.
    fn add_batch(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<usize> {
        let mut batch = import_batch(batch, &self.schema.arrow, &self.memory)?;
        let is_on_device = batch.device() != Device::CPU;
        let stream = match batch.device() {
            device if is_on_device => crossdock_arrays::call_stream(&self.memory, call, device)?,
            _ => self.stream.clone(),
        };
        batch.resolve_sizes(&stream)?;
        check_nullability(&batch, &stream)?;
        let batch = if is_on_device { batch.move_to(&stream, Device::CPU)? } else { batch };
        let mut before = Vec::new();
        let mut flat = Flat { rows: batch.len(), metadata: batch.metadata().clone(), ..Flat::default() };
        let mut flattener =
            Flattener { stream: &self.stream, dictionaries: &mut self.dictionaries, before: &mut before };
        for (column, array) in self.schema.columns.iter().zip(batch.columns()) {
            flattener.add(column, array, 0, batch.len(), &mut flat)?;
        }
        for (id, is_delta, flat) in before {
            self.send(Kind::Dictionary { id, is_delta }, flat)?;
        }
        self.send(Kind::Batch, flat)?;
        Ok(match self.settings.codec {
            Some(_) => self.tasks.width(),
            None => usize::from(is_on_device),
        })
    }

    fn send(&mut self, kind: Kind, flat: Flat) -> Result<()> {
        let outgoing = Outgoing::start(kind, flat, self.settings.codec, &self.tasks, &self.stream)?;
        self.pending.push_back(outgoing);
        Ok(())
    }

    /// Writes the oldest messages until at most `max_pending` messages are pending and their size
    /// is within the budget.
    fn write_until(&mut self, call: &Call<'_>, max_pending: usize) -> Result<()> {
        let budget = max_bytes_ahead(call.byte_budget(), Device::CPU, self.settings.memory_limit_bytes);
        loop {
            let bytes: u64 = self.pending.iter().map(Outgoing::bytes).sum();
            if self.pending.len() <= max_pending && bytes <= budget {
                return Ok(());
            }
            let Some(message) = self.pending.pop_front() else { return Ok(()) };
            let kind = message.kind;
            let block = message.write(&mut self.out, &self.stream, || call.check_cancelled())?;
            match kind {
                _ if self.settings.form == Form::Stream => {}
                Kind::Batch => self.batch_blocks.push(block),
                Kind::Dictionary { .. } => self.dictionary_blocks.push(block),
            }
        }
    }
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let max_pending = self.add_batch(call, batch)?;
        self.write_until(call, max_pending)?;
        if self.settings.form == Form::Stream && self.pending.is_empty() {
            // The output is flushed, so that a concurrent reader receives this batch before the
            // next one is written.
            self.out.flush()?;
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        self.write_until(call, 0)?;
        self.out.write(&END_OF_STREAM)?;
        if self.settings.form == Form::File {
            let footer = footer::write(
                &self.schema,
                &self.dictionary_blocks,
                &self.batch_blocks,
                &self.footer_metadata,
            )?;
            let length = i32::try_from(footer.len()).map_err(|_| {
                crossdock_plugin_api::Error::unsupported(format!(
                    "the footer has {} bytes, expected at most 2 GiB",
                    footer.len()
                ))
            })?;
            self.out.write(&footer)?;
            self.out.write(&length.to_le_bytes())?;
            self.out.write(MAGIC)?;
        }
        self.out.flush()?;
        Ok(Vec::new())
    }
}
