//! Runs work without the interpreter's lock, and lets Ctrl-C cancel it.

use std::time::Duration;

use crossdock::Result;
use crossdock::truncated::guarded;
use crossdock_plugin_api::CancelFlag;
use pyo3::prelude::*;

use crate::runtime::errors::{Kind, OrRaise, raise};
use crate::runtime::process::detach;
use crate::runtime::{warnings, worker};

/// How often a long call checks for signals.
pub const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Work on at least this many bytes runs on a thread of its own, so that Ctrl-C can cancel it.
pub const MIN_INTERRUPTIBLE_BYTES: u64 = 16 << 20;

/// Runs `work` with the interpreter's lock released.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    warnings::after(py, detach(py, || guarded(work)).or_raise())
}

/// Runs `work`, which reads values, with the interpreter's lock released.
///
/// # Errors
/// OSError if `work` read a mapped file that another program truncated.
pub fn reading<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    detach(py, || guarded(|| Ok::<_, crossdock::Error>(work()))).or_raise()
}

/// Runs `work` like [`detached`], and checks for signals while it runs. If a signal handler raises,
/// as Ctrl-C does, this sets `cancel`, waits for `work` to return, and raises the handler's
/// exception.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    cancel: &CancelFlag,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let (raised, result) = detach(py, move || {
        let mut raised = None;
        let result = worker::run(
            || guarded(work),
            SIGNAL_INTERVAL,
            || {
                if raised.is_none()
                    && let Err(error) = Python::attach(|py| py.check_signals())
                {
                    raised = Some(error);
                    cancel.cancel();
                }
            },
        );
        (raised, result)
    });
    match (raised, result) {
        (Some(raised), _) => Err(raised),
        (None, Ok(result)) => warnings::after(py, result.or_raise()),
        (None, Err(_)) => Err(raise(
            Kind::Plugin,
            "crossdock panicked, which is a bug: please report the message on stderr",
        )),
    }
}
