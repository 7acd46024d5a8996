//! A forked child gives nothing back that it inherited. By itself in its program, for a child has none of the threads that
//! other tests run on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::table;
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::Device;

#[test]
fn what_was_inherited_is_not_given_back_and_what_is_new_is() {
    let backend = Backend::builder().build();
    let account = backend.account("parent");
    let block = table(&account).alloc(Device::CPU, 1000).unwrap();
    // SAFETY: the child does nothing but allocate, free, and end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        table(&account).free(block);
        let inherited = backend.ledger().live_bytes();
        let ours = Backend::builder().build();
        let account = ours.account("child");
        let block = table(&account).alloc(Device::CPU, 24).unwrap();
        let held = ours.ledger().live_bytes();
        table(&account).free(block);
        let right = (inherited, held, ours.ledger().live_bytes()) == (1000, 24, 0);
        // SAFETY: ends the child without what the test runner does at the end.
        unsafe { libc::_exit(i32::from(!right)) }
    }
    let mut status = 0;
    // SAFETY: our own child, and a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child saw it otherwise");
    assert_eq!(backend.ledger().live_bytes(), 1000);
    table(&account).free(block);
    assert_eq!(backend.ledger().live_bytes(), 0);
}
