//! Encoded arrays that the plugin decodes under watch, as a session would have it do: what is below a node first.

use std::sync::{Arc, OnceLock};

use arrow_schema::{Schema, SchemaRef};
use crossdock::Session;
use crossdock::api::encoded::blob;
use crossdock::api::{
    CallSettings, CallStream, CancelFlag, Device, EncodedArray, EncodedBuffers, EncodedNode, EncodingHandle,
    Error, LogicalType, NodeParts, Owned, Result, abi,
};
use crossdock::source::Input;
use crossdock_arrays::{DeviceBatch, export_field, import_batch, import_field_ref};
use crossdock_memory::{Buffer, Stream};

use super::case::{Check, failed, not_given};
use super::coverage::{self, Part};
use super::guard;
use super::lent::{self, Counts};
use super::places::{Place, places};
use super::subject::{Ground, Subject};
use super::tour::{Read, lost};

/// A node of the plugin's, and all that is below it.
pub struct Tree {
    /// For messages: the sample, and the node's encoding.
    pub place: String,
    array: Arc<EncodedArray>,
    /// What the plugin decodes.
    ids: Vec<String>,
    /// A session on the CPU that has all plugins, the one under test among them, with hosts that nobody watches.
    session: OnceLock<Session>,
}

/// A batch as it was given, and what it is taken for.
pub struct RawBatch {
    pub raw: Owned<abi::Batch>,
    pub schema: SchemaRef,
}

/// A sample as a session has it, if it is an encoded array.
pub fn read(session: &Session, file: &std::path::Path) -> Check<Option<EncodedArray>> {
    let unread = |error: crossdock::Error| not_given(format!("'{}': {}", file.display(), error.one_line()));
    let bytes = std::fs::read(file).map_err(|error| not_given(format!("'{}': {error}", file.display())))?;
    if !bytes.starts_with(&blob::MAGIC) {
        return Ok(None);
    }
    let input = Input::open(file, &CancelFlag::new()).map_err(unread)?;
    let array = session.read_encoded(&input).and_then(|array| session.with_arrow_types(array));
    array.map(Some).map_err(unread)
}

/// What the plugin has to decode in the samples: each of its nodes that is not below another one of its own.
pub fn trees(ground: &Ground, subject: &Subject) -> Check<Vec<Tree>> {
    let Ok(encoding) = subject.encoding() else { return Ok(Vec::new()) };
    if !encoding.decodes() {
        return Ok(Vec::new());
    }
    let ids = encoding.ids().map_err(|error| failed("ids", "a list", error))?;
    let session = ground.session(Device::CPU)?;
    let mut trees = Vec::new();
    for file in &ground.samples {
        // What no session can read either is told by `encoding.samples`.
        let Ok(Some(array)) = read(session, file) else { continue };
        let array = Arc::new(array);
        let place = |node: EncodedNode<'_>| format!("'{}', {}", file.display(), node.path());
        let mut add = || -> Result<()> {
            let mut at = 0;
            while at < array.n_nodes() {
                let node = array.node(at)?;
                if !is_own(&ids, node) {
                    at += 1;
                    continue;
                }
                let below = Arc::new(cut(&array.share()?, at)?);
                trees.push(Tree::new(place(node), below, ids.clone()));
                at = node.end();
            }
            Ok(())
        };
        add().map_err(|error| failed(file.display(), "a tree that can be taken apart", error))?;
    }
    Ok(trees)
}

fn is_own(ids: &[String], node: EncodedNode<'_>) -> bool {
    ids.iter().any(|id| id == node.encoding())
}

/// The parts of a node and of those below it, whose buffers are taken out of the array.
pub fn parts(array: &EncodedArray, index: usize) -> Result<(Vec<NodeParts>, EncodedBuffers)> {
    let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
    for at in index..array.node(index)?.end() {
        let node = array.node(at)?;
        // SAFETY: a node has a schema, which lives as long as its array.
        let field = unsafe { import_field_ref(node.schema()?) }?;
        nodes.push(NodeParts {
            encoding: node.encoding().to_owned(),
            logical_type: LogicalType::Schema(export_field(&field)?),
            length: node.length(),
            metadata: node.metadata().to_vec(),
            n_buffers: node.n_buffers() as u32,
            n_children: node.n_children() as u32,
        });
        for i in 0..node.n_buffers() {
            // SAFETY: whoever takes an array apart has it alone.
            buffers.push(unsafe { node.take_buffer(i) }?);
        }
    }
    Ok((nodes, buffers))
}

