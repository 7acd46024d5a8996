//! Batches, one after another, with the next ones under way.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::Metadata;
use crossdock_arrays::{DeviceBatch, Level, export_batch, export_schema, validate};
use crossdock_memory::{Device, Memory, Result, Stream};
use crossdock_plugin_api::{BatchStream, Call, Error, Host, Input, Owned, Source, Validate, abi};

use super::build::{Builder, Shape};
use super::bytes::Stored;
use super::dictionaries::Dictionaries;
use super::footer_check::OTHER_SCHEMA;
use super::in_flight::InFlight;
use super::loading::{Loading, Slots};
use super::messages::{self, Messages, Next, Opened};
use super::pipe;
use crate::footer_metadata;
use crate::limits::{DEFAULT_BYTES_AHEAD, DEFAULT_BYTES_AHEAD_OF_DEVICE};
use crate::pool::Pool;
use crate::wire::schema::{names_and_types, same_types};
use crate::wire::{BatchMeta, Column, Header, Message, Schema};

/// A stream of the batches that a source holds.
pub struct Reader {
    name: String,
    host: Host,
    memory: Memory,
    pool: Arc<Pool>,
    device: Device,
    /// Where bodies are brought to the device, so that the next one is on its way while the call's stream works on this
    /// one; `None` on the host.
    uploads: Option<Stream>,
    /// Of the batches that are handed out next.
    schema: Schema,
    /// Of the messages that come in next: of another stream, where one follows.
    incoming: Schema,
    shape: Shape,
    messages: Messages,
    dictionaries: Dictionaries,
    under_way: VecDeque<UnderWay>,
    in_flight: InFlight,
    ended: bool,
    /// Asked again after a failure, it fails again: an end would be taken for that of the table.
    failed: Option<Error>,
    warned: bool,
    warned_of_end: bool,
    warned_of_metadata: bool,
    batches: u64,
}

/// A message whose body is being brought to the device.
enum UnderWay {
    Batch {
        meta: BatchMeta,
        body: Loading,
        position: u64,
        metadata: Metadata,
    },
    Dictionary {
        id: i64,
        is_delta: bool,
        meta: BatchMeta,
        body: Loading,
    },
    /// Where another stream of the same fields begins.
    NextStream(Schema),
    Failed(Error),
}

impl UnderWay {
    fn bytes(&self) -> u64 {
        match self {
            Self::Batch { body, .. } | Self::Dictionary { body, .. } => body.bytes(),
            Self::NextStream(_) | Self::Failed(_) => 0,
        }
    }
}

impl Reader {
    /// Opens what `input` holds, whichever of the two forms it is.
    pub fn open(
        call: &Call<'_>,
        input: Input,
        host: &Host,
        memory: &Memory,
        pool: &Arc<Pool>,
    ) -> Result<Self> {
        let Input::Source(source) = input else {
            return Err(Error::invalid_argument("Arrow IPC is read from bytes, not from capsules"));
        };
        let name = source.name().to_string();
        let opened = Self::open_source(call, source, host, memory).map_err(|e| named(e, &name))?;
        if opened.leaves_metadata {
            warn_of_schema_message(host, &name);
        }
        if opened.footer_differs {
            host.log(abi::LOG_WARN, &format!("'{name}': {OTHER_SCHEMA}"));
        }
        let mut schema = opened.schema;
        schema.arrow =
            footer_metadata::join(schema.arrow, opened.footer_metadata).map_err(|e| named(e, &name))?;
        let uploads =
            (call.device() != Device::CPU).then(|| memory.create_stream(call.device())).transpose()?;
        Ok(Self {
            name,
            uploads,
            host: host.clone(),
            memory: memory.clone(),
            pool: pool.clone(),
            device: call.device(),
            shape: Shape::of(&schema.columns),
            incoming: schema.clone(),
            schema,
            messages: opened.messages,
            dictionaries: Dictionaries::new(opened.is_file),
            under_way: VecDeque::new(),
            in_flight: InFlight::new(),
            ended: false,
            failed: None,
            warned: false,
            warned_of_end: false,
            warned_of_metadata: false,
            batches: 0,
        })
    }

    fn open_source(call: &Call<'_>, source: Source, host: &Host, memory: &Memory) -> Result<Opened> {
        match Stored::new(source) {
            Ok(stored) => messages::open(stored),
            Err(source) => {
                let host = host.clone();
                let warn = move |what: &str| host.log(abi::LOG_WARN, what);
                pipe::open(source, memory, call.device(), call.byte_budget(), warn)
            }
        }
    }

