//! Reports the stages of a conversion, with the ledger's figures for copies.

use std::time::{Duration, Instant};

use crossdock_arrays::DeviceBatch;
use crossdock_memory_backend::CopyTraffic;

use crate::error::Result;

/// The report of one conversion.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The stages, in the order in which batches pass through them.
    pub stages: Vec<Stage>,
    /// The time from opening the input to completing the output.
    pub time: Duration,
}

/// One stage of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// One of "read", "via", "move" and "write".
    pub kind: &'static str,
    /// The name of the plugin; "host" for a move between devices.
    pub plugin: String,
    /// The format; the target device for a move between devices.
    pub format: String,
    /// The number of rows in the stage's output.
    pub rows: u64,
    /// The number of batches in the stage's output.
    pub batches: u64,
    /// The number of bytes in the buffers of the stage's output, or in the written output.
    pub bytes: u64,
    /// The time spent in the stage.
    pub time: Duration,
    /// The copies that the ledger counted for the stage.
    pub copied: CopyTraffic,
}

impl Stage {
    pub(super) fn new(kind: &'static str, plugin: &str, format: &str) -> Self {
        Self { kind, plugin: plugin.to_string(), format: format.to_string(), ..Self::default() }
    }

    /// Runs a part of the stage's work and adds its duration to the stage's time.
    pub(super) fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work();
        self.time += start.elapsed();
        result
    }

    pub(super) fn count(&mut self, batch: &DeviceBatch) {
        self.rows += batch.len() as u64;
        self.batches += 1;
        self.bytes = self.bytes.saturating_add(batch.buffer_bytes());
    }

    /// The throughput in units of 10^9 bytes per second; 0 if the stage took no measurable time.
    pub fn gigabytes_per_second(&self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { self.bytes as f64 / seconds / 1e9 } else { 0.0 }
    }
}
