//! Sends the callbacks of a plugin's process to its host.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossdock_plugin_api::{Error, Progress, Result};

use crate::wire::channel::check_len;
use crate::wire::channels::Channels;
use crate::wire::messages::{self, Callback, CallbackReply, Failure};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::SegmentParts;

/// The minimum time between two reports of a call's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// Sends callbacks.
pub struct HostClient(pub Channels);

impl HostClient {
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
        let mut message = self.0.request(&bytes, payload, &files.seal()?, None, || Ok::<(), Error>(()))?;
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
        if self.0.has_capacity() {
            self.notify(callback);
        }
    }

    /// Returns a function that reports the progress of a call.
    pub fn progress(self: Arc<Self>, call: u64) -> Arc<Progress> {
        let last_report = Mutex::new(None::<Instant>);
        Arc::new(move |done, total| {
            let mut last_report = last_report.lock().unwrap_or_else(PoisonError::into_inner);
            if last_report.is_some_and(|time| time.elapsed() < PROGRESS_INTERVAL) && done != total {
                return;
            }
            *last_report = Some(Instant::now());
            self.try_notify(&Callback::Progress { call, done, total });
        })
    }
}
