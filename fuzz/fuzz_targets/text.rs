//! Reads bytes as CSV or NDJSON, which may be compressed. The first byte selects the format and the
//! options of CSV. A table that was read must be valid. It must equal the table that is read in
//! small chunks, and its rows must equal rows that are read alone.
#![no_main]

use std::sync::OnceLock;

use crossdock::{ReadOptions, Session, Table};
use crossdock_arrays::{DeviceArray, DeviceBatch, first_difference};
use crossdock_arrow_text::{ArrowText, CSV, NDJSON};
use crossdock_plugin_api::{Code, Options, abi, entry};
use libfuzzer_sys::fuzz_target;

static ENTRY: abi::PluginEntry = entry::<ArrowText>();

/// Options of CSV, each with a value that is used if its bit is set in the first byte of an input.
const CSV_OPTIONS: [(&str, &str); 6] = [
    ("header", "false"),
    ("delimiter", ";"),
    ("quote", "none"),
    ("escape", "\\"),
    ("comment", "#"),
    ("null_values", "NA,-"),
];

fuzz_target!(|bytes: &[u8]| {
    static SESSIONS: OnceLock<[Session; 2]> = OnceLock::new();
    let open = |byte_budget| crossdock_fuzz::session_with_budget("arrow-text", &ENTRY, byte_budget);
    let [session, in_small_chunks] = SESSIONS.get_or_init(|| [open(0), open(1)]);
    let Some((first, bytes)) = bytes.split_first() else { return };
    // The types do not depend on the chunks if all rows are used to infer them.
    let mut options = Options::new().with("infer_rows", "all");
    let from = if first & 1 == 0 { CSV } else { NDJSON };
    for (i, (key, value)) in CSV_OPTIONS.into_iter().enumerate() {
        if from == CSV && first >> (i + 1) & 1 == 1 {
            options = options.with(key, value);
        }
    }
    let options = ReadOptions { from: Some(from.into()), options, ..ReadOptions::default() };
    let read = |session, options| crossdock_fuzz::read_with(session, bytes.to_vec(), options);
    // An error is a valid result.
    let Ok(table) = read(session, &options) else { return };
    let whole = concatenated(session, &table);
    // A record may be too long for a small chunk.
    if let Ok(other) = read(in_small_chunks, &options) {
        compare(session, &concatenated(in_small_chunks, &other), &whole);
    }
    let rows = whole.len() / 3..whole.len() * 2 / 3;
    if rows.is_empty() {
        return;
    }
    let selected = vec![rows.start as u64..rows.end as u64];
    match read(session, &ReadOptions { rows: Some(selected), ..options.clone() }) {
        Ok(part) => {
            let expected = whole.slice(rows.start, rows.len()).expect("the table has the rows");
            compare(session, &concatenated(session, &part), &expected);
        }
        Err(crossdock::Error::Plugin { source, .. }) if source.code() == Code::OUT_OF_MEMORY => {}
        Err(error) => panic!("the rows of a valid text cannot be read: {error}"),
    }
});

fn concatenated(session: &Session, table: &Table) -> DeviceBatch {
    match table.batches() {
        [] => {
            let fields = table.schema().fields().iter();
            let columns = fields.map(|field| DeviceArray::empty(field.data_type()).expect("an empty column"));
            let columns = columns.collect();
            DeviceBatch::try_new(table.schema().clone(), 0, columns).expect("a batch without rows")
        }
        batches => DeviceBatch::concatenate(batches, session.stream()).expect("batches of one table"),
    }
}

fn compare(session: &Session, got: &DeviceBatch, expected: &DeviceBatch) {
    let difference = first_difference(got, expected, session.stream()).expect("batches on the CPU");
    assert!(difference.is_none(), "{difference:?}");
}
