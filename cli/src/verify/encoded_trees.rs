//! Decodes encoded arrays with a watched instance, in the same order as a session: children before
//! their parents.

use std::ops::Range;
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

use super::buffer_ranges::{BufferRange, buffer_ranges};
use super::case::{Check, failed, missing_sample};
use super::context::CaseContext;
use super::counted_objects::{self, ReleaseCounts};
use super::coverage::{self, Part};
use super::guard;
use super::round_trip::{ReadTable, to_error};
use super::subject::Subject;

/// A node of one of the plugin's encodings, with its descendants.
pub struct Tree {
    /// The sample and the node's encoding, for messages.
    pub place: String,
    array: Arc<EncodedArray>,
    /// The encodings that the plugin decodes.
    ids: Vec<String>,
    /// An unwatched session on the CPU with all plugins, including the one under test.
    session: OnceLock<Session>,
}

/// A batch that the plugin returned, and its expected schema.
pub struct RawBatch {
    pub raw: Owned<abi::Batch>,
    pub schema: SchemaRef,
}

/// Reads a sample. `None` if it is not an encoded array.
pub fn read(session: &Session, file: &std::path::Path) -> Check<Option<EncodedArray>> {
    let unreadable =
        |error: crossdock::Error| missing_sample(format!("'{}': {}", file.display(), error.one_line()));
    let bytes =
        std::fs::read(file).map_err(|error| missing_sample(format!("'{}': {error}", file.display())))?;
    if !bytes.starts_with(&blob::MAGIC) {
        return Ok(None);
    }
    let input = Input::open(file, &CancelFlag::new()).map_err(unreadable)?;
    let array = session.read_encoded(&input).and_then(|array| session.with_arrow_types(array));
    array.map(Some).map_err(unreadable)
}

/// The nodes that the plugin decodes, from all samples. Descendants of such a node are not listed
/// separately.
pub fn trees(context: &CaseContext, subject: &Subject) -> Check<Vec<Tree>> {
    let Ok(encoding) = subject.encoding() else { return Ok(Vec::new()) };
    if !encoding.decodes() {
        return Ok(Vec::new());
    }
    let ids = encoding.ids().map_err(|error| failed("ids", "a list", error))?;
    let session = context.session(Device::CPU)?;
    let mut trees = Vec::new();
    for file in &context.samples {
        // The case `encoding.samples` reports a sample that cannot be read.
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
                let subtree = Arc::new(subtree(&array.share()?, at)?);
                trees.push(Tree::new(place(node), subtree, ids.clone()));
                at = node.end();
            }
            Ok(())
        };
        add().map_err(|error| failed(file.display(), "a valid tree", error))?;
    }
    Ok(trees)
}

fn is_own(ids: &[String], node: EncodedNode<'_>) -> bool {
    ids.iter().any(|id| id == node.encoding())
}

/// Returns the parts of a node and its descendants, and moves their buffers out of the array.
pub fn parts(array: &EncodedArray, index: usize) -> Result<(Vec<NodeParts>, EncodedBuffers)> {
    let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
    for at in index..array.node(index)?.end() {
        let node = array.node(at)?;
        // SAFETY: `node.schema` is a valid schema that lives as long as `array`.
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
            // SAFETY: nothing else uses the array, because callers pass a new array or a new share
            // of an array.
            buffers.push(unsafe { node.take_buffer(i) }?);
        }
    }
    Ok((nodes, buffers))
}

/// The tree of a node and its descendants.
fn subtree(array: &EncodedArray, index: usize) -> Result<EncodedArray> {
    let (nodes, buffers) = parts(array, index)?;
    EncodedArray::new(nodes, buffers)
}

impl Tree {
    fn new(place: String, array: Arc<EncodedArray>, ids: Vec<String>) -> Self {
        Self { place, array, ids, session: OnceLock::new() }
    }

    fn session(&self, context: &CaseContext) -> Result<&Session> {
        if self.session.get().is_none() {
            let host = crate::options::host()
                .backend(context.backend.clone())
                .plugins(&context.plugin)
                .build_lenient();
            let session = host.session().open().map_err(|error| Error::unsupported(error.one_line()))?;
            // If another thread has stored a session first, that session is used.
            let _ = self.session.set(session);
        }
        self.session.get().ok_or_else(|| Error::internal("the session was not stored"))
    }

