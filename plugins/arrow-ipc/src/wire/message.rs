//! Reads and checks a message's metadata.

use arrow_ipc::{MessageHeader, MetadataVersion};
use arrow_schema::Metadata;
use crossdock_plugin_api::{Error, Result};

use super::schema::Schema;
use super::strings::Strings;
use super::{invalid_flatbuffer, private_copy, schema_read, verifier};
use crate::codec::Codec;

/// A message without its body.
#[derive(Debug)]
pub struct Message {
    /// The kind of the message.
    pub header: Header,
    /// Size of the body in bytes.
    pub body_bytes: u64,
    /// The message's key-value metadata.
    pub metadata: Metadata,
}

/// The kind of a message.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Header {
    Schema(Box<Schema>),
    Batch(BatchMeta),
    /// The values of a dictionary. If `is_delta` is true, they are appended to the current values.
    Dictionary {
        id: i64,
        is_delta: bool,
        batch: BatchMeta,
    },
}

/// A range of a message's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Span {
    pub offset: u64,
    pub bytes: u64,
}

/// The length and null count of one array of a batch. Nodes are in pre-order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Node {
    pub length: usize,
    pub nulls: usize,
}

/// The metadata of a record batch.
#[derive(Debug)]
pub struct BatchMeta {
    /// Number of rows.
    pub rows: usize,
    /// The nodes of the arrays, in pre-order.
    pub nodes: Vec<Node>,
    /// The ranges of the buffers in the body, in order.
    pub spans: Vec<Span>,
    /// Number of data buffers of each view array.
    pub variadic: Vec<usize>,
    /// The codec with which the buffers are compressed.
    pub codec: Option<Codec>,
    /// Whether all types except null have validity buffers, as in versions before 5.
    pub all_have_validity: bool,
}

/// The metadata key of an experimental compression that Arrow 0.17 used in messages of version 4.
const EXPERIMENTAL_COMPRESSION: &str = "ARROW:experimental_compression";

/// Reads a message's metadata.
pub fn read(bytes: &[u8]) -> Result<Message> {
    let bytes = &private_copy(bytes);
    let options = verifier(bytes.len());
    let invalid = |e| invalid_flatbuffer("message's metadata", e);
    match arrow_ipc::root_as_message_with_opts(&options, bytes) {
        Ok(message) => read_message(message, &Strings::verified(bytes)),
        Err(error) => {
            let verify = |bytes: &[u8]| arrow_ipc::root_as_message_with_opts(&options, bytes).map(drop);
            let strings = Strings::repaired(bytes, error, verify).map_err(invalid)?;
            let message = arrow_ipc::root_as_message_with_opts(&options, strings.bytes()).map_err(invalid)?;
            read_message(message, &strings)
        }
    }
}

fn read_message(message: arrow_ipc::Message<'_>, strings: &Strings<'_>) -> Result<Message> {
    let version = message.version();
    check_version(version)?;
    let body_bytes = u64::try_from(message.bodyLength()).map_err(|_| {
        Error::bad_data(format!(
            "a message declares a body of {} bytes, expected 0 or more",
            message.bodyLength()
        ))
    })?;
    let metadata = message.custom_metadata();
    if version == MetadataVersion::V4
        && metadata.iter().flatten().any(|pair| pair.key() == Some(EXPERIMENTAL_COMPRESSION))
    {
        return Err(Error::unsupported(
            "a message has the experimental compression of Arrow 0.17: write the data again with Arrow 1.0 or newer",
        ));
    }
    let missing = |what: &str| Error::bad_data(format!("a message declares {what} but has none"));
    let header = match message.header_type() {
        MessageHeader::Schema => {
            let schema = message.header_as_schema().ok_or_else(|| missing("a schema"))?;
            Header::Schema(Box::new(schema_read::read(schema, strings)?))
        }
        MessageHeader::RecordBatch => {
            let batch = message.header_as_record_batch().ok_or_else(|| missing("a record batch"))?;
            Header::Batch(read_batch(batch, version, body_bytes)?)
        }
        MessageHeader::DictionaryBatch => {
            let dictionary =
                message.header_as_dictionary_batch().ok_or_else(|| missing("a dictionary batch"))?;
            let data = dictionary.data().ok_or_else(|| missing("a dictionary batch"))?;
            let batch = read_batch(data, version, body_bytes)?;
            Header::Dictionary { id: dictionary.id(), is_delta: dictionary.isDelta(), batch }
        }
        MessageHeader::Tensor | MessageHeader::SparseTensor => {
            return Err(Error::unsupported("a message contains a tensor, expected the messages of a table"));
        }
        other => {
            return Err(Error::bad_data(format!(
                "a message has the kind {}, expected a schema, a record batch or a dictionary batch",
                other.0
            )));
        }
    };
    let metadata = schema_read::read_metadata(metadata, strings);
    Ok(Message { header, body_bytes, metadata })
}

