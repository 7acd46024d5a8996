//! Decodes lists and list views.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{InvalidLists, gather};
use crossdock_kernels::{Checks, Lists, Offsets, Words};
use crossdock_plugin_api::Result;

use super::{OnDevice, alloc, integers, supports_all, supports_takeable};
use crate::job::Job;
use crate::kinds::lists::{LIST, VIEW, list_array};

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: LIST, supports: supports_all, decode: list },
    OnDevice { id: VIEW, supports: supports_takeable, decode: view },
];

fn list(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let validity = node.has_validity(2)?.then_some(2);
    let (elements, offsets) = (job.child(0)?.clone(), job.child(1)?);
    let from = integers(offsets).ok_or_else(|| node.wrong("the node has no offsets"))?;
    // The check needs 64-bit offsets. Arrow's lists have 32-bit offsets.
    let [wide, narrow] = [8, 4].map(|width_bytes| Words { at: 0, len: from.len, width_bytes });
    let mut wide_offsets = alloc(job, from.len.saturating_mul(8))?;
    let mut to = alloc(job, from.len.saturating_mul(4))?;
    let mut checks = Checks::new();
    checks.widen(from, &mut wide_offsets, wide, &[])?;
    checks.widen(from, &mut to, narrow, &[])?;
    checks.run(job.stream)?;
    let wide_offsets = wide_offsets.freeze(job.stream)?;
    let all = Offsets { buffer: &wide_offsets, width_bytes: 8, first: 0, len: node.len };
    let max = elements.len().min(i32::MAX as usize);
    let mut checks = Checks::new();
    let cell = checks.offsets(all, max as u64)?;
    if let Some(at) = checks.run(job.stream)?.first_wrong(cell) {
        return Err(node.wrong(format_args!(
            "expected ascending offsets of 31 bits within {} elements, but the offset at index {at} is invalid",
            elements.len()
        )));
    }
    list_array(job, to.freeze(job.stream)?, elements, validity)
}

/// Decodes a list view.
pub fn view(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let validity = node.has_validity(3)?.then_some(3);
    let elements = job.child(0)?;
    let (Some(begins), Some(sizes)) = (integers(job.child(1)?), integers(job.child(2)?)) else {
        return DeviceArray::empty(node.data_type());
    };
    // Null lists are checked too, because Vortex requires their ranges to be within the elements.
    let lists =
        Lists { begins, ends_or_sizes: sizes, has_ends: false, validity: None, elements: elements.len() };
    let gathered = gather(job.stream, lists, elements).map_err(|error| error.context(node.raw.path()))?;
    let (offsets, elements) = gathered.map_err(|wrong| match wrong {
        InvalidLists::Outside(at) => node.wrong(format_args!(
            "list {at}: expected an offset and a size within the {} elements",
            elements.len()
        )),
        InvalidLists::TooMany => {
            node.wrong("the lists together have more elements than offsets of 31 bits can address")
        }
    })?;
    list_array(job, offsets, elements, validity)
}
