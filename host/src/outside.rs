//! Batches, read or decoded, in memory that their plugin did not take from the host: counted against the budget from the moment at
//! which they are handed over, to their release. What a plugin holds before that nobody sees.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory_backend::{Account, Charge};
use crossdock_plugin_api::{Device, EncodedArray, EncodedNode, Owned, Result, abi};

use crate::traced::ended_by;

/// Where a batch's charge is kept until its array is released.
pub(crate) struct Place(Arc<Mutex<Option<Charge>>>);

/// The batch, whose release ends what it will be charged with.
pub(crate) fn with_place(batch: Owned<abi::Batch>) -> (Owned<abi::Batch>, Place) {
    let place = Place(Arc::default());
    let kept = place.0.clone();
    let batch = ended_by(batch, move |array| {
        drop(array);
        drop(kept.lock().unwrap_or_else(PoisonError::into_inner).take());
    });
    (batch, place)
}

/// Address and bytes, in host memory.
pub(crate) type Range = (u64, u64);

/// Charges `account` with what of the batch lies in host memory and neither in a block of the host's nor in `input`, which it was
/// made of.
///
/// # Errors
/// The budget has no room for it.
pub(crate) fn charge(batch: &DeviceBatch, place: &Place, account: &Account, input: Vec<Range>) -> Result<()> {
    let input = once(input);
    let is_input = |address: u64| {
        let before = input.partition_point(|(start, _)| *start <= address);
        let last = before.checked_sub(1).and_then(|i| input.get(i));
        last.is_some_and(|(start, bytes)| address < start.saturating_add(*bytes))
    };
    let own = once(ranges(batch)).into_iter().filter(|(address, _)| !is_input(*address));
    let charge = account.charge_outside(own)?;
    *place.0.lock().unwrap_or_else(PoisonError::into_inner) = charge;
    Ok(())
}

/// Where a batch's buffers in host memory are.
pub(crate) fn ranges(batch: &DeviceBatch) -> Vec<Range> {
    let mut ranges = Vec::new();
    batch.columns().iter().for_each(|column| add(column, &mut ranges));
    ranges
}

/// Where the buffers in host memory are of a node and of those below it, as far as nobody has taken them.
pub(crate) fn encoded_ranges(array: &EncodedArray, node: &EncodedNode<'_>) -> Vec<Range> {
    let nodes = (node.index()..node.end()).filter_map(|index| array.node(index).ok());
    let buffers = nodes.flat_map(|node| (0..node.n_buffers()).filter_map(move |i| node.buffer(i).ok()));
    let on_host = buffers.filter(|buffer| buffer.device.r#type == Device::CPU.r#type && buffer.bytes > 0);
    on_host.map(|buffer| (buffer.address.addr() as u64, buffer.bytes)).collect()
}

/// What several ranges have in common counts once: those that overlap become one.
fn once(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut apart: Vec<Range> = Vec::with_capacity(ranges.len());
    for (address, bytes) in ranges {
        match apart.last_mut().filter(|(start, bytes)| address < start.saturating_add(*bytes)) {
            Some((start, before)) => *before = (*before).max((address - *start).saturating_add(bytes)),
            None => apart.push((address, bytes)),
        }
    }
    apart
}

/// Adds the array's buffers in host memory, and those below it.
fn add(array: &DeviceArray, ranges: &mut Vec<Range>) {
    let on_host = array.buffers().iter().flatten().filter(|buffer| buffer.device() == Device::CPU);
    let ranged = on_host.map(|buffer| (buffer.address(), buffer.len().unwrap_or(0) as u64));
    ranges.extend(ranged.filter(|(_, bytes)| *bytes > 0));
    array.children().iter().chain(array.dictionary()).for_each(|below| add(below, ranges));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_several_buffers_have_count_once() {
        assert_eq!(
            once(vec![(40, 8), (0, 10), (5, 10), (0, 4), (15, 5), (41, 2)]),
            [(0, 15), (15, 5), (40, 8)]
        );
        // A plugin may lie about where its buffers end.
        assert_eq!(once(vec![(u64::MAX - 9, 90), (u64::MAX - 1, 9)]), [(u64::MAX - 9, 90)]);
        assert_eq!(once(Vec::new()), []);
    }
}
