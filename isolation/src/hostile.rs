//! A host for tests and the fuzzer. It handles arbitrary bytes as messages of a plugin's process,
//! without starting a process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::DeviceBatch;
use crossdock_memory::{Buffer, Memory};
use crossdock_memory_backend::{Backend, Trace};
use crossdock_parts::{ChildParts, read_schema};
use crossdock_plugin_api::{
    BatchStream, ByteSink, ByteSource, Call, ColumnPlan, Device, Error, Format, Host, Importer, Input,
    Instance, Plugin, ReadRequest, Result, Sink, Source,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::files::mapping::ReceiveBudget;
use crate::files::seal::SEALS;
use crate::host::callback_server::{CallState, CallbackServer, DecodeContext};
use crate::host::child::parse_response;
use crate::host::connection::validated_batch;
use crate::host::open_sink::Arrival;
use crate::host::remote_instance::{intern_ids, program};
use crate::host::writable_segments::WritableSegments;
use crate::locks::lock;
use crate::wire::channel::{Channel, Message};
use crate::wire::incoming::Incoming;
use crate::wire::message_limits::MessageBudget;
use crate::wire::messages::{Response, WithSegments};
use crate::wire::segments::{SegmentParts, Streams};

const PLUGIN: &str = "hostile";
/// The contents of the source, whose id is 1. Segments have the same length as the source.
const BYTES: [u8; 192] = [7; 192];
/// The id of the instance, and also the id of the pending call.
const ID: u64 = 1;
/// The maximum length of raw bytes. All replies to the bytes must fit into the socket's buffer,
/// because no thread reads the replies.
const MAX_RAW_BYTES: usize = 1024;

/// The objects of the host that all connections share.
pub struct Harness {
    context: DecodeContext,
    segment: Buffer,
}

/// The host's side of a connection to one process.
pub struct Connection<'a> {
    harness: &'a Harness,
    callbacks: CallbackServer,
    /// The schema of the last opened stream.
    schema: SchemaRef,
}

impl Harness {
    /// Creates a host for processes whose device is `untouchable`.
    ///
    /// # Errors
    /// If the host has no such device.
    pub fn new(host: Host) -> Result<Self> {
        let memory = Memory::from_host(&host)?;
        let stream = memory.default_stream(Device::UNTOUCHABLE)?;
        let mut segment = memory.alloc(&stream, BYTES.len())?;
        stream.fill(&mut segment, 0, BYTES.len(), 1)?;
        let segment = segment.freeze(&stream)?;
        let streams = Streams::new(memory.default_stream(Device::CPU)?, Some(stream));
        Ok(Self { context: DecodeContext { host, memory, streams }, segment })
    }

    /// Creates the connection to a new process that has an instance, a source, a sink and a pending
    /// call.
    pub fn connect(&self) -> Connection<'_> {
        let trace = Trace::forwarded(Duration::ZERO, |_| ());
        let backend = Backend::builder().build();
        let (account, stream) = (backend.account(PLUGIN), self.context.streams.for_device(Device::CPU));
        let segments = Arc::new(WritableSegments::new(backend, account, stream.clone()));
        let callbacks = CallbackServer::new(
            PLUGIN.into(),
            (segments.clone(), segments),
            Some(Arc::new(trace)),
            ReceiveBudget::default(),
        );
        // This cannot fail, because the id has not been set before.
        let _ = callbacks.process_id.set(1);
        callbacks.add_instance(ID, self.context.clone());
        callbacks.add_source(Arc::new(Source::new(Arc::new(ConstantBytes))));
        callbacks.add_sink(Sink::new(Box::new(ConstantBytes)));
        lock(&callbacks.calls).insert(ID, Arc::new(CallState::new(None)));
        Connection { harness: self, callbacks, schema: Arc::new(Schema::empty()) }
    }
}

