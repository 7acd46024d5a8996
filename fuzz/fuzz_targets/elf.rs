//! Bytes as a plugin's library, of which the metadata is read: an error, or metadata. Nothing else.
#![no_main]

use crossdock::metadata::Metadata;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // An error is an answer.
    drop(Metadata::from_bytes(bytes));
});
