//! Reads and writes the parts of IPC that are not buffers: prefixes, messages, schemas and footers.
//!
//! The functions have no state and use only bytes in host memory.

pub mod footer;
pub mod frame;
pub mod message;
pub mod message_write;
pub mod schema;
pub mod schema_read;
pub mod schema_write;
mod strings;
mod types_read;
mod types_write;

pub use footer::{Block, Footer};
pub use message::{BatchMeta, Header, Message, Span};
pub use schema::{Column, Schema};

use crossdock_plugin_api::Error;
use flatbuffers::VerifierOptions;

/// Limits the depth and the apparent size of a flatbuffer. Several fields of a flatbuffer may refer
/// to the same table, so its size in bytes does not limit the work of reading it.
fn verifier(bytes: usize) -> VerifierOptions {
    VerifierOptions {
        max_depth: 3 * crate::limits::MAX_DEPTH,
        max_tables: 4_000_000,
        max_apparent_size: bytes.saturating_mul(16).saturating_add(1 << 20),
        ignore_missing_null_terminator: true,
    }
}

/// Copies a flatbuffer, because it is verified once and then read without checks. The original may
/// be a mapped file or shared memory, which another process can change after the verification.
fn private_copy(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn invalid_flatbuffer(what: &str, why: impl std::fmt::Display) -> Error {
    // The verifier's explanation has many lines, of which the first describes the error.
    let text = why.to_string();
    let first = text.lines().next().unwrap_or("it cannot be verified").trim_end_matches('.').to_string();
    Error::bad_data(format!("the {what} is not a valid flatbuffer: {first}")).with_details(text)
}
