//! A plugin instance whose code runs in another process.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Weak};

use crossdock_arrays::import_batch;
use crossdock_memory::Memory;
use crossdock_memory_backend::{Account, Backend, ProcessWide, Reservation};
use crossdock_parts::{ChildParts, NodeHead, read_schema, write_schema};
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ChildType, ColumnPlan, DecodePlan, Device, EncodedNode, Encoding, Error,
    Exporter, Format, Fragment, Host, Importer, Input, Operator, Options, Owned, Plugin, ReadRequest, Result,
    SessionSettings, Sink, Tasks, abi,
};

use crate::host::callback_server::DecodeContext;
use crate::host::child::Child;
use crate::host::child::unexpected_response;
use crate::host::connection::Connection;
use crate::host::isolated_plugin::IsolatedPlugin;
use crate::host::remote_stream::{RemoteStream, register_source};
use crate::host::remote_writer::RemoteWriter;
use crate::host::writable_segments::WritableSegments;
use crate::wire::array_transfer::{BatchParts, TreeParts, column_schema};
use crate::wire::messages::{FormatParts, FragmentParts, OperatorParts, Request, Response};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::Streams;
use crate::wire::sink_parts::SinkParts;

/// An instance in another process.
pub struct RemoteInstance {
    connection: Connection,
    instance: u64,
    importer: Option<Vec<Format>>,
    has_fragments: bool,
    exporter: Option<Vec<Format>>,
    encodings: Option<Vec<&'static str>>,
    decodes: bool,
    /// Reserves the memory of the formats and encodings.
    _reservation: Option<Reservation>,
}

/// Converts the operators that a process sent for a node. Returns `None` if the process sent no
/// program, or if an operator is unknown.
pub fn program(parts: Option<Vec<OperatorParts>>) -> Option<Vec<Operator>> {
    let operator = |(code, index, a, b)| Operator::from_raw(abi::Operator { code, index, a, b });
    parts?.into_iter().map(operator).collect()
}

impl RemoteInstance {
    /// Creates an instance for a session in the plugin's process, and starts the process if it does
    /// not run. `create_host` creates a host object that charges its memory to an account.
    ///
    /// # Errors
    /// The process cannot be started, or the plugin cannot be loaded or returned an error.
    pub fn create(
        plugin: &IsolatedPlugin,
        session: u64,
        name: &str,
        backend: &Backend,
        host: &Host,
        settings: SessionSettings,
        create_host: impl Fn(Arc<Account>) -> Result<Host>,
    ) -> Result<Self> {
        let memory = Memory::from_host(host)?;
        let device = Some(settings.device).filter(|device| device.r#type == abi::DEVICE_CUDA);
        let device_stream = device.map(|device| memory.default_stream(device)).transpose()?;
        let streams = Streams::new(memory.default_stream(Device::CPU)?, device_stream);
        let account = backend.account(&format!("{name} (its process)"));
        let segment_account = account.clone();
        let segments = |device| {
            // The segments have their own host object, because the process may outlive this
            // instance.
            let memory = Memory::from_host(&create_host(segment_account.clone())?)?;
            let stream = memory.default_stream(device)?;
            Ok(WritableSegments::new(backend.clone(), segment_account.clone(), stream))
        };
        let limit = settings.memory_limit_bytes;
        let child = plugin.child(session, device, limit, backend.trace(), account, segments)?;
        let connection = Connection { child, memory, streams, tasks: Tasks::from_host(host)? };
        let (response, incoming) = connection.request(Request::Create(settings.into()), None)?;
        let Response::Instance { id, importer, has_fragments, exporter, encodings } = response else {
            return Err(unexpected_response());
        };
        let formats = |parts: Option<Vec<FormatParts>>| -> Option<Vec<Format>> {
            Some(parts?.into_iter().map(Format::from).collect())
        };
        let (importer, exporter) = (formats(importer), formats(exporter));
        let reservation = incoming.into_reservation();
        let decodes = encodings.as_ref().is_none_or(|(_, decodes)| *decodes);
        // If an error occurs after this line, dropping `remote` destroys the instance.
        let mut remote = Self {
            connection: connection.clone(),
            instance: id,
            importer,
            has_fragments,
            exporter,
            encodings: None,
            decodes,
            _reservation: reservation,
        };
        remote.encodings = encodings.map(|(ids, _)| intern_ids(name, ids)).transpose()?;
        let Connection { child, memory, streams, .. } = connection;
        child.callbacks.add_instance(id, DecodeContext { host: host.clone(), memory, streams });
        Ok(remote)
    }
}

impl RemoteInstance {
    /// The process that the instance runs in.
    pub fn process(&self) -> PluginProcess {
        PluginProcess(Arc::downgrade(&self.connection.child))
    }
}

/// A weak reference to the process of an isolated plugin.
pub struct PluginProcess(Weak<Child>);

impl PluginProcess {
    /// Whether the process has ended and the host still has objects of the process.
    pub fn has_ended(&self) -> bool {
        self.0.upgrade().is_some_and(|child| !child.is_running())
    }

