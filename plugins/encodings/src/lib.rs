//! Plugin that decodes encoded arrays with the ids, metadata and layouts of Vortex.
//!
//! An encoded array is a tree of nodes. Each node has the id of its encoding, metadata, buffers and
//! children. The crate has decoders for Vortex's ids, and an importer for trees in capsules or as
//! bytes. The session decodes imported trees with this plugin and every other one that it has
//! loaded.
//!
//! - `kinds`: the decoders, one per encoding; `cpu`: their functions over slices.
//! - `wire`: parses types and metadata.
//! - `rows`: plans the decoding of some rows of nodes.
//! - `lower`: describes nodes as programs; `device`: decodes other nodes on devices.
//! - `encoder`: encodes columns of integers.
//! - `import`: the importer; `export`: the exporter, which converts columns to trees of nodes.

mod children;
mod cpu;
mod device;
mod encoder;
mod export;
mod import;
mod job;
pub mod kinds;
mod lower;
mod nested;
mod node;
mod nulls;
mod rows;
mod single;
mod validity;
mod wire;

use arrow_schema::{Field, Schema};
use crossdock_arrays::{DeviceBatch, call_stream, export_batch, import_batch};
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ChildType, ColumnPlan, DecodePlan, Device, EncodedArray, EncodedNode,
    Encoder, Encoding, Error, Exporter, Format, Host, Importer, Input, Operator, Options, Owned, Plugin,
    ReadRequest, Result, Sink, abi,
};
use std::ops::Range;
use std::sync::Arc;

use job::Job;
use kinds::Kind;
use kinds::nested::has_checked_offsets;
use node::Node;

/// The encodings plugin.
pub struct Encodings {
    host: Host,
    memory: Memory,
    import_formats: Vec<Format>,
    export_formats: Vec<Format>,
    ids: Vec<&'static str>,
    /// One decoder per id, in the order of `ids`.
    kinds: Vec<&'static Kind>,
}

impl Plugin for Encodings {
    fn create(host: Host) -> Result<Self> {
        let memory = Memory::from_host(&host)?.with_host_kernels()?;
        let ids = kinds::all().map(|kind| kind.id).collect();
        let kinds = kinds::all().collect();
        Ok(Self {
            host,
            memory,
            import_formats: import::formats(),
            export_formats: export::formats(),
            ids,
            kinds,
        })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }
}

impl Encoder for Encodings {
    fn ids(&self) -> &[&'static str] {
        &encoder::IDS
    }

    fn encode(
        &self,
        call: &Call<'_>,
        encoding: &str,
        options: &Options,
        schema: &abi::ArrowSchema,
        column: Owned<abi::Batch>,
    ) -> Result<EncodedArray> {
        call.check_cancelled()?;
        encoder::encode(&self.memory, call, encoding, options, schema, column)
    }
}

impl Exporter for Encodings {
    fn formats(&self) -> &[Format] {
        &self.export_formats
    }

    fn plan(
        &self,
        _call: &Call<'_>,
        _: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        _: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        export::plan(schema, from)
    }

    fn begin(
        &self,
        _call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        _: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        if sink.is_some() {
            return Err(Error::invalid_argument(format!(
                "{format}: a sink was given, expected none: the format exports a capsule"
            )));
        }
        export::begin(&self.memory, schema)
    }
}

impl Importer for Encodings {
    fn formats(&self) -> &[Format] {
        &self.import_formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        call.check_cancelled()?;
        import::open(&self.host, &self.memory, call, input, request)
    }
}

impl Encodings {
    fn kind(&self, node: EncodedNode<'_>) -> Result<&'static Kind> {
        let id = node.encoding();
        // Few ids have the same length, so comparing all of them is faster than a binary search.
        let index = self.ids.iter().position(|known| *known == id);
        index
            .and_then(|at| self.kinds.get(at).copied())
            .ok_or_else(|| Error::unsupported(format!("{}: this plugin does not decode '{id}'", node.path())))
    }
}

impl Encoding for Encodings {
    fn ids(&self) -> &[&'static str] {
        &self.ids
    }

    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        self.kind(node)?.check(&Node::new(node)?)
    }

    fn children(&self, node: EncodedNode<'_>) -> Result<Vec<ChildType>> {
        let (kind, node) = (self.kind(node)?, Node::new(node)?);
        (kind.children)(&node)?.types(&node)
    }

    fn size(&self, node: EncodedNode<'_>, rows: Range<u64>) -> Result<Option<u64>> {
        let node_info = Node::new(node)?.with_rows(&rows);
        Ok((self.kind(node)?.size)(&node_info)?.map(|bytes| bytes as u64))
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        lower::lower(&Node::new(node)?)
    }

    fn plan(&self, node: EncodedNode<'_>, device: Device, rows: Range<u64>) -> Result<DecodePlan> {
        let (kind, node_info) = (self.kind(node)?, Node::new(node)?);
        let mut plan = DecodePlan::with_children_decoded(node);
        if device::supports(kind, &node_info, device)? {
            plan.device = device;
        }
        let is_part = rows != plan.rows;
        if let Some(children) = is_part.then(|| rows::of_children(&node_info, &rows)).transpose()?.flatten() {
            for (child, rows) in node.children().zip(children) {
                if let Some(place) = plan.rows_below.get_mut(child.index() - node.index() - 1) {
                    *place = rows;
                }
            }
            plan.rows = rows;
        } else if let Some(decoded) = kind.plan {
            plan.decoded = decoded(&node_info, plan.device)?;
        }
        if has_checked_offsets(&node_info)?
            && let Some(offsets) = plan.rows_below.first_mut()
        {
            *offsets = 0..0;
        }
        Ok(plan)
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        rows: Range<u64>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        call.check_cancelled()?;
        let (kind, node) = (self.kind(node)?, Node::new(node)?.with_rows(&rows));
        let stream = call_stream(&self.memory, call, call.device())?;
        let decoded = |(at, batch): (usize, Option<Owned<abi::Batch>>)| {
            let Some(batch) = batch else { return Ok(None) };
            let schema = Arc::new(Schema::new(vec![Node::new(node.raw.at(at)?)?.field]));
            let batch = import_batch(batch, &schema, &self.memory)?;
            Ok(batch.column(0).cloned())
        };
        let below = (node.raw.index() + 1..).zip(below).map(decoded).collect::<Result<_>>()?;
        let field = Field::new("", node.data_type().clone(), node.field.is_nullable());
        let len = node.len;
        let job = Job { node, below, memory: &self.memory, stream: &stream, validate: call.validate() };
        let column = device::decode(kind, &job)?;
        let batch = DeviceBatch::try_new(Arc::new(Schema::new(vec![field])), len, vec![column])?;
        export_batch(&batch, false, &stream)
    }
}
