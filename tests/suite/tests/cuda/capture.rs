//! A stranger captures our stream into a graph: what would break that is refused by name, and breaks nothing.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use crossdock::source::Input;
use crossdock::{IpcForm, ReadOptions, Table};
use crossdock_memory::Copies;

use super::array::schema;
use super::setting;

/// Thread-local, so that other threads' work in the process goes on.
const MODE: i32 = 1;

#[test]
fn a_stream_under_capture_is_refused_by_name_and_the_capture_holds() {
    let Some((stranger, host, session)) = setting("a_stream_under_capture") else { return };
    let column = Arc::new(Int64Array::from_iter_values(0..5_000));
    let batch = RecordBatch::try_new(schema(), vec![column]).unwrap();
    let table = Table::from_record_batch(&session, &batch).unwrap();
    let device_batch = &table.batches()[0];
    let (stream, memory) = (session.stream(), session.memory());
    // What is loaded once is loaded now, and nothing is under way.
    drop(device_batch.slice(1, 100).unwrap().compact(stream).unwrap());
    let mut block = memory.alloc(stream, 64).unwrap();
    stream.synchronize().unwrap();
    host.backend().settle();

    stranger.begin_capture(stream.native(), MODE);
    assert!(stream.is_capturing().unwrap());
    let buffer = device_batch.columns()[0].buffers()[1].clone().unwrap();
    let refused = |what: &str, result: Result<(), crossdock_memory::Error>| {
        let error = result.expect_err(what);
        assert!(error.message().contains("graph capture"), "{what}: {error}");
        assert!(error.message().contains("end the capture first"), "{what}: {error}");
    };
    refused("synchronise", stream.synchronize());
    refused("allocate", memory.alloc(stream, 64).map(drop));
    refused("fill", stream.fill(&mut block, 0, 64, 0));
    refused("record", stream.record().map(drop));
    refused("copy", stream.copy(&mut block, 0, &buffer, 0, 64));
    refused("copy to the host", {
        let mut bytes = [0; 64];
        let mut copies = Copies::new();
        copies.push_to_host(&mut bytes, &buffer, 0).unwrap();
        copies.submit(stream)
    });
    refused("compact", device_batch.slice(1, 100).unwrap().compact(stream).map(drop));
    stranger.end_capture(stream.native());

    assert!(!stream.is_capturing().unwrap());
    assert_eq!(table.to_record_batches().unwrap(), [batch]);
    drop((buffer, block, table, session));
    assert_eq!(host.settle(), []);
}

#[test]
fn what_is_dropped_while_its_stream_is_under_capture_goes_back_when_that_has_ended() {
    let Some((stranger, host, session)) = setting("what_is_dropped_while_its_stream") else { return };
    let (stream, memory) = (session.stream(), session.memory());
    let other = memory.create_stream(stream.device()).unwrap();
    const BYTES: usize = 1 << 20;
    let block = || {
        let mut block = memory.alloc(stream, BYTES).unwrap();
        stream.fill(&mut block, 0, BYTES, 1).unwrap();
        block
    };
    let kept_bytes = || host.backend().ledger().cached_bytes;
    let (here, elsewhere, lent) = (block(), block().freeze(stream).unwrap(), block().freeze(stream).unwrap());
    other.wait(elsewhere.ready()).unwrap();
    elsewhere.mark_used(&other).unwrap();
    lent.mark_lent();

    stranger.begin_capture(stream.native(), MODE);
    drop((here, elsewhere, lent));
    assert_eq!(host.ledger().live_bytes(), 0, "to the books they are back");
    host.backend().settle();
    assert!(kept_bytes() >= 3 * BYTES as u64, "the pool still has them");
    stranger.end_capture(stream.native());

    // The next one has them, and nothing of theirs is under way.
    let mut blocks: Vec<_> = (0..3).map(|_| block()).collect();
    blocks.iter_mut().for_each(|block| stream.fill(block, 0, BYTES, 2).unwrap());
    drop((blocks, other));
    stream.synchronize().unwrap();
    host.backend().trim();
    assert_eq!(kept_bytes(), 0);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn a_stranger_captures_a_stream_of_its_own_while_we_go_on() {
    let Some((stranger, host, session)) = setting("a_stranger_captures_a_stream_of_its_own") else { return };
    let theirs = stranger.stream();
    let batch =
        RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(0..1 << 20))]).unwrap();
    // The strictest mode, and on this very thread.
    for mode in [0, MODE] {
        stranger.begin_capture(theirs, mode);
        let table = Table::from_record_batch(&session, &batch).unwrap();
        let compact = table.batches()[0].slice(1, 100).unwrap().compact(session.stream()).unwrap();
        session.stream().synchronize().unwrap();
        assert_eq!(table.to_record_batches().unwrap(), std::slice::from_ref(&batch));
        assert!(host.backend().ledger().live_bytes() > 0);
        drop((table, compact));
        host.backend().settle();
        stranger.end_capture(theirs);
    }
    stranger.destroy_stream(theirs);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn what_plugins_read_write_and_decode_on_another_thread_breaks_no_capture() {
    let Some((stranger, host, session)) = setting("what_plugins_read_write_and_decode") else { return };
    let theirs = stranger.stream();
    let batch =
        RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(0..1 << 20))]).unwrap();
    let work = || {
        let table = Table::from_record_batch(&session, &batch).unwrap();
        let bytes = table.to_ipc_bytes(IpcForm::Stream).unwrap();
        let read = Table::from_ipc_bytes(&session, bytes).unwrap();
        assert_eq!(read.batches()[0].device(), session.device());
        let tree = session.encode_as_it_is(table.schema(), table.batches()).unwrap();
        let tree = session.encoded_to_bytes(tree).unwrap();
        let decoded = session.read(Input::bytes(tree), &ReadOptions::default()).unwrap();
        let decoded = Table::from_reader(&session, decoded).unwrap();
        assert_eq!(decoded.batches()[0].device(), session.device());
        assert_eq!(read.to_record_batches().unwrap(), std::slice::from_ref(&batch));
        assert_eq!(decoded.rows(), batch.num_rows() as u64);
        drop((table, read, decoded));
        host.backend().settle();
    };
    // What is loaded once is loaded now.
    work();
    // The strictest mode, in which every thread's work can break a capture.
    stranger.begin_capture(theirs, 0);
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    stranger.end_capture(theirs);
    stranger.destroy_stream(theirs);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn settling_during_ones_own_capture_does_not_wait_for_its_end() {
    let Some((stranger, host, session)) = setting("settling_during_ones_own_capture") else { return };
    let (stream, memory) = (session.stream(), session.memory());
    let lent = memory.alloc(stream, 64).unwrap().freeze(stream).unwrap();
    lent.mark_lent();
    let theirs = stranger.stream();

    stranger.begin_capture(theirs, MODE);
    drop(lent);
    // Neither of these can be done before the capture has ended, which this very thread does.
    host.backend().settle();
    host.backend().trim();
    let freed = stranger.calls("cuMemFree_v2");
    assert!(stranger.end_broken_capture(theirs), "what was lent waits for everybody, which no capture bears");

    host.backend().settle();
    assert_eq!(stranger.calls("cuMemFree_v2"), freed.map(|n| n + 1), "it has been waited for now");
    stream.synchronize().unwrap();
    host.backend().trim();
    assert_eq!(host.backend().ledger().cached_bytes, 0);
    drop(session);
    assert_eq!(host.settle(), []);
}