    /// Starts what should be under way: as many messages as there are threads, within the budget.
    fn read_ahead(&mut self, call: &Call<'_>, stream: &Stream) -> Result<()> {
        let budget = match (call.byte_budget(), self.device) {
            (0, device) if device == Device::CPU => DEFAULT_BYTES_AHEAD,
            (0, _) => DEFAULT_BYTES_AHEAD_OF_DEVICE,
            (wish, _) => wish,
        };
        while !self.ended && self.under_way.len() <= self.pool.width() {
            let ahead = self.in_flight.bytes()? + self.under_way.iter().map(UnderWay::bytes).sum::<u64>();
            if self.under_way.is_empty() {
                self.in_flight.wait(budget)?;
            }
            if !self.under_way.is_empty() && ahead >= budget {
                break;
            }
            let next = match self.messages.next(self.under_way.is_empty()) {
                Ok(Next::Message(message)) => self.start(*message, stream),
                Ok(Next::NotYet) if self.under_way.is_empty() => {
                    call.check_cancelled()?;
                    continue;
                }
                Ok(Next::NotYet) => break,
                Ok(Next::End) => {
                    self.ended = true;
                    break;
                }
                Err(e) => Err(e),
            };
            // What came before a failure is still handed out.
            self.ended = next.is_err();
            let next = next.unwrap_or_else(UnderWay::Failed);
            let enough = match &next {
                UnderWay::Batch { body, .. } if body.is_in_place() => true,
                // One that was sent took its time already; one more, so that the device has something to receive while
                // this one is looked at.
                UnderWay::Batch { body, .. } if body.is_sent() => !self.under_way.is_empty(),
                _ => false,
            };
            self.under_way.push_back(next);
            if enough {
                break;
            }
        }
        Ok(())
    }

    fn start(&mut self, arrived: messages::Arrived, stream: &Stream) -> Result<UnderWay> {
        let messages::Arrived { message, body, begin, position } = arrived;
        if let Header::Schema(_) = message.header {
            let next = self.next_stream(message);
            return next.map_err(|e| e.context(format_args!("the stream that begins at byte {begin}")));
        }
        let is_batch = matches!(message.header, Header::Batch(_));
        if !is_batch && !message.metadata.is_empty() && !self.warned {
            self.warned = true;
            self.host.log(
                abi::LOG_WARN,
                &format!(
                    "'{}' has dictionaries with metadata of their own, which no batch can take along: it is left out",
                    self.name
                ),
            );
        }
        match message.header {
            Header::Batch(meta) => {
                self.shape.check(&meta)?;
                let body = Loading::start(&self.memory, stream, &self.pool, body, &meta)?;
                Ok(UnderWay::Batch { meta, body, position, metadata: message.metadata })
            }
            Header::Dictionary { id, is_delta, batch: meta } => {
                Shape::of(std::slice::from_ref(values_of(&self.incoming, id)?)).check(&meta)?;
                let body = Loading::start(&self.memory, stream, &self.pool, body, &meta)?;
                Ok(UnderWay::Dictionary { id, is_delta, meta, body })
            }
            Header::Schema(_) => Err(Error::internal("a schema was taken for a message with a body")),
        }
        .map_err(|e: Error| e.context(format_args!("the message that ends at byte {position}")))
    }

    /// Another stream follows the first, as in files that were put one after another: its batches are of the same table.
    fn next_stream(&mut self, message: Message) -> Result<UnderWay> {
        let (next, leaves_metadata) = messages::expect_schema(message)?;
        let (first, other) = (&self.incoming.arrow, &next.arrow);
        if first.fields() != other.fields() {
            let (mut expected, mut got) = (names_and_types(first), names_and_types(other));
            if expected == got {
                (expected, got) = (format!("{:?}", first.fields()), format!("{:?}", other.fields()));
            }
            return Err(Error::bad_data(format!(
                "it has another schema than the stream before it, so it is no part of the same table: expected \
                 [{expected}], got [{got}]"
            )));
        }
        if leaves_metadata {
            warn_of_schema_message(&self.host, &self.name);
        }
        if first.metadata() != other.metadata() && !std::mem::replace(&mut self.warned_of_metadata, true) {
            let what = "of the streams one after another only the first one's schema metadata is kept";
            self.host.log(abi::LOG_WARN, &format!("'{}': {what}", self.name));
        }
        // Its dictionaries may have other numbers.
        self.incoming.columns = next.columns;
        self.shape = Shape::of(&self.incoming.columns);
        Ok(UnderWay::NextStream(self.incoming.clone()))
    }

