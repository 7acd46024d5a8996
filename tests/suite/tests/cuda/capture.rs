//! Tests graph captures by an external library. The host must reject calls that would invalidate a
//! capture, and the capture must stay valid.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use crossdock::source::Input;
use crossdock::{IpcForm, ReadOptions, Table};
use crossdock_memory::Copies;

use super::array::schema;
use super::setup;

/// The thread-local capture mode, in which other threads of the process may call the driver.
const MODE: i32 = 1;

#[test]
fn rejects_work_on_session_streams_under_capture() {
    let Some((external, host, session)) = setup("rejects_work_on_session_streams_under_capture") else {
        return;
    };
    let column = Arc::new(Int64Array::from_iter_values(0..5_000));
    let batch = RecordBatch::try_new(schema(), vec![column]).unwrap();
    let table = Table::from_record_batch(&session, &batch).unwrap();
    let device_batch = &table.batches()[0];
    let (stream, memory) = (session.stream(), session.memory());
    // The kernels are loaded before the capture begins, and no work is pending.
    drop(device_batch.slice(1, 100).unwrap().compact(stream).unwrap());
    let mut block = memory.alloc(stream, 64).unwrap();
    stream.synchronize().unwrap();
    host.backend().settle();

    external.begin_capture(stream.native(), MODE);
    assert!(stream.is_capturing().unwrap());
    let buffer = device_batch.columns()[0].buffers()[1].clone().unwrap();
    let assert_rejected = |what: &str, result: Result<(), crossdock_memory::Error>| {
        let error = result.expect_err(what);
        assert!(error.message().contains("graph capture"), "{what}: {error}");
        assert!(error.message().contains("end the capture first"), "{what}: {error}");
    };
    assert_rejected("synchronise", stream.synchronize());
    assert_rejected("allocate", memory.alloc(stream, 64).map(drop));
    assert_rejected("fill", stream.fill(&mut block, 0, 64, 0));
    assert_rejected("record", stream.record().map(drop));
    assert_rejected("copy", stream.copy(&mut block, 0, &buffer, 0, 64));
    assert_rejected("copy to the host", {
        let mut bytes = [0; 64];
        let mut copies = Copies::new();
        copies.push_to_host(&mut bytes, &buffer, 0).unwrap();
        copies.submit(stream)
    });
    assert_rejected("compact", device_batch.slice(1, 100).unwrap().compact(stream).map(drop));
    external.end_capture(stream.native());

    assert!(!stream.is_capturing().unwrap());
    assert_eq!(table.to_record_batches().unwrap(), [batch]);
    drop((buffer, block, table, session));
    assert_eq!(host.settle(), []);
}

