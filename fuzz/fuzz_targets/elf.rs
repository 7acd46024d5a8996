//! Bytes as a plugin's library, of which the metadata is read, what it needs, and its entry: an error, or these. Nothing else.
#![no_main]

use crossdock::metadata::{Metadata, Needs, entry_in};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // An error is an answer.
    drop(Metadata::from_bytes(bytes));
    drop(Needs::from_bytes(bytes));
    drop(entry_in(bytes));
});
