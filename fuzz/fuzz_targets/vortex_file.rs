//! Reads bytes as a Vortex file. A table that was read must be valid, and rows that are read alone
//! must equal those of the table. A filter may miss rows if the statistics of the file are wrong,
//! but the rows that it returns must be valid.
#![no_main]

use std::sync::OnceLock;

use crossdock::{Predicate, ReadOptions, Session};
use crossdock_encodings::Encodings;
use crossdock_fuzz::Linked;
use crossdock_plugin_api::{abi, entry};
use crossdock_vortex_file::{FORMAT, VortexFile};
use libfuzzer_sys::fuzz_target;

static FILE: abi::PluginEntry = entry::<VortexFile>();
static ENCODINGS: abi::PluginEntry = entry::<Encodings>();
/// The encodings that the seeds use.
const IDS: &str = "fastlanes.bitpacked fastlanes.delta fastlanes.for fastlanes.rle vortex.alp \
    vortex.alprd vortex.bool vortex.bytebool vortex.chunked vortex.constant vortex.datetimeparts \
    vortex.decimal vortex.decimal_byte_parts vortex.dict vortex.ext vortex.fixed_size_list \
    vortex.fsst vortex.list vortex.listview vortex.map vortex.masked vortex.null vortex.onpair \
    vortex.pco vortex.primitive vortex.runend vortex.sequence vortex.sparse vortex.struct \
    vortex.varbin vortex.varbinview vortex.zigzag vortex.zstd";

fn open() -> Session {
    let importer = "crossdock.importer/1";
    crossdock_fuzz::session_with(&[
        Linked { name: "vortex-file", interfaces: importer, encodings: "", entry: &FILE },
        Linked { name: "encodings", interfaces: "crossdock.encoding/1", encodings: IDS, entry: &ENCODINGS },
    ])
}

fuzz_target!(|bytes: &[u8]| {
    static SESSION: OnceLock<Session> = OnceLock::new();
    let session = SESSION.get_or_init(open);
    // An error is a valid result.
    let Ok(table) = crossdock_fuzz::read(session, FORMAT, bytes.to_vec()) else { return };
    crossdock_fuzz::compare_rows(session, FORMAT, bytes.to_vec(), &table);
    let Some(column) = table.schema().fields().first() else { return };
    let Ok(predicate) = Predicate::parse(&format!("{} >= 2", column.name())) else { return };
    let filter = vec![predicate];
    let options = ReadOptions { from: Some(FORMAT.into()), filter, ..ReadOptions::default() };
    drop(crossdock_fuzz::read_with(session, bytes.to_vec(), &options));
});
