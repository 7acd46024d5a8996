//! Tests CUDA devices through the C interface, with a real or the simulated driver. Without a
//! driver, every test reports that it is skipped.

mod at_exit;
mod errors;
mod file;
mod freeing;
mod ipc;
mod launch;
mod order;
mod several;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_memory_backend::{Backend, BackendBuilder};
use crossdock_plugin_api::Device;

const GPU: Device = Device::cuda(0);

/// Returns a backend with a CUDA device. If there is no device, reports the skipped test and
/// returns `None`.
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

/// Serialises tests that start processes and tests that exhaust the device's memory, because the
/// driver rejects new processes while its memory is exhausted.
fn driver_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports a skipped test directly on standard error, because the test runner captures `eprintln!`.
fn skip(test: &str, reason: &str) {
    let mut stderr = std::io::stderr();
    stderr.write_all(format!("skipped: {test}: {reason}\n").as_bytes()).unwrap();
}

fn backend(test: &str) -> Option<Backend> {
    backend_with(test, Backend::builder())
}

/// Returns bytes that depend on their positions, so that a misplaced byte is detected.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}
