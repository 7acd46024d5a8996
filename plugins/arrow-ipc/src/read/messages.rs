//! Iterates over the messages of a source: a file in the order of its footer, a stream in its own
//! order, or a pipe.

use std::ops::Range;
use std::sync::Arc;

use crossdock_memory::Result;
use crossdock_plugin_api::{Cancel, Code, Error};

use super::bytes::Bytes;
use super::footer_check::{check_gaps, check_schemas, is_length};
use super::pipe::Pipe;
use crate::codec::Codec;
use crate::limits::MAX_METADATA_BYTES;
use crate::wire::frame::{
    self, CONTINUATION, FILE_HEAD_BYTES, FILE_TAIL_BYTES, Following, MAGIC, MAX_HEAD_BYTES, Prefix,
};
use crate::wire::{self, Block, Footer, Header, Message, Schema, footer};
use crossdock_memory::StoredSource;

/// A message with its body.
pub struct ReceivedMessage {
    /// The message's metadata.
    pub message: Message,
    /// The message's body.
    pub body: Bytes,
    /// Position of the message's prefix in the source.
    pub begin: u64,
    /// Position of the message's end in the source.
    pub position: u64,
}

/// The result of [`Messages::next`].
pub enum Next {
    /// The next message.
    Message(Box<ReceivedMessage>),
    /// The pipe has not delivered the next message yet.
    NotYet,
    /// The source has no more messages.
    End,
}

/// The messages that follow the schema.
pub enum Messages {
    /// The messages of a file, which its footer lists.
    File { file: Arc<StoredSource>, blocks: std::vec::IntoIter<Block>, n_dictionaries: usize },
    /// The messages of a stream whose length is known.
    Stream { stream: Arc<StoredSource>, position: u64 },
    /// The messages of a pipe.
    Pipe(Pipe),
}

/// A source that has been opened.
pub struct Opened {
    /// The schema of all batches.
    pub schema: Schema,
    /// The metadata of a file's footer.
    pub footer_metadata: Vec<(String, String)>,
    /// The messages that follow the schema.
    pub messages: Messages,
    /// Whether the source is a file. In a file, dictionaries must not be replaced.
    pub is_file: bool,
    /// Whether the schema message has metadata, which are dropped.
    pub drops_metadata: bool,
    /// Whether the schema in a file's footer differs from the first schema.
    pub footer_differs: bool,
}

/// Opens a source whose length is known. Its first bytes show whether it is a file or a stream.
pub fn open(file: StoredSource) -> Result<Opened> {
    let file = Arc::new(file);
    let mut head = [0; MAGIC.len()];
    let known = head.len().min(usize::try_from(file.len()).unwrap_or(usize::MAX));
    if known == 0 {
        return Err(Error::bad_data("the input is empty, expected an Arrow IPC file or stream"));
    }
    file.read(0, head.get_mut(..known).unwrap_or_default())?;
    if &head == MAGIC {
        open_file(file)
    } else {
        open_stream(file).map_err(|e| explain_unknown_format(e, &head))
    }
}

/// Adds an explanation to an error if the bytes do not begin with a continuation marker, because
/// the bytes may be in another format.
pub fn explain_unknown_format(error: Error, head: &[u8]) -> Error {
    match head {
        [0xff, 0xff, 0xff, 0xff, ..] => error,
        [b'F', b'E', b'A', b'1', ..] => Error::unsupported(
            "the input is a Feather file of version 1: write it again as version 2, which is Arrow IPC",
        ),
        _ if error.code() == Code::BAD_DATA => {
            error.context("the input is neither an Arrow IPC file nor a stream")
        }
        _ => error,
    }
}

