//! Plans the decoding of some rows of nodes.
//!
//! The host decodes rows of nodes that have a program ([`crate::lower`]). The nodes of this module
//! are decoded from rows of their children, and have no buffer with an entry for each row. All
//! other nodes are decoded completely.

use std::ops::Range;

use arrow_schema::DataType;
use crossdock_plugin_api::Result;

use crate::kinds::lists;
use crate::kinds::nested::CHUNKED;
use crate::kinds::parts::{BYTE_PARTS, TIMESTAMP};
use crate::kinds::repeat::DICTIONARY;
use crate::node::Node;

/// The rows that are needed of each child to decode `rows` of a node; `None` if the node can only
/// be decoded completely. The node has passed its check.
pub(crate) fn of_children(node: &Node<'_>, rows: &Range<u64>) -> Result<Option<Vec<Range<u64>>>> {
    let children = node.raw.children();
    // The offsets of values have one more entry than there are values.
    let offsets = rows.start..rows.end + 1;
    // The entry of a child is `None` if the child is needed completely. Further children, such as
    // the validity, have one value for each row.
    let first: &[Option<Range<u64>>] = match node.raw.encoding() {
        "vortex.struct" | "vortex.ext" | "vortex.map" | "vortex.masked" | "vortex.constant"
        | "vortex.null" | TIMESTAMP | BYTE_PARTS => &[],
        DICTIONARY => &[Some(rows.clone()), None],
        "vortex.varbin" => &[Some(offsets)],
        "vortex.fsst" => &[Some(rows.clone()), Some(offsets)],
        "vortex.onpair" => &[None, None, Some(offsets)],
        lists::LIST => &[None, Some(offsets)],
        lists::VIEW => &[None],
        "vortex.fixed_size_list" => {
            let DataType::FixedSizeList(_, size) = node.data_type() else { return Ok(None) };
            let size = u64::try_from(*size).unwrap_or(0);
            &[Some(rows.start.saturating_mul(size)..rows.end.saturating_mul(size))]
        }
        CHUNKED => return Ok(Some(of_chunks(node, rows))),
        _ => return Ok(None),
    };
    let needed = |(i, child): (usize, crossdock_plugin_api::EncodedNode<'_>)| match first.get(i) {
        Some(Some(rows)) => rows.clone(),
        Some(None) => 0..child.length(),
        None => rows.clone(),
    };
    Ok(Some(children.enumerate().map(needed).collect()))
}

/// All offsets, and the rows of each chunk that lie in `rows`.
fn of_chunks(node: &Node<'_>, rows: &Range<u64>) -> Vec<Range<u64>> {
    let mut begin = 0u64;
    let in_chunk = |(i, child): (usize, crossdock_plugin_api::EncodedNode<'_>)| {
        let len = child.length();
        if i == 0 {
            return 0..len;
        }
        let from = rows.start.clamp(begin, begin + len) - begin;
        let to = rows.end.clamp(begin, begin + len) - begin;
        begin += len;
        from..to.max(from)
    };
    node.raw.children().enumerate().map(in_chunk).collect()
}
