//! Flattens batches to the buffers of messages, compresses them in the pool, and writes them in
//! order.

mod chunk;
mod dictionaries;
mod flatten;
mod message;
mod output;
mod ranges;
mod slices;
mod writer;

pub use writer::{Form, Settings, Writer};
