//! A plugin whose code runs in another process: what the host has in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crossdock_arrays::import_batch;
use crossdock_memory::Memory;
use crossdock_memory_backend::{Account, Backend, ProcessWide, Reserved};
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, DecodePlan, Device, EncodedNode, Encoding, Error, Exporter,
    Format, Host, Importer, Input, Operator, Options, Owned, Plugin, Result, SessionSettings, Sink, abi,
};

use crate::child::Child;
use crate::desk::Decoding;
use crate::freight::{BatchParts, TreeParts, column_schema, write_schema};
use crate::isolated::Isolated;
use crate::outgoing::Outgoing;
use crate::remote_objects::{RemoteStream, RemoteWriter, handed};
use crate::remote_place::{Place, strange};
use crate::rooms::{Rooms, Streams};
use crate::wire::{Answer, FormatParts, OperatorParts, Order, SinkParts};

/// An instance in another process.
pub struct Remote {
    at: Place,
    instance: u64,
    importer: Option<Vec<Format>>,
    exporter: Option<Vec<Format>>,
    encodings: Option<Vec<&'static str>>,
    decodes: bool,
    /// For all of these.
    _counted: Option<Reserved>,
}

/// What a process says a node's program is; none where there is an operator that nobody knows.
pub fn program(parts: Option<Vec<OperatorParts>>) -> Option<Vec<Operator>> {
    let operator = |(code, index, a, b)| Operator::of(abi::Operator { code, index, a, b });
    parts?.into_iter().map(operator).collect()
}

impl Remote {
    /// Makes an instance in the plugin's process for the session of this number, which is started if it does not run. `lend` makes a host object whose
    /// memory is counted with an account.
    ///
    /// # Errors
    /// The process cannot be started, or what it says.
    pub fn create(
        of: &Isolated,
        session: u64,
        name: &str,
        backend: &Backend,
        host: &Host,
        settings: SessionSettings,
        lend: impl Fn(Arc<Account>) -> Result<Host>,
    ) -> Result<Self> {
        let memory = Memory::from_host(host)?;
        let device = Some(settings.device).filter(|device| device.r#type == abi::DEVICE_CUDA);
        let on_device = device.map(|device| memory.default_stream(device)).transpose()?;
        let streams = Streams::new(memory.default_stream(Device::CPU)?, on_device);
        let counts = backend.account(&format!("{name} (its process)"));
        let account = counts.clone();
        let rooms = |device| {
            // One of its own: the process may outlive this instance.
            let memory = Memory::from_host(&lend(account.clone())?)?;
            Ok(Rooms::new(backend.clone(), account, memory.default_stream(device)?))
        };
        let child = of.child(session, device, settings.memory_limit_bytes, backend.trace(), counts, rooms)?;
        let at = Place { child, memory, streams };
        let (answer, came) = at.ask(Order::Create(settings.into()), None)?;
        let Answer::Instance { number, importer, exporter, encodings } = answer else {
            return Err(strange());
        };
        let formats = |parts: Option<Vec<FormatParts>>| -> Option<Vec<Format>> {
            Some(parts?.into_iter().map(Format::from).collect())
        };
        let (importer, exporter) = (formats(importer), formats(exporter));
        // Its end is the end of what there is there.
        let counted = came.into_counted();
        let decodes = encodings.as_ref().is_none_or(|(_, decodes)| *decodes);
        let mut remote = Self {
            at: at.clone(),
            instance: number,
            importer,
            exporter,
            encodings: None,
            decodes,
            _counted: counted,
        };
        remote.encodings = encodings.map(|(ids, _)| interned(name, ids)).transpose()?;
        let Place { child, memory, streams } = at;
        child.desk.add_instance(number, Decoding { host: host.clone(), memory, streams });
        Ok(remote)
    }
}

impl Remote {
    /// Where it runs.
    pub fn process(&self) -> Process {
        Process(Arc::downgrade(&self.at.child))
    }
}

/// The process of an isolated plugin, which this does not keep.
pub struct Process(Weak<Child>);

impl Process {
    /// Whether it has ended, as far as this process has anything to do with it.
    pub fn has_ended(&self) -> bool {
        self.0.upgrade().is_some_and(|child| !child.is_there())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.at.child.release(&Order::Destroy(self.instance));
        self.at.child.desk.remove_instance(self.instance);
    }
}

/// Ids are few and short, and the same ones again and again. What is kept of a plugin's stays for ever, so that it has an end.
pub fn interned(plugin: &str, ids: Vec<String>) -> Result<Vec<&'static str>> {
    const MOST_BYTES: usize = 64 << 10;
    static KEPT: ProcessWide<(BTreeSet<&str>, BTreeMap<String, usize>)> = ProcessWide::new();
    let mut kept = KEPT.lock();
    let (known, bytes_of) = &mut *kept;
    let new: BTreeSet<&String> = ids.iter().filter(|id| !known.contains(id.as_str())).collect();
    // With what a set has for each.
    let more: usize = new.iter().map(|id| id.len() + 32).sum();
    let bytes = bytes_of.entry(plugin.to_owned()).or_default();
    if more > MOST_BYTES.saturating_sub(*bytes) {
        return Err(Error::unsupported(format!(
            "its ids of encodings are more than the {MOST_BYTES} bytes that are kept of an isolated plugin's"
        )));
    }
    *bytes += more;
    let known_or_kept = |id: String| known.get(id.as_str()).copied().unwrap_or_else(|| leaked(known, id));
    Ok(ids.into_iter().map(known_or_kept).collect())
}