impl Connection<'_> {
    /// Receives raw bytes on a channel, and handles the callbacks in them.
    pub fn receive_raw(&self, bytes: &[u8]) -> io::Result<()> {
        let (local, remote) = UnixStream::pair()?;
        let bytes = bytes.get(..MAX_RAW_BYTES).unwrap_or(bytes);
        (&remote).write_all(bytes)?;
        remote.shutdown(std::net::Shutdown::Write)?;
        Channel::from(local).serve(&MessageBudget::default(), |message| self.callbacks.reply_to(message));
        Ok(())
    }

    /// Handles a callback.
    pub fn receive_callback(&self, bytes: Vec<u8>, files: Vec<OwnedFd>) {
        self.callbacks.reply_to(Message { bytes, files });
    }

    /// Reads a response to any request. Returns the batch of the response if the host accepts it.
    ///
    /// # Errors
    /// If the response or its files are malformed.
    pub fn receive_response(&mut self, bytes: Vec<u8>, files: Vec<OwnedFd>) -> Result<Option<DeviceBatch>> {
        let (WithSegments { message, segments }, files) =
            parse_response(Message { bytes, files }, &self.callbacks)?;
        let files = Incoming::from_plugin(files, &self.callbacks.budget)?;
        let files = files.with_segments(self.segments(&segments));
        match message {
            Response::Instance { importer, exporter, encodings, .. } => {
                let formats = importer.into_iter().chain(exporter).flatten().map(Format::from);
                ReportedFormats(formats.collect()).check()?;
                intern_ids(PLUGIN, encodings.unwrap_or_default().0)?;
            }
            Response::Stream { schema, .. } => self.schema = read_schema(&schema)?.1,
            Response::Fragments(fragments) => {
                for (schema, batch) in fragments.into_iter().filter_map(|fragment| fragment.statistics) {
                    let streams = &self.harness.context.streams;
                    validated_batch(batch, &read_schema(&schema)?.1, &files, streams)?;
                }
            }
            Response::Batch(batch) => {
                let streams = &self.harness.context.streams;
                return validated_batch(batch, &self.schema, &files, streams).map(Some);
            }
            Response::Batches { batches, .. } => {
                let streams = &self.harness.context.streams;
                let read = |batch| validated_batch(batch, &self.schema, &files, streams);
                return Ok(batches.into_iter().map(read).collect::<Result<Vec<_>>>()?.pop());
            }
            Response::Plan(plan) => {
                plan.into_iter().map(ColumnPlan::try_from).collect::<Result<Vec<_>>>()?;
            }
            Response::DecodePlan { device, .. } => drop(Device::from(device).to_string()),
            Response::Program(operators) => drop(program(operators)),
            Response::Children(children) => drop(ChildParts::read_all(children)?),
            Response::Written(write) => self.callbacks.write(ID, write, &[], Arrival::Response)?,
            Response::Done | Response::Writer(_) | Response::Size(_) => {}
        }
        Ok(None)
    }

    /// Creates segments with constant contents. The tests in `host/writable_segments.rs` test
    /// segments on real devices.
    fn segments(&self, parts: &[SegmentParts]) -> Vec<Buffer> {
        parts.iter().take(4).map(|_| self.harness.segment.clone()).collect()
    }
}

