//! What a file's footer says against what the file holds. A file that is read by its footer and one that is read in order,
//! through a pipe, are to be the same table or both an error.

use crossdock_plugin_api::{Error, Result};

use super::bytes::Stored;
use crate::wire::frame::{self, Following, LEGACY_HEAD_BYTES};
use crate::wire::schema::{names_and_types, same_types};
use crate::wire::{Block, Footer, Header, Message, Schema};

/// How much is read at once of what is most likely padding.
const PIECE_BYTES: usize = 4096;

/// Refuses a file whose footer has other columns than the schema that it begins with.
pub fn check_schemas(first: &Schema, footer: &Schema) -> Result<()> {
    if same_types(&first.arrow, &footer.arrow) {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "the file begins with the schema [{}], and its footer has [{}]",
        names_and_types(&first.arrow),
        names_and_types(&footer.arrow)
    )))
}

/// Refuses a file with messages that its footer does not list, as two files in one have. `schema` is where the schema's
/// message ends, `footer` where the footer begins.
pub fn check_gaps(file: &Stored, schema: u64, blocks: &[Block], footer: u64) -> Result<()> {
    let mut places: Vec<_> = blocks.iter().map(|block| (block.offset, block.end())).collect();
    places.sort_unstable();
    if let Some((first, _)) = places.first().filter(|(first, _)| *first < schema) {
        return Err(Error::bad_data(format!(
            "the footer places a message at byte {first}, but the schema ends at byte {schema}"
        )));
    }
    let mut end = schema;
    for (begin, next) in places {
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

/// The first byte from `begin` on that is no padding; `end` or more if there is none before it.
fn after_padding(file: &Stored, begin: u64, end: u64) -> Result<u64> {
    let mut at = begin;
    while at < end {
        match file.with(at, piece(at, end, PIECE_BYTES), |gap| Ok(frame::padding(gap)))? {
            0 => break,
            padding => at += padding as u64,
        }
    }
    Ok(at)
}

fn is_message_at(file: &Stored, at: u64, end: u64) -> Result<bool> {
    let bytes = piece(at, end, LEGACY_HEAD_BYTES);
    file.with(at, bytes, |head| Ok(frame::following(head) == Following::Stream))
}

fn piece(begin: u64, end: u64, most: usize) -> usize {
    usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX).min(most)
}

/// Whether a footer may list this length for a message's own one: some writers count its padding in.
pub fn is_length(own: u64, listed: u64) -> bool {
    [1, 8].into_iter().any(|alignment| own.checked_next_multiple_of(alignment) == Some(listed))
}

/// What is said where the two schemas of a file differ in what is not compared.
pub const OTHER_SCHEMA: &str = "its footer has other metadata, or other fields that may be null, than the schema that it begins with, which counts";

/// What is wrong with a file that has more than its footer lists.
pub fn unlisted(at: u64, bytes: u64) -> Error {
    Error::bad_data(format!(
        "{bytes} bytes from byte {at} on are in no message that the footer lists: several files in one?"
    ))
}

/// What was read of a file in order.
pub struct InOrder {
    /// Whether its messages have continuation markers, as since Arrow 0.15.
    pub has_markers: bool,
    schema: Schema,
    dictionaries: Vec<Place>,
    batches: Vec<Place>,
}

/// Where a message was.
struct Place {
    begin: u64,
    body: u64,
    body_bytes: u64,
}

impl InOrder {
    /// Its schema alone.
    pub fn new(schema: Schema, has_markers: bool) -> Self {
        Self { has_markers, schema, dictionaries: Vec::new(), batches: Vec::new() }
    }

    /// One more message, whose prefix is at `begin` and whose body is at `body`.
    pub fn add(&mut self, message: &Message, begin: u64, body: u64) -> Result<()> {
        let place = Place { begin, body, body_bytes: message.body_bytes };
        match message.header {
            Header::Batch(_) => self.batches.push(place),
            Header::Dictionary { .. } => self.dictionaries.push(place),
            Header::Schema(_) => return Err(Error::bad_data("a second schema follows the first")),
        }
        Ok(())
    }

    /// Whether the footer has another schema in what is not compared.
    pub fn differs(&self, footer: &Footer) -> bool {
        self.schema.arrow != footer.schema.arrow
    }

    /// Refuses a footer by which another table would be read.
    pub fn check(&self, footer: &Footer) -> Result<()> {
        check_schemas(&self.schema, &footer.schema)?;
        check_list("dictionary", &self.dictionaries, &footer.dictionaries)?;
        check_list("record batch", &self.batches, &footer.batches)
    }
}

fn check_list(what: &str, read: &[Place], listed: &[Block]) -> Result<()> {
    let same = |(read, listed): (&Place, &Block)| {
        read.begin == listed.offset
            && is_length(read.body - read.begin, listed.metadata_bytes as u64)
            && is_length(read.body_bytes, listed.body_bytes)
    };
    if let Some(i) = read.iter().zip(listed).position(|pair| !same(pair)) {
        return Err(Error::bad_data(format!(
            "the footer places {what} {i} elsewhere than it was read: a file that is not in order is read by its path, not \
             as a pipe"
        )));
    }
    if read.len() != listed.len() {
        return Err(Error::bad_data(format!(
            "the footer lists {} messages of kind {what}, and {} came before it",
            listed.len(),
            read.len()
        )));
    }
    Ok(())
}
