//! Tests arrays with late producers and slow readers.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::DataType;
use crossdock::api::{Capsule, Options};
use crossdock::source::Input;
use crossdock::{IpcForm, ReadOptions, Session, Table};
use crossdock_arrays::{DeviceBatch, export_batch_to_external, export_schema};
use crossdock_plugin_api::{Owned, abi};
use crossdock_tests::tree::Node;

use super::array::{address_of, array, schema};
use super::setup;

pub const ROWS: usize = 100_003;
pub const BYTES: usize = ROWS * 8;

pub fn values(seed: i64) -> Vec<i64> {
    (0..ROWS as i64).map(|i| i * 7 + seed).collect()
}

pub fn bytes(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub fn expected(values: Vec<i64>) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(values))]).unwrap()
}

/// Imports an array of the external library, either through the plugin or directly into the host.
pub fn import(session: &Session, array: Owned<abi::ArrowDeviceArray>, by_plugin: bool) -> Table {
    let schema = export_schema(&schema()).unwrap();
    if !by_plugin {
        return Table::from_device_record_batch(session, array, schema).unwrap();
    }
    let capsules = vec![Capsule::new(schema), Capsule::new(array)];
    let reader = session.read_capsules("arrow-c-device", capsules, None, &Options::new()).unwrap();
    Table::from_reader(session, reader).unwrap()
}

/// Exports a batch to the external library, as a plain Arrow struct.
pub fn export(session: &Session, batch: &DeviceBatch) -> Owned<abi::ArrowDeviceArray> {
    let raw = export_batch_to_external(batch, false, session.stream()).unwrap().into_raw();
    // SAFETY: the export has no schema, so only the array must be released, and `array` owns it.
    unsafe { Owned::new(raw.array) }
}

pub fn event_of(array: &Owned<abi::ArrowDeviceArray>) -> *mut c_void {
    assert!(!array.sync_event.is_null(), "an array with pending work has no event");
    // SAFETY: for CUDA, `sync_event` points to an event's handle until the release.
    unsafe { *array.sync_event.cast::<*mut c_void>() }
}

#[test]
fn array_of_a_late_producer_is_read_without_host_waits() {
    let Some((external, host, session)) = setup("array_of_a_late_producer_is_read_without_host_waits") else {
        return;
    };
    let external_stream = external.stream();
    for by_plugin in [false, true] {
        let released = Arc::<AtomicUsize>::default();
        let source = external.upload(&bytes(&values(by_plugin.into())));
        let target = external.upload(&vec![0; BYTES]);
        external.late_copy(external_stream, target, source, BYTES);
        let written = external.record(external_stream);
        let watch = external.watch();
        let table = import(&session, array(target, ROWS, written, &released), by_plugin);
        // The array was imported in place and is exported again with the producer's event.
        let again = export(&session, &table.batches()[0]);
        assert_eq!(address_of(&again), target);
        // The host copies the array, so the export has an event of the host.
        let copy = table.batches()[0].compact(session.stream()).unwrap();
        let exported_copy = export(&session, &copy);
        watch.assert_host_did_not_wait_for(written);

        let reader = external.stream();
        for array in [&again, &exported_copy] {
            external.wait(reader, event_of(array));
            assert_eq!(external.download(reader, address_of(array), BYTES), bytes(&values(by_plugin.into())));
        }
        assert_eq!(table.to_record_batches().unwrap(), [expected(values(by_plugin.into()))]);
        drop((again, exported_copy, copy, table));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        external.free(source);
        external.free(target);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

/// The component that allocated the exported block, and the component that exports the block.
#[derive(PartialEq)]
enum Way {
    /// A block of the host, exported by the host.
    Host,
    /// A block of the plugin, exported by the host.
    Plugin,
    /// A block of the plugin, exported by the plugin.
    Capsule,
    /// A buffer of an encoded array, which the column uses without a copy.
    Encoded,
}

#[test]
fn slow_reader_of_a_released_block_reads_its_values() {
    let Some((external, host, session)) = setup("slow_reader_of_a_released_block_reads_its_values") else {
        return;
    };
    let external_stream = external.stream();
    for (round, way) in (0..).zip([Way::Host, Way::Plugin, Way::Capsule, Way::Encoded, Way::Host]) {
        let mut table = Table::from_record_batches(&session, schema(), &[expected(values(round))]).unwrap();
        if way == Way::Encoded {
            let tree = Node::words(DataType::Int64, &values(round), i64::to_le_bytes).to_bytes(&session);
            let reader = session.read(Input::bytes(tree), &ReadOptions::default()).unwrap();
            table = Table::from_reader(&session, reader).unwrap();
        } else if way != Way::Host {
            // The plugin owns the blocks, and the host owns a batch that refers to them.
            let bytes = table.to_ipc_bytes(IpcForm::Stream).unwrap();
            table = Table::from_ipc_bytes(&session, bytes).unwrap();
        }
        assert_eq!(table.batches()[0].device(), session.device());
        let exported = if way == Way::Capsule {
            let mut writer =
                session.write_capsules("arrow-c-device", table.schema(), &Options::new()).unwrap();
            writer.write_borrowed(&table.batches()[0]).unwrap().pop().unwrap().take().unwrap()
        } else {
            export(&session, &table.batches()[0])
        };
        if !exported.sync_event.is_null() {
            external.wait(external_stream, event_of(&exported));
        }
        let result = external.alloc(BYTES);
        external.late_copy(external_stream, result, address_of(&exported), BYTES);
        let read = external.record(external_stream);
        // The C Device interface cannot report that the reader still reads.
        let watch = external.watch();
        drop((exported, table));
        watch.assert_host_did_not_wait_for(read);
        for _ in 0..4 {
            let other = Table::from_record_batches(&session, schema(), &[expected(vec![-1; ROWS])]).unwrap();
            drop(other);
        }
        assert_eq!(external.download(external_stream, result, BYTES), bytes(&values(round)));
        external.free(result);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn external_array_is_released_after_its_last_use_without_a_wait_in_drop() {
    let Some((external, host, session)) =
        setup("external_array_is_released_after_its_last_use_without_a_wait_in_drop")
    else {
        return;
    };
    let external_stream = external.stream();
    let released = Arc::<AtomicUsize>::default();
    let source = external.upload(&bytes(&values(5)));
    // The session's stream waits for a held copy, so that the session's own copy runs late.
    let (a, b) = (external.alloc(BYTES), external.alloc(BYTES));
    external.hold(external_stream, true);
    external.late_copy(external_stream, a, b, BYTES);
    let late = external.record(external_stream);
    external.wait(session.stream().native(), late);

    let watch = external.watch();
    let table = import(&session, array(source, ROWS, null_mut(), &released), false);
    let copy = table.batches()[0].compact(session.stream()).unwrap();
    drop(table);
    assert_eq!(released.load(Ordering::SeqCst), 0, "the array was released before the copy read it");
    watch.assert_host_did_not_wait_for(late);
    external.hold(external_stream, false);
    let table = Table::from_batches(&session, schema(), vec![copy]).unwrap();
    assert_eq!(table.to_record_batches().unwrap(), [expected(values(5))]);
    wait_for(|| released.load(Ordering::SeqCst) == 1);
    [source, a, b].into_iter().for_each(|address| external.free(address));
    drop((table, session));
    assert_eq!(host.settle(), []);
}

/// Waits for work of other threads. Panics after a minute.
pub fn wait_for(done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not done after a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}
