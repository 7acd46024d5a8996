//! Bytes as a policy, and as a lock: an error, or what they say. Nothing else.
#![no_main]

use std::path::Path;

use crossdock::policy::{Lock, Policy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A lock that it names is looked for here, where nothing is.
    let file = Path::new("/proc/self/fdinfo/none.toml");
    // An error is an answer.
    drop(Policy::from_text(file, text));
    drop(Lock::from_text(file, text));
});
