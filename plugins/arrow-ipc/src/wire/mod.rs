//! The bytes of Arrow IPC around the buffers: framing, messages, schemas, footers. Pure functions over host bytes;
//! nothing here knows a device.

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

/// How deep and how large a flatbuffer may unfold. It may point at one table from many places, so its size on disk
/// does not bound the work of reading it.
fn verifier(bytes: usize) -> VerifierOptions {
    VerifierOptions {
        max_depth: 3 * crate::limits::MOST_DEPTH,
        max_tables: 4_000_000,
        max_apparent_size: bytes.saturating_mul(16).saturating_add(1 << 20),
        ignore_missing_null_terminator: true,
    }
}

/// A flatbuffer is verified once and then read without checks. Its bytes may lie in a mapped file, or in memory that others write
/// to, so both happen to a copy.
fn private_copy(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn broken(what: &str, why: impl std::fmt::Display) -> Error {
    // The verifier's explanations have many lines; the first one says what is wrong.
    let text = why.to_string();
    let first = text.lines().next().unwrap_or("it cannot be verified").trim_end_matches('.').to_string();
    Error::bad_data(format!("the {what} is not a valid flatbuffer: {first}")).with_details(text)
}
