//! Decodes bytes as an encoded tree. A decoded column must be valid for its type, and rows that are
//! decoded alone must equal those of the column.
#![no_main]

use std::sync::OnceLock;

use crossdock::Session;
use crossdock_encodings::Encodings;
use crossdock_plugin_api::{abi, entry};
use libfuzzer_sys::fuzz_target;

static ENTRY: abi::PluginEntry = entry::<Encodings>();
/// Positions of the header's fields (docs/encodings.md).
const CHECKSUM: std::ops::Range<usize> = 12..16;
const TOTAL_BYTES: std::ops::Range<usize> = 16..24;
const HEADER_BYTES: std::ops::Range<usize> = 24..32;

/// Corrects the length and the checksum in the header, so that the fuzzer reaches the code that
/// follows the checks of both fields.
fn with_valid_header(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let total = bytes.len() as u64;
    bytes.get_mut(TOTAL_BYTES)?.copy_from_slice(&total.to_le_bytes());
    bytes.get_mut(CHECKSUM)?.fill(0);
    let header = u64::from_le_bytes(bytes.get(HEADER_BYTES)?.try_into().ok()?);
    let sum = crc32fast::hash(bytes.get(..usize::try_from(header).ok()?)?);
    bytes.get_mut(CHECKSUM)?.copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

fuzz_target!(|bytes: &[u8]| {
    static SESSION: OnceLock<Session> = OnceLock::new();
    let interfaces = "crossdock.importer/1 crossdock.encoding/1";
    let session = SESSION.get_or_init(|| crossdock_fuzz::session("encodings", interfaces, &ENTRY));
    if let Some(bytes) = with_valid_header(bytes) {
        // An error is a valid result.
        if let Ok(table) = crossdock_fuzz::read(session, "encodings", bytes.clone()) {
            crossdock_fuzz::compare_rows(session, "encodings", bytes, &table);
        }
    }
});
