//! Reads bytes as a file of tensors. The first byte selects the format. A table that was read must
//! be valid, and rows that are read alone must equal those of the table.
#![no_main]

use std::sync::OnceLock;

use crossdock::Session;
use crossdock_plugin_api::{abi, entry};
use crossdock_tensors::{NPY, NPZ, SAFETENSORS, Tensors};
use libfuzzer_sys::fuzz_target;

static ENTRY: abi::PluginEntry = entry::<Tensors>();

fuzz_target!(|bytes: &[u8]| {
    static SESSION: OnceLock<Session> = OnceLock::new();
    let session = SESSION.get_or_init(|| crossdock_fuzz::session("tensors", "crossdock.importer/1", &ENTRY));
    let Some((first, bytes)) = bytes.split_first() else { return };
    let format = [SAFETENSORS, NPY, NPZ][usize::from(*first) % 3];
    // An error is a valid result.
    let Ok(table) = crossdock_fuzz::read(session, format, bytes.to_vec()) else { return };
    crossdock_fuzz::compare_rows(session, format, bytes.to_vec(), &table);
});
