//! A source of unknown length, read in order by a thread of its own, so that a batch is handed out when it is complete
//! and not when the next one is.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossdock_memory::{BufferMut, Device, Memory, Result, Stream};
use crossdock_plugin_api::{Error, Source};

use super::bytes::Bytes;
use super::messages::{Arrived, Messages, Next, Opened, expect_schema, not_ours};
use crate::limits::{MOST_METADATA_BYTES, TRUSTED_BYTES};
use crate::wire::frame::{self, FILE_HEAD_BYTES, FILE_TAIL_BYTES, MAGIC, Prefix};
use crate::wire::{self, Message, footer};

/// How long one waits before asking again whether to go on.
const MOMENT: Duration = Duration::from_millis(50);

/// The most that a file pads its magic to.
const MOST_HEAD_BYTES: usize = 64;

/// How long the end waits for the thread: a source that its owner closes lets it go at once, another one perhaps never.
const FAREWELL: Duration = Duration::from_secs(1);

/// Messages that a thread reads ahead, one at a time.
pub struct Pipe {
    /// `None` once nobody listens any more.
    messages: Option<Receiver<Result<Option<Arrived>>>>,
    thread: JoinHandle<()>,
    ended: bool,
}

struct Reader {
    source: Source,
    position: u64,
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
    warn: impl Fn(&str) + Send + 'static,
) -> Result<Opened> {
    let stream = memory.default_stream(Device::CPU)?;
    let mut reader =
        Reader { source, position: 0, memory: memory.clone(), stream, pinned: device != Device::CPU };
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
        for _ in 0..MOST_HEAD_BYTES / word.len() {
            reader.exactly(&mut word)?;
            if word != [0; 4] {
                break;
            }
        }
        reader.message_after(word)?
    } else {
        reader.message_after(word).map_err(|e| not_ours(e, &word))?
    };
    let (schema, leaves_metadata) = match first {
        Some(message) => expect_schema(message)?,
        None => return Err(Error::bad_data("the stream ends before its schema")),
    };
    let (send, messages) = sync_channel(0);
    let run = move || {
        reader.run(&send);
        if is_file && let Some(what) = reader.rest_of_file() {
            warn(&what);
        }
    };
    let thread = std::thread::Builder::new()
        .name("arrow-ipc-pipe".into())
        .spawn(run)
        .map_err(|e| Error::internal(format!("a thread to read the pipe could not be started: {e}")))?;
    let messages = Messages::Pipe(Pipe { messages: Some(messages), thread, ended: false });
    // In a file the footer tells which dictionary is the last one; read in order, each is as good as the next.
    Ok(Opened { schema, footer_metadata: Vec::new(), messages, is_file: false, leaves_metadata })
}

impl Pipe {
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
            let begin = self.position;
            let next = match self.message() {
                Ok(None) => Ok(None),
                Ok(Some(message)) => self
                    .body(message.body_bytes)
                    .map(|body| Some(Arrived { message, body, position: self.position })),
                Err(e) => Err(e),
            };
            let last = !matches!(next, Ok(Some(_)));
            if send.send(next.map_err(|e| e.context(format_args!("at byte {begin}")))).is_err() || last {
                return;
            }
        }
    }

    fn fill(&mut self, to: &mut [u8]) -> Result<usize> {
        let mut done = 0;
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

    fn message(&mut self) -> Result<Option<Message>> {
        let mut word = [0; 4];
        match self.fill(&mut word)? {
            0 => Ok(None),
            4 => self.message_after(word),
            n => Err(Error::bad_data(format!("it is truncated: {n} bytes where a message should begin"))),
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

    /// Takes what a file has after its last message, so that whoever fills the pipe can finish, and says what of it is
    /// lost.
    fn rest_of_file(&mut self) -> Option<String> {
        let mut rest = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.fill(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(n) if rest.len() <= MOST_METADATA_BYTES => {
                    rest.extend_from_slice(piece.get(..n).unwrap_or_default());
                }
                Ok(_) => {}
            }
        }
        let room = rest.len().checked_sub(FILE_TAIL_BYTES as usize)?;
        let (footer, tail) = rest.split_at_checked(room)?;
        let length = frame::read_tail(tail.try_into().ok()?, room as u64).ok()?;
        let footer = footer::read(footer.get(room - length..)?, self.position).ok()?;
        (!footer.metadata.is_empty()).then(|| {
            format!(
                "'{}' was read as a pipe, so the {} metadata keys of its footer came too late and are left out",
                self.source.name(),
                footer.metadata.len()
            )
        })
    }
}

fn host(block: &mut BufferMut) -> Result<&mut [u8]> {
    block
        .host_slice_mut()
        .ok_or_else(|| Error::internal("the host cannot reach the host memory that it allocated"))
}
