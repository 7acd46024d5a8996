//! Dispatches requests to the plugin's functions.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_arrays::{batch_schema, export_batch, import_result, import_schema};
use crossdock_parts::{ChildParts, DeviceParts, read_schema, write_schema};
use crossdock_plugin_api::{
    CallSettings, CallStream, CancelFlag, Device, EncodedArray, Error, Fragment, Input, Operator, Options,
    Owned, ReadRequest, Result, Selection, Sink, Source, abi,
};

use crate::child::host_client::CallProgress;
use crate::child::host_objects::HostSource;
use crate::child::instance::{Attachments, Instance, OpenWriter};
use crate::child::open_stream::{MIN_LIMIT_TO_READ_AHEAD, OpenStream, Reader};
use crate::child::server::Server;
use crate::child::sink::{HostSink, SinkBuffer};
use crate::wire::array_transfer::{BatchParts, TreeParts, column_schema};
use crate::wire::incoming::Incoming;
use crate::wire::messages::{
    CallParts, FragmentParts, InputParts, OperatorParts, PlanParts, Request, Response, SelectionParts,
};
use crate::wire::outgoing::Outgoing;
use crate::wire::sink_parts::SinkParts;

type OptionParts = Vec<(String, String)>;

/// An input, and how it is read.
struct OpenParts {
    instance: u64,
    call: CallParts,
    format: String,
    inputs: Vec<InputParts>,
    schema: Option<Vec<u8>>,
    options: OptionParts,
}

impl Server {
    /// Runs the function that a request names. `attachments` are the files and segments of the
    /// request. `to` receives the files and segments of the response.
    pub(super) fn dispatch(
        &self,
        request: Request,
        attachments: Attachments,
        to: &mut Outgoing,
    ) -> Result<Response> {
        match request {
            Request::Load { version, plugin, memory_limit_bytes, trace_start } => {
                let trace = trace_start.map(|start| self.trace(start));
                self.load(&version, plugin, memory_limit_bytes, trace, attachments.files)?;
            }
            Request::Create(settings) => return self.create(settings),
            Request::Destroy(instance) => self.instances.remove(instance),
            Request::CloseStream(id) => {
                let stream = self.streams.get(id)?;
                self.streams.remove(id);
                stream.close();
            }
            Request::CloseWriter(writer) => self.writers.remove(writer),
            Request::Open { instance, call, format, inputs, schema, options, selection, fragment } => {
                let from = OpenParts { instance, call, format, inputs, schema, options };
                return self.open(from, selection, fragment, attachments);
            }
            Request::Fragments { instance, call, format, input, schema, options } => {
                let inputs = vec![input];
                let from = OpenParts { instance, call, format, inputs, schema, options };
                return self.fragments(from, attachments, to);
            }
            Request::Next { stream, call } => return self.streams.get(stream)?.next(call, to),
            Request::Plan { instance, call, format, schema, from, options } => {
                return self.plan(instance, call, &format, &schema, from, options);
            }
            Request::Begin { instance, call, format, schema, options, sink } => {
                return self.begin(instance, call, &format, &schema, options, sink);
            }
            Request::Write { writer, call, batches } => {
                return self.write(writer, call, batches, attachments, to);
            }
            Request::Finish { writer, call } => return self.finish(writer, call, to),
            Request::Check { instance, tree } => {
                let (instance, tree) = self.read_tree(instance, tree, attachments)?;
                let encoding = instance.encoding()?;
                instance.call("encoding.check", || encoding.check(&tree, 0))?;
            }
            Request::Size { instance, tree, rows } => {
                let (instance, tree) = self.read_tree(instance, tree, attachments)?;
                let encoding = instance.encoding()?;
                return instance.call("encoding.size", || encoding.size(&tree, 0, &rows)).map(Response::Size);
            }
            Request::Lower { instance, tree } => {
                let (instance, tree) = self.read_tree(instance, tree, attachments)?;
                let encoding = instance.encoding()?;
                let program = instance.call("encoding.lower", || encoding.lower(&tree, 0))?;
                return Ok(Response::Program(program.map(operator_parts)));
            }
            Request::Children { instance, node } => {
                let instance = self.instances.get(instance)?;
                let (encoding, node) = (instance.encoding()?, node.read()?);
                let derive = || node.alone(|node| encoding.children(node));
                let children = instance.call("encoding.children", derive)?;
                return Ok(Response::Children(ChildParts::write_all(&children)?));
            }
            Request::PlanDecoding { instance, tree, device, rows } => {
                let (instance, tree) = self.read_tree(instance, tree, attachments)?;
                let encoding = instance.encoding()?;
                let plan = || encoding.plan(&tree, 0, device.into(), &rows);
                return instance.call("encoding.plan", plan).map(Response::from);
            }
            Request::Decode { instance, call, tree, rows, children } => {
                let instance = self.instances.get(instance)?;
                let files = instance.incoming(attachments)?;
                *to = instance.outgoing();
                let tree = tree.read(&files)?;
                return self.decode(&instance, call, (&tree, &rows), children, &files, to);
            }
        }
        Ok(Response::Done)
    }