/// The tree of a node and of those below it.
fn cut(array: &EncodedArray, index: usize) -> Result<EncodedArray> {
    let (nodes, buffers) = parts(array, index)?;
    EncodedArray::new(nodes, buffers)
}

impl Tree {
    fn new(place: String, array: Arc<EncodedArray>, ids: Vec<String>) -> Self {
        Self { place, array, ids, session: OnceLock::new() }
    }

    fn session(&self, ground: &Ground) -> Result<&Session> {
        if self.session.get().is_none() {
            let host = crate::options::host()
                .backend(ground.backend.clone())
                .plugins(&ground.plugin)
                .build_lenient();
            let session = host.session().open().map_err(|error| Error::unsupported(error.one_line()))?;
            // Whoever was first has made it.
            let _ = self.session.set(session);
        }
        self.session.get().ok_or_else(|| Error::internal("a session that was just made"))
    }

    /// What a session makes of it on the CPU: of an instance that lives as long as this.
    pub fn expected(&self, ground: &Ground) -> Result<DeviceBatch> {
        let batch = self.session(ground)?.decode(self.array.share()?);
        batch.map_err(|error| Error::unsupported(error.one_line()))
    }

    /// The same, whose buffers end where a page begins that nobody may read.
    pub fn guarded(&self) -> Result<Self> {
        let (nodes, buffers) = parts(&self.array.share()?, 0)?;
        let guarded = buffers.into_iter().map(guard::encoded).collect::<Result<_>>()?;
        let array = Arc::new(EncodedArray::new(nodes, guarded)?);
        Ok(Self::new(self.place.clone(), array, self.ids.clone()))
    }

    /// Whether a buffer was taken, and is still held.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.array) > 1
    }

    /// Whether one of these batches lies in a buffer, and nobody holds any.
    pub fn is_forgotten_by(&self, batches: &[DeviceBatch]) -> Result<bool> {
        let mut own = Vec::new();
        for at in 0..self.array.n_nodes() {
            let node = self.array.node(at)?;
            for i in 0..node.n_buffers() {
                let buffer = node.buffer(i)?;
                let device = Device::from_arrow(buffer.device.r#type, buffer.device.id);
                own.push(Place { device, address: buffer.address as u64, bytes: buffer.bytes });
            }
        }
        let lies_in_own = |place: &Place| own.iter().any(|own| own.bytes > 0 && own.overlaps(place));
        Ok(!self.is_held() && batches.iter().flat_map(places).any(|place| lies_in_own(&place)))
    }

    /// Has the plugin decode it. What is handed over with it is counted.
    pub fn decode(
        &self,
        ground: &Ground,
        subject: &Subject,
        call: &CallSettings,
        counts: &Counts,
    ) -> Result<RawBatch> {
        let encoding = subject.encoding().map_err(lost)?;
        let array = self.array.share()?;
        let mut decoding = Decoding { tree: self, ground, subject, encoding, call, counts, array };
        decoding.node(0, call.device)
    }

    /// The same with the case's own call.
    pub fn decode_once(&self, ground: &Ground, subject: &Subject) -> Result<RawBatch> {
        self.decode(ground, subject, &subject.call(), &Counts::default())
    }
}

impl RawBatch {
    pub fn read(self, ground: &Ground) -> Result<Read> {
        let memory = ground.session(Device::CPU).map_err(lost)?.memory();
        let batch = import_batch(self.raw, &self.schema, memory)?;
        Ok(Read { schema: self.schema, batches: vec![batch] })
    }
}

/// One that is being decoded.
struct Decoding<'a> {
    tree: &'a Tree,
    ground: &'a Ground,
    subject: &'a Subject,
    encoding: EncodingHandle<'a>,
    call: &'a CallSettings,
    counts: &'a Counts,
    array: EncodedArray,
}

