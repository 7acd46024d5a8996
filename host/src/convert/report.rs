//! What a conversion did, stage by stage, with the ledger's word for what was copied.

use std::time::{Duration, Instant};

use crossdock_arrays::DeviceBatch;
use crossdock_memory_backend::Copied;

use crate::error::Result;

/// One conversion.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which batches pass through.
    pub stages: Vec<Stage>,
    /// From the first look at the input to the output's appearance.
    pub time: Duration,
}

/// One stage of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// "read", "via", "move", "write".
    pub kind: &'static str,
    /// The plugin, "host" for a move.
    pub plugin: String,
    /// The format; the target device for a move.
    pub format: String,
    /// Rows that came out of it.
    pub rows: u64,
    /// Batches that came out of it.
    pub batches: u64,
    /// Bytes of the buffers that came out of it, or that went into the output.
    pub bytes: u64,
    /// Time spent inside it.
    pub time: Duration,
    /// What the ledger says was copied for it.
    pub copied: Copied,
}

impl Stage {
    pub(super) fn new(kind: &'static str, plugin: &str, format: &str) -> Self {
        Self { kind, plugin: plugin.to_string(), format: format.to_string(), ..Self::default() }
    }

    /// Runs a piece of the stage's work, on its clock.
    pub(super) fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work();
        self.time += start.elapsed();
        result
    }

    pub(super) fn count(&mut self, batch: &DeviceBatch) {
        self.rows += batch.len() as u64;
        self.batches += 1;
        self.bytes = self.bytes.saturating_add(batch.bytes());
    }

    /// Bytes a second, in units of 10^9; 0 where no time passed.
    pub fn gigabytes_per_second(&self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { self.bytes as f64 / seconds / 1e9 } else { 0.0 }
    }
}
