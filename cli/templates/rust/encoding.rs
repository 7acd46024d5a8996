//! The Crossdock plugin `@NAME@`, which decodes `@ID@`.
//!
//! Replace this minimal encoding: it stores 32-bit integers as differences from a reference. The
//! metadata is the reference (4 bytes, little-endian), and the only buffer has the differences.
//! There are no children and no nulls.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{DeviceArray, DeviceBatch, call_stream, export_batch, import_field_ref};
use crossdock_memory::{Buffer, Memory};
use crossdock_plugin_api::{
    Call, DecodePlan, Device, EncodedNode, Encoding, Host, Operator, Owned, Plugin, Result, abi,
    crossdock_plugin,
};

struct Encodings {
    memory: Memory,
}

impl Plugin for Encodings {
    fn create(host: Host) -> Result<Self> {
        Ok(Self {
            memory: Memory::from_host(&host)?,
        })
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

crossdock_plugin!(
    Encodings,
    name: "@NAME@",
    description: "decodes @ID@",
    interfaces: "crossdock.encoding/1",
    formats: "",
    encodings: "@ID@",
    requires: "crossdock.host.memory/1",
);

/// The properties of a checked node.
struct Node {
    reference: i32,
}

impl Node {
    /// Checks a node. Nodes are untrusted input: anything malformed is an error.
    fn read(node: EncodedNode<'_>) -> Result<Self> {
        // SAFETY: `node.schema` is a valid schema that lives as long as the node's array.
        let field = unsafe { import_field_ref(node.schema()?) }?;
        if *field.data_type() != DataType::Int32 || field.is_nullable() {
            return Err(node.wrong(format_args!(
                "its type is {field}, expected Int32 without nulls"
            )));
        }
        if node.n_buffers() != 1 || node.n_children() != 0 {
            let (buffers, children) = (node.n_buffers(), node.n_children());
            return Err(node.wrong(format_args!(
                "it has {buffers} buffers and {children} children, expected 1 and 0"
            )));
        }
        let reference = node.metadata().try_into().map(i32::from_le_bytes);
        let reference =
            reference.map_err(|_| node.wrong("expected 4 bytes of metadata for the reference"))?;
        let (len, buffer_bytes) = (node.length(), node.buffer(0)?.bytes);
        if len.checked_mul(4) != Some(buffer_bytes) || i64::try_from(buffer_bytes).is_err() {
            return Err(node.wrong(format_args!(
                "its buffer has {buffer_bytes} bytes, expected 4 for each of {len} values"
            )));
        }
        Ok(Self { reference })
    }
}

impl Encoding for Encodings {
    fn ids(&self) -> &[&'static str] {
        &["@ID@"]
    }

    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        Node::read(node).map(drop)
    }

    fn size(&self, _node: EncodedNode<'_>, rows: Range<u64>) -> Result<Option<u64>> {
        Ok(Some((rows.end - rows.start) * 4))
    }

    /// Describes decoding as a program, which the host runs if the values are needed on a device.
    /// Without this function, `decode` is called, and the host copies its result to the device.
    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let reference = Node::read(node)?.reference.cast_unsigned();
        Ok(Some(vec![
            Operator::Load { buffer: 0, at: 0 },
            Operator::Add(reference.into()),
        ]))
    }

    /// Plans to decode only the wanted rows. Without this function, `decode` must return all rows
    /// of the node, and the host drops the others.
    fn plan(&self, node: EncodedNode<'_>, _: Device, rows: Range<u64>) -> Result<DecodePlan> {
        Ok(DecodePlan {
            rows,
            ..DecodePlan::with_children_decoded(node)
        })
    }

    /// Decodes on the CPU, as planned.
    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        rows: Range<u64>,
        _below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        call.check_cancelled()?;
        let checked = Node::read(node)?;
        let stream = call_stream(&self.memory, call, call.device())?;
        // SAFETY: `decode` may take the buffers of its node, and a buffer of an encoded array is
        // valid.
        let stored = unsafe { Buffer::from_encoded(node.take_buffer(0)?) };
        let stored = match &stored {
            Some(buffer) => Some(buffer.host_view(&stream)?),
            None => None,
        };
        let (first, len) = (rows.start as usize, (rows.end - rows.start) as usize);
        let fill = |to: &mut [u8]| {
            let stored = stored.as_deref().unwrap_or(&[]).as_chunks::<4>().0;
            let stored = stored.iter().skip(first);
            for (to, stored) in to.as_chunks_mut::<4>().0.iter_mut().zip(stored) {
                *to = i32::from_ne_bytes(*stored)
                    .wrapping_add(checked.reference)
                    .to_ne_bytes();
            }
            Ok(())
        };
        let values = self
            .memory
            .alloc_with(&stream, len * 4, fill)?
            .freeze(&stream)?;
        let buffers = vec![None, Some(values)];
        let column =
            DeviceArray::try_new(DataType::Int32, len, 0, Some(0), buffers, vec![], None)?;
        let schema = Schema::new(vec![Field::new("", DataType::Int32, false)]);
        let batch = DeviceBatch::try_new(Arc::new(schema), len, vec![column])?;
        export_batch(&batch, false, &stream)
    }
}
