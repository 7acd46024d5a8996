//! Where arrays lie.

use crossdock::api::Device;
use crossdock_arrays::{DeviceArray, DeviceBatch};

/// Some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub device: Device,
    pub address: u64,
    pub bytes: u64,
}

impl Place {
    /// Whether both have a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends_behind = |one: &Self, address| one.address.saturating_add(one.bytes) > address;
        self.device == other.device && ends_behind(self, other.address) && ends_behind(other, self.address)
    }
}

/// All buffers of a batch that have bytes.
pub fn places(batch: &DeviceBatch) -> Vec<Place> {
    let buffers = batch.columns().iter().flat_map(nodes).flat_map(DeviceArray::buffers).flatten();
    let places = buffers.map(|buffer| {
        let bytes = buffer.len().map_or(1, |bytes| bytes as u64);
        Place { device: buffer.device(), address: buffer.address(), bytes }
    });
    places.filter(|place| place.bytes > 0).collect()
}

/// An array and all below it, its dictionary too.
pub fn nodes(array: &DeviceArray) -> Vec<&DeviceArray> {
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
    fn places_that_touch_do_not_overlap() {
        let place = |address, bytes| Place { device: Device::CPU, address, bytes };
        let middle = place(16, 8);
        for (other, expected) in
            [(place(8, 8), false), (place(24, 1), false), (place(8, 9), true), (place(20, 1), true)]
        {
            assert_eq!(middle.overlaps(&other), expected, "{other:?}");
            assert_eq!(other.overlaps(&middle), expected, "{other:?}");
        }
        assert!(!middle.overlaps(&Place { device: Device::UNTOUCHABLE, ..middle }));
    }
}
