//! Tests the end of a process whose reaper thread has the last reference to a backend.

use std::ffi::c_void;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crossdock_memory_backend::Account;
use crossdock_plugin_api::abi;

use crate::common::table;
use crate::cuda::{GPU, backend, driver_lock};

const CHILD: &str = "CROSSDOCK_TEST_LAST_OWNER";
const MESSAGE: &[u8] = b"everything has been released\n";

#[test]
fn process_exit_waits_until_the_reaper_is_done() {
    if backend("process_exit_waits_until_the_reaper_is_done").is_none() {
        return;
    }
    let _lock = driver_lock();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "cuda::at_exit::last_reference_is_dropped_by_the_reaper", "--nocapture"]);
    let output = child.env(CHILD, "1").output().unwrap();
    // With an old driver, the message precedes the test runner's output. Otherwise, the message
    // follows that output.
    let is_printed = output.stdout.windows(MESSAGE.len()).any(|part| part == MESSAGE);
    assert!(output.status.success() && is_printed, "{output:?}");
}

/// Runs in the child process, and does nothing in a process without the variable.
#[test]
fn last_reference_is_dropped_by_the_reaper() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let Some(backend) = backend("last_reference_is_dropped_by_the_reaper") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    let block = t.alloc_aligned(GPU, 1 << 20, 64, stream).unwrap();
    let pinned = t.alloc_pinned(1000).unwrap();
    t.free_with(pinned, 0);
    t.fill(stream, block.address, 1, 1 << 20).unwrap();
    let event = t.event_record(stream).unwrap();
    let call_after = t.functions().call_after.unwrap();
    let data = Box::into_raw(Box::new(account.clone())).cast();
    // SAFETY: `event` is live, and `data` is a boxed `Arc<Account>`, as `drop_account` expects.
    unsafe { call_after(t.raw(), &event, 1, abi::Callback(Some(drop_account)), data) };
    t.event_destroy(event);
    t.stream_destroy(stream);
    t.free(block);
}

/// Drops the account after a delay, then writes the message directly to standard output, without
/// the buffers of the standard library.
unsafe extern "C" fn drop_account(data: *mut c_void) {
    std::thread::sleep(Duration::from_millis(300));
    // SAFETY: `data` is the box that the test passed to `call_after`, which calls this function
    // once.
    drop(unsafe { Box::from_raw(data.cast::<Arc<Account>>()) });
    // SAFETY: `write` only reads `MESSAGE.len()` bytes of the constant `MESSAGE`.
    unsafe { libc::write(1, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
}
