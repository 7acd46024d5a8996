//! The messages of a source, one after another: by a file's footer, in a stream's order, or out of a pipe.

use std::sync::Arc;

use crossdock_memory::Result;
use crossdock_plugin_api::Error;

use super::bytes::{Bytes, Stored};
use super::pipe::Pipe;
use crate::wire::frame::{self, FILE_HEAD_BYTES, FILE_TAIL_BYTES, MAGIC, Prefix};
use crate::wire::{self, Block, Footer, Header, Message, Schema, footer};

/// A message with its body.
pub struct Arrived {
    /// What it is.
    pub message: Message,
    /// Its body.
    pub body: Bytes,
    /// Bytes of the source up to its end.
    pub position: u64,
}

/// What there is when one asks for the next message.
pub enum Next {
    /// A message.
    Message(Box<Arrived>),
    /// None yet: a pipe has not delivered it.
    NotYet,
    /// None any more.
    End,
}

/// Messages after the schema.
pub enum Messages {
    /// Of a file, by its footer.
    File { file: Arc<Stored>, blocks: std::vec::IntoIter<Block>, n_dictionaries: usize },
    /// Of a stream of known length.
    Stream { stream: Arc<Stored>, position: u64 },
    /// Of a pipe.
    Pipe(Pipe),
}

/// What a source begins with, for whoever reads it from there.
pub struct Opened {
    /// The schema of all batches.
    pub schema: Schema,
    /// A file's footer metadata.
    pub footer_metadata: Vec<(String, String)>,
    /// What follows.
    pub messages: Messages,
    /// Whether replacing a dictionary is against the format.
    pub is_file: bool,
}

/// Opens a source of known length, as the form that its first bytes show.
pub fn open(file: Stored) -> Result<Opened> {
    let file = Arc::new(file);
    let mut head = [0; MAGIC.len()];
    let known = head.len().min(usize::try_from(file.len()).unwrap_or(usize::MAX));
    if known == 0 {
        return Err(Error::bad_data("it is empty: expected an Arrow IPC file or stream"));
    }
    file.read(0, head.get_mut(..known).unwrap_or_default())?;
    if &head == MAGIC { open_file(file) } else { open_stream(file) }
}

fn open_file(file: Arc<Stored>) -> Result<Opened> {
    let least = FILE_HEAD_BYTES + FILE_TAIL_BYTES;
    let room = file.len().checked_sub(FILE_TAIL_BYTES).filter(|_| file.len() >= least).ok_or_else(|| {
        Error::bad_data(format!(
            "it is truncated: {} bytes, expected at least {least} of an Arrow IPC file",
            file.len()
        ))
    })?;
    let mut tail = [0; FILE_TAIL_BYTES as usize];
    file.read(room, &mut tail)?;
    let footer_bytes = frame::read_tail(tail, room)?;
    let room = room - footer_bytes as u64;
    let Footer { schema, mut dictionaries, batches, metadata } =
        file.with(room, footer_bytes, |bytes| footer::read(bytes, room))?;
    let n_dictionaries = dictionaries.len();
    dictionaries.extend(batches);
    let messages = Messages::File { file, blocks: dictionaries.into_iter(), n_dictionaries };
    Ok(Opened { schema, footer_metadata: metadata, messages, is_file: true })
}

fn open_stream(stream: Arc<Stored>) -> Result<Opened> {
    let Some((message, body)) = message_at(&stream, 0)? else {
        return Err(Error::bad_data("the stream ends before its schema"));
    };
    let schema = expect_schema(message)?;
    let messages = Messages::Stream { stream, position: body };
    Ok(Opened { schema, footer_metadata: Vec::new(), messages, is_file: false })
}

/// The schema that a stream begins with.
pub fn expect_schema(message: Message) -> Result<Schema> {
    match message.header {
        Header::Schema(schema) if message.body_bytes == 0 => Ok(*schema),
        Header::Schema(_) => Err(Error::bad_data("the schema message has a body")),
        _ => Err(Error::bad_data("the stream does not begin with a schema")),
    }
}

/// The message at `position` and where its body begins; `None` at the end.
fn message_at(stream: &Stored, position: u64) -> Result<Option<(Message, u64)>> {
    let left = stream.len().saturating_sub(position);
    if left == 0 {
        return Ok(None);
    }
    let mut word = [0; 4];
    stream.read(position, &mut word)?;
    let prefix = match frame::read_first(word)? {
        Some(prefix) => prefix,
        None => {
            stream.read(position + 4, &mut word)?;
            frame::read_second(word)?
        }
    };
    let Prefix::Message { prefix_bytes, metadata_bytes } = prefix else { return Ok(None) };
    let start = position + prefix_bytes as u64;
    let message = stream.with(start, metadata_bytes, wire::message::read)?;
    Ok(Some((message, start + metadata_bytes as u64)))
}

impl Messages {
    /// The next message. A pipe is waited for only if `wait`, and only for a moment.
    pub fn next(&mut self, wait: bool) -> Result<Next> {
        match self {
            Self::File { file, blocks, n_dictionaries } => {
                let Some(block) = blocks.next() else { return Ok(Next::End) };
                let is_dictionary = *n_dictionaries > 0;
                *n_dictionaries = n_dictionaries.saturating_sub(1);
                block_at(file, block, is_dictionary).map(|a| Next::Message(Box::new(a)))
            }
            Self::Stream { stream, position } => match message_at(stream, *position) {
                Ok(Some((message, body))) => {
                    let bytes = Bytes::stored(stream, body, message.body_bytes)?;
                    *position = body + message.body_bytes;
                    Ok(Next::Message(Box::new(Arrived { message, body: bytes, position: *position })))
                }
                Ok(None) => Ok(Next::End),
                Err(e) => Err(e.context(format_args!("at byte {position}"))),
            },
            Self::Pipe(pipe) => pipe.next(wait),
        }
    }

    /// Bytes in all; 0 if unknown.
    pub fn total_bytes(&self) -> u64 {
        match self {
            Self::File { file: source, .. } | Self::Stream { stream: source, .. } => source.len(),
            Self::Pipe(_) => 0,
        }
    }
}

fn block_at(file: &Arc<Stored>, block: Block, is_dictionary: bool) -> Result<Arrived> {
    let read = || {
        let Some((message, body)) = message_at(file, block.offset)? else {
            return Err(Error::bad_data(
                "the footer promises a message, but there is an end-of-stream marker",
            ));
        };
        match (&message.header, is_dictionary) {
            (Header::Dictionary { .. }, true) | (Header::Batch(_), false) => {}
            (_, true) => {
                return Err(Error::bad_data("the footer promises a dictionary, but there is something else"));
            }
            (_, false) => {
                return Err(Error::bad_data(
                    "the footer promises a record batch, but there is something else",
                ));
            }
        }
        // Where the body begins is the footer's to say: the metadata's own length may leave out padding.
        let start = block.offset + block.metadata_bytes as u64;
        if start < body || message.body_bytes > block.body_bytes {
            return Err(Error::bad_data(format!(
                "the footer promises {} bytes of metadata and {} of body, the message has {} and {}",
                block.metadata_bytes,
                block.body_bytes,
                body - block.offset,
                message.body_bytes
            )));
        }
        let bytes = Bytes::stored(file, start, message.body_bytes)?;
        Ok(Arrived { position: start + message.body_bytes, message, body: bytes })
    };
    read().map_err(|e| e.context(format_args!("at byte {}", block.offset)))
}
