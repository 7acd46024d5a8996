//! Tests that the number of driver calls for a batch does not depend on the number of columns.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use crossdock::api::{Capsule, Options};
use crossdock::{Host, IpcForm, Session, Table};
use crossdock_memory_backend::Backend;

use super::external::External;
use super::setup_over;

/// The driver functions that take significant time.
const COUNTED: [&str; 5] =
    ["cuMemAllocFromPoolAsync", "cuMemHostAlloc", "cuLaunchKernel", "cuStreamSynchronize", "cuEventRecord"];

/// A batch of columns with nulls. The types of the columns are in turn numbers, text and booleans.
fn batch(columns: usize) -> RecordBatch {
    let rows = 1000;
    let column = |i: usize| -> (String, ArrayRef) {
        let array: ArrayRef = match i % 3 {
            0 => Arc::new((0..rows).map(|n| (n % 7 != 0).then_some(n)).collect::<Int64Array>()),
            1 => Arc::new((0..rows).map(|n| (n % 5 != 0).then(|| n.to_string())).collect::<StringArray>()),
            _ => Arc::new((0..rows).map(|n| (n % 3 != 0).then_some(n % 2 == 0)).collect::<BooleanArray>()),
        };
        (format!("c{i}"), array)
    };
    RecordBatch::try_from_iter((0..columns).map(column)).unwrap()
}

/// Runs `work`. Returns how often each counted function was called, including calls on other
/// threads.
fn calls(external: &External, host: &Host, work: impl FnOnce()) -> [u64; COUNTED.len()] {
    let count = || {
        host.backend().settle();
        COUNTED.map(|name| external.calls(name).unwrap())
    };
    let before = count();
    work();
    let after = count();
    std::array::from_fn(|i| after[i] - before[i])
}

#[test]
fn number_of_driver_calls_is_independent_of_the_number_of_columns() {
    const TEST: &str = "number_of_driver_calls_is_independent_of_the_number_of_columns";
    // Without pools, each allocation is a call of the driver.
    let backend = Backend::builder().pool_bytes(0).build();
    let Some((external, host, session)) = setup_over(TEST, backend) else { return };
    if external.calls("cuInit").is_none() {
        let line = format!("skipped: {TEST}: only the simulated driver counts its calls\n");
        return std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    type Work = fn(&Session, &RecordBatch, &[u8], &Table);
    let kinds: [(&str, Work); 6] = [
        ("read", |session, _, bytes, _| drop(Table::from_ipc_bytes(session, bytes.to_vec()).unwrap())),
        ("write", |_, _, _, table| drop(table.to_ipc_bytes(IpcForm::Stream).unwrap())),
        ("from host", |session, batch, _, _| {
            drop(Table::from_record_batches(session, batch.schema(), std::slice::from_ref(batch)).unwrap());
        }),
        ("out and in", |session, _, _, table| {
            let (array, schema) = table.to_device_record_batches().unwrap().remove(0);
            let capsules = vec![Capsule::new(schema), Capsule::new(array)];
            let reader = session.read_capsules("arrow-c-device", capsules, None, &Options::new()).unwrap();
            drop(Table::from_reader(session, reader).unwrap());
        }),
        ("compact", |session, _, _, table| {
            let slice = table.batches()[0].slice(3, 900).unwrap();
            drop(slice.compact(session.stream()).unwrap());
        }),
        ("tensors out and in", |session, batch, _, _| {
            let plain: Vec<usize> = (0..batch.num_columns()).filter(|i| i % 3 != 1).collect();
            let batch = batch.project(&plain).unwrap();
            let table = Table::from_record_batch(session, &batch).unwrap();
            let masked = Options::new().with("nulls", "mask");
            let mut writer = session.write_capsules("dlpack", table.schema(), &masked).unwrap();
            let tensors = writer.write(table.batches()[0].clone()).unwrap();
            let reader = session.read_capsules("dlpack", tensors, None, &masked).unwrap();
            drop(Table::from_reader(session, reader).unwrap());
        }),
    ];
    for (what, work) in kinds {
        let calls_for = |columns: usize| {
            let batch = batch(columns);
            let host_table = Table::from_record_batch(&session, &batch).unwrap();
            let bytes = host_table.to_ipc_bytes(IpcForm::Stream).unwrap();
            let table = Table::from_ipc_bytes(&session, bytes.clone()).unwrap();
            // The first run is not counted, because it creates pools, modules and rings.
            work(&session, &batch, &bytes, &table);
            session.stream().synchronize().unwrap();
            calls(&external, &host, || work(&session, &batch, &bytes, &table))
        };
        let (few, many) = (calls_for(3), calls_for(15));
        assert_eq!(few, many, "{what}: {COUNTED:?}");
    }
    drop(session);
    assert_eq!(host.settle(), []);
}