#[test]
fn blocks_dropped_during_a_capture_are_released_after_it() {
    let Some((external, host, session)) = setup("blocks_dropped_during_a_capture_are_released_after_it")
    else {
        return;
    };
    let (stream, memory) = (session.stream(), session.memory());
    let other = memory.create_stream(stream.device()).unwrap();
    const BYTES: usize = 1 << 20;
    let block = || {
        let mut block = memory.alloc(stream, BYTES).unwrap();
        stream.fill(&mut block, 0, BYTES, 1).unwrap();
        block
    };
    let cached_bytes = || host.backend().ledger().cached_bytes;
    let (unused, used, exported) =
        (block(), block().freeze(stream).unwrap(), block().freeze(stream).unwrap());
    other.wait(used.ready()).unwrap();
    used.mark_used(&other).unwrap();
    exported.mark_exported();

    external.begin_capture(stream.native(), MODE);
    drop((unused, used, exported));
    assert_eq!(host.ledger().live_bytes(), 0, "the ledger counts them as released");
    host.backend().settle();
    assert!(cached_bytes() >= 3 * BYTES as u64, "the pool still has the blocks");
    external.end_capture(stream.native());

    // Later allocations reuse the blocks, because all work that uses them is complete.
    let mut blocks: Vec<_> = (0..3).map(|_| block()).collect();
    blocks.iter_mut().for_each(|block| stream.fill(block, 0, BYTES, 2).unwrap());
    drop((blocks, other));
    stream.synchronize().unwrap();
    host.backend().trim();
    assert_eq!(cached_bytes(), 0);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn session_works_during_a_capture_of_an_external_stream() {
    let Some((external, host, session)) = setup("session_works_during_a_capture_of_an_external_stream")
    else {
        return;
    };
    let external_stream = external.stream();
    let batch =
        RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(0..1 << 20))]).unwrap();
    // The session also works in the strictest capture mode and on the capturing thread.
    for mode in [0, MODE] {
        external.begin_capture(external_stream, mode);
        let table = Table::from_record_batch(&session, &batch).unwrap();
        let compact = table.batches()[0].slice(1, 100).unwrap().compact(session.stream()).unwrap();
        session.stream().synchronize().unwrap();
        assert_eq!(table.to_record_batches().unwrap(), std::slice::from_ref(&batch));
        assert!(host.backend().ledger().live_bytes() > 0);
        drop((table, compact));
        host.backend().settle();
        external.end_capture(external_stream);
    }
    external.destroy_stream(external_stream);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn work_of_plugins_on_another_thread_keeps_captures_valid() {
    let Some((external, host, session)) = setup("work_of_plugins_on_another_thread_keeps_captures_valid")
    else {
        return;
    };
    let external_stream = external.stream();
    let batch =
        RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(0..1 << 20))]).unwrap();
    let work = || {
        let table = Table::from_record_batch(&session, &batch).unwrap();
        let bytes = table.to_ipc_bytes(IpcForm::Stream).unwrap();
        let read = Table::from_ipc_bytes(&session, bytes).unwrap();
        assert_eq!(read.batches()[0].device(), session.device());
        let tree = session.encode_uncompressed(table.schema(), table.batches()).unwrap();
        let tree = session.encoded_to_bytes(tree).unwrap();
        let decoded = session.read(Input::bytes(tree), &ReadOptions::default()).unwrap();
        let decoded = Table::from_reader(&session, decoded).unwrap();
        assert_eq!(decoded.batches()[0].device(), session.device());
        assert_eq!(read.to_record_batches().unwrap(), std::slice::from_ref(&batch));
        assert_eq!(decoded.rows(), batch.num_rows() as u64);
        drop((table, read, decoded));
        host.backend().settle();
    };
    // The kernels are loaded before the capture begins.
    work();
    // In the strictest capture mode, a driver call on any thread can invalidate the capture.
    external.begin_capture(external_stream, 0);
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    external.end_capture(external_stream);
    external.destroy_stream(external_stream);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn settle_does_not_wait_for_a_capture_of_the_same_thread() {
    let Some((external, host, session)) = setup("settle_does_not_wait_for_a_capture_of_the_same_thread")
    else {
        return;
    };
    let (stream, memory) = (session.stream(), session.memory());
    let exported = memory.alloc(stream, 64).unwrap().freeze(stream).unwrap();
    exported.mark_exported();
    let external_stream = external.stream();

    external.begin_capture(external_stream, MODE);
    drop(exported);
    // The block becomes free only after this thread ends the capture, so neither `settle` nor
    // `trim` may wait for it.
    host.backend().settle();
    host.backend().trim();
    let freed = external.calls("cuMemFree_v2");
    assert!(
        external.end_broken_capture(external_stream),
        "exported blocks wait for the whole context, which invalidates the capture"
    );

    host.backend().settle();
    assert_eq!(external.calls("cuMemFree_v2"), freed.map(|n| n + 1), "the block is freed now");
    stream.synchronize().unwrap();
    host.backend().trim();
    assert_eq!(host.backend().ledger().cached_bytes, 0);
    drop(session);
    assert_eq!(host.settle(), []);
}
