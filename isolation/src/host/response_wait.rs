//! Decides how long the host waits for the response to a request.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossdock_plugin_api::Call;

use crate::host::callback_server::{CallState, CallbackServer};
use crate::host::deadlines::Deadlines;

/// The time that a process has to end a cancelled call, or to exit.
pub const GRACE: Duration = Duration::from_secs(2);

/// The limit of the time that the host waits for a response.
#[derive(Clone, Copy)]
pub enum Timeout {
    Deadlines(Deadlines),
    /// The limit for the release of an object.
    Release(Duration),
}

/// The reason why a wait ended without a response.
pub enum WaitError {
    Io(io::Error),
    /// The process did not end a cancelled call within [`GRACE`].
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
    /// The progress that was last reported to the caller: the amount done and the total.
    reported: (u64, u64),
    /// The last sign of life of the process: the number of callbacks at that time, and the time.
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

    /// Reports progress to the caller, and checks whether the wait may continue. Calls `cancel`
    /// once, after the caller has cancelled the call.
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
        // The process is alive if it has sent a callback since the last check, or if the host is
        // handling a callback.
        if count != self.last_sign.0 || self.callbacks.active_callbacks.load(Ordering::Relaxed) > 0 {
            self.last_sign = (count, Instant::now());
        }
        // The limit does not include the time in which the host releases sources and sinks. This
        // cannot extend the wait forever, because the number of sources and sinks is limited.
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
        // The flag also cancels the callbacks that the host handles for this call.
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

    /// Reports the progress to the caller at the end of the wait.
    pub fn report_final_progress(&self) {
        let (done, total) = self.state.progress();
        if let Some(call) = self.call.filter(|_| (done, total) != (0, 0)) {
            call.progress(done, total);
        }
    }
}
