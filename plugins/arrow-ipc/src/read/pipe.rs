//! A source of unknown length, read in order by a thread of its own, so that a batch is handed out when it is complete
//! and not when the next one is.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossdock_memory::{BufferMut, Device, Memory, Result, Stream};
use crossdock_plugin_api::{Error, Source};

use super::bytes::Bytes;
use super::footer_check::{InOrder, OTHER_SCHEMA, unlisted};
use super::held::Held;
use super::messages::{
    Arrived, MOST_MARKERS, Messages, Next, Opened, check_first, expect_schema, file_follows, not_ours,
};
use crate::limits::{DEFAULT_BYTES_AHEAD, MOST_METADATA_BYTES, TRUSTED_BYTES};
use crate::wire::frame::{
    self, CONTINUATION, FILE_HEAD_BYTES, FILE_TAIL_BYTES, Following, LEGACY_HEAD_BYTES, MAGIC,
    MOST_HEAD_BYTES, Prefix,
};
use crate::wire::{self, Footer, Message, footer};

/// How long one waits before asking again whether to go on.
const MOMENT: Duration = Duration::from_millis(50);

/// A legacy file's first bytes after its last message are a footer if they are no message. Those of a footer would give the
/// message no more bytes than this.
const MOST_FOOTER_ROOT: usize = 1024;

/// How long the end waits for the thread: a source that its owner closes lets it go at once, another one perhaps never.
const FAREWELL: Duration = Duration::from_secs(1);

/// Messages that a thread reads ahead, one at a time.
pub struct Pipe {
    /// `None` once nobody listens any more.
    messages: Option<Receiver<Result<Option<Arrived>>>>,
    thread: JoinHandle<()>,
    ended: bool,
    /// Bytes that were used, once it has ended.
    used: Arc<AtomicU64>,
}

struct Reader {
    source: Source,
    /// Bytes that were used so far.
    position: u64,
    /// The same for those who listen, at the end.
    used: Arc<AtomicU64>,
    /// Bytes from there on that were looked at.
    ahead: Vec<u8>,
    /// Where the message begins that is being read.
    begin: u64,
    /// What was read of a file, to compare it to the footer; `None` for a stream.
    file: Option<InOrder>,
    held: Held,
    warn: Box<dyn Fn(&str) + Send>,
    memory: Memory,
    /// Where bodies are put: host memory, pinned if they go on to another device.
    stream: Stream,
    pinned: bool,
}

/// Opens a pipe whose batches will be on `device`.
pub fn open(
    source: Source,
    memory: &Memory,
    device: Device,
    byte_budget: u64,
    warn: impl Fn(&str) + Send + 'static,
) -> Result<Opened> {
    let stream = memory.default_stream(Device::CPU)?;
    let mut reader = Reader {
        source,
        position: 0,
        used: Arc::default(),
        ahead: Vec::new(),
        begin: 0,
        file: None,
        held: Held {
            missing: HashSet::new(),
            batches: VecDeque::new(),
            bytes: 0,
            most_bytes: if byte_budget == 0 { DEFAULT_BYTES_AHEAD } else { byte_budget },
            has_ended: false,
        },
        warn: Box::new(warn),
        memory: memory.clone(),
        stream,
        pinned: device != Device::CPU,
    };
    let mut word = [0; 4];
    match reader.fill(&mut word)? {
        0 => return Err(Error::bad_data("it is empty: expected an Arrow IPC file or stream")),
        4 => {}
        n => return Err(Error::bad_data(format!("it is truncated: {n} bytes in all"))),
    }
    let is_file = MAGIC.starts_with(&word);
    let first = if is_file {
        let mut rest = [0; FILE_HEAD_BYTES as usize - 4];
        reader.exactly(&mut rest)?;
        if !rest.starts_with(&MAGIC[4..]) {
            return Err(Error::bad_data("it begins with 'ARRO', but not with 'ARROW1'"));
        }
        // Some writers pad the magic to 64 bytes, and a file's first message is no end.
        for _ in 0..(MOST_HEAD_BYTES - FILE_HEAD_BYTES) / word.len() as u64 {
            reader.exactly(&mut word)?;
            if word != [0; 4] {
                break;
            }
        }
        if frame::is_bare(word) { Some(reader.bare_message(word)?) } else { reader.message_after(word)? }
    } else {
        reader.message_after(word).map_err(|e| not_ours(e, &word))?
    };
    let (schema, leaves_metadata) = match first {
        Some(message) => expect_schema(message)?,
        None => return Err(Error::bad_data("the stream ends before its schema")),
    };
    let has_markers = word == CONTINUATION || frame::is_bare(word);
    if is_file {
        reader.held.missing = schema.dictionaries()?.into_keys().collect();
    }
    reader.file = is_file.then(|| InOrder::new(schema.clone(), has_markers));
    let used = reader.used.clone();
    let (send, messages) = sync_channel(0);
    let thread =
        std::thread::Builder::new()
            .name("arrow-ipc-pipe".into())
            .spawn(move || reader.run(&send))
            .map_err(|e| Error::internal(format!("a thread to read the pipe could not be started: {e}")))?;
    let messages = Messages::Pipe(Pipe { messages: Some(messages), thread, ended: false, used });
    Ok(Opened {
        schema,
        footer_metadata: Vec::new(),
        messages,
        is_file,
        leaves_metadata,
        footer_differs: false,
    })
}

