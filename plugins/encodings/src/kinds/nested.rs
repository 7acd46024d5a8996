//! Decodes structs, extension types and chunks.

use arrow_schema::{DataType, FieldRef};
use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::from_plain;
use crossdock_plugin_api::Result;

use super::{Kind, no_bytes};
use crate::children::{Child, Children};
use crate::job::{Job, Values};
use crate::nested::concatenate;
use crate::node::Node;
use crate::wire::PType;
use crate::wire::dtype::{UUID_BYTES, uuid_storage};

pub(crate) const CHUNKED: &str = "vortex.chunked";

pub const KINDS: &[Kind] = &[
    Kind {
        id: "vortex.struct",
        check: check_empty,
        children: struct_children,
        size: no_bytes,
        plan: None,
        decode: struct_,
    },
    Kind {
        id: "vortex.ext",
        check: check_extension,
        children: extension_children,
        size: no_bytes,
        plan: None,
        decode: extension,
    },
    Kind {
        id: CHUNKED,
        check: check_chunked,
        children: chunked_children,
        size: sum_of_chunks,
        plan: None,
        decode: chunked,
    },
];

fn check_empty(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(0)
}

fn struct_children(node: &Node<'_>) -> Result<Children> {
    let DataType::Struct(fields) = node.data_type() else {
        return Err(node.wrong(format_args!(
            "the type is {}, expected a struct",
            crossdock_arrays::type_name(node.data_type())
        )));
    };
    let child = |field: &FieldRef| Child::new(format!("field '{}'", field.name()), field, node.len);
    Ok(Children::with_validity(fields.iter().map(child).collect::<Vec<_>>()))
}

fn struct_(job: &Job<'_>) -> Result<DeviceArray> {
    let n = job.node.raw.n_children();
    let DataType::Struct(fields) = job.node.data_type() else {
        return Err(job.node.wrong("the type is not a struct"));
    };
    let first = n.saturating_sub(fields.len());
    let validity = job.validity((first > 0).then_some(0))?;
    let children = job.node.raw.children().skip(first).map(|child| job.decoded(child).cloned());
    let children = children.collect::<Result<Vec<_>>>()?;
    let data_type = job.node.data_type().clone();
    DeviceArray::try_new(data_type, job.node.len, 0, validity.null_count, vec![validity.bits], children, None)
}

/// An extension type that is an Arrow type, such as a date, has the width of its storage. The Arrow
/// type of any other extension type is the type of its storage.
fn check_extension(node: &Node<'_>) -> Result<()> {
    check_empty(node)?;
    node.expect_children(1)?;
    let storage = node.child(0)?;
    let (data_type, stored) = (node.data_type(), storage.data_type());
    let same = data_type.equals_datatype(stored)
        || (is_uuid(data_type) && *stored == uuid_storage())
        || (data_type.primitive_width().is_some()
            && data_type.primitive_width() == stored.primitive_width()
            && stored.is_integer());
    if same && storage.len == node.len {
        return Ok(());
    }
    Err(storage.wrong(format_args!(
        "the parent has {} values of {data_type}, which {} values of {stored} cannot store",
        node.len,
        storage.len,
        data_type = crossdock_arrays::type_name(data_type),
        stored = crossdock_arrays::type_name(stored)
    )))
}

/// Vortex's only type that is Arrow's type of 16 bytes.
fn is_uuid(data_type: &DataType) -> bool {
    *data_type == DataType::FixedSizeBinary(UUID_BYTES)
}

fn extension_children(node: &Node<'_>) -> Result<Children> {
    let data_type = match node.data_type() {
        stored if stored.is_temporal() => PType::stored_as(stored).map(PType::arrow),
        stored if is_uuid(stored) => Some(uuid_storage()),
        _ => None,
    };
    let data_type = data_type.unwrap_or_else(|| node.data_type().clone());
    Ok(Children::new([Child::with_nulls("the storage", data_type, node.is_nullable(), node.len)]))
}

