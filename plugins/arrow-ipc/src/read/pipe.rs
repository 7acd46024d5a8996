//! Reads a source of unknown length in order. It is read by a separate thread, so that each batch
//! can be returned as soon as it is complete.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossdock_memory::{BufferMut, Device, Memory, Result, Stream};
use crossdock_plugin_api::{Cancel, Error, Source};

use super::bytes::Bytes;
use super::deferred::DeferredBatches;
use super::footer_check::{FOOTER_SCHEMA_DIFFERS, SequentialRead, unlisted};
use super::handoff::{Giver, Taken, Taker, handoff};
use super::messages::{
    MAX_MARKERS, Messages, Next, Opened, ReceivedMessage, check_first, expect_schema, explain_unknown_format,
    file_follows,
};
use crate::limits::{MAX_METADATA_BYTES, TRUSTED_BYTES};
use crate::wire::frame::{
    self, CONTINUATION, FILE_HEAD_BYTES, FILE_TAIL_BYTES, Following, LEGACY_HEAD_BYTES, MAGIC,
    MAX_HEAD_BYTES, Prefix,
};
use crate::wire::{self, Footer, Message, footer};

/// Maximum value of the first word of the footer in a legacy file. This word is the offset of the
/// footer's root table. It is too small to be the length of a message.
const MAX_FOOTER_ROOT: usize = 1024;

/// Maximum time to wait for the thread when the pipe is dropped. The thread ends at once if the
/// source is closed. Other sources may block the thread forever.
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Receives messages from a thread that reads one message ahead.
pub struct Pipe {
    /// The receiver of the messages. It is `None` only while the pipe is dropped.
    messages: Option<Taker<Result<Option<ReceivedMessage>>>>,
    thread: JoinHandle<()>,
    has_ended: bool,
    /// Number of bytes that were used. It is set when the pipe has ended.
    used: Arc<AtomicU64>,
}

struct Reader {
    source: Source,
    /// Number of bytes that were used so far.
    position: u64,
    /// The value of `position` is stored here at the end of the pipe.
    used: Arc<AtomicU64>,
    /// Bytes that were read but not used. The first of them is at `position`.
    ahead: Vec<u8>,
    /// Position of the current message.
    begin: u64,
    /// The messages of a file, which are compared with its footer; `None` for a stream.
    file: Option<SequentialRead>,
    deferred: DeferredBatches,
    warn: Box<dyn Fn(&str) + Send>,
    memory: Memory,
    /// A stream of the CPU, for bodies in host memory.
    stream: Stream,
    /// Whether bodies are read to pinned memory, from which they are copied to another device.
    pinned: bool,
}

/// Opens a pipe. The caller will copy the batches to `device`.
pub fn open(
    source: Source,
    memory: &Memory,
    device: Device,
    max_deferred_bytes: u64,
    warn: impl Fn(&str) + Send + 'static,
) -> Result<Opened> {
    let mut reader = Reader::new(source, memory, device, max_deferred_bytes, Box::new(warn))?;
    let mut word = [0; 4];
    match reader.fill(&mut word)? {
        0 => return Err(Error::bad_data("the input is empty, expected an Arrow IPC file or stream")),
        4 => {}
        n => return Err(Error::bad_data(format!("the input is truncated: it ends after {n} bytes"))),
    }
    let is_file = MAGIC.starts_with(&word);
    let first = if is_file {
        word = reader.skip_file_head()?;
        if frame::is_unprefixed(word) {
            Some(reader.unprefixed_message(word)?)
        } else {
            reader.message_after(word)?
        }
    } else {
        reader.message_after(word).map_err(|e| explain_unknown_format(e, &word))?
    };
    let (schema, drops_metadata) = match first {
        Some(message) => expect_schema(message)?,
        None => return Err(Error::bad_data("the stream ends before its schema")),
    };
    let has_markers = word == CONTINUATION || frame::is_unprefixed(word);
    if is_file {
        reader.deferred.missing = schema.dictionaries()?.into_keys().collect();
    }
    reader.file = is_file.then(|| SequentialRead::new(schema.clone(), has_markers));
    let used = reader.used.clone();
    let (giver, messages) = handoff();
    let thread = std::thread::Builder::new()
        .name("arrow-ipc-pipe".into())
        .spawn(move || reader.run(&giver))
        .map_err(|e| Error::internal(format!("cannot start a thread to read the pipe: {e}")))?;
    let messages = Messages::Pipe(Pipe { messages: Some(messages), thread, has_ended: false, used });
    Ok(Opened {
        schema,
        footer_metadata: Vec::new(),
        messages,
        is_file,
        drops_metadata,
        footer_differs: false,
    })
}

