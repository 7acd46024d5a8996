//! Parses bytes as a policy, as a lock, and as a plugin's signature.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use crossdock::load::signature_in;
use crossdock::policy::{Lock, Policy};
use libfuzzer_sys::fuzz_target;

/// The public key for the signatures of `PLUGIN` in the seeds. The secret key was discarded.
const KEY: &str = "RWR7MHSze/2ygU6IbJr4j4vmV3XFPn0aaVg6CsRNFs1pQ5hjHQy1Nh9n";
const PLUGIN: &[u8] = b"bytes";

fn policy_with_key(file: &Path) -> Policy {
    let text = format!("require_signature = true\nkeys = [\"{KEY}\"]\n");
    Policy::from_text(file, &text).expect("a policy")
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // In this folder, the lock that a policy names does not exist.
    let file = Path::new("/proc/self/fdinfo/none.toml");
    // An error is a valid result.
    drop(Policy::from_text(file, text));
    drop(Lock::from_text(file, text));
    static POLICY: OnceLock<Policy> = OnceLock::new();
    drop(signature_in(text, PLUGIN, POLICY.get_or_init(|| policy_with_key(file))));
});
