//! Tracks the sink's position, and combines small writes.

use crossdock_memory::Result;
use crossdock_plugin_api::Sink;

/// Writes of fewer bytes than this are combined.
const SMALL_BYTES: usize = 32 << 10;
/// When the buffer has this many bytes, it is written to the sink.
const BUFFERED_BYTES: usize = 256 << 10;

/// A buffered sink.
pub struct Output {
    sink: Sink,
    position: u64,
    buffered: Vec<u8>,
}

impl Output {
    /// An output at position 0.
    pub fn new(sink: Sink) -> Self {
        Self { sink, position: 0, buffered: Vec::new() }
    }

    /// The number of bytes written so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.position += bytes.len() as u64;
        if bytes.len() < SMALL_BYTES {
            self.buffered.extend_from_slice(bytes);
            if self.buffered.len() >= BUFFERED_BYTES { self.flush() } else { Ok(()) }
        } else {
            self.flush()?;
            self.send(bytes)
        }
    }

    /// Writes the buffered bytes to the sink.
    pub fn flush(&mut self) -> Result<()> {
        let buffered = std::mem::take(&mut self.buffered);
        let result = if buffered.is_empty() { Ok(()) } else { self.send(&buffered) };
        self.buffered = buffered;
        self.buffered.clear();
        result
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write(bytes).map_err(|error| {
            let name = self.sink.name();
            if error.message().contains(name) { error } else { error.context(format_args!("'{name}'")) }
        })
    }
}
