//! Our order of work meets a stranger's, on a CUDA device: late producers, slow readers, early releases. Over any driver, a
//! real one or the simulated one; without one every test says that it was skipped.
//!
//! They need a process of their own: they count the calls that the whole process makes to the driver, and each holds the device alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adopted;
mod array;
mod capture;
mod counts;
mod dlpack;
mod flat;
mod foreign;
mod giving_back;
mod races;
mod results;
mod stranger;
mod streams;
mod tensor;
mod two_devices;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossdock::api::Device;
use crossdock::memory::Backend;
use crossdock::{Host, Session};
use crossdock_tests::built;
use stranger::Stranger;

const GPU: Device = Device::cuda(0);

/// A session on the first CUDA device, and somebody else who uses it, one test at a time; else says why `test` is skipped.
fn setting(test: &str) -> Option<(Turn, Host, Session)> {
    static TURN: Mutex<()> = Mutex::new(());
    static STRANGER: OnceLock<Stranger> = OnceLock::new();
    let backend = Backend::builder().build();
    if let Err(missing) = backend.cuda() {
        skip(test, &missing.to_string());
        return None;
    }
    // First here and last to go, so that no test sees another one's host end.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let host = Host::builder().backend(backend).plugins(built()).build().unwrap();
    let session = host.session().device(GPU).open().unwrap();
    let stranger = STRANGER.get_or_init(Stranger::new);
    stranger.enter();
    Some((Turn { stranger, _turn: turn }, host, session))
}

fn skip(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// The stranger, for one test.
struct Turn {
    stranger: &'static Stranger,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Turn {
    type Target = Stranger;

    fn deref(&self) -> &Stranger {
        self.stranger
    }
}
