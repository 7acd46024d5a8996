//! A plugin as a third party would write it: it decodes `example.xor`, an encoding that nobody else has.
//!
//! Each value of an `example.xor` node is stored as the exclusive or of its bits and a reference word, which the metadata
//! holds, or each of several in turn. Numbers that lie close together share their upper bits, floats their sign and exponent too, and these become
//! zeros: what is left is for the node's one child, unsigned integers of the same width in whatever encoding, to make small.
//!
//! - [`node`]: what a node must look like.
//! - [`column`]: batches of one column as C structs, in and out.
//! - [`kernel`]: the work itself, on the host and on CUDA devices.

mod column;
mod kernel;
mod node;

use crossdock_memory::{Memory, Stream};
use crossdock_plugin_api::{
    Call, DecodePlan, Device, EncodedNode, Encoding, Host, Operator, Owned, Plugin, Result, abi,
    crossdock_plugin,
};

use column::Column;
use node::XorNode;

/// The id, and the version that it would have if its layout changed: `example.xor.v2`.
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

    fn size(&self, node: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(Some(XorNode::read(node)?.bytes as u64))
    }

    /// With one reference word a program is enough, which the host runs on devices, in one pass with what is above and below.
    /// Several in turn are beyond its operators: those are for the kernel.
    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let reference = XorNode::read(node)?.reference();
        Ok(reference.map(|word| vec![Operator::Child(0), Operator::Xor(word)]))
    }

    /// There if it can be: the kernel runs on CUDA devices, its twin on the CPU. For any other device the host moves what
    /// comes out.
    fn plan(&self, node: EncodedNode<'_>, wanted: Device) -> Result<DecodePlan> {
        let device = if wanted.r#type == abi::DEVICE_CUDA { wanted } else { Device::CPU };
        Ok(DecodePlan { device, ..DecodePlan::of_children(node) })
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        call.check_cancelled()?;
        let told = XorNode::read(node)?;
        // SAFETY: a call's stream is one of its device and alive for the call; the handle does not outlive it.
        let stream = unsafe { Stream::of_call(&self.memory, call.device(), call.stream()) }?;
        let words = below.into_iter().next().flatten();
        let words = words.ok_or_else(|| node.wrong("its child was not given decoded"))?;
        let words = Column::take(words, told.width, told.len).map_err(|e| e.context(node.path()))?;
        let values = match words.values() {
            Some(bits) => Some(kernel::xor(&stream, bits, told.pattern(words.skip()))?),
            None => None,
        };
        words.with_values(values).give(&stream)
    }
}

crossdock_plugin!(
    Example,
    name: "example",
    description: "example.xor: values as the exclusive or with reference words",
    interfaces: "crossdock.encoding/1",
    formats: "",
    encodings: "example.xor",
);
