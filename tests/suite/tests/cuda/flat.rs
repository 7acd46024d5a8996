//! Tests that the use of device memory does not grow over many conversions.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use crossdock::api::{Capsule, Options};
use crossdock::{IpcForm, Table};

use super::setup;

/// The number of rounds, from `CROSSDOCK_ROUNDS`. A real device runs ten thousand rounds in
/// seconds.
fn rounds() -> usize {
    std::env::var("CROSSDOCK_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

#[test]
fn device_memory_does_not_grow_over_many_conversions() {
    let Some((external, host, session)) = setup("device_memory_does_not_grow_over_many_conversions") else {
        return;
    };
    let numbers: ArrayRef = Arc::new((0..5_000).map(|n| (n % 9 != 0).then_some(n)).collect::<Int64Array>());
    let words: ArrayRef = Arc::new((0..5_000).map(|n| Some(format!("word {n}"))).collect::<StringArray>());
    let batch = RecordBatch::try_from_iter([("n", numbers), ("word", words)]).unwrap();
    let bytes = Table::from_record_batch(&session, &batch).unwrap().to_ipc_bytes(IpcForm::File).unwrap();
    let free = || {
        session.stream().synchronize().unwrap();
        host.backend().settle();
        (external.free_bytes(), host.backend().ledger().cached_bytes)
    };
    let round = || {
        let table = Table::from_ipc_bytes(&session, bytes.clone()).unwrap();
        let (array, schema) = table.to_device_record_batches().unwrap().remove(0);
        let capsules = vec![Capsule::new(schema), Capsule::new(array)];
        let reader = session.read_capsules("arrow-c-device", capsules, None, &Options::new()).unwrap();
        let back = Table::from_reader(&session, reader).unwrap();
        assert_eq!(back.to_ipc_bytes(IpcForm::File).unwrap(), bytes);
    };
    (0..rounds() / 10).for_each(|_| round());
    let before = free();
    (0..rounds()).for_each(|_| round());
    let after = free();
    // The bound is two steps of the driver's pools, which grow in large steps. A leak of one block
    // per round would exceed it.
    let lost = before.0.saturating_sub(after.0);
    assert!(lost <= 64 << 20, "{lost} bytes of device memory are lost after {} rounds", rounds());
    assert!(
        after.1 <= before.1 + (64 << 20),
        "the pools cached {} bytes before and {} after",
        before.1,
        after.1
    );
    drop(session);
    assert_eq!(host.settle(), []);
}