    fn open(
        &self,
        from: OpenParts,
        selection: SelectionParts,
        fragment: Option<Vec<u8>>,
        attachments: Attachments,
    ) -> Result<Response> {
        let OpenParts { instance, call, format, inputs, schema, options } = from;
        let instance = self.instances.get(instance)?;
        // Reading a batch from a pipe may wait for what the caller does with the batch before.
        let reads_ahead = inputs.iter().all(|input| input.bytes.is_some())
            && (instance.memory_limit_bytes == 0 || instance.memory_limit_bytes >= MIN_LIMIT_TO_READ_AHEAD);
        let input = self.inputs(inputs, attachments)?;
        let schema = schema.map(|bytes| read_schema(&bytes)).transpose()?.map(|(raw, _)| raw);
        let options = to_options(options);
        let call = self.begin_call(call, &instance);
        let importer = instance.plugin.importer()?;
        let selection = Selection::from(selection);
        let request = ReadRequest::new(&format)
            .with_schema(schema.as_deref())
            .with_options(&options)
            .with_selection(&selection)
            .with_fragment(fragment.as_deref());
        let open = || importer.open(&call.settings, input, &request);
        let mut stream = instance.call("importer.open", open)?;
        let schema = instance.call("stream.get_schema", || stream.schema())?;
        let honoured = stream.honoured().into();
        let options = stream.write_options()?;
        let write_options = options.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let (bytes, schema) = (write_schema(&schema)?, Arc::new(import_schema(&schema)?));
        let id = self.next_id();
        let _reuse = instance.reuse_segments();
        let reader = Reader { stream, pending: None, schema, _reuse, instance };
        let open = OpenStream::new(self.host.clone(), self.calls.clone(), reads_ahead, reader);
        self.streams.insert(id, Arc::new(open));
        Ok(Response::Stream { id, schema: bytes, honoured, write_options })
    }

