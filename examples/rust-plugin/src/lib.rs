//! Example of a third-party plugin: decodes the encoding `example.xor`.
//!
//! An `example.xor` node stores the exclusive or of each value with a reference word. The metadata
//! has one or several reference words, which are used in turn. The upper bits of similar integers
//! are equal, and so are the signs and exponents of similar floats. In the exclusive or, these bits
//! become zeros. The child of the node contains the results, as unsigned integers of the same width
//! in any encoding.
//!
//! - [`node`]: checks nodes.
//! - [`column`]: imports and exports batches of one column as C structs.
//! - [`kernel`]: the kernel for CUDA devices, and its CPU implementation.

mod column;
mod kernel;
mod node;

use std::ops::Range;

use crossdock_memory::{Memory, Stream};
use crossdock_plugin_api::{
    Call, DecodePlan, Device, EncodedNode, Encoding, Host, Operator, Owned, Plugin, Result, abi,
    crossdock_plugin,
};

use column::Column;
use node::XorNode;

/// The id of the encoding. A new layout would get a new id with a version: `example.xor.v2`.
const ID: &str = "example.xor";

struct Example {
    memory: Memory,
}

impl Plugin for Example {
    fn create(host: Host) -> Result<Self> {
        Ok(Self { memory: Memory::from_host(&host)? })
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Example {
    fn ids(&self) -> &[&'static str] {
        &[ID]
    }

    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        XorNode::read(node).map(drop)
    }

    fn size(&self, node: EncodedNode<'_>, rows: Range<u64>) -> Result<Option<u64>> {
        Ok(Some(XorNode::read(node)?.max_bytes(rows.end - rows.start)))
    }

    /// Lowers nodes with one reference word. The host runs the program on devices, in one pass with
    /// the programs of parent and child nodes. No operator supports several reference words, so
    /// nodes with several reference words need the kernel.
    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let reference = XorNode::read(node)?.reference();
        Ok(reference.map(|word| vec![Operator::Child(0), Operator::Xor(word)]))
    }

    /// Decodes the wanted rows on CUDA devices and on the CPU. For other devices the host copies
    /// the result. The rows of the node are decoded from the same rows of its child.
    fn plan(&self, node: EncodedNode<'_>, wanted: Device, rows: Range<u64>) -> Result<DecodePlan> {
        let mut plan = DecodePlan::with_children_decoded(node);
        plan.device = if wanted.r#type == abi::DEVICE_CUDA { wanted } else { Device::CPU };
        if let Some(child) = plan.rows_below.first_mut() {
            *child = rows.clone();
        }
        plan.rows = rows;
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
        let xor = XorNode::read(node)?;
        // SAFETY: the call's stream belongs to the call's device and is valid until the call
        // returns. `stream` is dropped before that.
        let stream = unsafe { Stream::from_call(&self.memory, call.device(), call.stream()) }?;
        let words = below.into_iter().next().flatten();
        let words = words.ok_or_else(|| node.wrong("its child was not decoded"))?;
        let words = Column::from_batch(words, xor.width, (rows.end - rows.start) as usize).map_err(|e| e.context(node.path()))?;
        let values = match words.values() {
            Some(bits) => Some(kernel::xor(&stream, bits, xor.pattern(words.skip(), rows.start))?),
            None => None,
        };
        words.with_values(values).into_batch(&stream)
    }
}

crossdock_plugin!(
    Example,
    name: "example",
    description: "Decodes example.xor: values stored as the exclusive or with reference words",
    interfaces: "crossdock.encoding/1",
    formats: "",
    encodings: "example.xor",
    requires: "crossdock.host.memory/1",
);
