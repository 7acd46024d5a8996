//! Reads batches, and loads the next batches in advance.

mod ahead;
mod loads;
mod request;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::Metadata;
use crossdock_arrays::{DeviceBatch, StartedValidation, export_batch, export_schema};
use crossdock_memory::{Buffer, Device, Loader, Memory, Result, Stream};
use crossdock_plugin_api::{
    BatchStream, Call, CancelFlag, Error, Honoured, Host, Input, Options, Owned, Source, Tasks, abi,
};

use super::build::{Builder, Shape};
use super::decompressions::Decompressions;
use super::dictionaries::Dictionaries;
use super::footer_check::FOOTER_SCHEMA_DIFFERS;
use super::in_flight::InFlight;
use super::loading::{Loading, Slots};
use super::messages::{self, Messages, Opened};
use super::pipe;
use super::selection::Needed;
use super::transport::Transport;
use super::waiting;
use crate::codec::Codec;
use crate::footer_metadata;
use crate::limits::{max_bytes_ahead, max_bytes_ahead_of_decompression};
use crate::wire::schema::names_and_types;
use crate::wire::{BatchMeta, Column, Header, Message, Schema};
use crossdock_memory::StoredSource;

/// The stream of batches of a source.
pub struct Reader {
    name: String,
    host: Host,
    memory: Memory,
    loader: Loader,
    tasks: Tasks,
    device: Device,
    /// The memory limit of the session; 0 for no limit.
    memory_limit_bytes: u64,
    /// The stream on which bodies are copied to the device. It is separate, so that copies overlap
    /// with work on the call's stream. `None` for the CPU.
    uploads: Option<Stream>,
    decompressions: Decompressions<Loading>,
    /// The schema of the batch that is returned next.
    schema: Schema,
    /// The schema of the message that is read next. This message may belong to a following stream.
    incoming: Schema,
    shape: Shape,
    messages: Messages,
    dictionaries: Dictionaries,
    pending: VecDeque<Pending>,
    /// Whether the device decompresses the last batch in `pending`, which may have been removed.
    is_decompressing: bool,
    /// Batches that are being validated.
    assembled: VecDeque<Assembled>,
    /// The stream of validations. `None` if there was none yet.
    validations: Option<Stream>,
    /// Ends the loads of `pending`.
    cancel: CancelFlag,
    in_flight: InFlight,
    has_ended: bool,
    /// The first error. Later calls return it again, because returning the end would look like a
    /// complete table.
    failed: Option<Error>,
    warned_about_dictionary_metadata: bool,
    warned_about_end: bool,
    warned_about_metadata: bool,
    batches: u64,
    needed: Needed,
    /// The number of needed rows, if it is known.
    n_rows: Option<u64>,
    /// The compression of the input, if the caller needs it and it is known.
    codec: Option<Codec>,
    /// Further slices of the last batch.
    slices: VecDeque<DeviceBatch>,
}

/// A message whose body is being loaded.
enum Pending {
    Batch {
        meta: BatchMeta,
        body: Loading,
        position: u64,
        metadata: Metadata,
        /// The number of the batch in the input.
        number: u64,
        /// The needed rows.
        rows: Vec<Range<usize>>,
    },
    Dictionary {
        id: i64,
        is_delta: bool,
        meta: BatchMeta,
        body: Loading,
    },
    /// The beginning of another stream whose fields are equal to those of this stream.
    NextStream(Schema),
    Failed(Error),
}

/// A batch whose body is loaded.
struct Assembled {
    batch: DeviceBatch,
    /// The validation of several batches, and the number of this batch among them. `None` if the
    /// contents are not validated.
    validation: Option<(Arc<StartedValidation>, usize)>,
    position: u64,
    /// The number of the batch in the input.
    number: u64,
    /// The needed rows.
    rows: Vec<Range<usize>>,
    /// The number of bytes that are allocated for the body.
    bytes: u64,
}

impl Pending {
    /// Whether using the message waits for no task.
    fn is_loaded(&self) -> bool {
        match self {
            Self::Batch { body, .. } | Self::Dictionary { body, .. } => body.is_loaded(),
            Self::NextStream(_) | Self::Failed(_) => true,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Batch { body, .. } | Self::Dictionary { body, .. } => body.bytes(),
            Self::NextStream(_) | Self::Failed(_) => 0,
        }
    }
}

