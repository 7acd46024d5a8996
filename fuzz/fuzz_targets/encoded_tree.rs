//! Bytes as an encoded tree, decoded by a session: an error, or a column that is what Arrow says of its type. Nothing else.
#![no_main]

use std::sync::OnceLock;

use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session, Table};
use crossdock_arrays::{Level, validate};
use crossdock_plugin_api::{About, Error, abi, entry};
use libfuzzer_sys::fuzz_target;

static ENTRY: abi::PluginEntry = entry::<crossdock_encodings::Encodings>();
/// What a tree may claim before it is refused.
const BUDGET_BYTES: usize = 64 << 20;
/// Where the header has its checksum (docs/encodings.md), how long all is, and how long it is itself.
const CHECKSUM: std::ops::Range<usize> = 12..16;
const TOTAL_BYTES: std::ops::Range<usize> = 16..24;
const HEADER_BYTES: std::ops::Range<usize> = 24..32;

fn session() -> &'static Session {
    static SESSION: OnceLock<Session> = OnceLock::new();
    SESSION.get_or_init(|| {
        let about = About {
            name: "encodings",
            version: "0.1.0",
            description: "linked in",
            licence: "Apache-2.0",
            interfaces: "crossdock.importer/1 crossdock.encoding/1",
            formats: "encodings",
            encodings: "",
        };
        let search = Search::nowhere().linked(LinkedPlugin::new(&ENTRY, about.meta()));
        let backend = Backend::builder().limit_bytes(BUDGET_BYTES).build();
        let host = Host::builder().backend(backend).search(search).threads(1).build();
        host.and_then(|host| host.session().open()).expect("a session")
    })
}

/// With the length and the checksum that they should have, so that what is behind those is reached.
fn signed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let total = bytes.len() as u64;
    bytes.get_mut(TOTAL_BYTES)?.copy_from_slice(&total.to_le_bytes());
    bytes.get_mut(CHECKSUM)?.fill(0);
    let header = u64::from_le_bytes(bytes.get(HEADER_BYTES)?.try_into().ok()?);
    let sum = crc32fast::hash(bytes.get(..usize::try_from(header).ok()?)?);
    bytes.get_mut(CHECKSUM)?.copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

fn decode(session: &Session, bytes: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
    let options = ReadOptions { from: Some("encodings".into()), ..ReadOptions::default() };
    let reader = session.read(Input::bytes(bytes), &options)?;
    let table = Table::from_reader(session, reader)?;
    for batch in table.batches() {
        // Whatever came out of a decoder is sound, or the decoder is not.
        let sound: Result<_, Error> = validate(batch, Level::Full, session.stream());
        sound.expect("a decoded batch is valid");
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(bytes) = signed(bytes) {
        // An error is an answer.
        drop(decode(session(), bytes));
    }
});
