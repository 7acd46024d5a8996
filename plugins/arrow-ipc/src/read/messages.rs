//! The messages of a source, one after another: by a file's footer, in a stream's order, or out of a pipe.

use std::sync::Arc;

use crossdock_memory::Result;
use crossdock_plugin_api::{Code, Error};

use super::bytes::{Bytes, Stored};
use super::footer_check::{check_gaps, check_schemas, is_length};
use super::pipe::Pipe;
use crate::limits::MOST_METADATA_BYTES;
use crate::wire::frame::{
    self, CONTINUATION, FILE_HEAD_BYTES, FILE_TAIL_BYTES, Following, MAGIC, MOST_HEAD_BYTES, Prefix,
};
use crate::wire::{self, Block, Footer, Header, Message, Schema, footer};

/// A message with its body.
pub struct Arrived {
    /// What it is.
    pub message: Message,
    /// Its body.
    pub body: Bytes,
    /// Bytes of the source up to its prefix.
    pub begin: u64,
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
    /// Whether metadata of the schema's message is left out.
    pub leaves_metadata: bool,
    /// Whether a file's footer has another schema in what is not compared.
    pub footer_differs: bool,
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
    if &head == MAGIC { open_file(file) } else { open_stream(file).map_err(|e| not_ours(e, &head)) }
}

/// Bytes that begin neither as a file nor with a continuation marker are an old stream, or something else altogether.
pub fn not_ours(error: Error, head: &[u8]) -> Error {
    match head {
        [0xff, 0xff, 0xff, 0xff, ..] => error,
        [b'F', b'E', b'A', b'1', ..] => Error::unsupported(
            "it is a Feather file of version 1: write it again as version 2, which is Arrow IPC",
        ),
        _ if error.code() == Code::BAD_DATA => error.context("it is neither an Arrow IPC file nor a stream"),
        _ => error,
    }
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
    let first = dictionaries.iter().map(|block| block.offset).min().unwrap_or(room);
    let (begins_with, end) = check_schema_message(&file, &schema, first)?;
    let footer_differs = begins_with.arrow != schema.arrow;
    check_gaps(&file, end, &dictionaries, room)?;
    let messages = Messages::File { file, blocks: dictionaries.into_iter(), n_dictionaries };
    Ok(Opened {
        schema: begins_with,
        footer_metadata: metadata,
        messages,
        is_file: true,
        leaves_metadata: false,
        footer_differs,
    })
}

/// The message without a prefix that `bytes` begin with: it ends before the next message's marker.
fn bare_message(bytes: &[u8]) -> &[u8] {
    let (words, _) = bytes.as_chunks::<4>();
    let markers = words.iter().enumerate().filter(|(_, word)| **word == CONTINUATION);
    let mut messages = markers.filter_map(|(i, _)| bytes.get(..4 * i)).take(MOST_MARKERS);
    messages.find(|message| wire::message::is_message(message)).unwrap_or(bytes)
}

/// The schema that a file begins with, once compared to that of its footer, and bytes of the file up to its end. `first` is where the
/// next message begins, or the footer.
fn check_schema_message(file: &Stored, footer: &Schema, first: u64) -> Result<(Schema, u64)> {
    let mut begin = FILE_HEAD_BYTES;
    let mut word = [0; 4];
    while begin < MOST_HEAD_BYTES {
        file.read_apart(begin, &mut word)?;
        if word != [0; 4] {
            break;
        }
        begin += word.len() as u64;
    }
    let read = || {
        if frame::is_bare(word) {
            let bytes = usize::try_from(first.saturating_sub(begin)).unwrap_or(usize::MAX);
            return file.with(begin, bytes.min(MOST_METADATA_BYTES), |bytes| {
                let schema = bare_message(bytes);
                let end = begin + schema.len() as u64;
                let schema = expect_schema(wire::message::read(schema)?)?.0;
                check_schemas(&schema, footer)?;
                Ok((schema, end))
            });
        }
        let Found::Message(message, end) = message_at(file, begin, USUAL_METADATA_BYTES)? else {
            return Err(Error::bad_data("the file has no message before its footer, not even a schema"));
        };
        let schema = expect_schema(message)?.0;
        check_schemas(&schema, footer)?;
        Ok((schema, end))
    };
    read().map_err(|e| e.context(format_args!("at byte {begin}")))
}

fn open_stream(stream: Arc<Stored>) -> Result<Opened> {
    let Found::Message(message, body) = message_at(&stream, 0, USUAL_METADATA_BYTES)? else {
        return Err(Error::bad_data("the stream ends before its schema"));
    };
    let (schema, leaves_metadata) = expect_schema(message)?;
    let messages = Messages::Stream { stream, position: body };
    Ok(Opened {
        schema,
        footer_metadata: Vec::new(),
        messages,
        is_file: false,
        leaves_metadata,
        footer_differs: false,
    })
}

/// The schema that a stream begins with, and whether its message has metadata of its own.
pub fn expect_schema(message: Message) -> Result<(Schema, bool)> {
    match message.header {
        Header::Schema(schema) if message.body_bytes == 0 => Ok((*schema, !message.metadata.is_empty())),
        Header::Schema(_) => Err(Error::bad_data("the schema message has a body")),
        _ => Err(Error::bad_data("the stream does not begin with a schema")),
    }
}