impl Pipe {
    /// After the end: how many bytes were used.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The next message, [`Next::NotYet`] if it does not come at once, or with `wait` within a moment.
    pub fn next(&mut self, wait: bool) -> Result<Next> {
        if self.ended {
            return Ok(Next::End);
        }
        let Some(messages) = &self.messages else { return Ok(Next::End) };
        let received = if wait {
            messages.recv_timeout(MOMENT).map_err(|e| e == RecvTimeoutError::Timeout)
        } else {
            messages.try_recv().map_err(|e| e == TryRecvError::Empty)
        };
        match received {
            Ok(Ok(Some(message))) => Ok(Next::Message(Box::new(message))),
            Ok(Ok(None)) => {
                self.ended = true;
                Ok(Next::End)
            }
            Ok(Err(e)) => Err(e),
            Err(true) => Ok(Next::NotYet),
            // At the end it says so: without that word the table would only look complete.
            Err(false) => Err(Error::internal("the thread that reads the pipe is gone")),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The thread ends when it finds nobody listening. What it holds should be gone when the reader is.
        self.messages = None;
        let begin = Instant::now();
        while !self.thread.is_finished() && begin.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Reader {
    /// Reads on until the end, a failure, or until nobody listens any more.
    fn run(&mut self, send: &SyncSender<Result<Option<Arrived>>>) {
        loop {
            let next = self.next();
            let last = !matches!(next, Ok(Some(_)));
            if last {
                self.used.store(self.position, Ordering::Relaxed);
            }
            let next = next.map_err(|e| e.context(format_args!("at byte {}", self.begin)));
            if send.send(next).is_err() || last {
                return;
            }
        }
    }

    /// The next message that can be used.
    fn next(&mut self) -> Result<Option<Arrived>> {
        loop {
            if (self.held.missing.is_empty() || self.held.has_ended)
                && let Some(batch) = self.held.batches.pop_front()
            {
                return Ok(Some(batch));
            }
            if self.held.has_ended {
                return Ok(None);
            }
            match self.read_next()? {
                None => self.held.has_ended = true,
                Some(arrived) => {
                    if let Some(arrived) = self.held.add(arrived) {
                        return Ok(Some(arrived));
                    }
                }
            }
        }
    }

    fn read_next(&mut self) -> Result<Option<Arrived>> {
        let Some(message) = self.message()? else { return Ok(None) };
        let begin = self.begin;
        if let Some(file) = &mut self.file {
            file.add(&message, begin, self.position)?;
        }
        let body = self.body(message.body_bytes)?;
        Ok(Some(Arrived { message, body, begin, position: self.position }))
    }

    /// Has the next `bytes` bytes in `ahead`, or all that are left.
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

    fn exactly(&mut self, to: &mut [u8]) -> Result<()> {
        let (at, expected) = (self.position, to.len());
        match self.fill(to)? {
            n if n == expected => Ok(()),
            n => Err(Error::bad_data(format!(
                "it is truncated: expected {expected} bytes at offset {at}, got {n}"
            ))),
        }
    }

    /// The next message, of the stream that follows where one ends; `None` at the end of the last one, or of a file that is
    /// whole.
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
                        "it is truncated: {n} bytes where a message should begin"
                    )));
                }
            }
            if word == [0; 4] && self.file.as_ref().is_some_and(|file| file.has_markers) {
                // Padding between two messages.
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
            if !self.is_followed()? {
                return Ok(None);
            }
            is_first = true;
        }
    }

    /// Whether a file has no more messages here, and no end marker either.
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
        if has_markers || root > MOST_FOOTER_ROOT {
            return Ok(has_markers);
        }
        self.look_ahead(4 + root)?;
        Ok(!self.ahead.get(4..4 + root).is_some_and(wire::message::is_message))
    }

    /// Whether another stream follows the end of one, after padding.
    fn is_followed(&mut self) -> Result<bool> {
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
                        "'{}' has bytes after the end of its stream, from byte {} on, which are not read",
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
                self.exactly(&mut word)?;
                frame::read_second(word)?
            }
        };
        let Prefix::Message { metadata_bytes, .. } = prefix else { return Ok(None) };
        let mut metadata = Vec::new();
        while metadata.len() < metadata_bytes {
            let begin = metadata.len();
            // What is allocated follows what has arrived.
            metadata.resize(metadata_bytes.min(begin + begin.max(1 << 20)), 0);
            self.exactly(metadata.get_mut(begin..).unwrap_or_default())?;
        }
        wire::message::read(&metadata).map(Some)
    }

    /// A file's first message where it has no prefix, and `word` is its first: it ends before the next message's marker.
    fn bare_message(&mut self, mut word: [u8; 4]) -> Result<Message> {
        let mut metadata = Vec::new();
        let mut markers = 0;
        while metadata.len() < MOST_METADATA_BYTES && markers < MOST_MARKERS {
            metadata.extend_from_slice(&word);
            self.exactly(&mut word)?;
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
        let bytes = usize::try_from(bytes)
            .map_err(|_| Error::bad_data(format!("a message claims a body of {bytes} bytes")))?;
        let mut block = self.alloc(bytes.min(TRUSTED_BYTES))?;
        let mut done = 0;
        loop {
            let slice = host(&mut block)?;
            self.exactly(slice.get_mut(done..).unwrap_or_default())?;
            done = slice.len();
            if done == bytes {
                return Ok(Bytes::Arrived { block: block.freeze_now(), stream: self.stream.clone() });
            }
            let mut larger = self.alloc(bytes.min(done.saturating_mul(2)))?;
            let arrived = host(&mut block)?;
            host(&mut larger)?.get_mut(..done).unwrap_or_default().copy_from_slice(arrived);
            block = larger;
        }
    }

    fn alloc(&self, bytes: usize) -> Result<BufferMut> {
        if self.pinned { self.memory.alloc_pinned(bytes) } else { self.memory.alloc(&self.stream, bytes) }
    }

    /// Reads what a file has after its last message and compares it to what came before.
    fn end_of_file(&mut self) -> Result<()> {
        let begin = self.position;
        let (mut rest, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match self.fill(&mut piece)? {
                0 => break,
                n => rest.extend_from_slice(piece.get(..n).unwrap_or_default()),
            }
            if rest.len() > MOST_METADATA_BYTES {
                return Err(Error::bad_data(format!(
                    "more than {MOST_METADATA_BYTES} bytes follow the last message: expected the footer of an Arrow IPC \
                     file"
                )));
            }
        }
        let Some((before, tail)) = rest.split_last_chunk::<{ FILE_TAIL_BYTES as usize }>() else {
            return Err(Error::bad_data(format!(
                "it is cut off: expected the footer of an Arrow IPC file, got the end of the data after {} bytes",
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
        let unknown = (gap.len() - padding) as u64;
        if unknown > 0 {
            return Err(unlisted(begin + padding as u64, unknown));
        }
        self.warn_of(&footer);
        Ok(())
    }

    /// What a footer has besides comes too late.
    fn warn_of(&self, footer: &Footer) {
        if self.file.as_ref().is_some_and(|file| file.differs(footer)) {
            (self.warn)(&format!("'{}': {OTHER_SCHEMA}", self.source.name()));
        }
        if footer.metadata.is_empty() {
            return;
        }
        (self.warn)(&format!(
            "'{}' was read as a pipe, so the {} metadata keys of its footer came too late and are left out",
            self.source.name(),
            footer.metadata.len()
        ));
    }
}

fn host(block: &mut BufferMut) -> Result<&mut [u8]> {
    block
        .host_slice_mut()
        .ok_or_else(|| Error::internal("the host cannot reach the host memory that it allocated"))
}
