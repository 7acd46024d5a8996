//! CUDA behind the vtable, over any driver: a real one, or the simulated one. Without one every test says that it was
//! skipped.

mod at_exit;
mod file;
mod freeing;
mod ipc;
mod order;
mod refusals;
mod several;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_memory_backend::{Backend, BackendBuilder};
use crossdock_plugin_api::Device;

const GPU: Device = Device::cuda(0);

/// A backend whose first CUDA device works; else says why `test` is skipped.
fn backend_with(test: &str, builder: BackendBuilder) -> Option<Backend> {
    let backend = builder.build();
    match backend.cuda() {
        Ok(_) => Some(backend),
        Err(missing) => {
            skip(test, &missing.to_string());
            None
        }
    }
}

/// For tests that start processes, which the driver refuses while others ask it for more than there is, and for those who ask.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Past what the test runner captures.
fn skip(test: &str, why: &str) {
    let mut stderr = std::io::stderr();
    stderr.write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

fn backend(test: &str) -> Option<Backend> {
    backend_with(test, Backend::builder())
}

/// Bytes that no two places share by chance.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}
