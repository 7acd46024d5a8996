//! Reads bytes as a plugin's library: its metadata, needed libraries and entry.
#![no_main]

use crossdock::metadata::{Metadata, Needs, entry_in};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // An error is a valid result.
    drop(Metadata::from_bytes(bytes));
    drop(Needs::from_bytes(bytes));
    drop(entry_in(bytes));
});