impl Pipe {
    /// After the end of the pipe, the number of bytes that were used.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the next message, or [`Next::NotYet`] if it is not available. If there is a flag in
    /// `wait`, waits until the message is available or the flag is set.
    pub fn next(&mut self, wait: Option<Cancel<'_>>) -> Result<Next> {
        if self.has_ended {
            return Ok(Next::End);
        }
        let Some(messages) = &self.messages else { return Ok(Next::End) };
        let taken = match wait {
            Some(cancel) => messages.take(cancel),
            None => messages.try_take(),
        };
        match taken {
            Taken::Value(Ok(Some(message))) => Ok(Next::Message(Box::new(message))),
            Taken::Value(Ok(None)) => {
                self.has_ended = true;
                Ok(Next::End)
            }
            Taken::Value(Err(e)) => Err(e),
            Taken::NotYet => Ok(Next::NotYet),
            // The thread always reports the end of the pipe. Without such a report, this is an
            // error and not the end of the table.
            Taken::Closed => {
                Err(Error::internal("the thread that reads the pipe has ended without a result"))
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The thread ends after its receiver was dropped. The drop waits for it, so that the memory
        // of the thread is released together with the reader.
        self.messages = None;
        let begin = Instant::now();
        while !self.thread.is_finished() && begin.elapsed() < JOIN_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Reader {
    fn new(
        source: Source,
        memory: &Memory,
        device: Device,
        max_deferred_bytes: u64,
        warn: Box<dyn Fn(&str) + Send>,
    ) -> Result<Self> {
        Ok(Self {
            source,
            position: 0,
            used: Arc::default(),
            ahead: Vec::new(),
            begin: 0,
            file: None,
            deferred: DeferredBatches {
                missing: HashSet::new(),
                batches: VecDeque::new(),
                bytes: 0,
                max_bytes: max_deferred_bytes,
                has_ended: false,
            },
            warn,
            memory: memory.clone(),
            stream: memory.default_stream(Device::CPU)?,
            pinned: device != Device::CPU,
        })
    }

    /// Skips the bytes of the magic after the first 4, and the padding of the magic. Returns the
    /// first word of the first message.
    fn skip_file_head(&mut self) -> Result<[u8; 4]> {
        let mut rest = [0; FILE_HEAD_BYTES as usize - 4];
        self.read_exact(&mut rest)?;
        if !rest.starts_with(&MAGIC[4..]) {
            return Err(Error::bad_data("the input begins with 'ARRO', expected 'ARROW1'"));
        }
        let mut word = [0; 4];
        // Some writers pad the magic to 64 bytes. These zeros are not an end marker, because no
        // message precedes them.
        for _ in 0..(MAX_HEAD_BYTES - FILE_HEAD_BYTES) / word.len() as u64 {
            self.read_exact(&mut word)?;
            if word != [0; 4] {
                break;
            }
        }
        Ok(word)
    }

    /// Sends messages until the end of the source, until an error, or until the receiver is
    /// dropped.
    fn run(&mut self, giver: &Giver<Result<Option<ReceivedMessage>>>) {
        loop {
            let next = self.next();
            let last = !matches!(next, Ok(Some(_)));
            if last {
                self.used.store(self.position, Ordering::Relaxed);
            }
            let next = next.map_err(|e| e.at_byte(self.begin));
            if !giver.give(next) || last {
                return;
            }
        }
    }

    /// Returns the next message whose dictionaries have been read.
    fn next(&mut self) -> Result<Option<ReceivedMessage>> {
        loop {
            if (self.deferred.missing.is_empty() || self.deferred.has_ended)
                && let Some(batch) = self.deferred.batches.pop_front()
            {
                return Ok(Some(batch));
            }
            if self.deferred.has_ended {
                return Ok(None);
            }
            match self.read_next()? {
                None => self.deferred.has_ended = true,
                Some(received) => {
                    if let Some(received) = self.deferred.add(received) {
                        return Ok(Some(received));
                    }
                }
            }
        }
    }

    fn read_next(&mut self) -> Result<Option<ReceivedMessage>> {
        let Some(message) = self.message()? else { return Ok(None) };
        let begin = self.begin;
        if let Some(file) = &mut self.file {
            file.add(&message, begin, self.position)?;
        }
        let body = self.body(message.body_bytes)?;
        Ok(Some(ReceivedMessage { message, body, begin, position: self.position }))
    }

    /// Reads until `ahead` has `bytes` bytes or the source ends.
    fn look_ahead(&mut self, bytes: usize) -> Result<()> {
        while self.ahead.len() < bytes {
            let had = self.ahead.len();
            let mut more = vec![0; bytes - had];
            let n = self.source.read_at(self.position + had as u64, &mut more)?;
            if n == 0 {
                break;
            }
            more.truncate(n);
            self.ahead.append(&mut more);
        }
        Ok(())
    }

    fn fill(&mut self, to: &mut [u8]) -> Result<usize> {
        let mut done = self.ahead.len().min(to.len());
        for (to, from) in to.iter_mut().zip(self.ahead.drain(..done)) {
            *to = from;
        }
        self.position += done as u64;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.source.read_at(self.position, rest)? {
                0 => break,
                n => {
                    done += n;
                    self.position += n as u64;
                }
            }
        }
        Ok(done)
    }

    fn read_exact(&mut self, to: &mut [u8]) -> Result<()> {
        let (at, expected) = (self.position, to.len());
        match self.fill(to)? {
            n if n == expected => Ok(()),
            n => Err(Error::bad_data(format!(
                "the input is truncated: expected {expected} bytes at offset {at}, but it ends after {n} of them"
            ))
            .with_offset(at + n as u64)),
        }
    }

    /// Returns the next message of this stream or of the stream that follows it. Returns `None` at
    /// the end of the last stream or of a complete file.
    fn message(&mut self) -> Result<Option<Message>> {
        let mut is_first = false;
        loop {
            self.begin = self.position;
            if self.file.is_some() && self.is_at_footer()? {
                return self.end_of_file().map(|()| None);
            }
            let mut word = [0; 4];
            match self.fill(&mut word)? {
                0 => return Ok(None),
                4 => {}
                n => {
                    return Err(Error::bad_data(format!(
                        "the input is truncated: it ends {n} bytes after the last complete message"
                    )));
                }
            }
            if word == [0; 4] && self.file.as_ref().is_some_and(|file| file.has_markers) {
                // These bytes are padding between two messages.
                continue;
            }
            if let Some(message) = self.message_after(word)? {
                if is_first {
                    check_first(&message)?;
                }
                return Ok(Some(message));
            }
            if self.file.is_some() {
                return self.end_of_file().map(|()| None);
            }
            if !self.has_next_stream()? {
                return Ok(None);
            }
            is_first = true;
        }
    }

    /// Whether the footer follows without an end marker.
    fn is_at_footer(&mut self) -> Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        let has_markers = file.has_markers;
        self.look_ahead(4)?;
        let word = match self.ahead.first_chunk::<4>() {
            Some(word) => *word,
            None => return Ok(true),
        };
        if word == CONTINUATION || word == [0; 4] {
            return Ok(false);
        }
        let root = u32::from_le_bytes(word) as usize;
        if has_markers || root > MAX_FOOTER_ROOT {
            return Ok(has_markers);
        }
        self.look_ahead(4 + root)?;
        Ok(!self.ahead.get(4..4 + root).is_some_and(wire::message::is_message))
    }

    /// Skips the padding after a stream. Returns whether another stream follows.
    fn has_next_stream(&mut self) -> Result<bool> {
        loop {
            self.begin = self.position;
            self.look_ahead(LEGACY_HEAD_BYTES)?;
            match frame::following(&self.ahead) {
                Following::Nothing => return Ok(false),
                Following::Padding(bytes) => {
                    self.ahead.drain(..bytes.min(self.ahead.len()));
                    self.position += bytes as u64;
                }
                Following::Stream => return Ok(true),
                Following::File => return Err(file_follows()),
                Following::Other => {
                    (self.warn)(&format!(
                        "'{}' has bytes after the end of its stream, from byte {} on, which are ignored",
                        self.source.name(),
                        self.position
                    ));
                    return Ok(false);
                }
            }
        }
    }

    fn message_after(&mut self, mut word: [u8; 4]) -> Result<Option<Message>> {
        let prefix = match frame::read_first(word)? {
            Some(prefix) => prefix,
            None => {
                self.read_exact(&mut word)?;
                frame::read_second(word)?
            }
        };
        let Prefix::Message { metadata_bytes, .. } = prefix else { return Ok(None) };
        let mut metadata = Vec::new();
        while metadata.len() < metadata_bytes {
            let begin = metadata.len();
            // The declared length is not trusted, so the allocation grows as the bytes are
            // received.
            metadata.resize(metadata_bytes.min(begin + begin.max(1 << 20)), 0);
            self.read_exact(metadata.get_mut(begin..).unwrap_or_default())?;
        }
        wire::message::read(&metadata).map(Some)
    }

    /// Reads the first message of a file if it has no prefix and begins with `word`. The message
    /// ends before the continuation marker of the next message.
    fn unprefixed_message(&mut self, mut word: [u8; 4]) -> Result<Message> {
        let mut metadata = Vec::new();
        let mut markers = 0;
        while metadata.len() < MAX_METADATA_BYTES && markers < MAX_MARKERS {
            metadata.extend_from_slice(&word);
            self.read_exact(&mut word)?;
            if word != CONTINUATION {
                continue;
            }
            markers += 1;
            if wire::message::is_message(&metadata) {
                self.ahead.splice(..0, word);
                self.position -= word.len() as u64;
                return wire::message::read(&metadata);
            }
        }
        Err(Error::bad_data("the file does not begin with a message"))
    }

    fn body(&mut self, bytes: u64) -> Result<Bytes> {
        let bytes = usize::try_from(bytes).map_err(|_| {
            Error::bad_data(format!(
                "a message declares a body of {bytes} bytes, which exceeds the address space"
            ))
        })?;
        let mut block = self.alloc(bytes.min(TRUSTED_BYTES))?;
        let mut done = 0;
        loop {
            let slice = host_bytes(&mut block)?;
            self.read_exact(slice.get_mut(done..).unwrap_or_default())?;
            done = slice.len();
            if done == bytes {
                return Ok(Bytes::InMemory { block: block.freeze_now(), stream: self.stream.clone() });
            }
            let mut larger = self.alloc(bytes.min(done.saturating_mul(2)))?;
            let received = host_bytes(&mut block)?;
            host_bytes(&mut larger)?.get_mut(..done).unwrap_or_default().copy_from_slice(received);
            block = larger;
        }
    }

    fn alloc(&self, bytes: usize) -> Result<BufferMut> {
        if self.pinned { self.memory.alloc_pinned(bytes) } else { self.memory.alloc(&self.stream, bytes) }
    }

    /// Reads the end of a file, and compares the footer with the messages that were read.
    fn end_of_file(&mut self) -> Result<()> {
        let begin = self.position;
        let (mut rest, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match self.fill(&mut piece)? {
                0 => break,
                n => rest.extend_from_slice(piece.get(..n).unwrap_or_default()),
            }
            if rest.len() > MAX_METADATA_BYTES {
                return Err(Error::bad_data(format!(
                    "more than {MAX_METADATA_BYTES} bytes follow the last message, expected the footer of an Arrow IPC \
                     file"
                )));
            }
        }
        let Some((before, tail)) = rest.split_last_chunk::<{ FILE_TAIL_BYTES as usize }>() else {
            return Err(Error::bad_data(format!(
                "the input is truncated: it ends {} bytes after the last message, expected the footer of an Arrow IPC file",
                rest.len()
            )));
        };
        let length = frame::read_tail(*tail, before.len() as u64)?;
        let (gap, footer) = before.split_at(before.len().saturating_sub(length));
        let room = begin + gap.len() as u64;
        let footer = footer::read(footer, room)?;
        if let Some(file) = &self.file {
            file.check(&footer)?;
        }
        let padding = frame::padding(gap);
        let unlisted_bytes = (gap.len() - padding) as u64;
        if unlisted_bytes > 0 {
            return Err(unlisted(begin + padding as u64, unlisted_bytes));
        }
        self.warn_about_footer(&footer);
        Ok(())
    }

    /// Warns about parts of the footer that cannot be used, because the footer is at the end of a
    /// pipe.
    fn warn_about_footer(&self, footer: &Footer) {
        if self.file.as_ref().is_some_and(|file| file.differs(footer)) {
            (self.warn)(&format!("'{}': {FOOTER_SCHEMA_DIFFERS}", self.source.name()));
        }
        if footer.metadata.is_empty() {
            return;
        }
        (self.warn)(&format!(
            "'{}' is a pipe, so the {} metadata keys of its footer, which were read last, are dropped",
            self.source.name(),
            footer.metadata.len()
        ));
    }
}

fn host_bytes(block: &mut BufferMut) -> Result<&mut [u8]> {
    block
        .host_slice_mut()
        .ok_or_else(|| Error::internal("the block of host memory is not accessible to the host"))
}