    /// Keeps the process for later instances of the session. `None` if it is ending.
    pub fn keep(&self) -> Option<KeptProcess> {
        self.0.upgrade().map(KeptProcess)
    }
}

/// Keeps the process of an isolated plugin until this value is dropped. If nothing else uses the
/// process, the drop waits for its end, except in a forked child of the host.
pub struct KeptProcess(Arc<Child>);

impl KeptProcess {
    /// Whether this is the process.
    pub fn is(&self, process: &PluginProcess) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.0), process.0.as_ptr())
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        self.0.is_running()
    }
}

impl Drop for RemoteInstance {
    fn drop(&mut self) {
        self.connection.child.release(&Request::Destroy(self.instance));
        self.connection.child.callbacks.remove_instance(self.instance);
    }
}

/// Interns ids of encodings. The ids are few and short, and all instances have the same ids.
/// Interned ids are never freed, so each plugin may add at most 64 KiB.
///
/// # Errors
/// The plugin exceeds the limit.
pub fn intern_ids(plugin: &str, ids: Vec<String>) -> Result<Vec<&'static str>> {
    const MAX_BYTES: usize = 64 << 10;
    /// The approximate size of an entry of the set.
    const ENTRY_BYTES: usize = 32;
    static INTERNED: ProcessWide<(BTreeSet<&str>, BTreeMap<String, usize>)> = ProcessWide::new();
    let mut interned = INTERNED.lock();
    let (known, plugin_bytes) = &mut *interned;
    let new: BTreeSet<&String> = ids.iter().filter(|id| !known.contains(id.as_str())).collect();
    let new_bytes: usize = new.iter().map(|id| id.len() + ENTRY_BYTES).sum();
    let bytes = plugin_bytes.entry(plugin.to_owned()).or_default();
    if new_bytes > MAX_BYTES.saturating_sub(*bytes) {
        return Err(Error::unsupported(format!(
            "the ids of the plugin's encodings are longer than {MAX_BYTES} bytes, the maximum of an isolated plugin"
        )));
    }
    *bytes += new_bytes;
    let intern = |id: String| known.get(id.as_str()).copied().unwrap_or_else(|| leak(known, id));
    Ok(ids.into_iter().map(intern).collect())
}

