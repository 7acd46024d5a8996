//! A file that is read from its beginning to its end, against its footer, which comes last.

use super::messages::check_footer_schema;
use crate::wire::{Block, Footer, Header, Message, Schema};
use crossdock_plugin_api::{Error, Result};

/// What was read of it.
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

    /// Refuses a footer by which another table would be read.
    pub fn check(&self, footer: &Footer) -> Result<()> {
        check_footer_schema(&self.schema, &footer.schema)?;
        check_list("dictionary", &self.dictionaries, &footer.dictionaries)?;
        check_list("record batch", &self.batches, &footer.batches)
    }
}

fn check_list(what: &str, read: &[Place], listed: &[Block]) -> Result<()> {
    let same = |(read, listed): (&Place, &Block)| {
        read.begin == listed.offset
            && read.body - read.begin == listed.metadata_bytes as u64
            && read.body_bytes <= listed.body_bytes
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