fn leaked(known: &mut BTreeSet<&'static str>, id: String) -> &'static str {
    let id = &*Box::leak(id.into_boxed_str());
    known.insert(id);
    id
}

impl Plugin for Remote {
    fn create(_: Host) -> Result<Self> {
        Err(Error::internal("an instance in another process is made by the host"))
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

fn pairs(options: &Options) -> Vec<(String, String)> {
    options.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn no_capsules() -> Error {
    Error::unsupported(
        "the plugin runs in a process of its own, and capsules hold pointers of this one: leave it out of those that are isolated",
    )
}

impl Importer for Remote {
    fn formats(&self) -> &[Format] {
        self.importer.as_deref().unwrap_or_default()
    }

    fn open(
        &self,
        call: &Call<'_>,
        format: &str,
        input: Input,
        schema: Option<&abi::ArrowSchema>,
        options: &Options,
    ) -> Result<Box<dyn BatchStream>> {
        let Input::Source(source) = input else { return Err(no_capsules()) };
        let mut files = Outgoing::to_plugin(None);
        let (input, source) = handed(&self.at.child, source, &mut files)?;
        let parts = self.at.child.call(call);
        let order = Order::Open {
            instance: self.instance,
            call: parts,
            format: format.to_owned(),
            input,
            schema: schema.map(write_schema).transpose()?,
            options: pairs(options),
        };
        let (answer, came) = self.at.child.ask(order, &files, Some((call, parts)))?;
        let Answer::Stream { number, schema } = answer else { return Err(strange()) };
        Ok(Box::new(RemoteStream::new(self.at.clone(), number, &schema, source, came.into_counted())?))
    }
}

impl Exporter for Remote {
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
        let parts = self.at.child.call(call);
        let order = Order::Plan {
            instance: self.instance,
            call: parts,
            format: format.to_owned(),
            schema: write_schema(schema)?,
            from: from.into(),
            options: pairs(options),
        };
        match self.at.ask(order, Some((call, parts)))? {
            (Answer::Plan(plan), _) => plan.into_iter().map(ColumnPlan::try_from).collect(),
            _ => Err(strange()),
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
        let parts = self.at.child.call(call);
        let name = sink.name().to_owned();
        let number = self.at.child.desk.add_sink(sink);
        let schema = write_schema(schema)?;
        let order = Order::Begin {
            instance: self.instance,
            call: parts,
            format: format.to_owned(),
            schema: schema.clone(),
            options: pairs(options),
            sink: SinkParts { number, name },
        };
        match self.at.ask(order, Some((call, parts))) {
            Ok((Answer::Writer(writer), _)) => RemoteWriter::new(self.at.clone(), writer, &schema, number)
                .map(|writer| Box::new(writer) as Box<dyn BatchWriter>),
            other => {
                self.at.child.desk.remove_sink(number);
                Err(other.err().unwrap_or_else(strange))
            }
        }
    }
}

impl Encoding for Remote {
    fn ids(&self) -> &[&'static str] {
        self.encodings.as_deref().unwrap_or_default()
    }

    fn decodes(&self) -> bool {
        self.decodes
    }

    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        let (tree, files) = tree_of(node)?;
        match self.at.child.ask(Order::Check { instance: self.instance, tree }, &files, None)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(strange()),
        }
    }

    fn size(&self, node: EncodedNode<'_>) -> Result<Option<u64>> {
        let (tree, files) = tree_of(node)?;
        match self.at.child.ask(Order::Size { instance: self.instance, tree }, &files, None)? {
            (Answer::Size(bytes), _) => Ok(bytes),
            _ => Err(strange()),
        }
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let (tree, files) = tree_of(node)?;
        let (answer, _) = self.at.child.ask(Order::Lower { instance: self.instance, tree }, &files, None)?;
        let Answer::Program(parts) = answer else { return Err(strange()) };
        Ok(program(parts))
    }

    fn plan(&self, node: EncodedNode<'_>, wanted: Device) -> Result<DecodePlan> {
        let (tree, files) = tree_of(node)?;
        let wanted = self.at.child.device_near(wanted).into();
        let order = Order::PlanDecoding { instance: self.instance, tree, wanted };
        match self.at.child.ask(order, &files, None)? {
            (Answer::DecodePlan { device, decoded }, _) => {
                let device = Device::from(device);
                if !self.at.child.has(device) {
                    return Err(Error::bad_data(format!(
                        "it would decode on {device}, which its process has not"
                    )));
                }
                Ok(DecodePlan { device, decoded })
            }
            _ => Err(strange()),
        }
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let mut files = self.at.child.outgoing();
        let tree = TreeParts::write(node, &mut files)?;
        let mut parts = Vec::new();
        for (batch, index) in below.into_iter().zip(node.index() + 1..) {
            let part = batch.map(|batch| {
                let batch = import_batch(batch, &column_schema(node.at(index)?)?, &self.at.memory)?;
                BatchParts::write(batch, &self.at.streams, &mut files)
            });
            parts.push(part.transpose()?);
        }
        let told = self.at.child.call(call);
        let order = Order::Decode { instance: self.instance, call: told, tree, below: parts };
        match self.at.ask_with(order, &files, Some((call, told)))? {
            (Answer::Batch(Some(batch)), files) => self.at.landed(batch, &column_schema(node)?, &files),
            _ => Err(strange()),
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
    fn of_the_ids_that_a_plugin_tells_no_more_are_kept_than_it_has_a_use_for() {
        let ids = |from: usize| (from..from + 400).map(|i| format!("{i:0100}")).collect::<Vec<_>>();
        assert_eq!(interned("modest", ids(0)).unwrap(), interned("another", ids(0)).unwrap());
        let same = interned("modest", vec!["one".into(), "one".into()]).unwrap();
        assert!(std::ptr::eq(same[0], same[1]));
        assert!(interned("modest", ids(500)).unwrap_err().message().contains("65536 bytes"));
        assert_eq!(interned("another", ids(500)).unwrap().len(), 400, "it is each one's own");
    }
}
