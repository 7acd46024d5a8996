//! A forked child gives nothing back that it inherited, and waits for nobody. By itself in its program: a child has none of the
//! threads that other tests run on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::table;
use crossdock_memory_backend::{Backend, ProcessWide};
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

/// Forks while another thread has the lock, or has let go of it, and returns what the child finds behind it.
fn in_a_child(is_locked: bool) -> i32 {
    static VALUE: ProcessWide<i32> = ProcessWide::new();
    *VALUE.lock() = 7;
    let (say, hear) = std::sync::mpsc::channel::<()>();
    let (ready, at) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let held = is_locked.then(|| VALUE.lock());
        ready.send(()).unwrap();
        let _ = hear.recv();
        drop(held);
    });
    at.recv().unwrap();
    // SAFETY: the child takes a lock, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: without the lock's release the child would wait for ever; the system ends it then.
        unsafe { libc::alarm(10) };
        let found = *VALUE.lock();
        // SAFETY: ends the child without what the test runner does at the end.
        unsafe { libc::_exit(found) }
    }
    drop(say);
    other.join().unwrap();
    let mut status = 0;
    // SAFETY: our own child, and a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(*VALUE.lock(), 7, "the parent's is its own");
    assert!(libc::WIFEXITED(status), "the child waited for a thread that it does not have");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_forked_child_does_not_wait_for_a_thread_of_its_parent() {
    assert_eq!(in_a_child(false), 7);
    assert_eq!(in_a_child(true), 0, "the value may have been half changed");
}
