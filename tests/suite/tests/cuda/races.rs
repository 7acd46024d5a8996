//! Late producers and slow readers.

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
use crossdock_arrays::{DeviceBatch, export_schema, lend_batch};
use crossdock_plugin_api::{Owned, abi};
use crossdock_tests::tree::Node;

use super::array::{address_of, array, schema};
use super::setting;

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

/// A table of the stranger's array, through the plugin or straight into the host.
pub fn import(session: &Session, array: Owned<abi::ArrowDeviceArray>, by_plugin: bool) -> Table {
    let schema = export_schema(&schema()).unwrap();
    if !by_plugin {
        return Table::from_device_record_batch(session, array, schema).unwrap();
    }
    let capsules = vec![Capsule::new(schema), Capsule::new(array)];
    let reader = session.read_capsules("arrow-c-device", capsules, None, &Options::new()).unwrap();
    Table::from_reader(session, reader).unwrap()
}

/// The array that a stranger is given, as the plain Arrow struct.
pub fn export(session: &Session, batch: &DeviceBatch) -> Owned<abi::ArrowDeviceArray> {
    let raw = lend_batch(batch, false, session.stream()).unwrap().into_raw();
    // SAFETY: without a schema, the array is all that the batch owned.
    unsafe { Owned::new(raw.array) }
}

pub fn event_of(array: &Owned<abi::ArrowDeviceArray>) -> *mut c_void {
    assert!(!array.sync_event.is_null(), "work is under way, and nobody may wait for it on the host");
    // SAFETY: a pointer to an event's handle, alive until the release.
    unsafe { *array.sync_event.cast::<*mut c_void>() }
}

#[test]
fn what_a_late_producer_writes_is_what_is_read_and_nothing_waits_on_the_host() {
    let Some((stranger, host, session)) = setting("what_a_late_producer_writes") else { return };
    let theirs = stranger.stream();
    for by_plugin in [false, true] {
        let released = Arc::<AtomicUsize>::default();
        let source = stranger.upload(&bytes(&values(by_plugin.into())));
        let target = stranger.upload(&vec![0; BYTES]);
        stranger.late_copy(theirs, target, source, BYTES);
        let written = stranger.record(theirs);
        let watch = stranger.watch();
        let table = import(&session, array(target, ROWS, written, &released), by_plugin);
        // In place, and out again: the producer's event is handed on.
        let again = export(&session, &table.batches()[0]);
        assert_eq!(address_of(&again), target);
        // A copy of ours, ready by an event of ours.
        let copy = table.batches()[0].compact(session.stream()).unwrap();
        let ours = export(&session, &copy);
        watch.nobody_waited_for(written);

        let reader = stranger.stream();
        for array in [&again, &ours] {
            stranger.wait(reader, event_of(array));
            assert_eq!(stranger.download(reader, address_of(array), BYTES), bytes(&values(by_plugin.into())));
        }
        assert_eq!(table.to_record_batches().unwrap(), [expected(values(by_plugin.into()))]);
        drop((again, ours, copy, table));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        stranger.free(source);
        stranger.free(target);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

/// Whose block it is that another library gets, and by whom.
#[derive(PartialEq)]
enum Way {
    Host,
    Plugin,
    Capsule,
    /// Of an encoded array, whose buffer is the column's as it is.
    Encoded,
}

#[test]
fn a_slow_reader_of_a_lent_block_reads_what_was_there_after_its_release() {
    let Some((stranger, host, session)) = setting("a_slow_reader_of_a_lent_block") else { return };
    let theirs = stranger.stream();
    for (round, way) in (0..).zip([Way::Host, Way::Plugin, Way::Capsule, Way::Encoded, Way::Host]) {
        let mut table = Table::from_record_batches(&session, schema(), &[expected(values(round))]).unwrap();
        if way == Way::Encoded {
            let tree = Node::words(DataType::Int64, &values(round), i64::to_le_bytes).to_bytes(&session);
            let reader = session.read(Input::bytes(tree), &ReadOptions::default()).unwrap();
            table = Table::from_reader(&session, reader).unwrap();
        } else if way != Way::Host {
            // The blocks are the plugin's, which the host holds by a batch.
            let bytes = table.to_ipc_bytes(IpcForm::Stream).unwrap();
            table = Table::from_ipc_bytes(&session, bytes).unwrap();
        }
        assert_eq!(table.batches()[0].device(), session.device());
        let lent = if way == Way::Capsule {
            let mut writer =
                session.write_capsules("arrow-c-device", table.schema(), &Options::new()).unwrap();
            writer.write_borrowed(&table.batches()[0]).unwrap().pop().unwrap().take().unwrap()
        } else {
            export(&session, &table.batches()[0])
        };
        if !lent.sync_event.is_null() {
            stranger.wait(theirs, event_of(&lent));
        }
        let kept = stranger.alloc(BYTES);
        stranger.late_copy(theirs, kept, address_of(&lent), BYTES);
        let read = stranger.record(theirs);
        // No protocol tells that the reader is not done.
        let watch = stranger.watch();
        drop((lent, table));
        watch.nobody_waited_for(read);
        for _ in 0..4 {
            let other = Table::from_record_batches(&session, schema(), &[expected(vec![-1; ROWS])]).unwrap();
            drop(other);
        }
        assert_eq!(stranger.download(theirs, kept, BYTES), bytes(&values(round)));
        stranger.free(kept);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn a_strangers_array_is_released_after_our_last_use_and_the_drop_does_not_wait() {
    let Some((stranger, host, session)) = setting("a_strangers_array_is_released") else { return };
    let theirs = stranger.stream();
    let released = Arc::<AtomicUsize>::default();
    let source = stranger.upload(&bytes(&values(5)));
    // Our stream is held up, so that the copy below comes late.
    let (a, b) = (stranger.alloc(BYTES), stranger.alloc(BYTES));
    stranger.hold(theirs, true);
    stranger.late_copy(theirs, a, b, BYTES);
    let late = stranger.record(theirs);
    stranger.wait(session.stream().native(), late);

    let watch = stranger.watch();
    let table = import(&session, array(source, ROWS, null_mut(), &released), false);
    let copy = table.batches()[0].compact(session.stream()).unwrap();
    drop(table);
    assert_eq!(released.load(Ordering::SeqCst), 0, "our copy has not read it yet");
    watch.nobody_waited_for(late);
    stranger.hold(theirs, false);
    let table = Table::from_batches(&session, schema(), vec![copy]).unwrap();
    assert_eq!(table.to_record_batches().unwrap(), [expected(values(5))]);
    wait_for(|| released.load(Ordering::SeqCst) == 1);
    [source, a, b].into_iter().for_each(|address| stranger.free(address));
    drop((table, session));
    assert_eq!(host.settle(), []);
}

/// Work of other threads; fails after a minute.
pub fn wait_for(done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}