impl Reader {
    /// Opens a file or a stream.
    pub fn open(
        call: &Call<'_>,
        input: Input,
        host: &Host,
        memory: &Memory,
        loader: &Loader,
        tasks: &Tasks,
    ) -> Result<Self> {
        let Input::Source(source) = input else {
            return Err(Error::invalid_argument("the input is capsules, expected bytes"));
        };
        let name = source.name().to_string();
        let memory_limit_bytes = host.session().map_or(0, |session| session.memory_limit_bytes);
        let max_deferred = max_bytes_ahead(call.byte_budget(), Device::CPU, memory_limit_bytes);
        let opened = Self::open_source(call, source, host, memory, max_deferred)
            .map_err(|e| with_source_name(e, &name))?;
        if opened.drops_metadata {
            warn_about_schema_message(host, &name);
        }
        if opened.footer_differs {
            host.log(abi::LOG_WARN, &format!("'{name}': {FOOTER_SCHEMA_DIFFERS}"));
        }
        let mut schema = opened.schema;
        schema.arrow = footer_metadata::join(schema.arrow, opened.footer_metadata)
            .map_err(|e| with_source_name(e, &name))?;
        let uploads =
            (call.device() != Device::CPU).then(|| memory.create_stream(call.device())).transpose()?;
        let max_bytes = max_bytes_ahead_of_decompression(call.byte_budget(), memory_limit_bytes);
        Ok(Self {
            name,
            uploads,
            decompressions: Decompressions::new(max_bytes),
            host: host.clone(),
            memory: memory.clone(),
            loader: loader.clone(),
            tasks: tasks.clone(),
            device: call.device(),
            memory_limit_bytes,
            shape: Shape::of(&schema.columns),
            incoming: schema.clone(),
            schema,
            messages: opened.messages,
            dictionaries: Dictionaries::new(opened.is_file),
            pending: VecDeque::new(),
            is_decompressing: false,
            assembled: VecDeque::new(),
            validations: None,
            cancel: CancelFlag::new(),
            in_flight: InFlight::new(),
            has_ended: false,
            failed: None,
            warned_about_dictionary_metadata: false,
            warned_about_end: false,
            warned_about_metadata: false,
            batches: 0,
            needed: Needed::default(),
            n_rows: None,
            codec: None,
            slices: VecDeque::new(),
        })
    }

    fn open_source(
        call: &Call<'_>,
        source: Source,
        host: &Host,
        memory: &Memory,
        max_deferred: u64,
    ) -> Result<Opened> {
        match StoredSource::new(source) {
            Ok(stored) => messages::open(stored),
            Err(source) => {
                let host = host.clone();
                let warn = move |what: &str| host.log(abi::LOG_WARN, what);
                pipe::open(source, memory, call.device(), max_deferred, warn)
            }
        }
    }

    /// Begins to load a message. `None` if nothing of it is needed.
    fn start(&mut self, arrived: messages::ReceivedMessage, stream: &Stream) -> Result<Option<Pending>> {
        let messages::ReceivedMessage { message, body, begin, position } = arrived;
        if let Header::Schema(_) = message.header {
            let next = self.next_stream(message);
            return next.map(Some).map_err(|e| {
                e.or_offset(begin).context(format_args!("the stream that begins at byte {begin}"))
            });
        }
        let is_batch = matches!(message.header, Header::Batch(_));
        if !is_batch && !message.metadata.is_empty() && !self.warned_about_dictionary_metadata {
            self.warned_about_dictionary_metadata = true;
            self.host.log(
                abi::LOG_WARN,
                &format!("'{}' has dictionary batches with metadata, which is dropped", self.name),
            );
        }
        match message.header {
            Header::Batch(mut meta) => {
                self.shape.check(&meta)?;
                let number = self.batches;
                self.batches += 1;
                let rows = self.needed.rows_of_next(meta.rows);
                if rows.is_empty() && self.needed.has_rows() {
                    return Ok(None);
                }
                self.needed.drop_buffers(&self.incoming.columns, &mut meta);
                let is_partial = self.needed.projection().is_some();
                let body =
                    Loading::start(&self.transport(stream), &self.decompressions, body, &meta, is_partial)?;
                Ok(Some(Pending::Batch { meta, body, position, metadata: message.metadata, number, rows }))
            }
            Header::Dictionary { id, is_delta, batch: meta } => {
                Shape::of(std::slice::from_ref(dictionary_values(&self.incoming, id)?)).check(&meta)?;
                if !self.needed.needs_dictionary(id) {
                    return Ok(None);
                }
                let body = Loading::start(&self.transport(stream), &self.decompressions, body, &meta, false)?;
                Ok(Some(Pending::Dictionary { id, is_delta, meta, body }))
            }
            Header::Schema(_) => Err(Error::internal("a schema message has no body to load")),
        }
        .map_err(|e: Error| {
            e.or_offset(begin).context(format_args!("the message that ends at byte {position}"))
        })
    }