    fn next_batch(&mut self, call: &Call<'_>, stream: &Stream) -> Result<Option<DeviceBatch>> {
        loop {
            call.check_cancelled()?;
            let uploads = self.uploads.clone().unwrap_or_else(|| stream.clone());
            self.read_ahead(call, &uploads)?;
            let check = || call.check_cancelled();
            match self.under_way.pop_front() {
                None => {
                    self.warn_of_left_over();
                    call.progress(self.messages.used_bytes(), self.messages.total_bytes());
                    return Ok(None);
                }
                Some(UnderWay::Failed(error)) => return Err(error),
                Some(UnderWay::NextStream(schema)) => {
                    self.schema = schema;
                    self.dictionaries = Dictionaries::new(false);
                }
                Some(UnderWay::Dictionary { id, is_delta, meta, body }) => {
                    let slots = self.finish(body, &uploads, check)?;
                    let column = values_of(&self.schema, id)?.clone();
                    let values = Builder::new(&meta, slots, &mut self.dictionaries, stream)
                        .column(&column)
                        .map_err(|e| e.context(format_args!("dictionary {id}")))?;
                    if values.len() != meta.rows {
                        return Err(Error::bad_data(format!(
                            "dictionary {id} has {} values in a batch of {} rows",
                            values.len(),
                            meta.rows
                        )));
                    }
                    self.dictionaries.put(id, is_delta, values)?;
                }
                Some(UnderWay::Batch { meta, body, position, metadata }) => {
                    let number = self.batches;
                    self.batches += 1;
                    let slots = self.finish(body, &uploads, check)?;
                    let batch = self
                        .assemble(&meta, slots, stream, call)
                        .map_err(|e| e.context(format_args!("record batch {number}")))?;
                    call.progress(position, self.messages.total_bytes());
                    return Ok(Some(batch.with_metadata(metadata)));
                }
            }
        }
    }

    fn finish(&mut self, body: Loading, uploads: &Stream, check: impl Fn() -> Result<()>) -> Result<Slots> {
        let slots = body.finish(uploads, check)?;
        slots.block().into_iter().for_each(|block| self.in_flight.add(block));
        Ok(slots)
    }

    fn warn_of_left_over(&mut self) {
        if let Some(at) = self.messages.left_over()
            && !std::mem::replace(&mut self.warned_of_end, true)
        {
            let what = format!(
                "'{}' has bytes after the end of its stream, from byte {at} on, which are not read",
                self.name
            );
            self.host.log(abi::LOG_WARN, &what);
        }
    }

    fn assemble(
        &mut self,
        meta: &BatchMeta,
        slots: Slots,
        stream: &Stream,
        call: &Call<'_>,
    ) -> Result<DeviceBatch> {
        let mut builder = Builder::new(meta, slots, &mut self.dictionaries, stream);
        let columns =
            self.schema.columns.iter().map(|column| builder.column(column)).collect::<Result<_>>()?;
        let batch = DeviceBatch::try_new(self.schema.arrow.clone(), meta.rows, columns)?;
        let level = match call.validate() {
            Validate::Layout => Level::Layout,
            Validate::Full => Level::Full,
        };
        validate(&batch, level, stream)?;
        Ok(batch)
    }
}

impl BatchStream for Reader {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema.arrow)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        if call.device() != self.device {
            return Err(Error::invalid_argument(format!(
                "'{}' was opened for {}, but its next batch is wanted on {}",
                self.name,
                self.device,
                call.device()
            )));
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let stream = crossdock_arrays::call_stream(&self.memory, call, call.device())?;
        let batch = self.next_batch(call, &stream).map_err(|e| {
            let error = named(e, &self.name);
            self.under_way.clear();
            self.failed = Some(error.clone());
            error
        })?;
        batch.map(|batch| export_batch(&batch, false, &stream)).transpose()
    }
}

fn warn_of_schema_message(host: &Host, name: &str) {
    let what = format!("the schema's message in '{name}' has metadata of its own, which is left out");
    host.log(abi::LOG_WARN, &what);
}

/// The values' column of a dictionary.
fn values_of(schema: &Schema, id: i64) -> Result<&Column> {
    let known = schema.dictionaries()?;
    known.get(&id).copied().ok_or_else(|| {
        Error::bad_data(format!("a dictionary batch has id {id}, which no field of the schema uses"))
    })
}

fn named(error: Error, name: &str) -> Error {
    if error.message().contains(name) { error } else { error.context(format_args!("'{name}'")) }
}

impl Reader {
    /// Refuses if the source's schema is not of the types that the caller expects.
    pub fn expect(&self, expected: &arrow_schema::Schema) -> Result<()> {
        let got = &self.schema.arrow;
        if same_types(got, expected) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "'{}' has another schema of its own: expected [{}], got [{}]",
            self.name,
            names_and_types(expected),
            names_and_types(got)
        )))
    }
}
