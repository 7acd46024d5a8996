//! Compares the footer of a file with its messages. This ensures that reading the file by its
//! footer and reading it in order from a pipe result in the same table, or both in an error.

use crossdock_plugin_api::{Error, Result};

use crate::wire::frame::{self, Following, LEGACY_HEAD_BYTES};
use crate::wire::schema::{names_and_types, same_types};
use crate::wire::{Block, Footer, Header, Message, Schema};
use crossdock_memory::StoredSource;

/// Size of the parts in which padding is read, in bytes.
const PIECE_BYTES: usize = 4096;

/// Returns an error if the schema at the beginning of the file and the schema in the footer have
/// different columns.
pub fn check_schemas(first: &Schema, footer: &Schema) -> Result<()> {
    if same_types(&first.arrow, &footer.arrow) {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "the file begins with the schema [{}], but its footer has [{}]",
        names_and_types(&first.arrow),
        names_and_types(&footer.arrow)
    )))
}

/// Returns an error if the file contains messages that its footer does not list, as two
/// concatenated files do. `schema` is the end of the schema message, and `footer` is the beginning
/// of the footer.
pub fn check_gaps(file: &StoredSource, schema: u64, blocks: &[Block], footer: u64) -> Result<()> {
    let mut spans: Vec<_> = blocks.iter().map(|block| (block.offset, block.end())).collect();
    spans.sort_unstable();
    if let Some((first, _)) = spans.first().filter(|(first, _)| *first < schema) {
        return Err(Error::bad_data(format!(
            "the footer lists a message at byte {first}, before the end of the schema at byte {schema}"
        ))
        .with_offset(*first));
    }
    let mut end = schema;
    for (begin, next) in spans {
        let at = after_padding(file, end, begin)?;
        if at < begin && is_message_at(file, at, begin)? {
            return Err(unlisted(at, begin - at));
        }
        end = end.max(next);
    }
    match after_padding(file, end, footer)? {
        at if at < footer => Err(unlisted(at, footer - at)),
        _ => Ok(()),
    }
}

/// Returns the position of the first byte in `begin..end` that is not padding. If all bytes are
/// padding, the result is at least `end`.
fn after_padding(file: &StoredSource, begin: u64, end: u64) -> Result<u64> {
    let mut at = begin;
    while at < end {
        match file.with(at, piece(at, end, PIECE_BYTES), |gap| Ok(frame::padding(gap)))? {
            0 => break,
            padding => at += padding as u64,
        }
    }
    Ok(at)
}

fn is_message_at(file: &StoredSource, at: u64, end: u64) -> Result<bool> {
    let bytes = piece(at, end, LEGACY_HEAD_BYTES);
    file.with(at, bytes, |head| Ok(frame::following(head) == Following::Stream))
}

fn piece(begin: u64, end: u64, max_bytes: usize) -> usize {
    usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX).min(max_bytes)
}

/// Whether `listed` is a valid length in the footer for a message of length `actual`. The lengths
/// may differ because some writers include the padding of a message in `listed`.
pub fn is_length(actual: u64, listed: u64) -> bool {
    [1, 8].into_iter().any(|alignment| actual.checked_next_multiple_of(alignment) == Some(listed))
}

/// Warning for a file whose two schemas differ in a way that is not an error.
pub const FOOTER_SCHEMA_DIFFERS: &str = "the schema in its footer has other metadata or nullability than the schema at its beginning, which is used";

/// Creates the error for bytes that the footer does not list.
pub fn unlisted(at: u64, bytes: u64) -> Error {
    Error::bad_data(format!(
        "{bytes} bytes from byte {at} on are not part of a message that the footer lists: are these several concatenated files?"
    ))
    .with_offset(at)
}

/// The messages of a file that is read in order.
pub struct SequentialRead {
    /// Whether the messages have continuation markers, which Arrow writes since version 0.15.
    pub has_markers: bool,
    schema: Schema,
    dictionaries: Vec<MessageSpan>,
    batches: Vec<MessageSpan>,
}

/// The position of a message.
struct MessageSpan {
    begin: u64,
    body: u64,
    body_bytes: u64,
}

impl SequentialRead {
    /// Creates the state after the schema message.
    pub fn new(schema: Schema, has_markers: bool) -> Self {
        Self { has_markers, schema, dictionaries: Vec::new(), batches: Vec::new() }
    }

    /// Adds a message. `begin` is the position of its prefix, and `body` is the position of its
    /// body.
    pub fn add(&mut self, message: &Message, begin: u64, body: u64) -> Result<()> {
        let span = MessageSpan { begin, body, body_bytes: message.body_bytes };
        match message.header {
            Header::Batch(_) => self.batches.push(span),
            Header::Dictionary { .. } => self.dictionaries.push(span),
            Header::Schema(_) => return Err(Error::bad_data("a second schema follows the first")),
        }
        Ok(())
    }

    /// Whether the footer's schema differs from the first schema in any way.
    pub fn differs(&self, footer: &Footer) -> bool {
        self.schema.arrow != footer.schema.arrow
    }

    /// Returns an error if the footer does not list exactly the messages that were read.
    pub fn check(&self, footer: &Footer) -> Result<()> {
        check_schemas(&self.schema, &footer.schema)?;
        check_list("dictionary", &self.dictionaries, &footer.dictionaries)?;
        check_list("record batch", &self.batches, &footer.batches)
    }
}

fn check_list(what: &str, read: &[MessageSpan], listed: &[Block]) -> Result<()> {
    let same = |(read, listed): (&MessageSpan, &Block)| {
        read.begin == listed.offset
            && is_length(read.body - read.begin, listed.metadata_bytes as u64)
            && is_length(read.body_bytes, listed.body_bytes)
    };
    if let Some(i) = read.iter().zip(listed).position(|pair| !same(pair)) {
        return Err(Error::bad_data(format!(
            "the footer lists {what} {i} at another position than the one where it was read: a file that is not in order can be read by \
             its path, but not as a pipe"
        )));
    }
    if read.len() != listed.len() {
        return Err(Error::bad_data(format!(
            "the footer lists {} messages of kind {what}, but the file has {}",
            listed.len(),
            read.len()
        )));
    }
    Ok(())
}