fn leak(known: &mut BTreeSet<&'static str>, id: String) -> &'static str {
    let id = &*Box::leak(id.into_boxed_str());
    known.insert(id);
    id
}

impl Plugin for RemoteInstance {
    fn create(_: Host) -> Result<Self> {
        Err(Error::internal("an instance in another process is created by the host"))
    }

    fn importer(&self) -> Option<&dyn Importer> {
        self.importer.is_some().then_some(self as &dyn Importer)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        self.exporter.is_some().then_some(self as &dyn Exporter)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        self.encodings.is_some().then_some(self as &dyn Encoding)
    }
}

fn to_pairs(options: &Options) -> Vec<(String, String)> {
    options.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn no_capsules() -> Error {
    Error::unsupported(
        "the plugin runs in a process of its own, which cannot use the pointers in capsules: exclude it from the isolated \
         plugins",
    )
}

impl Importer for RemoteInstance {
    fn formats(&self) -> &[Format] {
        self.importer.as_deref().unwrap_or_default()
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        let sources = match input {
            Input::Source(source) => vec![source],
            Input::Sources(sources) => sources,
            Input::Capsules(_) => return Err(no_capsules()),
        };
        let mut files = Outgoing::to_plugin(None);
        let register = |source| register_source(&self.connection.child, source, &mut files);
        let registered = sources.into_iter().map(register).collect::<Result<Vec<_>>>()?;
        let (inputs, sources) = registered.into_iter().unzip();
        let parts = self.connection.child.call_parts(call);
        let request = Request::Open {
            instance: self.instance,
            call: parts,
            format: request.format.to_owned(),
            inputs,
            schema: request.schema.map(write_schema).transpose()?,
            options: to_pairs(request.options),
            selection: request.selection.into(),
            fragment: request.fragment.map(<[u8]>::to_vec),
        };
        let (response, incoming) = self.connection.child.request(request, &files, Some((call, parts)))?;
        let Response::Stream { id, schema, honoured, write_options } = response else {
            return Err(unexpected_response());
        };
        Ok(Box::new(RemoteStream::new(
            self.connection.clone(),
            id,
            &schema,
            honoured.into(),
            write_options.into_iter().fold(Options::new(), |all, (key, value)| all.with(key, value)),
            sources,
            incoming.into_reservation(),
        )?))
    }

    fn has_fragments(&self) -> bool {
        self.has_fragments
    }

    fn fragments(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Vec<Fragment>> {
        let Input::Source(source) = input else { return Err(no_capsules()) };
        let mut files = Outgoing::to_plugin(None);
        // The registration keeps the source until the response has arrived.
        let (input, _source) = register_source(&self.connection.child, source, &mut files)?;
        let parts = self.connection.child.call_parts(call);
        let request = Request::Fragments {
            instance: self.instance,
            call: parts,
            format: request.format.to_owned(),
            input,
            schema: request.schema.map(write_schema).transpose()?,
            options: to_pairs(request.options),
        };
        let (response, incoming) = self.connection.request_with(request, &files, Some((call, parts)))?;
        let Response::Fragments(list) = response else { return Err(unexpected_response()) };
        let statistics = |(schema, batch): (Vec<u8>, BatchParts)| -> Result<_> {
            let (raw, schema) = read_schema(&schema)?;
            let mut batch = self.connection.receive_batch(batch, &schema, &incoming)?.into_raw();
            batch.schema = raw.into_raw();
            // SAFETY: the batch and the schema came from owners that gave them up.
            Ok(unsafe { Owned::new(batch) })
        };
        let fragment = |FragmentParts { token, n_rows, bytes, statistics: batch }| {
            let statistics = batch.map(statistics).transpose()?;
            Ok(Fragment { token, n_rows, bytes, statistics })
        };
        list.into_iter().map(fragment).collect()
    }
}

impl Exporter for RemoteInstance {
    fn formats(&self) -> &[Format] {
        self.exporter.as_deref().unwrap_or_default()
    }

    fn plan(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let parts = self.connection.child.call_parts(call);
        let request = Request::Plan {
            instance: self.instance,
            call: parts,
            format: format.to_owned(),
            schema: write_schema(schema)?,
            from: from.into(),
            options: to_pairs(options),
        };
        match self.connection.request(request, Some((call, parts)))? {
            (Response::Plan(plan), _) => plan.into_iter().map(ColumnPlan::try_from).collect(),
            _ => Err(unexpected_response()),
        }
    }

    fn begin(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let sink = sink.ok_or_else(no_capsules)?;
        let parts = self.connection.child.call_parts(call);
        let name = sink.name().to_owned();
        let id = self.connection.child.callbacks.add_sink(sink);
        let schema = write_schema(schema)?;
        let request = Request::Begin {
            instance: self.instance,
            call: parts,
            format: format.to_owned(),
            schema: schema.clone(),
            options: to_pairs(options),
            sink: SinkParts { id, name },
        };
        match self.connection.request(request, Some((call, parts))) {
            Ok((Response::Writer(writer), _)) => {
                RemoteWriter::new(self.connection.clone(), writer, &schema, id)
                    .map(|writer| Box::new(writer) as Box<dyn BatchWriter>)
            }
            other => {
                self.connection.child.callbacks.remove_sink(id);
                Err(other.err().unwrap_or_else(unexpected_response))
            }
        }
    }
}

impl Encoding for RemoteInstance {
    fn ids(&self) -> &[&'static str] {
        self.encodings.as_deref().unwrap_or_default()
    }

    fn decodes(&self) -> bool {
        self.decodes
    }

    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        let (tree, files) = tree_of(node)?;
        match self.connection.child.request(Request::Check { instance: self.instance, tree }, &files, None)? {
            (Response::Done, _) => Ok(()),
            _ => Err(unexpected_response()),
        }
    }

    fn size(&self, node: EncodedNode<'_>, rows: Range<u64>) -> Result<Option<u64>> {
        let (tree, files) = tree_of(node)?;
        let request = Request::Size { instance: self.instance, tree, rows };
        match self.connection.child.request(request, &files, None)? {
            (Response::Size(bytes), _) => Ok(bytes),
            _ => Err(unexpected_response()),
        }
    }

    fn children(&self, node: EncodedNode<'_>) -> Result<Vec<ChildType>> {
        let request = Request::Children { instance: self.instance, node: NodeHead::write(node)? };
        match self.connection.child.request(request, &Outgoing::default(), None)? {
            (Response::Children(children), _) => ChildParts::read_all(children),
            _ => Err(unexpected_response()),
        }
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let (tree, files) = tree_of(node)?;
        let (response, _) =
            self.connection.child.request(Request::Lower { instance: self.instance, tree }, &files, None)?;
        let Response::Program(parts) = response else { return Err(unexpected_response()) };
        Ok(program(parts))
    }

    fn plan(&self, node: EncodedNode<'_>, device: Device, rows: Range<u64>) -> Result<DecodePlan> {
        let (tree, files) = tree_of(node)?;
        let device = self.connection.child.nearest_device(device).into();
        let request = Request::PlanDecoding { instance: self.instance, tree, device, rows };
        match self.connection.child.request(request, &files, None)? {
            (Response::DecodePlan { device, rows, decoded, rows_below }, _) => {
                let device = Device::from(device);
                if !self.connection.child.has(device) {
                    return Err(Error::bad_data(format!(
                        "the plan decodes on {device}, which the plugin's process does not have"
                    )));
                }
                Ok(DecodePlan { device, rows, decoded, rows_below })
            }
            _ => Err(unexpected_response()),
        }
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        rows: Range<u64>,
        decoded_children: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let mut files = self.connection.child.outgoing();
        let tree = TreeParts::write(node, &mut files)?;
        let mut children = Vec::new();
        for (batch, index) in decoded_children.into_iter().zip(node.index() + 1..) {
            let child = batch.map(|batch| {
                let batch = import_batch(batch, &column_schema(node.at(index)?)?, &self.connection.memory)?;
                BatchParts::write(batch, &self.connection.streams, &mut files)
            });
            children.push(child.transpose()?);
        }
        let parts = self.connection.child.call_parts(call);
        let request = Request::Decode { instance: self.instance, call: parts, tree, rows, children };
        match self.connection.request_with(request, &files, Some((call, parts)))? {
            (Response::Batch(batch), files) => {
                self.connection.receive_batch(batch, &column_schema(node)?, &files)
            }
            _ => Err(unexpected_response()),
        }
    }
}

fn tree_of(node: EncodedNode<'_>) -> Result<(TreeParts, Outgoing)> {
    let mut files = Outgoing::to_plugin(None);
    Ok((TreeParts::write(node, &mut files)?, files))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn total_length_of_interned_ids_is_limited_for_each_plugin() {
        let ids = |from: usize| (from..from + 400).map(|i| format!("{i:0100}")).collect::<Vec<_>>();
        assert_eq!(intern_ids("first", ids(0)).unwrap(), intern_ids("second", ids(0)).unwrap());
        let same = intern_ids("first", vec!["one".into(), "one".into()]).unwrap();
        assert!(std::ptr::eq(same[0], same[1]));
        assert!(intern_ids("first", ids(500)).unwrap_err().message().contains("65536 bytes"));
        assert_eq!(intern_ids("second", ids(500)).unwrap().len(), 400, "the limit is per plugin");
    }
}
