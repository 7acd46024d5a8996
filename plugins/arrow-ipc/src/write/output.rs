//! The sink, with its position and small writes put together.

use crossdock_plugin_api::{Result, Sink};

/// Writes shorter than this are collected.
const SMALL_BYTES: usize = 32 << 10;
const COLLECTED_BYTES: usize = 256 << 10;

/// Where the bytes go.
pub struct Output {
    sink: Sink,
    position: u64,
    collected: Vec<u8>,
}

impl Output {
    /// At its beginning.
    pub fn new(sink: Sink) -> Self {
        Self { sink, position: 0, collected: Vec::new() }
    }

    /// Bytes so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.position += bytes.len() as u64;
        if bytes.len() < SMALL_BYTES {
            self.collected.extend_from_slice(bytes);
            if self.collected.len() >= COLLECTED_BYTES { self.flush() } else { Ok(()) }
        } else {
            self.flush()?;
            self.send(bytes)
        }
    }

    /// Writes `n` zeros, fewer than 64.
    pub fn pad(&mut self, n: u64) -> Result<()> {
        let zeros = [0; 64];
        self.write(zeros.get(..n as usize).unwrap_or(&zeros))
    }

    /// Writes what has been collected.
    pub fn flush(&mut self) -> Result<()> {
        let collected = std::mem::take(&mut self.collected);
        let result = if collected.is_empty() { Ok(()) } else { self.send(&collected) };
        self.collected = collected;
        self.collected.clear();
        result
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write(bytes).map_err(|e| {
            let name = self.sink.name();
            if e.message().contains(name) { e } else { e.context(format_args!("'{name}'")) }
        })
    }
}