    /// Decodes the tree on the CPU in an unwatched session. The returned values need the plugin
    /// instance that `self` owns.
    pub fn expected(&self, context: &CaseContext) -> Result<DeviceBatch> {
        let batch = self.session(context)?.decode(self.array.share()?);
        batch.map_err(|error| Error::unsupported(error.one_line()))
    }

    /// The same tree, with buffers that end at guard pages.
    pub fn guarded(&self) -> Result<Self> {
        let (nodes, buffers) = parts(&self.array.share()?, 0)?;
        let guarded = buffers.into_iter().map(guard::encoded).collect::<Result<_>>()?;
        let array = Arc::new(EncodedArray::new(nodes, guarded)?);
        Ok(Self::new(self.place.clone(), array, self.ids.clone()))
    }

    /// Whether the plugin took a buffer and still holds it.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.array) > 1
    }

    /// Returns whether one of `batches` uses the memory of the tree's buffers although the plugin
    /// holds none of the buffers.
    pub fn is_used_without_ownership(&self, batches: &[DeviceBatch]) -> Result<bool> {
        let mut ranges = Vec::new();
        for at in 0..self.array.n_nodes() {
            let node = self.array.node(at)?;
            for i in 0..node.n_buffers() {
                let buffer = node.buffer(i)?;
                let device = Device::from_arrow(buffer.device.r#type, buffer.device.id);
                ranges.push(BufferRange { device, address: buffer.address as u64, bytes: buffer.bytes });
            }
        }
        let is_in_buffer =
            |used: &BufferRange| ranges.iter().any(|range| range.bytes > 0 && range.overlaps(used));
        Ok(!self.is_held() && batches.iter().flat_map(buffer_ranges).any(|used| is_in_buffer(&used)))
    }

    /// Decodes the tree with the plugin, and counts the releases of the decoded children that the
    /// plugin receives.
    pub fn decode(
        &self,
        context: &CaseContext,
        subject: &Subject,
        call: &CallSettings,
        counts: &ReleaseCounts,
    ) -> Result<RawBatch> {
        let encoding = subject.encoding().map_err(to_error)?;
        let array = self.array.share()?;
        let mut decoding = Decoding { tree: self, context, subject, encoding, call, counts, array };
        let rows = 0..self.length();
        Ok(decoding.node(0, call.device, &rows)?.0)
    }

    /// Decodes rows of the tree with the plugin. Also returns the rows that the plugin planned to
    /// return, which include `rows`.
    pub fn decode_rows(
        &self,
        context: &CaseContext,
        subject: &Subject,
        rows: Range<u64>,
    ) -> Result<(RawBatch, Range<u64>)> {
        let encoding = subject.encoding().map_err(to_error)?;
        let (array, call, counts) = (self.array.share()?, subject.call(), ReleaseCounts::default());
        let mut decoding =
            Decoding { tree: self, context, subject, encoding, call: &call, counts: &counts, array };
        decoding.node(0, call.device, &rows)
    }

    fn length(&self) -> u64 {
        self.array.root().map_or(0, |root| root.length())
    }

    /// Decodes the tree with the subject's default call, without counting releases.
    pub fn decode_once(&self, context: &CaseContext, subject: &Subject) -> Result<RawBatch> {
        self.decode(context, subject, &subject.call(), &ReleaseCounts::default())
    }
}

impl RawBatch {
    pub fn read(self, context: &CaseContext) -> Result<ReadTable> {
        let memory = context.session(Device::CPU).map_err(to_error)?.memory();
        let batch = import_batch(self.raw, &self.schema, memory)?;
        Ok(ReadTable { schema: self.schema, batches: vec![batch] })
    }
}

/// A tree that is being decoded.
struct Decoding<'a> {
    tree: &'a Tree,
    context: &'a CaseContext,
    subject: &'a Subject,
    encoding: EncodingHandle<'a>,
    call: &'a CallSettings,
    counts: &'a ReleaseCounts,
    array: EncodedArray,
}