    fn fragments(&self, from: OpenParts, attachments: Attachments, to: &mut Outgoing) -> Result<Response> {
        let OpenParts { instance, call, format, inputs, schema, options } = from;
        let instance = self.instances.get(instance)?;
        let input = self.inputs(inputs, attachments)?;
        let schema = schema.map(|bytes| read_schema(&bytes)).transpose()?.map(|(raw, _)| raw);
        let options = to_options(options);
        let call = self.begin_call(call, &instance);
        let importer = instance.plugin.importer()?;
        let request = ReadRequest::new(&format).with_schema(schema.as_deref()).with_options(&options);
        let list = || importer.fragments(&call.settings, input, &request);
        let fragments = instance.call("importer.fragments", list)?;
        *to = instance.outgoing();
        let stream = instance.streams.for_device(Device::CPU);
        let statistics = |batch: Owned<abi::Batch>, to: &mut Outgoing| -> Result<_> {
            let missing = || Error::internal("the statistics of a fragment have no schema");
            let schema = Arc::new(batch_schema(&batch)?.ok_or_else(missing)?);
            let bytes = write_schema(&batch.schema)?;
            let batch = import_result(instance.plugin.batch_from_plugin(batch), &schema, stream)?;
            Ok((bytes, BatchParts::write(batch, &instance.streams, to)?))
        };
        let parts = |fragment: Fragment| {
            let Fragment { token, n_rows, bytes, statistics: batch } = fragment;
            let statistics = batch.map(|batch| statistics(batch, to)).transpose()?;
            Ok(FragmentParts { token, n_rows, bytes, statistics })
        };
        fragments.into_iter().map(parts).collect::<Result<_>>().map(Response::Fragments)
    }

    fn inputs(&self, inputs: Vec<InputParts>, attachments: Attachments) -> Result<Input> {
        let files = Incoming::from_host(attachments.files)?;
        let source = |input| Source::new(Arc::new(HostSource::new(input, &files, self.host.clone())));
        Ok(Input::Sources(inputs.into_iter().map(source).collect()))
    }

    fn plan(
        &self,
        instance: u64,
        call: CallParts,
        format: &str,
        schema: &[u8],
        from: DeviceParts,
        options: OptionParts,
    ) -> Result<Response> {
        let instance = self.instances.get(instance)?;
        let (schema, _) = read_schema(schema)?;
        let call = self.begin_call(call, &instance);
        let exporter = instance.plugin.exporter()?;
        let options = to_options(options);
        let plan = || exporter.plan(&call.settings, format, &schema, from.into(), &options);
        let plan = instance.call("exporter.plan", plan)?;
        Ok(Response::Plan(plan.into_iter().map(PlanParts::from).collect()))
    }

    fn begin(
        &self,
        instance: u64,
        call: CallParts,
        format: &str,
        schema: &[u8],
        options: OptionParts,
        sink: SinkParts,
    ) -> Result<Response> {
        let instance = self.instances.get(instance)?;
        let (raw, schema) = read_schema(schema)?;
        let buffer = Arc::new(SinkBuffer::new(sink, self.host.clone(), instance.segments.clone()));
        let sink = Sink::new(Box::new(HostSink(buffer.clone())));
        let call = self.begin_call(call, &instance);
        let exporter = instance.plugin.exporter()?;
        let options = to_options(options);
        let begin = || exporter.begin(&call.settings, format, &raw, &options, Some(sink));
        let writer = instance.call("exporter.begin", begin)?;
        buffer.flush()?;
        let id = self.next_id();
        let _reuse = instance.reuse_segments();
        let open = OpenWriter { writer: Some(writer), sink: buffer, schema, _reuse, instance };
        self.writers.insert(id, Arc::new(Mutex::new(open)));
        Ok(Response::Writer(id))
    }

    fn write(
        &self,
        writer: u64,
        call: CallParts,
        batches: Vec<BatchParts>,
        attachments: Attachments,
        to: &mut Outgoing,
    ) -> Result<Response> {
        let writer = self.writers.get(writer)?;
        let mut open = lock_object(&writer);
        let files = open.instance.incoming(attachments)?;
        let read = |parts: BatchParts| {
            let batch = parts.read(&open.schema, &files)?;
            export_batch(&batch, false, open.instance.streams.for_device(batch.device()))
        };
        let batches = batches.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        // The segments are returned when the plugin has released the last batch.
        drop(files);
        let call = self.begin_call(call, &open.instance);
        let OpenWriter { writer, sink, instance, .. } = &mut *open;
        sink.begin_request();
        let writer = writer.as_mut().ok_or_else(|| Error::invalid_argument("write after finish"))?;
        for batch in batches {
            let write = || writer.write(&call.settings, instance.plugin.batch_to_plugin(batch));
            instance.call("writer.write", write)?;
        }
        Ok(Response::Written(sink.take(to)))
    }

