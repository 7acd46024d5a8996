//! Lists.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{WrongLists, gather};
use crossdock_kernels::{Checks, Lists, Offsets, Words};
use crossdock_plugin_api::Result;

use super::{OnDevice, always, integers, is_taken, room};
use crate::job::Job;
use crate::kinds::lists::{LIST, VIEW, of_offsets};

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: LIST, suits: always, decode: list },
    OnDevice { id: VIEW, suits: is_taken, decode: view },
];

fn list(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let validity = node.expect_children_and_validity(2)?.then_some(2);
    let (elements, offsets) = (job.child(0)?.clone(), job.child(1)?);
    let from = integers(offsets).ok_or_else(|| node.wrong("it has no offsets"))?;
    // As wide as any, for a look at them, and as Arrow's lists have them.
    let [wide, narrow] = [8, 4].map(|width_bytes| Words { at: 0, len: from.len, width_bytes });
    let mut looked_at = room(job, from.len.saturating_mul(8))?;
    let mut to = room(job, from.len.saturating_mul(4))?;
    let mut checks = Checks::new();
    checks.widen(from, &mut looked_at, wide, &[])?;
    checks.widen(from, &mut to, narrow, &[])?;
    checks.run(job.stream)?;
    let looked_at = looked_at.freeze(job.stream)?;
    let all = Offsets { buffer: &looked_at, width_bytes: 8, first: 0, len: node.len };
    let most = elements.len().min(i32::MAX as usize);
    let mut checks = Checks::new();
    let cell = checks.offsets(all, most as u64)?;
    if let Some(at) = checks.run(job.stream)?.first_wrong(cell) {
        return Err(node.wrong(format_args!(
            "offsets into {} elements: expected ones that do not fall, within them, and of 31 bits, got another as number {at}",
            elements.len()
        )));
    }
    of_offsets(job, to.freeze(job.stream)?, elements, validity)
}

/// Lists by offsets and sizes.
pub fn view(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let validity = node.expect_children_and_validity(3)?.then_some(3);
    let elements = job.child(0)?;
    let (Some(begins), Some(sizes)) = (integers(job.child(1)?), integers(job.child(2)?)) else {
        return DeviceArray::empty(node.data_type());
    };
    // Vortex asks of null ones, too, that they are within the elements.
    let lists = Lists { begins, rest: sizes, ends: false, validity: None, elements: elements.len() };
    let gathered = gather(job.stream, lists, elements).map_err(|error| error.context(node.raw.path()))?;
    let (offsets, elements) = gathered.map_err(|wrong| match wrong {
        WrongLists::Outside(at) => node.wrong(format_args!(
            "list {at}: expected an offset and a size within the {} elements",
            elements.len()
        )),
        WrongLists::TooMany => {
            node.wrong("its lists have more elements together than offsets of 31 bits reach to")
        }
    })?;
    of_offsets(job, offsets, elements, validity)
}
