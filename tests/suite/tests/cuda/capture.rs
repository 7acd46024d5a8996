//! A stranger captures our stream into a graph: what would break that is refused by name, and breaks nothing.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use crossdock::Table;
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
