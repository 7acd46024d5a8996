//! Work on a batch is a launch of each kernel, and not one for each column.

use std::sync::Arc;

use crate::common::Dock;
use arrow_array::{ArrayRef, StringArray};
use crossdock_arrays::{DeviceBatch, Level, validate};
use crossdock_memory::Device;
use crossdock_test_support::devices;

const COLUMNS: usize = 12;

fn batch(dock: &Dock, device: Device) -> DeviceBatch {
    let column: ArrayRef =
        Arc::new((0..40).map(|i| (i % 3 > 0).then(|| format!("ö{i}"))).collect::<StringArray>());
    dock.batch(&vec![column; COLUMNS]).move_to(&dock.host.stream(device), device).unwrap()
}

fn launches(dock: &Dock) -> u64 {
    dock.host.backend().ledger().accounts.iter().map(|account| account.launches).sum()
}

#[test]
fn a_batch_is_validated_by_one_launch_of_each_kernel() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let batch = batch(&dock, device);
        let before = launches(&dock);
        validate(&batch, Level::Full, &dock.host.stream(device)).unwrap();
        // Null counts, offsets, text.
        assert_eq!(launches(&dock) - before, 3, "{device}");
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn a_slice_is_compacted_by_one_launch_of_each_kernel_and_its_ends_read_by_one() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let batch = batch(&dock, device).slice(3, 30).unwrap();
        let before = launches(&dock);
        batch.compact(&dock.host.stream(device)).unwrap();
        // Bitmaps shifted and offsets rebased; where the host cannot look itself, offsets read.
        let reads = u64::from(device != Device::CPU);
        assert_eq!(launches(&dock) - before, 2 + reads, "{device}");
    }
    dock.host.assert_nothing_leaked();
}