fn extension(job: &Job<'_>) -> Result<DeviceArray> {
    let storage = job.child(0)?;
    if storage.data_type().equals_datatype(job.node.data_type()) {
        return Ok(storage.clone());
    }
    if let DataType::FixedSizeBinary(_) = job.node.data_type() {
        return from_plain(storage, job.node.data_type(), job.stream);
    }
    let buffers = storage.buffers().to_vec();
    let (len, offset, nulls) = (storage.len(), storage.offset(), storage.null_count());
    DeviceArray::try_new(job.node.data_type().clone(), len, offset, nulls, buffers, vec![], None)
}

fn check_chunked(node: &Node<'_>) -> Result<()> {
    check_empty(node)?;
    let mut len = 0usize;
    for chunk in node.raw.children().skip(1) {
        len = len.saturating_add(Node::new(chunk)?.len);
    }
    if len == node.len {
        return Ok(());
    }
    Err(node.wrong(format_args!("the chunks have {len} values in total, expected {}", node.len)))
}

/// The lengths of the chunks are the differences of their offsets.
fn chunked_children(node: &Node<'_>) -> Result<Children> {
    let n = node.raw.n_children();
    let chunks = n
        .checked_sub(1)
        .ok_or_else(|| node.wrong("the node has no children, expected offsets and chunks"))?;
    let mut children = vec![Child::all_valid("offsets of chunks", DataType::UInt64, n)];
    let chunk = || Child::with_nulls("a chunk", node.data_type().clone(), node.is_nullable(), 0);
    children.extend((0..chunks).map(|_| chunk().of_any_length()));
    Ok(Children::new(children))
}

fn sum_of_chunks(node: &Node<'_>) -> Result<Option<usize>> {
    let known = node.data_type().primitive_width().is_some();
    if known { super::fixed_size(node) } else { Ok(None) }
}

/// Checks the offsets of chunks against the lengths of the chunks.
fn check_offsets(node: &Node<'_>, offsets: impl Iterator<Item = u64>) -> Result<()> {
    let lengths = node.raw.children().skip(1).map(|chunk| chunk.length());
    let mut expected = 0u64;
    for (i, (offset, length)) in offsets.zip(lengths.chain([0])).enumerate() {
        if offset != expected {
            return Err(node.wrong(format_args!("chunk {i} begins at {offset}, expected {expected}")));
        }
        expected = expected.saturating_add(length);
    }
    Ok(())
}

/// Checks the offsets of chunks if the host can read them without decoding. Otherwise returns
/// `false`, and `chunked` checks the decoded offsets.
pub(crate) fn has_checked_offsets(node: &Node<'_>) -> Result<bool> {
    if node.raw.encoding() != CHUNKED {
        return Ok(false);
    }
    let offsets = node.child(0)?;
    let is_plain = offsets.raw.encoding() == "vortex.primitive"
        && *offsets.data_type() == DataType::UInt64
        && offsets.raw.n_children() == 0;
    if !is_plain || offsets.buffer_bytes(0)? != offsets.raw.length().saturating_mul(8) {
        return Ok(false);
    }
    let Some(bytes) = offsets.host_copy(0)? else { return Ok(false) };
    check_offsets(node, bytes.as_chunks::<8>().0.iter().map(|offset| u64::from_le_bytes(*offset)))?;
    Ok(true)
}

fn chunked(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    // The offsets are not decoded if they were checked before.
    let offsets = job.child(0)?;
    if !offsets.is_empty() {
        check_offsets(node, Values::new(offsets, job.stream)?.get::<u64>()?.iter().copied())?;
    }
    let is_whole = node.len as u64 == node.raw.length();
    // If some rows are decoded, the chunks outside of them are empty.
    let decoded = node.raw.children().skip(1).map(|chunk| job.decoded(chunk));
    let decoded = decoded.collect::<Result<Vec<_>>>()?.into_iter();
    let chunks: Vec<_> = decoded.filter(|chunk| is_whole || !chunk.is_empty()).cloned().collect();
    if chunks.is_empty() { DeviceArray::empty(node.data_type()) } else { concatenate(job, &chunks) }
}