impl<'a> Decoding<'a> {
    /// A node of the plugin's, decoded on that device or on the CPU.
    fn node(&mut self, index: usize, wanted: Device) -> Result<RawBatch> {
        self.encoding.check(&self.array, index)?;
        self.encoding.size(&self.array, index)?;
        // What has a program no host has decoded elsewhere than on the CPU.
        let has_program = wanted != Device::CPU && self.encoding.lower(&self.array, index)?.is_some();
        let wanted = if has_program { Device::CPU } else { wanted };
        let plan = self.encoding.plan(&self.array, index, wanted)?;
        let mut below = Vec::new();
        let mut below_until = 0;
        for (at, is_decoded) in (index + 1..).zip(plan.decoded) {
            below.push(match is_decoded {
                _ if at < below_until => None,
                true => {
                    below_until = self.array.node(at)?.end();
                    let batch = self.below(at, plan.device)?;
                    Some(lent::batch(&batch, self.stream(plan.device)?, self.counts)?)
                }
                false => {
                    self.stage(at, plan.device)?;
                    None
                }
            });
        }
        self.stage(index, plan.device)?;
        // SAFETY: a stream of the case's, which outlives the call.
        let stream = unsafe { CallStream::new(self.stream(plan.device)?.raw()) };
        let call = match plan.device == self.call.device {
            true => self.call.clone(),
            false => CallSettings { device: plan.device, stream, ..self.call.clone() },
        };
        let schema = schema_of(self.array.node(index)?)?;
        coverage::called();
        let raw = self.encoding.decode(&call, &self.array, index, below)?;
        coverage::exercised(Part::decode(self.array.node(index)?.encoding()));
        Ok(RawBatch { raw, schema })
    }

    /// A node that is given decoded, there.
    fn below(&mut self, index: usize, device: Device) -> Result<DeviceBatch> {
        let batch = if is_own(&self.tree.ids, self.array.node(index)?) {
            let RawBatch { raw, schema } = self.node(index, device)?;
            import_batch(raw, &schema, self.stream(device)?.memory())?
        } else {
            let decoded = self.tree.session(self.ground)?.decode(cut(&self.array, index)?);
            decoded.map_err(|error| Error::unsupported(error.one_line()))?
        };
        if batch.device() == device {
            return Ok(batch);
        }
        let batch = batch.move_to(self.subject.stream(), device)?;
        self.subject.stream().synchronize()?;
        Ok(batch)
    }

    /// Brings a node's buffers to where it is decoded.
    fn stage(&mut self, index: usize, device: Device) -> Result<()> {
        let (ground, subject) = (self.ground, self.subject);
        for i in 0..self.array.node(index)?.n_buffers() {
            let buffer = self.array.node(index)?.buffer(i)?;
            if Device::from_arrow(buffer.device.r#type, buffer.device.id) == device || buffer.bytes == 0 {
                continue;
            }
            let memory = ground.session(device).map_err(lost)?.memory();
            self.array.replace_buffer(index, i, |raw| {
                // SAFETY: the suite's own array.
                let from = unsafe { Buffer::of_encoded(raw) };
                let from = from.ok_or_else(|| Error::internal("a buffer with bytes has none"))?;
                let bytes = from.len().unwrap_or(0);
                let mut to = memory.alloc(subject.stream(), bytes)?;
                subject.stream().copy(&mut to, 0, &from, 0, bytes)?;
                Ok(to.freeze(subject.stream())?.to_encoded())
            })?;
        }
        Ok(())
    }

    fn stream(&self, device: Device) -> Result<&'a Stream> {
        if device == self.subject.stream().device() {
            return Ok(self.subject.stream());
        }
        Ok(self.ground.session(device).map_err(lost)?.stream())
    }
}

fn schema_of(node: EncodedNode<'_>) -> Result<SchemaRef> {
    // SAFETY: a node has a schema, which lives as long as its array.
    let field = unsafe { import_field_ref(node.schema()?) }?;
    Ok(Arc::new(Schema::new(vec![field.with_name("")])))
}
