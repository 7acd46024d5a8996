//! Sinks and writes as plain data.

use serde::{Deserialize, Serialize};

/// A sink of the host.
#[derive(Serialize, Deserialize)]
pub struct SinkParts {
    pub id: u64,
    pub name: String,
}

/// A write to a sink.
#[derive(Serialize, Deserialize)]
pub struct WriteParts {
    /// The number of writes to the sink before this one.
    pub number: u64,
    pub pieces: Vec<SinkPiece>,
}

/// Bytes to write to a sink.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum SinkPiece {
    /// The number of bytes. They follow the message.
    Inline(u64),
    /// Bytes of a read-only segment that the host sent.
    Segment { number: u64, offset: u64, bytes: u64 },
    /// Bytes of a segment of host memory that the process requested with the id `id`.
    Copied { id: u64, offset: u64, bytes: u64 },
}
