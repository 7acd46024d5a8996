//! Decides how long the host waits for the response to a request.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossdock_plugin_api::Call;

use crate::host::callback_server::{CallState, CallbackServer};
use crate::host::deadlines::Deadlines;

/// How long a process may take to end a cancelled call, or to exit.
pub const GRACE: Duration = Duration::from_secs(2);

/// The limit of the wait.
#[derive(Clone, Copy)]
pub enum Timeout {
    Deadlines(Deadlines),
    /// For the release of an object.
    Release(Duration),
}

/// Why the wait ended without a response.
pub enum WaitError {
    Io(io::Error),
    /// The process did not end a cancelled call in time.
    Cancelled,
    Silence(Duration),
    CallTooLong(Duration),
    ReleaseTooLong(Duration),
}

impl From<io::Error> for WaitError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The wait of one thread for the response to its request.
pub struct ResponseWait<'a, 'call> {
    callbacks: &'a CallbackServer,
    call: Option<&'a Call<'call>>,
    state: &'a CallState,
    timeout: Timeout,
    start: Instant,
    /// The progress that the caller knows: done and total.
    reported: (u64, u64),
    /// The number of callbacks at the last sign of life, and its time.
    last_sign: (u64, Instant),
    cancelled_at: Option<Instant>,
}

impl<'a, 'call> ResponseWait<'a, 'call> {
    pub fn new(
        callbacks: &'a CallbackServer,
        call: Option<&'a Call<'call>>,
        state: &'a CallState,
        timeout: Timeout,
    ) -> Self {
        let start = Instant::now();
        let (reported, last_sign) = ((0, 0), (u64::MAX, start));
        Self { callbacks, call, state, timeout, start, reported, last_sign, cancelled_at: None }
    }

    /// Reports progress to the caller, and checks whether to go on. Calls `cancel` once, after the
    /// caller cancelled the call.
    ///
    /// # Errors
    /// `cancel` failed, or the timeout is exceeded.
    pub fn check(&mut self, cancel: impl Fn() -> io::Result<()>) -> Result<(), WaitError> {
        if let Some(call) = self.call {
            let progress = self.state.progress();
            if progress != self.reported {
                self.reported = progress;
                call.progress(progress.0, progress.1);
            }
            if call.is_cancelled() {
                self.check_cancelled(cancel)?;
            }
        }
        let count = self.callbacks.callback_count.load(Ordering::Relaxed);
        // While the host handles a callback, the process waits for the host.
        if count != self.last_sign.0 || self.callbacks.active_callbacks.load(Ordering::Relaxed) > 0 {
            self.last_sign = (count, Instant::now());
        }
        // The time that the host needs to release sources and sinks does not count. Their number is
        // limited.
        if self.callbacks.active_releases.load(Ordering::Relaxed) > 0 {
            self.start = Instant::now();
        }
        match self.timeout {
            Timeout::Deadlines(Deadlines { silence: Some(max), .. }) if self.last_sign.1.elapsed() > max => {
                Err(WaitError::Silence(max))
            }
            Timeout::Deadlines(Deadlines { call: Some(max), .. }) if self.start.elapsed() > max => {
                Err(WaitError::CallTooLong(max))
            }
            Timeout::Release(max) if self.start.elapsed() > max => Err(WaitError::ReleaseTooLong(max)),
            _ => Ok(()),
        }
    }

    fn check_cancelled(&mut self, cancel: impl Fn() -> io::Result<()>) -> Result<(), WaitError> {
        // Also ends callbacks that the host handles for the call.
        self.state.cancel.cancel();
        let cancelled_at = match self.cancelled_at {
            Some(time) => time,
            None => {
                cancel()?;
                Instant::now()
            }
        };
        self.cancelled_at = Some(cancelled_at);
        if cancelled_at.elapsed() > GRACE { Err(WaitError::Cancelled) } else { Ok(()) }
    }

    /// Reports the progress at the end of the wait.
    pub fn report_final_progress(&self) {
        let (done, total) = self.state.progress();
        if let Some(call) = self.call.filter(|_| (done, total) != (0, 0)) {
            call.progress(done, total);
        }
    }
}
