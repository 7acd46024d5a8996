//! NDJSON: one JSON object per line.

mod decoders;
mod ends;
mod infer;
mod lines;
mod read;
mod write;

pub use read::open;
pub use write::NdjsonFormat;
