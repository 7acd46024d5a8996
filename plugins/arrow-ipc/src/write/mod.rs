//! Writes batches. Their arrays are flattened to the buffers of messages, compressed in the pool of
//! threads, and written in order.

mod chunk;
mod dictionaries;
mod flatten;
mod message;
mod ranges;
mod slices;
mod writer;

pub use writer::{Form, Settings, Writer};
