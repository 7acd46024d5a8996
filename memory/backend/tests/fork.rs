//! Tests that a forked child frees no memory of its parent, and does not wait for threads of its
//! parent. These tests are a separate program, because a child has none of the threads that other
//! tests start.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::table;
use crossdock_memory_backend::{Backend, ProcessWide};
use crossdock_plugin_api::Device;

#[test]
fn child_frees_only_its_own_blocks() {
    let backend = Backend::builder().build();
    let account = backend.account("parent");
    let block = table(&account).alloc(Device::CPU, 1000).unwrap();
    // SAFETY: the child only allocates, frees and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        table(&account).free(block);
        let inherited = backend.ledger().live_bytes();
        let own_backend = Backend::builder().build();
        let account = own_backend.account("child");
        let block = table(&account).alloc(Device::CPU, 24).unwrap();
        let own_bytes = own_backend.ledger().live_bytes();
        table(&account).free(block);
        let is_correct = (inherited, own_bytes, own_backend.ledger().live_bytes()) == (1000, 24, 0);
        // SAFETY: `_exit` ends the child without the exit handlers of the test runner.
        unsafe { libc::_exit(i32::from(!is_correct)) }
    }
    let mut status = 0;
    // SAFETY: `child` is our child, and the pointer is to a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child counted other bytes");
    assert_eq!(backend.ledger().live_bytes(), 1000);
    table(&account).free(block);
    assert_eq!(backend.ledger().live_bytes(), 0);
}

/// Forks while another thread holds the lock, or after that thread released it. Returns the value
/// that the child reads.
fn value_in_child(is_locked: bool) -> i32 {
    static VALUE: ProcessWide<i32> = ProcessWide::new();
    *VALUE.lock() = 7;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let guard = is_locked.then(|| VALUE.lock());
        ready.send(()).unwrap();
        let _ = stopped.recv();
        drop(guard);
    });
    is_ready.recv().unwrap();
    // SAFETY: the child only takes a lock and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `alarm` has no requirements. It ends a child that waits for the lock forever.
        unsafe { libc::alarm(10) };
        let value = *VALUE.lock();
        // SAFETY: `_exit` ends the child without the exit handlers of the test runner.
        unsafe { libc::_exit(value) }
    }
    drop(stop);
    other.join().unwrap();
    let mut status = 0;
    // SAFETY: `child` is our child, and the pointer is to a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(*VALUE.lock(), 7, "the parent's value changed");
    assert!(libc::WIFEXITED(status), "the child waited for a thread that it does not have");
    libc::WEXITSTATUS(status)
}

#[test]
fn child_does_not_wait_for_a_thread_of_its_parent() {
    assert_eq!(value_in_child(false), 7);
    assert_eq!(value_in_child(true), 0, "the value may have been changing");
}
