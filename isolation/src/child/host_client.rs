//! Sends the callbacks of a plugin's process to its host.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossdock_plugin_api::{Error, Progress, Result};

use crate::locks::lock;
use crate::wire::channels::Channels;
use crate::wire::message_limits::check_len;
use crate::wire::messages::{self, Callback, CallbackReply, Failure};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::SegmentParts;

/// The minimum time between two reports of a call's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// Sends callbacks.
pub struct HostClient {
    channels: Channels,
    returns: Mutex<Returns>,
}

/// Segments that this process does not use any more.
#[derive(Default)]
struct Returns {
    /// The number of requests that are being handled.
    n_requests: usize,
    /// The segments to return with the next response.
    numbers: Vec<u64>,
}

impl HostClient {
    pub fn new(channels: Channels) -> Self {
        Self { channels, returns: Mutex::default() }
    }

    /// Must be followed by [`Self::end_request`].
    pub fn begin_request(&self) {
        lock(&self.returns).n_requests += 1;
    }

    /// Returns the numbers of the segments to return with the response.
    pub fn end_request(&self) -> Vec<u64> {
        let mut returns = lock(&self.returns);
        returns.n_requests -= 1;
        std::mem::take(&mut returns.numbers)
    }

    /// Returns the segment of a message from the host: with a response if one will be sent, and
    /// otherwise with a message of its own.
    pub fn return_segment(&self, number: u64) {
        let mut returns = lock(&self.returns);
        if returns.n_requests > 0 {
            returns.numbers.push(number);
            return;
        }
        drop(returns);
        self.notify(&Callback::ReturnSegment(number));
    }

    /// Sends a callback, followed by `payload`. Returns the reply and its payload.
    ///
    /// # Errors
    /// The host returned an error, or has closed the connection.
    pub fn call(&self, callback: &Callback, payload: &[u8]) -> Result<(CallbackReply, Vec<u8>)> {
        let (reply, payload, _) = self.call_with(callback, payload, &Outgoing::default())?;
        Ok((reply, payload))
    }

    /// Sends a callback with files. Returns the reply, its payload and its files.
    pub fn call_with(
        &self,
        callback: &Callback,
        payload: &[u8],
        files: &Outgoing,
    ) -> Result<(CallbackReply, Vec<u8>, Vec<OwnedFd>)> {
        let bytes = messages::to_bytes(callback)?;
        check_len(bytes.len().saturating_add(payload.len()))?;
        let mut message =
            self.channels.request(&bytes, payload, &files.seal()?, None, || Ok::<(), Error>(()))?;
        type CallbackResult = std::result::Result<CallbackReply, Failure>;
        let (result, rest) = messages::from_prefix::<CallbackResult>(&message.bytes)?;
        let head_len = message.bytes.len() - rest.len();
        Ok((result?, message.bytes.split_off(head_len), message.files))
    }

    /// Releases segments that were requested for a message, if the message is not sent.
    pub fn release_segments(&self, segments: &[SegmentParts]) {
        segments.iter().for_each(|segment| self.notify(&Callback::ReleaseSegment(segment.number)));
    }

    /// Sends a callback and ignores errors. If the host has ended, this process also ends soon.
    pub fn notify(&self, callback: &Callback) {
        let _ = self.call(callback, &[]);
    }

    /// Sends a callback, unless all channels are busy.
    pub fn try_notify(&self, callback: &Callback) {
        if self.channels.has_capacity() {
            self.notify(callback);
        }
    }
}

/// Reports the progress of calls of the host, one call after the other.
pub struct CallProgress {
    host: Arc<HostClient>,
    /// The call that waits; 0 if no call waits.
    pub call: AtomicU64,
    state: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    reported_at: Option<Instant>,
    /// The last progress: the amount done and the total.
    last: Option<(u64, u64)>,
}

impl CallProgress {
    pub fn new(host: Arc<HostClient>, call: u64) -> Arc<Self> {
        Arc::new(Self { host, call: AtomicU64::new(call), state: Mutex::default() })
    }

    /// Returns the last progress, and forgets it.
    pub fn take_last(&self) -> Option<(u64, u64)> {
        lock(&self.state).last.take()
    }

    /// Returns the function that the plugin calls.
    pub fn function(self: Arc<Self>) -> Arc<Progress> {
        Arc::new(move |done, total| {
            let mut state = lock(&self.state);
            state.last = Some((done, total));
            let call = self.call.load(Ordering::Relaxed);
            let is_recent = state.reported_at.is_some_and(|time| time.elapsed() < PROGRESS_INTERVAL);
            if call == 0 || (is_recent && done != total) {
                return;
            }
            state.reported_at = Some(Instant::now());
            self.host.try_notify(&Callback::Progress { call, done, total });
        })
    }
}