impl<'a> Decoding<'a> {
    /// Decodes rows of a node of the plugin's encodings on the requested device or on the CPU. Also
    /// returns the rows that the plugin planned to return.
    fn node(&mut self, index: usize, requested: Device, rows: &Range<u64>) -> Result<(RawBatch, Range<u64>)> {
        self.encoding.check(&self.array, index)?;
        self.encoding.size(&self.array, index, rows)?;
        // For a node with a program, a host calls `decode` only on the CPU. On other devices, the
        // host runs the program.
        let has_program = requested != Device::CPU && self.encoding.lower(&self.array, index)?.is_some();
        let requested = if has_program { Device::CPU } else { requested };
        let plan = self.encoding.plan(&self.array, index, requested, rows)?;
        let mut children = Vec::new();
        let mut decoded_until = 0;
        for ((at, is_decoded), rows) in (index + 1..).zip(plan.decoded).zip(&plan.rows_below) {
            children.push(match is_decoded {
                _ if at < decoded_until => None,
                true => {
                    decoded_until = self.array.node(at)?.end();
                    let batch = self.child(at, plan.device, rows)?;
                    Some(counted_objects::batch(&batch, self.stream(plan.device)?, self.counts)?)
                }
                false => {
                    self.stage(at, plan.device)?;
                    None
                }
            });
        }
        self.stage(index, plan.device)?;
        // SAFETY: the stream belongs to the subject or to a session of the context, which outlive
        // the call.
        let stream = unsafe { CallStream::new(self.stream(plan.device)?.raw()) };
        let call = match plan.device == self.call.device {
            true => self.call.clone(),
            false => CallSettings { device: plan.device, stream, ..self.call.clone() },
        };
        let schema = schema_of(self.array.node(index)?)?;
        coverage::record_data_call();
        let raw = self.encoding.decode(&call, &self.array, index, &plan.rows, children)?;
        coverage::record_exercised(Part::decode(self.array.node(index)?.encoding()));
        Ok((RawBatch { raw, schema }, plan.rows))
    }

    /// Decodes rows of a descendant that the plugin receives decoded, and moves them to the device.
    fn child(&mut self, index: usize, device: Device, rows: &Range<u64>) -> Result<DeviceBatch> {
        let batch = if is_own(&self.tree.ids, self.array.node(index)?) {
            let (RawBatch { raw, schema }, planned) = self.node(index, device, rows)?;
            let batch = import_batch(raw, &schema, self.stream(device)?.memory())?;
            let at = rows.start.saturating_sub(planned.start);
            batch.slice(at as usize, (rows.end - rows.start) as usize)?
        } else {
            let subtree = subtree(&self.array, index)?;
            let decoded = self.tree.session(self.context)?.decode_rows(subtree, rows.clone());
            decoded.map_err(|error| Error::unsupported(error.one_line()))?
        };
        if batch.device() == device {
            return Ok(batch);
        }
        let batch = batch.move_to(self.subject.stream(), device)?;
        self.subject.stream().synchronize()?;
        Ok(batch)
    }

    /// Copies a node's buffers to the device on which it is decoded.
    fn stage(&mut self, index: usize, device: Device) -> Result<()> {
        let (context, subject) = (self.context, self.subject);
        for i in 0..self.array.node(index)?.n_buffers() {
            let buffer = self.array.node(index)?.buffer(i)?;
            if Device::from_arrow(buffer.device.r#type, buffer.device.id) == device || buffer.bytes == 0 {
                continue;
            }
            let memory = context.session(device).map_err(to_error)?.memory();
            self.array.replace_buffer(index, i, |raw| {
                // SAFETY: the suite made the array, so its buffers are valid encoded buffers.
                let from = unsafe { Buffer::from_encoded(raw) };
                let from = from.ok_or_else(|| Error::internal("an encoded buffer without memory"))?;
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
        Ok(self.context.session(device).map_err(to_error)?.stream())
    }
}

fn schema_of(node: EncodedNode<'_>) -> Result<SchemaRef> {
    // SAFETY: `node.schema` is a valid schema that lives as long as the array that `node` borrows.
    let field = unsafe { import_field_ref(node.schema()?) }?;
    Ok(Arc::new(Schema::new(vec![field.with_name("")])))
}
