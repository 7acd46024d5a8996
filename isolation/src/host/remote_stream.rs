//! Sources of the host and streams of a plugin in another process.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, Level, StartedValidation, export_batch, export_schema, validate};
use crossdock_memory_backend::Reservation;
use crossdock_parts::read_schema;
use crossdock_plugin_api::{
    BatchStream, Call, Code, Device, Honoured, Map, Options, Owned, Result, Source, abi,
};

use crate::host::child::Child;
use crate::host::child::unexpected_response;
use crate::host::connection::{Connection, SegmentReuses};
use crate::wire::array_transfer::BatchParts;
use crate::wire::incoming::Incoming;
use crate::wire::messages::{InputParts, Request, Response};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::Streams;

/// Makes a source available to the process until this value is dropped. Also keeps the source's
/// mapping, because received buffers may point into it.
pub struct SourceRegistration {
    child: Arc<Child>,
    id: u64,
    _map: Option<Map>,
}

impl Drop for SourceRegistration {
    fn drop(&mut self) {
        self.child.callbacks.remove_source(self.id);
    }
}

/// Makes a source available to the process, through its mapping if it has one, otherwise by
/// callbacks.
pub fn register_source(
    child: &Arc<Child>,
    source: Source,
    files: &mut Outgoing,
) -> Result<(InputParts, SourceRegistration)> {
    let source = Arc::new(source);
    let map = source.map();
    files.restrict_to_input(map.as_ref().map_or(&[], |map| map.bytes()));
    let whole =
        map.as_ref().filter(|map| !map.is_empty()).map(|map| files.place(map.bytes(), 1)).transpose()?;
    let (name, bytes, version) = (source.name().to_owned(), source.len(), source.version().to_owned());
    let id = child.callbacks.add_source(source);
    let registration = SourceRegistration { child: child.clone(), id, _map: map };
    Ok((InputParts { id, name, bytes, version, whole }, registration))
}

/// A stream of batches in the plugin's process.
pub struct RemoteStream {
    connection: Connection,
    id: u64,
    schema: SchemaRef,
    honoured: Honoured,
    write_options: Options,
    _sources: Vec<SourceRegistration>,
    received: ReceivedBatches,
    /// The number of batches that were returned.
    n_batches: usize,
    has_ended: bool,
    /// Reserves the memory of the schema.
    _reservation: Option<Reservation>,
    _reuse: SegmentReuses,
}

/// Batches that the process has sent and that are not returned yet.
#[derive(Default)]
struct ReceivedBatches {
    batches: VecDeque<Result<DeviceBatch>>,
    /// The validation of all batches. `None` if they are on several devices.
    validation: Option<StartedValidation>,
    /// The number of batches that were returned, and of those of earlier messages.
    n_returned: usize,
    n_before: usize,
    /// The message of the batches, which has reserved memory.
    _message: Incoming,
}

impl ReceivedBatches {
    fn new(
        parts: Vec<BatchParts>,
        schema: &SchemaRef,
        message: Incoming,
        Connection { streams, tasks, .. }: &Connection,
        n_before: usize,
    ) -> Result<Self> {
        let mut batches: Vec<DeviceBatch> = Vec::new();
        let mut error = None;
        for parts in parts {
            match parts.read(schema, &message) {
                Ok(batch) => batches.push(batch),
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        let device = batches.first().map_or(Device::CPU, DeviceBatch::device);
        let are_together = batches.iter().all(|batch| batch.device() == device);
        let start = || StartedValidation::start(&batches, tasks, streams.for_device(device));
        let validation = are_together.then(start).transpose()?;
        let batches = batches.into_iter().map(Ok).chain(error.map(Err)).collect();
        Ok(Self { batches, validation, n_returned: 0, n_before, _message: message })
    }

    fn next(&mut self, streams: &Streams, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let Some(batch) = self.batches.pop_front().transpose()? else { return Ok(None) };
        let stream = streams.for_device(batch.device());
        let validated = match &self.validation {
            Some(validation) => validation.finish(self.n_returned, || call.check_cancelled()),
            None => validate(&batch, Level::Full, stream),
        };
        let number = self.n_before + self.n_returned;
        validated.map_err(|error| match error.code() {
            Code::BAD_DATA => error.context(format_args!("batch {number}")),
            _ => error,
        })?;
        self.n_returned += 1;
        export_batch(&batch, false, stream).map(Some)
    }
}

impl RemoteStream {
    pub fn new(
        connection: Connection,
        id: u64,
        schema: &[u8],
        honoured: Honoured,
        write_options: Options,
        sources: Vec<SourceRegistration>,
        reservation: Option<Reservation>,
    ) -> Result<Self> {
        let (_, schema) = read_schema(schema)?;
        Ok(Self {
            _reuse: connection.reuse_segments(),
            connection,
            id,
            schema,
            honoured,
            write_options,
            _sources: sources,
            received: Default::default(),
            n_batches: 0,
            has_ended: false,
            _reservation: reservation,
        })
    }
}

impl BatchStream for RemoteStream {
    fn honoured(&self) -> Honoured {
        self.honoured
    }

    fn write_options(&self) -> Options {
        self.write_options.clone()
    }

    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        if self.received.batches.is_empty() && !self.has_ended {
            self.received = Default::default();
            let parts = self.connection.child.call_parts(call);
            let request = Request::Next { stream: self.id, call: parts };
            match self.connection.request(request, Some((call, parts)))? {
                (Response::Batches { batches, are_last, progress }, files)
                    if are_last || !batches.is_empty() =>
                {
                    self.received =
                        ReceivedBatches::new(batches, &self.schema, files, &self.connection, self.n_batches)?;
                    if let Some((done, total)) = progress {
                        call.progress(done, total);
                    }
                    self.has_ended = are_last;
                }
                _ => return Err(unexpected_response()),
            }
        }
        let batch = self.received.next(&self.connection.streams, call);
        self.n_batches += usize::from(matches!(batch, Ok(Some(_))));
        if self.received.batches.is_empty() {
            // The files and segments are released with their batches.
            self.received = Default::default();
        }
        batch
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.connection.child.release(&Request::CloseStream(self.id));
    }
}
