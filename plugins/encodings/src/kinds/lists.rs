//! Decodes lists, list views, fixed-size lists and maps.

use arrow_schema::{DataType, FieldRef};
use crossdock_arrays::DeviceArray;
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use super::slots::by_counts;
use super::{Kind, no_bytes};
use crate::children::{Child, Children};
use crate::cpu::words::Index;
use crate::device;
use crate::job::Job;
use crate::node::{Node, in_node};
use crate::wire::metadata::{List, ListView};

pub(crate) const LIST: &str = "vortex.list";
pub(crate) const VIEW: &str = "vortex.listview";

pub const KINDS: &[Kind] = &[
    Kind {
        id: LIST,
        check: check_list,
        children: list_children,
        size: offsets_size,
        plan: None,
        decode: list,
    },
    Kind {
        id: VIEW,
        check: check_list,
        children: view_children,
        size: offsets_size,
        plan: None,
        decode: device::lists::view,
    },
    Kind {
        id: "vortex.fixed_size_list",
        check: check_empty,
        children: fixed_children,
        size: no_bytes,
        plan: None,
        decode: fixed,
    },
    Kind {
        id: "vortex.map",
        check: check_empty,
        children: map_children,
        size: no_bytes,
        plan: None,
        decode: map,
    },
];

/// The size of the offsets.
fn offsets_size(node: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(node.len.saturating_add(1).saturating_mul(4)))
}

fn element<'n>(node: &'n Node<'_>) -> Result<&'n FieldRef> {
    match node.data_type() {
        DataType::List(element) => Ok(element),
        other => {
            Err(node
                .wrong(format_args!("the type is {}, expected a list", crossdock_arrays::type_name(other))))
        }
    }
}

fn check_list(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)
}

fn list_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, List::read(node.metadata()))?;
    Ok(Children::with_validity([
        Child::new("elements", element(node)?, metadata.elements_len),
        Child::all_valid("offsets", metadata.offsets_ptype.arrow(), node.len.saturating_add(1)),
    ]))
}

/// Converts offsets to 32 bits, as in Arrow's lists.
fn narrow_offsets<O: Index>(job: &Job<'_>, offsets: &[O], elements: usize) -> Result<Buffer> {
    job.make_values(offsets.len(), &mut |to: &mut [i32]| {
        let mut previous = 0;
        for (to, offset) in to.iter_mut().zip(offsets.iter().map(|offset| offset.index())) {
            let narrow = i32::try_from(offset).ok().filter(|_| offset >= previous && offset <= elements);
            *to = narrow.ok_or_else(|| {
                job.node.wrong(format_args!(
                    "offset {offset} follows {previous}, expected ascending offsets of 31 bits within {elements} elements"
                ))
            })?;
            previous = offset;
        }
        Ok(())
    })
}

pub(crate) fn list_array(
    job: &Job<'_>,
    offsets: Buffer,
    elements: DeviceArray,
    validity: Option<usize>,
) -> Result<DeviceArray> {
    let validity = job.validity(validity)?;
    let buffers = vec![validity.bits, Some(offsets)];
    let data_type = job.node.data_type().clone();
    DeviceArray::try_new(data_type, job.node.len, 0, validity.null_count, buffers, vec![elements], None)
}

fn list(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.node.has_validity(2)?.then_some(2);
    let (elements, offsets) = (job.child(0)?.clone(), job.child(1)?);
    let offsets = by_counts!(job, offsets, offsets: Int32 i32, Int64 i64, UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64 => {
        narrow_offsets(job, offsets, elements.len())
    })?;
    list_array(job, offsets, elements, validity)
}

fn view_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, ListView::read(node.metadata()))?;
    Ok(Children::with_validity([
        Child::new("elements", element(node)?, metadata.elements_len),
        Child::all_valid("offsets", metadata.offsets_ptype.arrow(), node.len),
        Child::all_valid("sizes", metadata.sizes_ptype.arrow(), node.len),
    ]))
}

fn check_empty(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(0)
}

fn fixed_children(node: &Node<'_>) -> Result<Children> {
    let DataType::FixedSizeList(element, size) = node.data_type() else {
        return Err(node.wrong(format_args!(
            "the type is {}, expected a fixed-size list",
            crossdock_arrays::type_name(node.data_type())
        )));
    };
    let elements = usize::try_from(*size).ok().and_then(|size| size.checked_mul(node.len));
    let elements = elements.ok_or_else(|| node.wrong("the number of its elements overflows"))?;
    Ok(Children::with_validity([Child::new("elements", element, elements)]))
}

fn fixed(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(1)?.then_some(1))?;
    let (data_type, elements) = (job.node.data_type().clone(), job.child(0)?.clone());
    DeviceArray::try_new(
        data_type,
        job.node.len,
        0,
        validity.null_count,
        vec![validity.bits],
        vec![elements],
        None,
    )
}

fn map_children(node: &Node<'_>) -> Result<Children> {
    let DataType::Map(entries, _) = node.data_type() else {
        return Err(node.wrong(format_args!(
            "the type is {}, expected a map",
            crossdock_arrays::type_name(node.data_type())
        )));
    };
    let lists = DataType::List(entries.clone());
    let child = Child::with_nulls("entries", lists, node.is_nullable(), node.len);
    Ok(Children::new([child.with_nullable_items()]))
}

fn map(job: &Job<'_>) -> Result<DeviceArray> {
    let entries = job.child(0)?;
    let (data_type, buffers) = (job.node.data_type().clone(), entries.buffers().to_vec());
    let (len, offset, nulls) = (entries.len(), entries.offset(), entries.null_count());
    DeviceArray::try_new(data_type, len, offset, nulls, buffers, entries.children().to_vec(), None)
}