    fn transport<'a>(&'a self, stream: &'a Stream) -> Transport<'a> {
        let Self { cancel, memory, loader, tasks, .. } = self;
        Transport { cancel, memory, stream, loader, tasks }
    }

    /// Begins a stream that follows another one, as in concatenated files. Its batches belong to
    /// the same table.
    fn next_stream(&mut self, message: Message) -> Result<Pending> {
        let (next, drops_metadata) = messages::expect_schema(message)?;
        let (first, other) = (&self.incoming.arrow, &next.arrow);
        if first.fields() != other.fields() {
            let (mut expected, mut got) = (names_and_types(first), names_and_types(other));
            if expected == got {
                (expected, got) = (format!("{:?}", first.fields()), format!("{:?}", other.fields()));
            }
            return Err(Error::bad_data(format!(
                "its schema differs from that of the previous stream, so both cannot be one table: expected \
                 [{expected}], got [{got}]"
            )));
        }
        if drops_metadata {
            warn_about_schema_message(&self.host, &self.name);
        }
        if first.metadata() != other.metadata() && !std::mem::replace(&mut self.warned_about_metadata, true) {
            let what = "only the schema metadata of the first stream is kept";
            self.host.log(abi::LOG_WARN, &format!("'{}': {what}", self.name));
        }
        // The following stream may use other ids for its dictionaries.
        self.incoming.columns = next.columns;
        self.shape = Shape::of(&self.incoming.columns);
        self.needed.find_dictionaries(&self.incoming);
        Ok(Pending::NextStream(self.incoming.clone()))
    }

    fn next_batch(&mut self, call: &Call<'_>, stream: &Stream) -> Result<Option<DeviceBatch>> {
        if let Some(slice) = self.slices.pop_front() {
            return Ok(Some(slice));
        }
        self.assemble_ahead(call, stream)?;
        let Some(Assembled { batch, validation, position, number, rows, .. }) = self.assembled.pop_front()
        else {
            if !self.needed.has_all_rows() {
                self.warn_about_unread_bytes();
            }
            call.progress(self.messages.used_bytes(), self.messages.total_bytes());
            return Ok(None);
        };
        if let Some((validation, i)) = validation {
            waiting::in_call(call, || validation.finish(i, || call.check_cancelled()))
                .map_err(|e| e.context(format_args!("record batch {number}")))?;
        }
        call.progress(position, self.messages.total_bytes());
        if rows.first() == Some(&(0..batch.len())) {
            return Ok(Some(batch));
        }
        let slices = rows.into_iter().map(|rows| batch.slice(rows.start, rows.len()));
        self.slices = slices.collect::<Result<_>>()?;
        Ok(self.slices.pop_front())
    }

