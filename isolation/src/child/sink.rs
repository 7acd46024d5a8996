//! Sinks that the host owns and the plugin writes.

use std::sync::{Arc, Mutex};

use crossdock_plugin_api::{ByteSink, Result};

use crate::child::host_client::HostClient;
use crate::child::received_segments::{ReceivedSegment, ReceivedSegments, SinkSegment};
use crate::locks::lock;
use crate::wire::messages::Callback;
use crate::wire::outgoing::Outgoing;
use crate::wire::sink_parts::{SinkParts, SinkPiece, WriteParts};

/// The maximum number of inline bytes of a message.
const MAX_INLINE_BYTES: usize = 1 << 20;
/// The minimum number of bytes that are written from a segment. Fewer bytes are sent in a message.
const MIN_SEGMENT_BYTES: usize = 4 << 10;
/// The number of bytes of the segment for bytes that are in no segment of the host.
const SEGMENT_BYTES: usize = 2 << 20;
/// The maximum number of pieces of a message.
const MAX_PIECES: usize = 512;
/// The maximum number of bytes of the pieces of a message.
const MAX_PENDING_BYTES: usize = 16 << 20;

/// The bytes that the plugin has written, and that the host has not written yet. They are
/// collected, because a message for each write takes longer than the write. Bytes in a segment of
/// the host are not sent; the host reads them there. Other bytes are copied into a segment, because
/// a socket takes longer. The response to the host's request contains the last pieces.
pub struct SinkBuffer {
    sink: SinkParts,
    host: Arc<HostClient>,
    segments: Arc<ReceivedSegments>,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// The number of writes that were sent.
    number: u64,
    pieces: Vec<SinkPiece>,
    inline: Vec<u8>,
    bytes: usize,
    /// Keeps the segments.
    messages: Vec<Arc<ReceivedSegment>>,
    /// Keeps the segments of the pieces in the last response.
    last: Vec<Arc<ReceivedSegment>>,
    /// Created when it is first needed.
    segment: Option<SinkSegment>,
}

impl SinkBuffer {
    pub fn new(sink: SinkParts, host: Arc<HostClient>, segments: Arc<ReceivedSegments>) -> Self {
        Self { sink, host, segments, pending: Mutex::default() }
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut pending = lock(&self.pending);
        if bytes.len() < MIN_SEGMENT_BYTES {
            return self.add_inline(&mut pending, bytes);
        }
        if let Some((piece, message)) = self.segments.piece(bytes) {
            if pending.messages.last().is_none_or(|last| !Arc::ptr_eq(last, &message)) {
                pending.messages.push(message);
            }
            return self.add(&mut pending, piece, bytes.len());
        }
        bytes.chunks(SEGMENT_BYTES).try_for_each(|part| self.copy(&mut pending, part))
    }

    /// Adds at most [`SEGMENT_BYTES`] bytes that are in no segment.
    fn copy(&self, pending: &mut Pending, bytes: &[u8]) -> Result<()> {
        if pending.segment.is_none() {
            // Without a segment, for example for lack of memory, the bytes are sent in messages.
            pending.segment = self.segments.request_for_sink(SEGMENT_BYTES).ok();
        }
        let mut piece = pending.segment.as_mut().and_then(|segment| segment.copy(bytes));
        if piece.is_none() && pending.segment.is_some() {
            self.send(pending)?;
            piece = pending.segment.as_mut().and_then(|segment| segment.copy(bytes));
        }
        match piece {
            Some(piece) => self.add(pending, piece, bytes.len()),
            // There is no segment, or the host is reading the pieces of a response, which fill it.
            None => self.add_long_inline(pending, bytes),
        }
    }

    fn add_long_inline(&self, pending: &mut Pending, bytes: &[u8]) -> Result<()> {
        bytes.chunks(MAX_INLINE_BYTES / 2).try_for_each(|part| self.add_inline(pending, part))
    }

    fn add_inline(&self, pending: &mut Pending, bytes: &[u8]) -> Result<()> {
        if pending.inline.len() + bytes.len() > MAX_INLINE_BYTES {
            self.send(pending)?;
        }
        pending.inline.extend_from_slice(bytes);
        match pending.pieces.last_mut() {
            Some(SinkPiece::Inline(n)) => {
                *n += bytes.len() as u64;
                Ok(())
            }
            _ => self.add(pending, SinkPiece::Inline(bytes.len() as u64), bytes.len()),
        }
    }

    fn add(&self, pending: &mut Pending, piece: SinkPiece, bytes: usize) -> Result<()> {
        pending.pieces.push(piece);
        pending.bytes += bytes;
        if pending.pieces.len() >= MAX_PIECES || pending.bytes >= MAX_PENDING_BYTES {
            self.send(pending)?;
        }
        Ok(())
    }

    /// Must be called when a request for the writer arrives.
    pub fn begin_request(&self) {
        lock(&self.pending).last_was_read();
    }

    /// Takes the pieces that are not sent yet, for the response to the host's request.
    pub fn take(&self, to: &mut Outgoing) -> WriteParts {
        let mut pending = lock(&self.pending);
        let (write, inline, messages) = pending.take();
        pending.last = messages;
        to.payload = inline;
        write
    }

    /// Waits until the host has written all bytes.
    pub fn flush(&self) -> Result<()> {
        self.send(&mut lock(&self.pending))
    }

    fn send(&self, pending: &mut Pending) -> Result<()> {
        if pending.pieces.is_empty() {
            return Ok(());
        }
        let (write, inline, messages) = pending.take();
        let result = self.host.call(&Callback::Write { sink: self.sink.id, write }, &inline);
        drop(messages);
        pending.last_was_read();
        result.map(drop)
    }
}

impl Pending {
    /// Takes the pieces, the inline bytes, and the segments to keep until the host has read them.
    fn take(&mut self) -> (WriteParts, Vec<u8>, Vec<Arc<ReceivedSegment>>) {
        let number = self.number;
        // A response without pieces is no write.
        self.number += u64::from(!self.pieces.is_empty());
        self.bytes = 0;
        let write = WriteParts { number, pieces: std::mem::take(&mut self.pieces) };
        (write, std::mem::take(&mut self.inline), std::mem::take(&mut self.messages))
    }

    /// Uses the segments again, after the host has read all pieces that were sent.
    fn last_was_read(&mut self) {
        self.last.clear();
        // A thread of the plugin may have written since the last request.
        if self.pieces.is_empty() {
            self.segment.iter_mut().for_each(SinkSegment::clear);
        }
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
