//! Writes the metadata of messages, including their prefix.

use arrow_ipc::{
    BodyCompressionBuilder, DictionaryBatchBuilder, MessageBuilder, MessageHeader, MetadataVersion,
    RecordBatchBuilder,
};
use arrow_schema::Metadata;
use crossdock_plugin_api::{Error, Result};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use super::frame::CONTINUATION;
use super::message::{Node, Span};
use super::schema::Schema;
use super::schema_write;
use crate::codec::Codec;

/// Alignment of bodies and buffers in bytes, as Arrow recommends. Positions are relative to the
/// beginning of the file or stream, so that the buffers of a mapped file are aligned in memory too.
pub const ALIGNMENT: u64 = 64;

/// Rounds `n` up to a multiple of [`ALIGNMENT`].
pub fn aligned(n: u64) -> u64 {
    n.next_multiple_of(ALIGNMENT)
}

/// The metadata of a record batch.
#[derive(Default)]
pub struct Batch<'a> {
    /// Number of rows.
    pub rows: usize,
    /// The nodes of the arrays, in pre-order.
    pub nodes: &'a [Node],
    /// The ranges of the buffers in the body, in order.
    pub spans: &'a [Span],
    /// Number of data buffers of each view array.
    pub variadic: &'a [usize],
    /// The codec with which the buffers are compressed.
    pub codec: Option<Codec>,
    /// Size of the body in bytes, including padding.
    pub body_bytes: u64,
    /// The batch's key-value metadata.
    pub metadata: Metadata,
}

/// Returns the prefix and the metadata of a schema message that begins at `position`.
pub fn schema(schema: &Schema, position: u64) -> Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::new();
    let schema = schema_write::write(&mut builder, schema)?;
    message(builder, MessageHeader::Schema, schema.as_union_value(), 0, &Metadata::new(), position)
}

/// Returns the prefix and the metadata of a record batch that begins at `position`.
pub fn batch(batch: &Batch<'_>, position: u64) -> Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::with_capacity(256 + 16 * batch.nodes.len() + 16 * batch.spans.len());
    let header = write_batch(&mut builder, batch)?;
    let header = header.as_union_value();
    message(builder, MessageHeader::RecordBatch, header, batch.body_bytes, &batch.metadata, position)
}

/// Returns the prefix and the metadata of a dictionary batch that begins at `position`.
pub fn dictionary(id: i64, is_delta: bool, batch: &Batch<'_>, position: u64) -> Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::new();
    let data = write_batch(&mut builder, batch)?;
    let mut header = DictionaryBatchBuilder::new(&mut builder);
    header.add_id(id);
    header.add_data(data);
    header.add_isDelta(is_delta);
    let header = header.finish().as_union_value();
    message(builder, MessageHeader::DictionaryBatch, header, batch.body_bytes, &batch.metadata, position)
}

fn write_batch<'a>(
    b: &mut FlatBufferBuilder<'a>,
    batch: &Batch<'_>,
) -> Result<WIPOffset<arrow_ipc::RecordBatch<'a>>> {
    let nodes = batch.nodes.iter().map(|n| Ok(arrow_ipc::FieldNode::new(int(n.length)?, int(n.nulls)?)));
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    let nodes = b.create_vector(&nodes);
    let spans = batch.spans.iter().map(|s| Ok(arrow_ipc::Buffer::new(int(s.offset)?, int(s.bytes)?)));
    let spans = spans.collect::<Result<Vec<_>>>()?;
    let spans = b.create_vector(&spans);
    let variadic = batch.variadic.iter().map(|n| int(*n)).collect::<Result<Vec<i64>>>()?;
    let variadic = (!variadic.is_empty()).then(|| b.create_vector(&variadic));
    let compression = batch.codec.map(|codec| {
        let mut compression = BodyCompressionBuilder::new(b);
        compression.add_codec(codec.to_wire());
        compression.finish()
    });
    let mut header = RecordBatchBuilder::new(b);
    header.add_length(int(batch.rows)?);
    header.add_nodes(nodes);
    header.add_buffers(spans);
    if let Some(variadic) = variadic {
        header.add_variadicBufferCounts(variadic);
    }
    if let Some(compression) = compression {
        header.add_compression(compression);
    }
    Ok(header.finish())
}

fn message(
    mut b: FlatBufferBuilder<'_>,
    kind: MessageHeader,
    header: WIPOffset<UnionWIPOffset>,
    body_bytes: u64,
    metadata_map: &Metadata,
    position: u64,
) -> Result<Vec<u8>> {
    let pairs = schema_write::write_map(&mut b, metadata_map);
    let mut message = MessageBuilder::new(&mut b);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(kind);
    message.add_header(header);
    message.add_bodyLength(int(body_bytes)?);
    if let Some(pairs) = pairs {
        message.add_custom_metadata(pairs);
    }
    let message = message.finish();
    b.finish(message, None);
    let metadata = b.finished_data();
    let end = position + 8 + metadata.len() as u64;
    let padding = if body_bytes > 0 { aligned(end) - end } else { end.next_multiple_of(8) - end } as usize;
    let length = i32::try_from(metadata.len() + padding).map_err(|_| {
        Error::unsupported(format!(
            "a message has {} bytes of metadata, expected at most 2 GiB",
            metadata.len()
        ))
    })?;
    let mut framed = Vec::with_capacity(8 + metadata.len() + padding);
    framed.extend_from_slice(&CONTINUATION);
    framed.extend_from_slice(&length.to_le_bytes());
    framed.extend_from_slice(metadata);
    framed.resize(framed.len() + padding, 0);
    Ok(framed)
}

fn int<T: TryInto<i64> + Copy + std::fmt::Display>(n: T) -> Result<i64> {
    n.try_into().map_err(|_| Error::unsupported(format!("{n} does not fit the int64 of a message")))
}
