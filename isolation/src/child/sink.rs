//! Sinks that the host owns and the plugin writes.

use std::sync::{Arc, Mutex};

use crossdock_plugin_api::{ByteSink, Error, Result};

use crate::child::host_client::HostClient;
use crate::child::received_segments::{ReceivedSegment, ReceivedSegments};
use crate::locks::lock;
use crate::wire::messages::{Callback, SinkParts, SinkPiece};

/// The maximum number of bytes that one message writes, besides those in segments.
const MAX_INLINE_BYTES: usize = 1 << 20;
/// The minimum number of bytes that are written from a segment. Fewer bytes are sent in a message.
const MIN_SEGMENT_BYTES: usize = 4 << 10;
/// Writes of more bytes that are in no segment are sent without collecting them.
const MAX_COLLECTED_BYTES: usize = 300 << 10;
/// The maximum number of pieces of a message.
const MAX_PIECES: usize = 256;
/// The maximum number of bytes of the pieces of a message.
const MAX_PENDING_BYTES: usize = 16 << 20;

/// The bytes that the plugin has written, and that the host has not written yet. They are
/// collected, because a message for each write takes longer than the write. Bytes in a segment of
/// the host are not sent; the host reads them there. The server flushes the buffer before the
/// host's request ends.
pub struct SinkBuffer {
    sink: SinkParts,
    host: Arc<HostClient>,
    segments: Arc<ReceivedSegments>,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    pieces: Vec<SinkPiece>,
    inline: Vec<u8>,
    bytes: usize,
    /// Keeps the segments.
    messages: Vec<Arc<ReceivedSegment>>,
}

impl SinkBuffer {
    pub fn new(sink: SinkParts, host: Arc<HostClient>, segments: Arc<ReceivedSegments>) -> Self {
        Self { sink, host, segments, pending: Mutex::default() }
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut pending = lock(&self.pending);
        let piece = if bytes.len() < MIN_SEGMENT_BYTES { None } else { self.segments.piece(bytes) };
        if let Some((piece, message)) = piece {
            pending.pieces.push(piece);
            pending.bytes += bytes.len();
            if pending.messages.last().is_none_or(|last| !Arc::ptr_eq(last, &message)) {
                pending.messages.push(message);
            }
        } else if bytes.len() > MAX_COLLECTED_BYTES {
            self.send(&mut pending)?;
            for part in bytes.chunks(MAX_INLINE_BYTES) {
                self.host.call(&Callback::Write { sink: self.sink.id }, part)?;
            }
        } else {
            match pending.pieces.last_mut() {
                Some(SinkPiece::Inline(n)) => *n += bytes.len() as u64,
                _ => pending.pieces.push(SinkPiece::Inline(bytes.len() as u64)),
            }
            pending.inline.extend_from_slice(bytes);
        }
        let is_full = pending.inline.len() + MAX_COLLECTED_BYTES > MAX_INLINE_BYTES;
        if is_full || pending.pieces.len() >= MAX_PIECES || pending.bytes >= MAX_PENDING_BYTES {
            self.send(&mut pending)?;
        }
        Ok(())
    }

    /// Waits until the host has written all bytes.
    pub fn flush(&self) -> Result<()> {
        self.send(&mut lock(&self.pending))
    }

    fn send(&self, pending: &mut Pending) -> Result<()> {
        let Pending { pieces, inline, messages, .. } = std::mem::take(pending);
        if pieces.is_empty() {
            return Ok(());
        }
        let result = self.host.call(&Callback::WritePieces { sink: self.sink.id, pieces }, &inline);
        drop(messages);
        // The plugin cannot add the name, because it does not receive this error.
        let name = &self.sink.name;
        let with_name = |error: Error| match error.message().contains(name) {
            true => error,
            false => error.context(format_args!("'{name}'")),
        };
        result.map(drop).map_err(with_name)
    }
}

/// A sink that the host owns.
pub struct HostSink(pub Arc<SinkBuffer>);

impl Drop for HostSink {
    fn drop(&mut self) {
        // Bytes remain only if the plugin wrote them outside of a request. Then no request can
        // return the error.
        let _ = self.0.flush();
        self.0.host.notify(&Callback::CloseSink(self.0.sink.id));
    }
}

impl ByteSink for HostSink {
    fn name(&self) -> &str {
        &self.0.sink.name
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write(bytes)
    }
}
