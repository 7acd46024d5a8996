//! Tests batches whose number of rows is on the device.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock::PendingTable;
use crossdock_arrays::{PendingBatch, export_pending, import_batch, import_pending};
use crossdock_plugin_api::{Owned, abi};

use super::array::{array, schema};
use super::races::{BYTES, ROWS, bytes, values, wait_for};
use super::setup;

/// The thread-local capture mode, in which other threads of the process may call the driver.
const MODE: i32 = 1;

/// A batch with `ROWS` values at `address`. The number of its rows is at `counter`.
fn batch(
    address: u64,
    counter: u64,
    event: *mut std::ffi::c_void,
    released: &Arc<AtomicUsize>,
) -> Owned<abi::Batch> {
    let mut raw = abi::Batch::new();
    raw.array = array(address, ROWS, event, released).into_raw();
    raw.n_rows_device = counter as *const i64;
    // SAFETY: `into_raw` gave up ownership of the array. The caller keeps the counter until the
    // array is released.
    unsafe { Owned::new(raw) }
}

#[test]
fn number_of_a_late_producer_is_awaited_when_it_is_needed() {
    let Some((external, host, session)) = setup("number_of_a_late_producer_is_awaited_when_it_is_needed")
    else {
        return;
    };
    let external_stream = external.stream();
    let numbers = external.upload(&bytes(&values(3)));
    let (source, counter) = (external.upload(&5i64.to_ne_bytes()), external.upload(&(-1i64).to_ne_bytes()));
    let work = || {
        for known in [false, true] {
            let released = Arc::<AtomicUsize>::default();
            external.late_copy(external_stream, counter, source, 8);
            let written = external.record(external_stream);
            let raw = batch(numbers, counter, written, &released);
            let rows = if known {
                import_batch(raw, &schema(), session.memory()).unwrap()
            } else {
                let watch = external.watch();
                let pending = import_pending(raw, &schema(), session.memory()).unwrap();
                let pending = pending.with_columns(|batch| batch.select(&[0])).unwrap();
                let exported = export_pending(&pending, session.stream(), true).unwrap();
                assert_eq!((exported.n_rows_device as u64, pending.known_rows()), (counter, None));
                watch.assert_host_did_not_wait_for(written);
                drop((exported, watch));
                pending.settle(session.stream()).unwrap()
            };
            assert_eq!(rows.len(), 5);
            drop(rows);
            wait_for(|| released.load(Ordering::SeqCst) == 1);
            external.destroy_event(written);
        }
    };
    assert!(matches!(external.violations(work), None | Some(0)), "the counter was read too early");
    [numbers, source, counter].into_iter().for_each(|address| external.free(address));
    external.destroy_stream(external_stream);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn number_is_not_read_under_capture() {
    let Some((external, host, session)) = setup("number_is_not_read_under_capture") else { return };
    let released = Arc::<AtomicUsize>::default();
    let (numbers, counter) = (external.upload(&vec![0; BYTES]), external.upload(&7i64.to_ne_bytes()));
    let pending = |released: &_| -> PendingBatch {
        let raw = batch(numbers, counter, null_mut(), released);
        import_pending(raw, &schema(), session.memory()).unwrap()
    };
    // The kernels are loaded before the capture begins.
    assert_eq!(pending(&released).settle(session.stream()).unwrap().len(), 7);
    let table = PendingTable::new(&session, pending(&released));
    let stream = session.stream();
    stream.synchronize().unwrap();

    external.begin_capture(stream.native(), MODE);
    let error = table.table().err().unwrap().one_line();
    for words in
        ["cannot read the number of a batch's rows, which is on cuda:0", "graph capture", "end the capture"]
    {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!((table.capacity(), table.padded().unwrap().rows()), (ROWS as u64, ROWS as u64));
    external.end_capture(stream.native());

    assert_eq!(table.table().unwrap().rows(), 7);
    drop(table);
    wait_for(|| released.load(Ordering::SeqCst) == 2);
    [numbers, counter].into_iter().for_each(|address| external.free(address));
    drop(session);
    assert_eq!(host.settle(), []);
}
