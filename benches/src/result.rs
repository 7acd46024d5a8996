//! What a benchmark gives.

/// Any failure ends the benchmarks, with its words.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
