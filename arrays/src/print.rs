//! Tables for people.

use crossdock_memory::{Error, Result, Stream};

use crate::DeviceBatch;

/// The first `max_rows` rows as a table of text. Only what is printed is copied to the host, through `stream`.
pub fn format_batch(_: &DeviceBatch, _max_rows: usize, _: &Stream) -> Result<String> {
    Err(Error::unsupported("printing batches comes next"))
}
