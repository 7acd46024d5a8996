//! Writing: batches flattened into the buffers of messages, compressed by the pool, written in order.

mod chunk;
mod dictionaries;
mod flatten;
mod message;
mod output;
mod ranges;
mod slices;
mod writer;

pub use writer::{Form, Settings, Writer};
