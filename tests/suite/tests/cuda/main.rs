//! Tests the order of work that the host and an external library enqueue on a CUDA device, with
//! late producers, slow readers and early releases. The tests run with a real or a simulated
//! driver, and are skipped without a driver.
//!
//! The tests need a process of their own, because they count all driver calls of the process. Each
//! test has exclusive use of the device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adopted;
mod array;
mod capture;
mod checks;
mod counts;
mod dlpack;
mod exported_blocks;
mod external;
mod external_bytes;
mod flat;
mod pending;
mod races;
mod results;
mod streams;
mod tensor;
mod two_devices;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossdock::api::Device;
use crossdock::memory::Backend;
use crossdock::{Host, Session};
use crossdock_tests::built;
use external::External;

const GPU: Device = Device::cuda(0);

/// A session on the first CUDA device, and an external library that uses the device. Only one test
/// at a time can use them. Without a driver, reports that `test` is skipped.
fn setup(test: &str) -> Option<(LockedExternal, Host, Session)> {
    setup_over(test, Backend::builder().build())
}

/// Like [`setup`], with a host over `backend`.
fn setup_over(test: &str, backend: Backend) -> Option<(LockedExternal, Host, Session)> {
    static LOCK: Mutex<()> = Mutex::new(());
    static EXTERNAL: OnceLock<External> = OnceLock::new();
    if let Err(missing) = backend.cuda() {
        skip(test, &missing.to_string());
        return None;
    }
    // The lock is acquired before the host is created and released after the host is dropped, so
    // that two tests never have hosts at the same time.
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let host = Host::builder().backend(backend).plugins(built()).build().unwrap();
    let session = host.session().device(GPU).open().unwrap();
    let external = EXTERNAL.get_or_init(External::new);
    external.enter();
    Some((LockedExternal { external, _lock: lock }, host, session))
}

fn skip(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// The external library, which one test has locked.
struct LockedExternal {
    external: &'static External,
    _lock: MutexGuard<'static, ()>,
}

impl std::ops::Deref for LockedExternal {
    type Target = External;

    fn deref(&self) -> &External {
        self.external
    }
}
