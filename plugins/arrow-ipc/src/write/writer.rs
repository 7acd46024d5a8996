//! Batches in, bytes out.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{check_nullability, import_batch};
use crossdock_memory::{Device, Memory, Result, Stream};
use crossdock_plugin_api::{BatchWriter, Call, Capsule, Owned, Sink, abi};

use super::dictionaries::Dictionaries;
use super::flatten::Flattener;
use super::message::{Flat, Kind, Outgoing};
use super::output::Output;
use crate::codec::Codec;
use crate::footer_metadata;
use crate::limits::DEFAULT_BYTES_AHEAD;
use crate::pool::Pool;
use crate::wire::frame::{END_OF_STREAM, FILE_HEAD_BYTES, MAGIC};
use crate::wire::{Block, Schema, footer, message_write};

/// Which of the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With a footer, for random access.
    File,
    /// In order, for pipes.
    Stream,
}

/// What the caller wishes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The form.
    pub form: Form,
    /// How bodies are compressed.
    pub codec: Option<Codec>,
}

/// Writes batches of one schema.
pub struct Writer {
    settings: Settings,
    memory: Memory,
    pool: Arc<Pool>,
    /// Of the host: what is written is looked at there.
    stream: Stream,
    schema: Schema,
    footer_metadata: Vec<(String, String)>,
    dictionaries: Dictionaries,
    /// Messages whose buffers are being compressed, or on their way from a device.
    under_way: VecDeque<Outgoing>,
    out: Output,
    dictionary_blocks: Vec<Block>,
    batch_blocks: Vec<Block>,
}

impl Writer {
    /// Begins a file or stream in `sink`.
    pub fn begin(
        settings: Settings,
        schema: SchemaRef,
        sink: Sink,
        memory: &Memory,
        pool: &Arc<Pool>,
    ) -> Result<Self> {
        let is_file = settings.form == Form::File;
        let (schema, footer_metadata) =
            if is_file { footer_metadata::split(schema) } else { (schema, Vec::new()) };
        let schema = Schema::number(schema)?;
        let mut out = Output::new(sink);
        if is_file {
            out.write(MAGIC)?;
            out.pad(FILE_HEAD_BYTES - MAGIC.len() as u64)?;
        }
        let head = message_write::schema(&schema, out.position())?;
        out.write(&head)?;
        Ok(Self {
            settings,
            memory: memory.clone(),
            pool: pool.clone(),
            stream: memory.default_stream(Device::CPU)?,
            schema,
            footer_metadata,
            dictionaries: Dictionaries::new(!is_file),
            under_way: VecDeque::new(),
            out,
            dictionary_blocks: Vec::new(),
            batch_blocks: Vec::new(),
        })
    }

    /// Flattens a batch into messages that are on their way; answers how many may stay so.
    fn take(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<usize> {
        let mut batch = import_batch(batch, &self.schema.arrow, &self.memory)?;
        let moved = batch.device() != Device::CPU;
        let stream = match batch.device() {
            device if moved => crossdock_arrays::call_stream(&self.memory, call, device)?,
            _ => self.stream.clone(),
        };
        batch.resolve_sizes(&stream)?;
        check_nullability(&batch, &stream)?;
        let batch = if moved { batch.move_to(&stream, Device::CPU)? } else { batch };
        let mut before = Vec::new();
        let mut flat = Flat { rows: batch.len(), metadata: batch.metadata().clone(), ..Flat::default() };
        let mut flattener =
            Flattener { stream: &self.stream, dictionaries: &mut self.dictionaries, before: &mut before };
        for (column, array) in self.schema.columns.iter().zip(batch.columns()) {
            flattener.add(column, array, 0, batch.len(), &mut flat)?;
        }
        for (id, is_delta, flat) in before {
            self.send(Kind::Dictionary { id, is_delta }, flat);
        }
        self.send(Kind::Batch, flat);
        Ok(match self.settings.codec {
            Some(_) => self.pool.width(),
            None => usize::from(moved),
        })
    }

    fn send(&mut self, kind: Kind, flat: Flat) {
        let outgoing = Outgoing::start(kind, flat, self.settings.codec, &self.pool, &self.stream);
        self.under_way.push_back(outgoing);
    }

    /// Writes the oldest messages until `most` are left, and no more bytes of them than the budget.
    fn write_until(&mut self, call: &Call<'_>, most: usize) -> Result<()> {
        let budget = if call.byte_budget() > 0 { call.byte_budget() } else { DEFAULT_BYTES_AHEAD };
        loop {
            let bytes: u64 = self.under_way.iter().map(Outgoing::bytes).sum();
            if self.under_way.len() <= most && bytes <= budget {
                return Ok(());
            }
            let Some(message) = self.under_way.pop_front() else { return Ok(()) };
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
        let may_wait = self.take(call, batch)?;
        self.write_until(call, may_wait)?;
        if self.settings.form == Form::Stream && self.under_way.is_empty() {
            // Whoever reads along gets the batch now, not with the next one.
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
                    "a footer of {} bytes is too large",
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
