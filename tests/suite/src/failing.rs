//! Operations of the host's memory that fail at their n-th occurrence.

use std::collections::BTreeSet;

use crossdock::discovery::Search;
use crossdock::{Host, Session};
use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::{CancelFlag, Device, Validate};

use crate::{built_file, csv_plugin};

/// With every plugin of ours, and these faults.
pub fn host(faults: Faults) -> Host {
    let mut search = Search::nowhere().given(csv_plugin());
    for plugin in ["arrow_ipc", "arrow_c_device", "dlpack", "encodings"] {
        search = search.given(built_file(&format!("libcrossdock_{plugin}_plugin.so")));
    }
    let backend = Backend::builder().untouchable(true).faults(faults).build();
    Host::builder().backend(backend).search(search).threads(2).build().unwrap()
}

/// One that checks everything it is given.
pub fn session(host: &Host, device: Device, cancel: &CancelFlag) -> Session {
    host.session().device(device).validate(Validate::Full).cancel_flag(cancel.clone()).open().unwrap()
}

/// Fails the test if something is still held.
pub fn settled(host: &Host, what: &str) {
    let leaks = host.settle();
    assert!(leaks.is_empty(), "{what}: {leaks:?}");
}

/// All that can be made to fail.
pub const OPERATIONS: [Operation; 4] =
    [Operation::Allocate, Operation::Copy, Operation::Launch, Operation::Event];

/// Has an operation fail at those of its occurrences in `run` that `chosen` gives: each time that is an error with words and no more
/// held than before, or the bytes of what comes out are as they were. How many were errors, and of how many occurrences.
pub fn each_failure<T>(
    (host, faults, operation): (&Host, &Faults, Operation),
    what: &str,
    chosen: impl Fn(u64) -> BTreeSet<u64>,
    run: impl Fn() -> crossdock::Result<T>,
    bytes: impl Fn(T) -> Vec<u8>,
) -> (u64, u64) {
    let held = host.settle();
    let before = faults.seen(operation);
    let whole = run().expect(what);
    let occurrences = faults.seen(operation) - before;
    let whole = bytes(whole);
    let mut failed = 0;
    for nth in chosen(occurrences) {
        faults.fail(operation, nth);
        let result = run();
        faults.fail(operation, 0);
        match result {
            // The pool's second try may save an allocation.
            Ok(again) => assert!(bytes(again) == whole, "{what}, {nth}: other bytes"),
            Err(error) => {
                failed += 1;
                let words = words(&error);
                assert!(!words.contains("panicked"), "{what}, {nth}: {words}");
                assert_eq!(host.settle(), held, "{what}, {nth}");
            }
        }
    }
    assert!(bytes(run().expect(what)) == whole, "{what}: other bytes afterwards");
    (failed, occurrences)
}

/// An error and what caused it.
pub fn words(error: &dyn std::error::Error) -> String {
    let cause = error.source().map_or_else(String::new, words);
    format!("{error} {cause}")
}