/// The message at `position` and where its body begins, or how many bytes the end takes. `guess` is how many bytes of prefix and
/// metadata there may be: what is read at once.
fn message_at(stream: &Stored, position: u64, guess: usize) -> Result<Found> {
    let left = stream.len().saturating_sub(position);
    if left == 0 {
        return Ok(Found::End(0));
    }
    let within = |n: usize| n.min(usize::try_from(left).unwrap_or(usize::MAX));
    let mut head = vec![0; within(guess.max(8))];
    stream.read_apart(position, &mut head)?;
    let word = |at: usize| {
        let word = head.get(at..at + 4).and_then(|word| <[u8; 4]>::try_from(word).ok());
        word.ok_or_else(|| {
            Error::bad_data(format!("it is truncated: {left} bytes where a message should begin"))
        })
    };
    let (prefix, end_bytes) = match frame::read_first(word(0)?)? {
        Some(prefix) => (prefix, 4),
        None => (frame::read_second(word(4)?)?, 8),
    };
    let Prefix::Message { prefix_bytes, metadata_bytes } = prefix else { return Ok(Found::End(end_bytes)) };
    let (got, end) = (head.len(), prefix_bytes + metadata_bytes);
    if within(end) < end {
        return Err(Error::bad_data(format!(
            "it is truncated: a message of {end} bytes of metadata, but {left} bytes are left"
        )));
    }
    if got < end {
        head.resize(end, 0);
        stream.read_apart(position + got as u64, head.get_mut(got..).unwrap_or_default())?;
    }
    let message = wire::message::read(head.get(prefix_bytes..end).unwrap_or_default())?;
    Ok(Found::Message(message, position + end as u64))
}

enum Found {
    Message(Message, u64),
    End(u64),
}

/// The next message of a stream, or of the one that follows it.
fn next_of(stream: &Arc<Stored>, position: &mut u64) -> Result<Next> {
    let mut is_first = false;
    loop {
        match message_at(stream, *position, USUAL_METADATA_BYTES)? {
            Found::Message(message, body) => {
                if is_first {
                    check_first(&message)?;
                }
                let bytes = Bytes::stored(stream, body, message.body_bytes)?;
                let begin = std::mem::replace(position, body + message.body_bytes);
                return Ok(Next::Message(Box::new(Arrived {
                    message,
                    body: bytes,
                    begin,
                    position: *position,
                })));
            }
            Found::End(bytes) => *position += bytes,
        }
        if !is_followed(stream, position)? {
            return Ok(Next::End);
        }
        is_first = true;
    }
}

/// Refuses a stream that does not begin with a schema.
pub fn check_first(message: &Message) -> Result<()> {
    match message.header {
        Header::Schema(_) => Ok(()),
        _ => Err(Error::bad_data("a stream follows that does not begin with a schema")),
    }
}

/// Whether another stream follows the end of one, at `position` after padding.
fn is_followed(stream: &Stored, position: &mut u64) -> Result<bool> {
    loop {
        let left = usize::try_from(stream.len().saturating_sub(*position)).unwrap_or(usize::MAX);
        let mut head = vec![0; left.min(PADDING_PIECE_BYTES)];
        stream.read_apart(*position, &mut head)?;
        match frame::following(&head) {
            Following::Nothing | Following::Other => return Ok(false),
            Following::Padding(bytes) => *position += bytes as u64,
            Following::Stream => return Ok(true),
            Following::File => return Err(file_follows()),
        }
    }
}

/// What is wrong with a file behind a stream.
pub fn file_follows() -> Error {
    Error::bad_data("an Arrow IPC file follows the end of the stream: read each by itself")
}

/// How much is read at once of what is most likely padding.
const PADDING_PIECE_BYTES: usize = 4096;

/// How many words like a marker there may be inside of a message without a prefix: each is a try to read it.
pub const MOST_MARKERS: usize = 16;

/// Prefix and metadata of a batch of some dozens of columns.
const USUAL_METADATA_BYTES: usize = 2048;

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
            Self::Stream { stream, position } => {
                next_of(stream, position).map_err(|e| e.context(format_args!("at byte {position}")))
            }
            Self::Pipe(pipe) => pipe.next(wait),
        }
    }

    /// After the end: where bytes begin that are not read, if there are any. A pipe says so itself.
    pub fn left_over(&self) -> Option<u64> {
        match self {
            Self::Stream { stream, position } => (*position < stream.len()).then_some(*position),
            Self::File { .. } | Self::Pipe(_) => None,
        }
    }

    /// After the end: how many bytes were used. Those that are left over are not.
    pub fn used_bytes(&self) -> u64 {
        match self {
            Self::Stream { position, .. } => *position,
            Self::File { file, .. } => file.len(),
            Self::Pipe(pipe) => pipe.used_bytes(),
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
        let Found::Message(message, body) = message_at(file, block.offset, block.metadata_bytes)? else {
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
        let has_lengths = is_length(body - block.offset, block.metadata_bytes as u64)
            && is_length(message.body_bytes, block.body_bytes);
        if start < body || !has_lengths {
            return Err(Error::bad_data(format!(
                "the footer promises {} bytes of metadata and {} of body, the message has {} and {}",
                block.metadata_bytes,
                block.body_bytes,
                body - block.offset,
                message.body_bytes
            )));
        }
        let bytes = Bytes::stored(file, start, message.body_bytes)?;
        Ok(Arrived { begin: block.offset, position: start + message.body_bytes, message, body: bytes })
    };
    read().map_err(|e| e.context(format_args!("at byte {}", block.offset)))
}
