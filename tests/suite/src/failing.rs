//! Injects failures of memory operations at their n-th occurrence.

use std::collections::BTreeSet;

use crossdock::discovery::Search;
use crossdock::{Host, Session};
use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::{CancelFlag, Device, Validate};

use crate::{built_file, csv_plugin};

/// Builds a host with all shipped plugins. Its memory operations fail according to `faults`.
pub fn host(faults: Faults) -> Host {
    let mut search = Search::nowhere().with_path(csv_plugin());
    for plugin in ["arrow_ipc", "arrow_c_device", "dlpack", "encodings"] {
        search = search.with_path(built_file(&format!("libcrossdock_{plugin}_plugin.so")));
    }
    let backend = Backend::builder().untouchable(true).faults(faults).build();
    Host::builder().backend(backend).search(search).threads(2).build().unwrap()
}

/// A session with full validation.
pub fn session(host: &Host, device: Device, cancel: &CancelFlag) -> Session {
    host.session().device(device).validate(Validate::Full).cancel_flag(cancel.clone()).open().unwrap()
}

/// Fails the test if something leaked.
pub fn assert_settled(host: &Host, what: &str) {
    let leaks = host.settle();
    assert!(leaks.is_empty(), "{what}: {leaks:?}");
}

/// All memory operations that tests can make fail.
pub const OPERATIONS: [Operation; 4] =
    [Operation::Allocate, Operation::Copy, Operation::Launch, Operation::Event];

/// Calls `run` once for each occurrence that `chosen` selects, and makes the operation fail at this
/// occurrence. Each run must return either an error with a message or the right bytes, and must
/// leak nothing. Returns the number of errors and the number of occurrences.
pub fn each_failure<T>(
    (host, faults, operation): (&Host, &Faults, Operation),
    what: &str,
    chosen: impl Fn(u64) -> BTreeSet<u64>,
    run: impl Fn() -> crossdock::Result<T>,
    bytes: impl Fn(T) -> Vec<u8>,
) -> (u64, u64) {
    let leaks_before = host.settle();
    let before = faults.count(operation);
    let expected = run().expect(what);
    let occurrences = faults.count(operation) - before;
    let expected = bytes(expected);
    let mut failed = 0;
    for nth in chosen(occurrences) {
        faults.fail(operation, nth);
        let result = run();
        faults.fail(operation, 0);
        match result {
            // The run may succeed, because the pool repeats a failed allocation once.
            Ok(again) => assert!(bytes(again) == expected, "{what}, {nth}: different bytes"),
            Err(error) => {
                failed += 1;
                let message = error_chain(&error);
                assert!(!message.contains("panicked"), "{what}, {nth}: {message}");
                assert_eq!(host.settle(), leaks_before, "{what}, {nth}");
            }
        }
    }
    assert!(bytes(run().expect(what)) == expected, "{what}: different bytes afterwards");
    (failed, occurrences)
}

/// The message of an error, followed by the messages of its sources.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map_or_else(String::new, error_chain);
    format!("{error} {cause}")
}
