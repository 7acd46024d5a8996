//! Tests that an operation on a batch launches each kernel once, and not once for each column.

use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_array::{ArrayRef, Int32Array, StringArray};
use crossdock_arrays::{DeviceBatch, Level, StartedValidation, validate};
use crossdock_memory::Device;
use crossdock_plugin_api::Tasks;
use crossdock_test_support::devices;

const COLUMNS: usize = 12;

fn batch(fixture: &Fixture, device: Device) -> DeviceBatch {
    batch_of(fixture, device, COLUMNS)
}

fn batch_of(fixture: &Fixture, device: Device, columns: usize) -> DeviceBatch {
    let column: ArrayRef =
        Arc::new((0..40).map(|i| (i % 3 > 0).then(|| format!("ö{i}"))).collect::<StringArray>());
    fixture.batch(&vec![column; columns]).move_to(&fixture.host.stream(device), device).unwrap()
}

fn launches(fixture: &Fixture) -> u64 {
    fixture.host.backend().ledger().accounts.iter().map(|account| account.launches).sum()
}

#[test]
fn validation_launches_each_kernel_once() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let batch = batch(&fixture, device);
        let before = launches(&fixture);
        validate(&batch, Level::Full, &fixture.host.stream(device)).unwrap();
        // The three kernels check null counts, offsets and text.
        assert_eq!(launches(&fixture) - before, 3, "{device}");
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn validating_several_batches_launches_each_kernel_once() {
    let fixture = Fixture::new();
    let tasks = Tasks::from_host(&fixture.host.host()).unwrap();
    for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
        let batches = vec![batch_of(&fixture, device, COLUMNS / 3); 3];
        let before = launches(&fixture);
        let stream = fixture.host.stream(device);
        let validation = StartedValidation::start(&batches, &tasks, &stream).unwrap();
        for i in 0..3 {
            validation.finish(i, || Ok(())).unwrap();
        }
        assert_eq!(launches(&fixture) - before, 3, "{device}");
    }
}

#[test]
fn started_validation_makes_the_checks_of_a_validation() {
    let fixture = Fixture::new();
    let tasks = Tasks::from_host(&fixture.host.host()).unwrap();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        // Numbers without nulls have no checks.
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..40));
        for column in samples::all().into_iter().chain([numbers]) {
            let batch = fixture.batch(std::slice::from_ref(&column)).move_to(&stream, device).unwrap();
            let before = launches(&fixture);
            validate(&batch, Level::Full, &stream).unwrap();
            let expected = launches(&fixture) - before;
            let validation = StartedValidation::start([&batch], &tasks, &stream).unwrap();
            validation.finish(0, || Ok(())).unwrap();
            assert_eq!(launches(&fixture) - before, 2 * expected, "{device} {}", column.data_type());
        }
    }
}

#[test]
fn compacting_launches_each_kernel_once() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let batch = batch(&fixture, device).slice(3, 30).unwrap();
        let before = launches(&fixture);
        batch.compact(&fixture.host.stream(device)).unwrap();
        // One launch shifts bitmaps, and one launch adjusts offsets. On a device, a third launch
        // reads offsets.
        let reads = u64::from(device != Device::CPU);
        assert_eq!(launches(&fixture) - before, 2 + reads, "{device}");
    }
    fixture.host.assert_nothing_leaked();
}
