//! Combines small writes to a sink.

use crate::error::Result;
use crate::sink::Sink;

/// Writes of fewer bytes than this are buffered.
const SMALL_BYTES: usize = 8 << 10;
/// When the buffer has this many bytes, it is written to the sink.
const BUFFERED_BYTES: usize = 256 << 10;

/// A sink that tracks its position, and combines small writes.
pub struct BufferedSink {
    sink: Sink,
    position: u64,
    buffered: Vec<u8>,
}

impl BufferedSink {
    /// Creates a sink at position 0.
    pub fn new(sink: Sink) -> Self {
        Self { sink, position: 0, buffered: Vec::new() }
    }

    /// The number of bytes written so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    /// The error of the sink, which names the sink.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.position += bytes.len() as u64;
        if bytes.len() < SMALL_BYTES {
            if self.buffered.capacity() == 0 {
                // Growing step by step would copy the bytes several times.
                self.buffered.reserve_exact(BUFFERED_BYTES + SMALL_BYTES);
            }
            self.buffered.extend_from_slice(bytes);
            if self.buffered.len() >= BUFFERED_BYTES { self.flush() } else { Ok(()) }
        } else {
            self.flush()?;
            self.send(bytes)
        }
    }

    /// Writes `n` zeros. `n` is at most 64.
    ///
    /// # Errors
    /// The error of the sink, which names the sink.
    pub fn pad(&mut self, n: u64) -> Result<()> {
        let zeros = [0; 64];
        self.write(zeros.get(..n as usize).unwrap_or(&zeros))
    }

    /// Writes the buffered bytes to the sink. Bytes that are not flushed are lost when the value is
    /// dropped.
    ///
    /// # Errors
    /// The error of the sink, which names the sink.
    pub fn flush(&mut self) -> Result<()> {
        let buffered = std::mem::take(&mut self.buffered);
        let result = if buffered.is_empty() { Ok(()) } else { self.send(&buffered) };
        self.buffered = buffered;
        self.buffered.clear();
        result
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write(bytes).map_err(|e| {
            let name = self.sink.name();
            if e.message().contains(name) { e } else { e.context(format_args!("'{name}'")) }
        })
    }
}