/// An open file that a process may send. For most values of `kind`, the file is sealed.
pub fn file(kind: u8, bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = |bytes: &[u8]| -> io::Result<File> {
        let mut memory =
            File::from(memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        memory.write_all(bytes)?;
        Ok(memory)
    };
    let sealed = |memory: File, seals| -> io::Result<OwnedFd> {
        fcntl_add_seals(&memory, seals)?;
        Ok(memory.into())
    };
    match kind {
        250 => Ok(memory(bytes)?.into()),
        251 => sealed(memory(bytes)?, SealFlags::WRITE),
        252 => {
            let sparse = memory(bytes)?;
            sparse.set_len(1 << 40)?;
            sealed(sparse, SEALS)
        }
        253 => Ok(File::open("/dev/null")?.into()),
        254 => Ok(UnixStream::pair()?.0.into()),
        255 => Ok(File::open("/")?.into()),
        _ => sealed(memory(bytes)?, SEALS),
    }
}

/// A source that contains [`BYTES`], and a sink that ignores all bytes.
struct ConstantBytes;

impl ByteSource for ConstantBytes {
    fn name(&self) -> &str {
        "constant"
    }

    fn len(&self) -> Option<u64> {
        Some(BYTES.len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|offset| BYTES.get(offset..)).unwrap_or_default();
        let n = from.len().min(to.len());
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(n)
    }
}

impl ByteSink for ConstantBytes {
    fn name(&self) -> &str {
        "constant"
    }

    fn write(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// A plugin whose formats were reported by a process.
struct ReportedFormats(Vec<Format>);

impl ReportedFormats {
    /// Checks the formats with the check that a session makes for any plugin.
    fn check(self) -> Result<Vec<Format>> {
        Instance::from_plugin(self).importer().map_or(Ok(Vec::new()), |importer| importer.formats())
    }
}

impl Plugin for ReportedFormats {
    fn create(_: Host) -> Result<Self> {
        Err(Error::internal("this plugin can be created only from the formats of a process"))
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
}

impl Importer for ReportedFormats {
    fn formats(&self) -> &[Format] {
        &self.0
    }

    fn open(&self, _: &Call<'_>, _: Input, _: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        Err(Error::unsupported("there is no process"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_schema::{DataType, Field};
    use crossdock_arrays::{DeviceArray, export_schema};
    use crossdock_memory_backend::Backend;
    use crossdock_parts::write_schema;
    use crossdock_plugin_api::CallSettings;
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::wire::array_transfer::tests::one_node;
    use crate::wire::array_transfer::{BatchParts, TreeParts};
    use crate::wire::messages::{self, CallParts, Callback, Failure};
    use crate::wire::outgoing::Outgoing;

    fn harness() -> Harness {
        let host = TestHost::over(Backend::builder().untouchable(true).limit_bytes(1 << 20).build());
        Harness::new(host.host()).unwrap()
    }

    /// Serializes a well-formed response.
    fn response(message: Response) -> Vec<u8> {
        let response: std::result::Result<WithSegments<Response>, Failure> =
            Ok(WithSegments { message, segments: Vec::new() });
        messages::to_bytes(&(Vec::<u64>::new(), response)).unwrap()
    }

    /// Creates a batch of numbers and words. Returns the batch, its parts and their files.
    fn batch(harness: &Harness) -> (DeviceBatch, BatchParts, Vec<OwnedFd>) {
        let stream = harness.context.streams.for_device(Device::CPU);
        let buffer = |bytes: &[u8]| {
            let fill = |to: &mut [u8]| {
                to.copy_from_slice(bytes);
                Ok(())
            };
            Some(stream.memory().alloc_with(stream, bytes.len(), fill).unwrap().freeze_now())
        };
        let offsets: Vec<u8> = [0i32, 2, 3, 6].iter().flat_map(|n| n.to_le_bytes()).collect();
        let array = |data_type, buffers| {
            DeviceArray::try_new(data_type, 3, 0, None, buffers, Vec::new(), None).unwrap()
        };
        let columns = vec![
            array(DataType::UInt16, vec![buffer(&[5]), buffer(&[1, 0, 2, 0, 3, 0])]),
            array(DataType::Utf8, vec![None, buffer(&offsets), buffer(b"abcdef")]),
        ];
        let fields =
            vec![Field::new("number", DataType::UInt16, true), Field::new("word", DataType::Utf8, false)];
        let batch = DeviceBatch::try_new(Arc::new(Schema::new(fields)), 3, columns).unwrap();
        let mut to = Outgoing::default();
        let parts = BatchParts::write(batch.clone(), &harness.context.streams, &mut to).unwrap();
        (batch, parts, to.into_files().unwrap())
    }

    #[test]
    fn accepts_well_formed_responses() {
        let harness = harness();
        let mut connection = harness.connect();
        let (sent, parts, files) = batch(&harness);
        let schema = write_schema(&export_schema(sent.schema()).unwrap()).unwrap();
        let opened = response(Response::Stream {
            id: 1,
            schema,
            honoured: crossdock_plugin_api::Honoured::default().into(),
            write_options: Vec::new(),
        });
        assert!(connection.receive_response(opened, Vec::new()).unwrap().is_none());
        let batch = response(Response::Batch(parts));
        let received = connection.receive_response(batch, files).unwrap().unwrap();
        let stream = harness.context.streams.for_device(Device::CPU);
        assert_eq!(crossdock_arrays::first_difference(&sent, &received, stream).unwrap(), None);
        let instance = Response::Instance {
            id: 1,
            importer: Some(Vec::new()),
            has_fragments: false,
            exporter: None,
            encodings: None,
        };
        assert!(connection.receive_response(response(instance), Vec::new()).unwrap().is_none());
    }

    #[test]
    fn rejects_malformed_responses_and_memory_that_can_change() {
        let harness = harness();
        let mut connection = harness.connect();
        let mut error =
            |bytes: Vec<u8>, files| connection.receive_response(bytes, files).unwrap_err().to_string();
        assert!(error(vec![9; 9], Vec::new()).contains("malformed message"));
        for (kind, reason) in [(250, "can still change"), (252, "are allocated"), (253, "not sealed memory")]
        {
            let message = error(response(Response::Done), vec![file(kind, &[1; 100]).unwrap()]);
            assert!(message.contains(reason), "{kind}: {message}");
        }
    }

    #[test]
    fn handles_callbacks_in_messages_and_in_raw_bytes() {
        let harness = harness();
        let connection = harness.connect();
        let read = messages::to_bytes(&Callback::Read { source: 1, offset: 8, bytes: 1 << 40 }).unwrap();
        connection.receive_callback(read.clone(), Vec::new());
        let tree = one_node(0, Vec::new());
        let tree = TreeParts::write(tree.root().unwrap(), &mut Outgoing::default()).unwrap();
        let call = CallSettings::new(Device::CPU).enter(|call| CallParts::new(call, ID, Device::CPU));
        let decode = Callback::Decode { instance: ID, call, tree, rows: None, segments: Vec::new() };
        connection.receive_callback(messages::to_bytes(&decode).unwrap(), Vec::new());
        let head = [(read.len() as u32).to_le_bytes(), [0; 4]].concat();
        connection.receive_raw(&[head, read].concat()).unwrap();
        connection.receive_raw(&[255; 2000]).unwrap();
        assert_eq!(connection.callbacks.callback_count.load(std::sync::atomic::Ordering::Relaxed), 3);
    }
}
