//! A source that reads ranges of an object.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossdock_plugin_api::{ByteSource, Call, Error, Result};
use object_store::{GetOptions, GetRange, ObjectMeta};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::blocks::{self, BLOCK_BYTES, Blocks};
use crate::error::{changed, of_request};
use crate::settings::Settings;
use crate::store::Location;

/// How often `open` looks at the cancel flag.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

/// An object in a store.
pub struct ObjectSource {
    object: Arc<Object>,
    runtime: Handle,
    settings: Settings,
    blocks: Blocks,
}

/// What every request needs.
struct Object {
    location: Location,
    bytes: u64,
    /// The entity tag or the time of the last change; empty if the server states neither.
    version: String,
    /// The entity tag for the header If-Match.
    if_match: Option<String>,
    /// Limits the requests at a time.
    limit: Semaphore,
}

/// The entity tag, or else the time of the last change; empty if the server states neither.
fn version_of(meta: &ObjectMeta) -> String {
    let time = || (meta.last_modified.timestamp_millis() != 0).then(|| meta.last_modified.to_rfc3339());
    meta.e_tag.clone().or_else(time).unwrap_or_default()
}

/// A request that is aborted when this value is dropped.
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ObjectSource {
    /// Asks the store for the length and the version of the object.
    ///
    /// # Errors
    /// The error of the request; "cancelled" if the call is cancelled.
    pub fn open(call: &Call<'_>, runtime: Handle, location: Location, settings: &Settings) -> Result<Self> {
        let (store, path) = (location.store.clone(), location.path.clone());
        let (send, receive) = channel();
        let task = runtime.spawn(async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            // The receiver is gone if the call was cancelled.
            let _ = send.send(store.get_opts(&path, options).await.map(|result| result.meta));
        });
        let _running = Running(task.abort_handle());
        let begin = Instant::now();
        let meta = loop {
            call.check_cancelled()?;
            match receive.recv_timeout(CANCEL_INTERVAL) {
                Ok(result) => break result.map_err(|error| of_request(&location.uri, &error))?,
                Err(RecvTimeoutError::Timeout) if begin.elapsed() < settings.deadline() => {}
                Err(error) => return Err(no_answer(&location.uri, begin, &error)),
            }
        };
        let version = version_of(&meta);
        // A weak tag never matches in If-Match.
        let if_match = meta.e_tag.filter(|tag| !tag.starts_with("W/"));
        let limit = Semaphore::new(settings.parallel);
        let object = Arc::new(Object { location, bytes: meta.size, version, if_match, limit });
        Ok(Self { object, runtime, settings: settings.clone(), blocks: Blocks::default() })
    }

    /// Requests the parts of a range, several at a time, and passes each to `take` with its
    /// position in the range.
    fn fetch(&self, range: Range<u64>, mut take: impl FnMut(usize, Bytes) -> Result<()>) -> Result<()> {
        let part = self.settings.part_bytes;
        let mut begins = (range.start..range.end).step_by(part as usize);
        let (send, receive) = channel();
        let mut running = Vec::new();
        let mut start = |begin: u64, send: &Sender<_>| {
            let (object, send) = (self.object.clone(), send.clone());
            let end = begin.saturating_add(part).min(range.end);
            let task = self.runtime.spawn(async move {
                // The receiver is gone if another part failed.
                let _ = send.send((begin, object.get(begin..end).await));
            });
            running.push(Running(task.abort_handle()));
        };
        let mut n_pending = 0;
        for begin in begins.by_ref().take(self.settings.parallel) {
            start(begin, &send);
            n_pending += 1;
        }
        let deadline = self.settings.deadline();
        while n_pending > 0 {
            let since = Instant::now();
            let (begin, result) = receive
                .recv_timeout(deadline)
                .map_err(|error| no_answer(&self.object.location.uri, since, &error))?;
            n_pending -= 1;
            take((begin - range.start) as usize, result?)?;
            if let Some(begin) = begins.next() {
                start(begin, &send);
                n_pending += 1;
            }
        }
        Ok(())
    }
}

/// The request neither ended nor failed. The time limits of the client prevent this, unless the
/// threads of the runtime do not run, for example in a forked process.
fn no_answer(uri: &str, since: Instant, error: &RecvTimeoutError) -> Error {
    let seconds = since.elapsed().as_secs();
    Error::io(format!("'{uri}': no answer to a request after {seconds} s: {error}"))
}

impl Object {
    /// Requests one range.
    async fn get(&self, range: Range<u64>) -> Result<Bytes> {
        let uri = &self.location.uri;
        let failed = |error| of_request(uri, &error);
        let _permit = self.limit.acquire().await.map_err(|error| Error::internal(error.to_string()))?;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.if_match.clone(),
            ..GetOptions::default()
        };
        let result = self.location.store.get_opts(&self.location.path, options).await.map_err(failed)?;
        let version = version_of(&result.meta);
        if version != self.version {
            let or_none = |version: &str| if version.is_empty() { "none".into() } else { version.to_owned() };
            return Err(changed(uri, &or_none(&self.version), &or_none(&version)));
        }
        if result.meta.size != self.bytes {
            return Err(Error::io(format!(
                "'{uri}': the server states contradictory lengths: expected {} bytes, got {}",
                self.bytes, result.meta.size
            )));
        }
        let bytes = result.bytes().await.map_err(failed)?;
        let expected = range.end - range.start;
        if bytes.len() as u64 != expected {
            return Err(Error::io(format!(
                "'{uri}': expected {expected} bytes at {}, and the server sent {}",
                range.start,
                bytes.len()
            )));
        }
        Ok(bytes)
    }
}

impl ByteSource for ObjectSource {
    fn name(&self) -> &str {
        &self.object.location.uri
    }

    fn len(&self) -> Option<u64> {
        Some(self.object.bytes)
    }

    fn version(&self) -> &str {
        &self.object.version
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.object.bytes.saturating_sub(offset);
        let n = usize::try_from(rest).map_or(to.len(), |rest| rest.min(to.len()));
        let Some(to) = to.get_mut(..n).filter(|to| !to.is_empty()) else { return Ok(0) };
        if n as u64 > BLOCK_BYTES {
            self.fetch(offset..offset + n as u64, |position, bytes| put(to, position, &bytes))?;
            return Ok(n);
        }
        if self.blocks.read(offset, to) {
            return Ok(n);
        }
        let (first, last) = blocks::of_range(offset, n as u64);
        let begin = first * BLOCK_BYTES;
        let end = ((last + 1) * BLOCK_BYTES).min(self.object.bytes);
        let mut all = vec![0; (end - begin) as usize];
        self.fetch(begin..end, |position, bytes| put(&mut all, position, &bytes))?;
        let all = Bytes::from(all);
        let from = (offset - begin) as usize;
        put(to, 0, all.get(from..from + n).unwrap_or_default())?;
        self.blocks.keep(first, &all);
        Ok(n)
    }
}

/// Copies bytes to a position.
fn put(to: &mut [u8], position: usize, bytes: &[u8]) -> Result<()> {
    let place = position.checked_add(bytes.len()).and_then(|end| to.get_mut(position..end));
    place.ok_or_else(|| Error::internal("a part is outside its range"))?.copy_from_slice(bytes);
    Ok(())
}