    /// Assembles the next batch. `None` at the end, and if it is not loaded yet and `may_wait` is
    /// false.
    fn next_assembled(
        &mut self,
        call: &Call<'_>,
        stream: &Stream,
        may_wait: bool,
    ) -> Result<Option<Assembled>> {
        loop {
            call.check_cancelled()?;
            let uploads = self.uploads.clone().unwrap_or_else(|| stream.clone());
            self.read_ahead(call, &uploads, may_wait)?;
            if !may_wait && !self.pending.front().is_some_and(Pending::is_loaded) {
                return Ok(None);
            }
            match self.pending.pop_front() {
                None => return Ok(None),
                Some(failed @ Pending::Failed(_)) if !may_wait => {
                    self.pending.push_front(failed);
                    return Ok(None);
                }
                Some(Pending::Failed(error)) => return Err(error),
                Some(Pending::NextStream(schema)) => {
                    self.schema = schema;
                    self.dictionaries = Dictionaries::new(false);
                }
                Some(Pending::Dictionary { id, is_delta, meta, body }) => {
                    let slots = self.finish(body, &uploads, call)?;
                    let column = dictionary_values(&self.schema, id)?.clone();
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
                Some(Pending::Batch { meta, body, position, metadata, number, rows }) => {
                    let bytes = body.bytes();
                    let slots = self.finish(body, &uploads, call)?;
                    // The compressed body has been freed.
                    let bytes = bytes.min(slots.block().and_then(Buffer::len).unwrap_or(0) as u64);
                    let batch = self
                        .assemble(&meta, slots, stream)
                        .map_err(|e| e.context(format_args!("record batch {number}")))?;
                    let (batch, validation) = (batch.with_metadata(metadata), None);
                    return Ok(Some(Assembled { batch, validation, position, number, rows, bytes }));
                }
            }
        }
    }

    fn finish(&mut self, body: Loading, uploads: &Stream, call: &Call<'_>) -> Result<Slots> {
        let flag = self.cancel.clone();
        // Loads that run on other threads end at once. Without a subscription, they end after this
        // thread has noticed the cancellation, which it looks for at intervals.
        let subscribe = || call.cancel().subscribe(move || flag.cancel()).ok();
        let _subscription = if body.is_loading() { subscribe() } else { None };
        let slots = waiting::in_call(call, || body.finish(uploads, || call.check_cancelled()))?;
        slots.block().into_iter().for_each(|block| self.in_flight.add(block));
        Ok(slots)
    }

    fn warn_about_unread_bytes(&mut self) {
        if let Some(at) = self.messages.unread_from()
            && !std::mem::replace(&mut self.warned_about_end, true)
        {
            let what = format!(
                "'{}' has bytes after the end of its stream, from byte {at} on, which are ignored",
                self.name
            );
            self.host.log(abi::LOG_WARN, &what);
        }
    }

    fn assemble(&mut self, meta: &BatchMeta, slots: Slots, stream: &Stream) -> Result<DeviceBatch> {
        let mut builder = Builder::new(meta, slots, &mut self.dictionaries, stream);
        let columns = builder.columns(&self.schema.columns, self.needed.projection())?;
        DeviceBatch::try_new(self.arrow_schema().clone(), meta.rows, columns)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Dropping a load waits for its task.
        self.cancel.cancel();
    }
}

impl BatchStream for Reader {
    fn honoured(&self) -> Honoured {
        let (columns, n_rows) = (!self.needed.lacks_columns, self.n_rows);
        Honoured { columns, rows: true, n_rows, ..Honoured::default() }
    }

    fn write_options(&self) -> Options {
        let name = match self.codec {
            None => return Options::new(),
            Some(Codec::Lz4) => "lz4",
            Some(Codec::Zstd) => "zstd",
        };
        Options::new().with("compression", name)
    }

    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(self.arrow_schema())
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        if call.device() != self.device {
            return Err(Error::invalid_argument(format!(
                "'{}' was opened for {}, but its next batch was requested on {}",
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
            let error = with_source_name(e, &self.name);
            self.cancel.cancel();
            self.pending.clear();
            self.assembled.clear();
            self.failed = Some(error.clone());
            error
        })?;
        batch.map(|batch| export_batch(&batch, false, &stream)).transpose()
    }
}

fn warn_about_schema_message(host: &Host, name: &str) {
    let what = format!("the schema message of '{name}' has metadata, which is dropped");
    host.log(abi::LOG_WARN, &what);
}

/// Returns the column of a dictionary's values.
fn dictionary_values(schema: &Schema, id: i64) -> Result<&Column> {
    let known = schema.dictionaries()?;
    known.get(&id).copied().ok_or_else(|| {
        Error::bad_data(format!(
            "a dictionary batch has id {id}, expected an id that a field of the schema uses"
        ))
    })
}

fn with_source_name(error: Error, name: &str) -> Error {
    if error.message().contains(name) { error } else { error.context(format_args!("'{name}'")) }
}