    fn finish(&self, writer: u64, call: CallParts, to: &mut Outgoing) -> Result<Response> {
        let writer = self.writers.get(writer)?;
        let mut open = lock_object(&writer);
        let call = self.begin_call(call, &open.instance);
        open.sink.begin_request();
        let finished = || Error::invalid_argument("finish was called before");
        let writer = open.writer.take().ok_or_else(finished)?;
        open.instance.call("writer.finish", || writer.finish(&call.settings))?;
        Ok(Response::Written(open.sink.take(to)))
    }

    fn read_tree(
        &self,
        instance: u64,
        tree: TreeParts,
        attachments: Attachments,
    ) -> Result<(Arc<Instance>, EncodedArray)> {
        let instance = self.instances.get(instance)?;
        let tree = tree.read(&instance.incoming(attachments)?)?;
        Ok((instance, tree))
    }

    fn decode(
        &self,
        instance: &Instance,
        call: CallParts,
        (tree, rows): (&EncodedArray, &Range<u64>),
        children: Vec<Option<BatchParts>>,
        files: &Incoming,
        to: &mut Outgoing,
    ) -> Result<Response> {
        let read_child = |(batch, index): (Option<BatchParts>, usize)| {
            let Some(batch) = batch else { return Ok(None) };
            let batch = batch.read(&column_schema(tree.node(index)?)?, files)?;
            export_batch(&batch, false, instance.streams.for_device(batch.device())).map(Some)
        };
        let children = children.into_iter().zip(1..).map(read_child).collect::<Result<_>>()?;
        let call = self.begin_call(call, instance);
        let encoding = instance.encoding()?;
        let decode = || {
            let batch = encoding.decode(&call.settings, tree, 0, rows, children)?;
            Ok(instance.plugin.batch_from_plugin(batch))
        };
        let batch = instance.call("encoding.decode", decode)?;
        let stream = instance.streams.for_device(call.settings.device);
        let batch = import_result(batch, &column_schema(tree.root()?)?, stream)?;
        BatchParts::write(batch, &instance.streams, to).map(Response::Batch)
    }

    /// Begins a call of `instance`. The call reports its progress to the host, and the host can
    /// cancel it.
    fn begin_call(&self, parts: CallParts, instance: &Instance) -> ActiveCall<'_> {
        let cancel = CancelFlag::new();
        self.calls.insert(parts.id, cancel.clone());
        let progress = Some(CallProgress::new(self.host.clone(), parts.id).function());
        let settings = CallSettings { cancel, progress, ..parts.settings() };
        let stream = instance.streams.for_device(settings.device);
        // SAFETY: `CallStream::new` requires a stream that outlives the call. `instance` owns this
        // default stream of the device, and every caller keeps `instance` until the call ends.
        let settings = CallSettings { stream: unsafe { CallStream::new(stream.raw()) }, ..settings };
        ActiveCall { server: self, id: parts.id, settings }
    }
}

/// A call that the host can cancel until this value is dropped.
struct ActiveCall<'a> {
    server: &'a Server,
    id: u64,
    settings: CallSettings,
}

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        self.server.calls.remove(self.id);
    }
}

/// Locks a stream or writer. If an earlier call panicked, the plugin decides whether the object
/// still works.
fn lock_object<T>(object: &Mutex<T>) -> MutexGuard<'_, T> {
    object.lock().unwrap_or_else(PoisonError::into_inner)
}

fn to_options(pairs: OptionParts) -> Options {
    pairs.into_iter().fold(Options::new(), |options, (key, value)| options.with(key, value))
}

fn operator_parts(program: Vec<Operator>) -> Vec<OperatorParts> {
    let parts = |operator: Operator| {
        let raw = operator.raw();
        (raw.code, raw.index, raw.a, raw.b)
    };
    program.into_iter().map(parts).collect()
}
