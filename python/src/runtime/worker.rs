//! Runs a call on another thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::Result;
use std::time::Duration;

use crossdock_memory_backend::run_on_kept_thread;

/// Waits for a job when it is dropped.
struct Running(Receiver<()>);

impl Drop for Running {
    fn drop(&mut self) {
        // The thread sends nothing: an error means that the job has ended.
        let _ = self.0.recv();
    }
}

/// Runs `work` on another thread. Until it returns, calls `check` on this thread after each
/// `interval`. If no thread can be started, runs `work` on this thread.
///
/// # Errors
/// What `work` panicked with.
pub fn run<T: Send>(
    work: impl FnOnce() -> T + Send,
    interval: Duration,
    mut check: impl FnMut(),
) -> Result<T> {
    let mut result = None;
    let run: Box<dyn FnOnce() + Send + '_> = Box::new(|| result = Some(catch_unwind(AssertUnwindSafe(work))));
    // SAFETY: only the lifetime changes. `running` waits until the box was run and dropped, also if
    // `check` panics. So `work` and `result` live long enough.
    let run = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Box<dyn FnOnce() + Send>>(run) };
    match run_on_kept_thread(run) {
        Ok(ended) => {
            let running = Running(ended);
            while let Err(RecvTimeoutError::Timeout) = running.0.recv_timeout(interval) {
                check();
            }
        }
        Err(run) => run(),
    }
    result.unwrap_or_else(|| Err(Box::new("the thread ended before the call")))
}
