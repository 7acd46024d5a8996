//! Charges foreign memory against the budget, for batches that plugins read or decode. The charge
//! lasts from the moment the host receives a batch until the batch is released. Memory that a
//! plugin allocates is not charged before the plugin returns the batch.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory_backend::{Account, Charge};
use crossdock_plugin_api::{Device, EncodedArray, EncodedNode, Owned, Result, abi};

use crate::tracing_hooks::on_release;

/// Holds a batch's charge until the batch's array is released.
pub(crate) struct ChargeSlot(Arc<Mutex<Option<Charge>>>);

/// Adds an empty slot for a charge to the batch, if `is_charged`. Releasing the batch ends the
/// charge in the slot.
pub(crate) fn with_charge_slot(
    batch: Owned<abi::Batch>,
    is_charged: bool,
) -> (Owned<abi::Batch>, Option<ChargeSlot>) {
    if !is_charged {
        return (batch, None);
    }
    let slot = ChargeSlot(Arc::default());
    let charge = slot.0.clone();
    let batch = on_release(batch, move |array| {
        drop(array);
        drop(charge.lock().unwrap_or_else(PoisonError::into_inner).take());
    });
    (batch, Some(slot))
}

/// A range of host memory: its address and its number of bytes.
pub(crate) type Range = (u64, u64);

/// Charges the host memory of the batch to `account`. Does not charge blocks that the host
/// allocated, or memory in `input`, which contains the ranges that the batch was decoded from.
///
/// # Errors
/// The charge exceeds the budget.
pub(crate) fn charge(
    batch: &DeviceBatch,
    slot: &ChargeSlot,
    account: &Account,
    input: Vec<Range>,
) -> Result<()> {
    let input = merge_overlapping(input);
    let is_input = |address: u64| {
        let before = input.partition_point(|(start, _)| *start <= address);
        let last = before.checked_sub(1).and_then(|i| input.get(i));
        last.is_some_and(|(start, bytes)| address < start.saturating_add(*bytes))
    };
    let foreign = merge_overlapping(ranges(batch)).into_iter().filter(|(address, _)| !is_input(*address));
    let charge = account.charge_foreign(foreign)?;
    *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = charge;
    Ok(())
}

/// Returns the ranges of host memory that a batch's buffers occupy.
pub(crate) fn ranges(batch: &DeviceBatch) -> Vec<Range> {
    let mut ranges = Vec::new();
    batch.columns().iter().for_each(|column| add(column, &mut ranges));
    ranges
}

/// Returns the ranges of host memory that the buffers of a node and of its descendants occupy,
/// except buffers that were taken.
pub(crate) fn encoded_ranges(array: &EncodedArray, node: &EncodedNode<'_>) -> Vec<Range> {
    let nodes = (node.index()..node.end()).filter_map(|index| array.node(index).ok());
    let buffers = nodes.flat_map(|node| (0..node.n_buffers()).filter_map(move |i| node.buffer(i).ok()));
    let on_host = buffers.filter(|buffer| buffer.device.r#type == Device::CPU.r#type && buffer.bytes > 0);
    on_host.map(|buffer| (buffer.address.addr() as u64, buffer.bytes)).collect()
}

/// Merges ranges that overlap, so that shared bytes count once.
fn merge_overlapping(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
    for (address, bytes) in ranges {
        match merged.last_mut().filter(|(start, bytes)| address < start.saturating_add(*bytes)) {
            Some((start, before)) => *before = (*before).max((address - *start).saturating_add(bytes)),
            None => merged.push((address, bytes)),
        }
    }
    merged
}

/// Adds the ranges of host memory that the buffers of an array and of its descendants occupy.
fn add(array: &DeviceArray, ranges: &mut Vec<Range>) {
    let on_host = array.buffers().iter().flatten().filter(|buffer| buffer.device() == Device::CPU);
    let all = on_host.map(|buffer| (buffer.address(), buffer.len().unwrap_or(0) as u64));
    ranges.extend(all.filter(|(_, bytes)| *bytes > 0));
    array.children().iter().chain(array.dictionary()).for_each(|child| add(child, ranges));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_shared_by_buffers_count_once() {
        assert_eq!(
            merge_overlapping(vec![(40, 8), (0, 10), (5, 10), (0, 4), (15, 5), (41, 2)]),
            [(0, 15), (15, 5), (40, 8)]
        );
        // A plugin may declare buffers that end beyond the address space.
        assert_eq!(merge_overlapping(vec![(u64::MAX - 9, 90), (u64::MAX - 1, 9)]), [(u64::MAX - 9, 90)]);
        assert_eq!(merge_overlapping(Vec::new()), []);
    }
}
