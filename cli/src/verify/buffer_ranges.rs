//! Address ranges of the buffers of arrays.

use crossdock::api::Device;
use crossdock_arrays::{DeviceArray, DeviceBatch};

/// A range of bytes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    pub device: Device,
    pub address: u64,
    pub bytes: u64,
}

impl BufferRange {
    /// Whether the ranges share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends_after = |range: &Self, address| range.address.saturating_add(range.bytes) > address;
        self.device == other.device && ends_after(self, other.address) && ends_after(other, self.address)
    }
}

/// The ranges of all non-empty buffers of a batch.
pub fn buffer_ranges(batch: &DeviceBatch) -> Vec<BufferRange> {
    let buffers = batch.columns().iter().flat_map(nested_arrays).flat_map(DeviceArray::buffers).flatten();
    let ranges = buffers.map(|buffer| {
        let bytes = buffer.len().map_or(1, |bytes| bytes as u64);
        BufferRange { device: buffer.device(), address: buffer.address(), bytes }
    });
    ranges.filter(|range| range.bytes > 0).collect()
}

/// Returns the array and all its descendants, including dictionaries.
pub fn nested_arrays(array: &DeviceArray) -> Vec<&DeviceArray> {
    let mut all = vec![array];
    let mut next = 0;
    while let Some(array) = all.get(next).copied() {
        all.extend(array.children().iter().chain(array.dictionary()));
        next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_do_not_overlap() {
        let range = |address, bytes| BufferRange { device: Device::CPU, address, bytes };
        let middle = range(16, 8);
        for (other, expected) in
            [(range(8, 8), false), (range(24, 1), false), (range(8, 9), true), (range(20, 1), true)]
        {
            assert_eq!(middle.overlaps(&other), expected, "{other:?}");
            assert_eq!(other.overlaps(&middle), expected, "{other:?}");
        }
        assert!(!middle.overlaps(&BufferRange { device: Device::UNTOUCHABLE, ..middle }));
    }
}