/// Whether `bytes` is the flatbuffer of a message. Zeros are a valid flatbuffer without fields, but
/// they are not a message.
pub fn is_message(bytes: &[u8]) -> bool {
    arrow_ipc::root_as_message_with_opts(&verifier(bytes.len()), bytes)
        .is_ok_and(|message| message.header().is_some())
}

/// Returns an error for versions 1 to 3, whose messages have another layout.
fn check_version(version: MetadataVersion) -> Result<()> {
    match version {
        MetadataVersion::V4 | MetadataVersion::V5 => Ok(()),
        other => Err(Error::unsupported(format!(
            "metadata version V{} is unsupported, expected V4 or V5",
            i32::from(other.0) + 1
        ))),
    }
}

fn read_batch(
    batch: arrow_ipc::RecordBatch<'_>,
    version: MetadataVersion,
    body_bytes: u64,
) -> Result<BatchMeta> {
    let rows = count(batch.length(), "a record batch", "rows")?;
    // `collect` of results would not allocate for all of them at once.
    let mut nodes = Vec::with_capacity(batch.nodes().map_or(0, |nodes| nodes.len()));
    for (i, node) in batch.nodes().into_iter().flatten().enumerate() {
        nodes.push(read_node(i, node)?);
    }
    let mut spans = Vec::with_capacity(batch.buffers().map_or(0, |spans| spans.len()));
    for (i, span) in batch.buffers().into_iter().flatten().enumerate() {
        spans.push(read_span(i, span, body_bytes)?);
    }
    let variadic = batch.variadicBufferCounts().into_iter().flatten();
    let variadic =
        variadic.map(|n| count(n, "a column of views", "data buffers")).collect::<Result<Vec<_>>>()?;
    let codec = batch.compression().map(|compression| {
        if compression.method() != arrow_ipc::BodyCompressionMethod::BUFFER {
            return Err(Error::unsupported(format!(
                "unknown body compression method {}, expected 0 (per buffer)",
                compression.method().0
            )));
        }
        Codec::from_wire(compression.codec())
    });
    Ok(BatchMeta {
        rows,
        nodes,
        spans,
        variadic,
        codec: codec.transpose()?,
        all_have_validity: version == MetadataVersion::V4,
    })
}

fn read_node(i: usize, node: &arrow_ipc::FieldNode) -> Result<Node> {
    let length = count(node.length(), format_args!("array {i}"), "values")?;
    let nulls = count(node.null_count(), format_args!("array {i}"), "nulls")?;
    if nulls > length {
        return Err(Error::bad_data(format!(
            "array {i} declares {nulls} nulls, expected at most {length}, the length of the array"
        )));
    }
    Ok(Node { length, nulls })
}

fn read_span(i: usize, span: &arrow_ipc::Buffer, body_bytes: u64) -> Result<Span> {
    let (offset, bytes) = (span.offset(), span.length());
    let fits = |offset: u64, bytes: u64| offset.checked_add(bytes).is_some_and(|end| end <= body_bytes);
    match (u64::try_from(offset), u64::try_from(bytes)) {
        // The offset of an empty buffer is ignored, because some writers do not set it.
        (_, Ok(0)) => Ok(Span { offset: 0, bytes: 0 }),
        (Ok(offset), Ok(bytes)) if fits(offset, bytes) => Ok(Span { offset, bytes }),
        _ => Err(Error::bad_data(format!(
            "buffer {i} has {bytes} bytes at offset {offset}, expected a range within the body of {body_bytes} bytes"
        ))),
    }
}

fn count(n: i64, subject: impl std::fmt::Display, what: &str) -> Result<usize> {
    // The maximum ensures that the sum of two counts does not overflow.
    usize::try_from(n)
        .ok()
        .filter(|n| *n <= usize::MAX / 4)
        .ok_or_else(|| Error::bad_data(format!("{subject} declares {n} {what}, expected 0 or more")))
}
