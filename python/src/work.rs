//! Work without the interpreter's lock, and how Ctrl-C ends it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crossdock::Result;
use crossdock::truncated::guarded;
use crossdock_plugin_api::CancelFlag;
use pyo3::prelude::*;

use crate::errors::{Kind, OrRaise, raise};
use crate::process::detach;
use crate::warnings;

/// How often Python is asked whether a signal has come.
const SIGNALS: Duration = Duration::from_millis(50);

/// From so many bytes on, work is worth a thread of its own, so that Ctrl-C can end it.
pub const LONG_BYTES: u64 = 16 << 20;

/// Runs `work` with the lock released.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    warnings::after(py, detach(py, || guarded(work)).or_raise())
}

/// Runs `work`, which reads values, with the lock released. Fails where it read a mapped file that was truncated meanwhile.
pub fn reading<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    detach(py, || guarded(|| Ok::<_, crossdock::Error>(work()))).or_raise()
}

/// As [`detached`], for work that may take long: signals are looked at meanwhile, and one whose handler raises (Ctrl-C does) sets
/// `cancel`, waits for the work to end, and raises.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    cancel: &CancelFlag,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let (done, at_end) = channel::<()>();
    let (raised, result) = detach(py, move || {
        let mut raised = None;
        let result = std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                // Dropped at the end, however that comes.
                let _done = done;
                guarded(work)
            });
            while let Err(RecvTimeoutError::Timeout) = at_end.recv_timeout(SIGNALS) {
                if raised.is_none()
                    && let Err(error) = Python::attach(|py| py.check_signals())
                {
                    raised = Some(error);
                    cancel.cancel();
                }
            }
            worker.join()
        });
        (raised, result)
    });
    match (raised, result) {
        (Some(raised), _) => Err(raised),
        (None, Ok(result)) => warnings::after(py, result.or_raise()),
        (None, Err(_)) => {
            Err(raise(Kind::Plugin, "crossdock panicked: this is a bug, what it printed says where"))
        }
    }
}