fn open_file(file: Arc<StoredSource>) -> Result<Opened> {
    let min_bytes = FILE_HEAD_BYTES + FILE_TAIL_BYTES;
    let room =
        file.len().checked_sub(FILE_TAIL_BYTES).filter(|_| file.len() >= min_bytes).ok_or_else(|| {
            Error::bad_data(format!(
                "the input is truncated: it ends after {} bytes, an Arrow IPC file has at least {min_bytes}",
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
        drops_metadata: false,
        footer_differs,
    })
}

/// Returns the message at the beginning of `bytes`. The message has no prefix and ends before the
/// continuation marker of the next message.
fn unprefixed_message(bytes: &[u8]) -> &[u8] {
    let (words, _) = bytes.as_chunks::<4>();
    let markers = words.iter().enumerate().filter(|(_, word)| **word == CONTINUATION);
    let mut messages = markers.filter_map(|(i, _)| bytes.get(..4 * i)).take(MAX_MARKERS);
    messages.find(|message| wire::message::is_message(message)).unwrap_or(bytes)
}

/// Reads the schema at the beginning of a file and compares it with the footer's schema. Returns
/// the schema and the end of its message. `first` is the beginning of the next message, or of the
/// footer if there is no other message.
fn check_schema_message(file: &StoredSource, footer: &Schema, first: u64) -> Result<(Schema, u64)> {
    let mut begin = FILE_HEAD_BYTES;
    let mut word = [0; 4];
    while begin < MAX_HEAD_BYTES {
        file.read_unmapped(begin, &mut word)?;
        if word != [0; 4] {
            break;
        }
        begin += word.len() as u64;
    }
    let read = || {
        if frame::is_unprefixed(word) {
            let bytes = usize::try_from(first.saturating_sub(begin)).unwrap_or(usize::MAX);
            return file.with(begin, bytes.min(MAX_METADATA_BYTES), |bytes| {
                let schema = unprefixed_message(bytes);
                let end = begin + schema.len() as u64;
                let schema = expect_schema(wire::message::read(schema)?)?.0;
                check_schemas(&schema, footer)?;
                Ok((schema, end))
            });
        }
        let Frame::Message(message, end) = message_at(file, begin, USUAL_METADATA_BYTES)? else {
            return Err(Error::bad_data("the file has no messages before its footer, expected a schema"));
        };
        let schema = expect_schema(message)?.0;
        check_schemas(&schema, footer)?;
        Ok((schema, end))
    };
    read().map_err(|e| e.at_byte(begin))
}

fn open_stream(stream: Arc<StoredSource>) -> Result<Opened> {
    let Frame::Message(message, body) = message_at(&stream, 0, USUAL_METADATA_BYTES)? else {
        return Err(Error::bad_data("the stream ends before its schema"));
    };
    let (schema, drops_metadata) = expect_schema(message)?;
    let messages = Messages::Stream { stream, position: body };
    Ok(Opened {
        schema,
        footer_metadata: Vec::new(),
        messages,
        is_file: false,
        drops_metadata,
        footer_differs: false,
    })
}

/// Returns the schema in the first message of a stream, and whether the message has metadata.
pub fn expect_schema(message: Message) -> Result<(Schema, bool)> {
    match message.header {
        Header::Schema(schema) if message.body_bytes == 0 => Ok((*schema, !message.metadata.is_empty())),
        Header::Schema(_) => Err(Error::bad_data("the schema message has a body")),
        _ => Err(Error::bad_data("the stream does not begin with a schema")),
    }
}

/// Reads the message or the end marker at `position`. `likely_bytes` is the expected size of the
/// prefix and the metadata, which are read together.
fn message_at(stream: &StoredSource, position: u64, likely_bytes: usize) -> Result<Frame> {
    let remaining = stream.len().saturating_sub(position);
    if remaining == 0 {
        return Ok(Frame::End(0));
    }
    let within = |n: usize| n.min(usize::try_from(remaining).unwrap_or(usize::MAX));
    let mut head = vec![0; within(likely_bytes.max(8))];
    stream.read_unmapped(position, &mut head)?;
    let word = |at: usize| {
        let word = head.get(at..at + 4).and_then(|word| <[u8; 4]>::try_from(word).ok());
        word.ok_or_else(|| {
            Error::bad_data(format!(
                "the input is truncated: it ends {remaining} bytes after the last complete message"
            ))
        })
    };
    let (prefix, end_bytes) = match frame::read_first(word(0)?)? {
        Some(prefix) => (prefix, 4),
        None => (frame::read_second(word(4)?)?, 8),
    };
    let Prefix::Message { prefix_bytes, metadata_bytes } = prefix else { return Ok(Frame::End(end_bytes)) };
    let (got, end) = (head.len(), prefix_bytes + metadata_bytes);
    if within(end) < end {
        return Err(Error::bad_data(format!(
            "the input is truncated: a message has {end} bytes of metadata, but the data ends after {remaining} of them"
        )));
    }
    if got < end {
        head.resize(end, 0);
        stream.read_unmapped(position + got as u64, head.get_mut(got..).unwrap_or_default())?;
    }
    let message = wire::message::read(head.get(prefix_bytes..end).unwrap_or_default())?;
    Ok(Frame::Message(message, position + end as u64))
}

enum Frame {
    /// A message, and the position of its body.
    Message(Message, u64),
    /// An end marker, and its size in bytes.
    End(u64),
}

/// Returns the next message of this stream, or of the stream that follows its end.
fn next_in_stream(stream: &Arc<StoredSource>, position: &mut u64) -> Result<Next> {
    let mut is_first = false;
    loop {
        match message_at(stream, *position, USUAL_METADATA_BYTES)? {
            Frame::Message(message, body) => {
                if is_first {
                    check_first(&message)?;
                }
                let bytes = Bytes::stored(stream, body, message.body_bytes)?;
                let begin = std::mem::replace(position, body + message.body_bytes);
                return Ok(Next::Message(Box::new(ReceivedMessage {
                    message,
                    body: bytes,
                    begin,
                    position: *position,
                })));
            }
            Frame::End(bytes) => *position += bytes,
        }
        if !has_next_stream(stream, position)? {
            return Ok(Next::End);
        }
        is_first = true;
    }
}

/// Returns an error if the stream that follows does not begin with a schema.
pub fn check_first(message: &Message) -> Result<()> {
    match message.header {
        Header::Schema(_) => Ok(()),
        _ => Err(Error::bad_data("the next stream does not begin with a schema")),
    }
}

/// Moves `position` past padding. Returns whether another stream follows.
fn has_next_stream(stream: &StoredSource, position: &mut u64) -> Result<bool> {
    loop {
        let remaining = usize::try_from(stream.len().saturating_sub(*position)).unwrap_or(usize::MAX);
        let mut head = vec![0; remaining.min(PADDING_PIECE_BYTES)];
        stream.read_unmapped(*position, &mut head)?;
        match frame::following(&head) {
            Following::Nothing | Following::Other => return Ok(false),
            Following::Padding(bytes) => *position += bytes as u64,
            Following::Stream => return Ok(true),
            Following::File => return Err(file_follows()),
        }
    }
}

/// Creates the error for a file that follows a stream.
pub fn file_follows() -> Error {
    Error::bad_data("an Arrow IPC file follows the end of the stream: read them separately")
}

/// Size of the parts in which padding is read, in bytes.
const PADDING_PIECE_BYTES: usize = 4096;

/// Maximum number of continuation markers at which a reader tries to end a message without prefix,
/// because words within the message may equal a marker.
pub const MAX_MARKERS: usize = 16;

/// Typical size of the prefix and the metadata of a batch with some dozens of columns, in bytes.
const USUAL_METADATA_BYTES: usize = 2048;

impl Messages {
    /// Returns the next message. If there is a flag in `wait`, waits for the data of a pipe until
    /// the flag is set.
    pub fn next(&mut self, wait: Option<Cancel<'_>>) -> Result<Next> {
        match self {
            Self::File { file, blocks, n_dictionaries } => {
                let Some(block) = blocks.next() else { return Ok(Next::End) };
                let is_dictionary = *n_dictionaries > 0;
                *n_dictionaries = n_dictionaries.saturating_sub(1);
                block_at(file, block, is_dictionary).map(|a| Next::Message(Box::new(a)))
            }
            Self::Stream { stream, position } => {
                next_in_stream(stream, position).map_err(|e| e.at_byte(*position))
            }
            Self::Pipe(pipe) => pipe.next(wait),
        }
    }

    /// The codec of the next message, if the source is not a pipe and the message has one. Reads
    /// only the metadata of the message.
    pub fn next_codec(&self) -> Result<Option<Codec>> {
        let message = match self {
            Self::File { file, blocks, .. } => match blocks.as_slice().first() {
                Some(block) => message_at(file, block.offset, block.metadata_bytes)?,
                None => return Ok(None),
            },
            Self::Stream { stream, position } => message_at(stream, *position, USUAL_METADATA_BYTES)?,
            Self::Pipe(_) => return Ok(None),
        };
        Ok(match message {
            Frame::Message(Message { header: Header::Batch(meta), .. }, _)
            | Frame::Message(Message { header: Header::Dictionary { batch: meta, .. }, .. }, _) => meta.codec,
            _ => None,
        })
    }

    /// The positions of the record batches of a file that were not read yet; `None` for a stream.
    pub fn batches(&self) -> Option<&[Block]> {
        match self {
            Self::File { blocks, n_dictionaries, .. } => blocks.as_slice().get(*n_dictionaries..),
            Self::Stream { .. } | Self::Pipe(_) => None,
        }
    }

    /// Leaves out the record batches of a file that are not in `range`, before a message is read.
    pub fn keep_batches(&mut self, range: Range<usize>) {
        if let Self::File { blocks, n_dictionaries, .. } = self {
            let is_kept = |i: usize| i < *n_dictionaries || range.contains(&(i - *n_dictionaries));
            let kept = blocks.as_slice().iter().enumerate().filter(|(i, _)| is_kept(*i));
            let kept: Vec<_> = kept.map(|(_, block)| *block).collect();
            *blocks = kept.into_iter();
        }
    }

    /// The number of rows of each record batch of a file, from the metadata of its message, which
    /// is read with one small read. `None` for a stream.
    pub fn rows_of_batches(&self, check: impl Fn() -> Result<()>) -> Result<Option<Vec<u64>>> {
        let (Self::File { file, .. }, Some(blocks)) = (self, self.batches()) else { return Ok(None) };
        let rows = |block: &Block| {
            check()?;
            match block_at(file, *block, false)?.message.header {
                Header::Batch(meta) => Ok(meta.rows as u64),
                _ => Err(Error::internal("a record batch has another kind of message")),
            }
        };
        blocks.iter().map(rows).collect::<Result<Vec<_>>>().map(Some)
    }

    /// After the end of the source, the position of trailing bytes that are not read. A pipe warns
    /// about such bytes itself.
    pub fn unread_from(&self) -> Option<u64> {
        match self {
            Self::Stream { stream, position } => (*position < stream.len()).then_some(*position),
            Self::File { .. } | Self::Pipe(_) => None,
        }
    }

    /// After the end of the source, the number of bytes that were used. Trailing bytes are not
    /// counted.
    pub fn used_bytes(&self) -> u64 {
        match self {
            Self::Stream { position, .. } => *position,
            Self::File { file, .. } => file.len(),
            Self::Pipe(pipe) => pipe.used_bytes(),
        }
    }

    /// Size of the source in bytes; 0 if unknown.
    pub fn total_bytes(&self) -> u64 {
        match self {
            Self::File { file: source, .. } | Self::Stream { stream: source, .. } => source.len(),
            Self::Pipe(_) => 0,
        }
    }
}

fn block_at(file: &Arc<StoredSource>, block: Block, is_dictionary: bool) -> Result<ReceivedMessage> {
    let read = || {
        let Frame::Message(message, body) = message_at(file, block.offset, block.metadata_bytes)? else {
            return Err(Error::bad_data(
                "the footer lists a message, but the file has an end-of-stream marker",
            ));
        };
        match (&message.header, is_dictionary) {
            (Header::Dictionary { .. }, true) | (Header::Batch(_), false) => {}
            (_, true) => {
                return Err(Error::bad_data(
                    "the footer lists a dictionary batch, but the file has a message of another kind",
                ));
            }
            (_, false) => {
                return Err(Error::bad_data(
                    "the footer lists a record batch, but the file has a message of another kind",
                ));
            }
        }
        // The body begins at the position that the footer lists, because the length in the prefix
        // may not include padding.
        let start = block.offset + block.metadata_bytes as u64;
        let has_lengths = is_length(body - block.offset, block.metadata_bytes as u64)
            && is_length(message.body_bytes, block.body_bytes);
        if start < body || !has_lengths {
            return Err(Error::bad_data(format!(
                "the footer lists {} bytes of metadata and a body of {} bytes, but the message has {} and {} bytes",
                block.metadata_bytes,
                block.body_bytes,
                body - block.offset,
                message.body_bytes
            )));
        }
        let bytes = Bytes::stored(file, start, message.body_bytes)?;
        Ok(ReceivedMessage {
            begin: block.offset,
            position: start + message.body_bytes,
            message,
            body: bytes,
        })
    };
    read().map_err(|e| e.at_byte(block.offset))
}
