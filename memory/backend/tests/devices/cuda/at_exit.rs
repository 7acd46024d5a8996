//! A process that ends while its backend's own thread is the last to have the backend.

use std::ffi::c_void;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crossdock_memory_backend::Account;
use crossdock_plugin_api::abi;

use crate::common::table;
use crate::cuda::{GPU, backend, turn};

const PLAYING: &str = "CROSSDOCK_TEST_LAST_OWNER";
const TOLD: &[u8] = b"all of it has been given back\n";

#[test]
fn a_process_ends_after_what_its_reaper_is_at() {
    if backend("a_process_ends_after_what_its_reaper_is_at").is_none() {
        return;
    }
    let _turn = turn();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "cuda::at_exit::the_last_owner_is_the_reaper", "--nocapture"]);
    let output = child.env(PLAYING, "1").output().unwrap();
    // Where an old driver has threads wait, before what the test runner says of the test; else after it.
    let told = output.stdout.windows(TOLD.len()).any(|part| part == TOLD);
    assert!(output.status.success() && told, "{output:?}");
}

/// What the process does; nothing in one that is not it.
#[test]
fn the_last_owner_is_the_reaper() {
    if std::env::var_os(PLAYING).is_none() {
        return;
    }
    let Some(backend) = backend("the_last_owner_is_the_reaper") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    let held = t.alloc_aligned(GPU, 1 << 20, 64, stream).unwrap();
    let pinned = t.alloc_pinned(1000).unwrap();
    t.free_with(pinned, 0);
    t.fill(stream, held.address, 1, 1 << 20).unwrap();
    let event = t.event_record(stream).unwrap();
    let call_after = t.functions().call_after.unwrap();
    let data = Box::into_raw(Box::new(account.clone())).cast();
    // SAFETY: a live event, and what the function expects.
    unsafe { call_after(t.raw(), &event, 1, abi::Callback(Some(let_go)), data) };
    t.event_destroy(event);
    t.stream_destroy(stream);
    t.free(held);
}

/// Is behind, lets go of the account, and says so past all that the process buffers.
unsafe extern "C" fn let_go(data: *mut c_void) {
    std::thread::sleep(Duration::from_millis(300));
    // SAFETY: what the test passes, once.
    drop(unsafe { Box::from_raw(data.cast::<Arc<Account>>()) });
    // SAFETY: a constant and its length.
    unsafe { libc::write(1, TOLD.as_ptr().cast(), TOLD.len()) };
}
