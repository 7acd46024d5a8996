//! Reads bytes as an Arrow IPC stream or file. A table that was read must be valid, and it must be
//! equal after a round trip.
#![no_main]

use std::sync::OnceLock;

use crossdock::Session;
use crossdock::sink::{Output, VecSink};
use crossdock::{Result, Table, WriteOptions};
use crossdock_arrays::first_difference;
use crossdock_arrow_ipc::ArrowIpc;
use crossdock_plugin_api::{abi, entry};
use libfuzzer_sys::fuzz_target;

static ENTRY: abi::PluginEntry = entry::<ArrowIpc>();
const FILE_MAGIC: &[u8] = b"ARROW1";

fn write(table: &Table) -> Result<Vec<u8>> {
    let sink = VecSink::new();
    let to = WriteOptions { to: Some("arrow-ipc-stream".into()), ..WriteOptions::default() };
    table.write_to(Output::Memory(sink.clone()), &to)?;
    Ok(sink.take())
}

fuzz_target!(|bytes: &[u8]| {
    static SESSION: OnceLock<Session> = OnceLock::new();
    let interfaces = "crossdock.importer/1 crossdock.exporter/1";
    let session = SESSION.get_or_init(|| crossdock_fuzz::session("arrow-ipc", interfaces, &ENTRY));
    let from = if bytes.starts_with(FILE_MAGIC) { "arrow-ipc-file" } else { "arrow-ipc-stream" };
    let Ok(table) = crossdock_fuzz::read(session, from, bytes.to_vec()) else { return };
    // Some tables cannot be written as a stream, for example if they exceed the budget.
    let Ok(bytes) = write(&table) else { return };
    let again =
        crossdock_fuzz::read(session, "arrow-ipc-stream", bytes).expect("a written table is readable");
    assert_eq!(again.schema(), table.schema());
    assert_eq!(again.batches().len(), table.batches().len());
    for (a, b) in table.batches().iter().zip(again.batches()) {
        let difference = first_difference(a, b, session.stream()).expect("valid batches are comparable");
        assert!(difference.is_none(), "{difference:?}");
    }
});
