//! The result type of benchmarks.

/// Any error ends the benchmarks with its message.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
