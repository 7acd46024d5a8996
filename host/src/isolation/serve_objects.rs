//! What the process of an isolated plugin has of the host's: sources, sinks, progress.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use crossdock_arrays::export_batch;
use crossdock_plugin_api::{
    BatchStreamHandle, ByteSink, ByteSource, EncodedArray, Error, Owned, Progress, Result, WriterHandle, abi,
};

use super::freight::TreeParts;
use super::lanes::Lanes;
use super::link::fits;
use super::remote::column_schema;
use super::rooms::{Lender, RoomParts, Streams};
use super::serve::Instance;
use super::serve_rooms::HostRooms;
use super::shared::{Incoming, Outgoing};
use super::wire::{self, CallParts, Failure, Grant, InputParts, SinkParts, Wish, With};
use crate::source::{Mapping, read_from};

/// Bytes that are asked for, or sent, at once.
const AT_ONCE: usize = 1 << 20;

/// Progress is told no more often.
const TELL_AFTER: Duration = Duration::from_millis(10);

/// A stream that the plugin opened.
pub struct OpenStream {
    // Before the instance that it belongs to.
    pub stream: BatchStreamHandle,
    pub schema: SchemaRef,
    pub at: Arc<Instance>,
}

/// A writer that it began; `None` once it is finished.
pub struct OpenWriter {
    // As above.
    pub writer: Option<WriterHandle>,
    pub schema: SchemaRef,
    pub at: Arc<Instance>,
}

/// Asks the host.
pub struct Ask(pub Lanes);

impl Ask {
    /// What is granted, and the bytes that come with it.
    fn ask(&self, wish: &Wish, after: &[u8]) -> Result<(Grant, Vec<u8>)> {
        let (grant, rest, _) = self.ask_with(wish, after, &Outgoing::default())?;
        Ok((grant, rest))
    }

    pub fn ask_with(
        &self,
        wish: &Wish,
        after: &[u8],
        files: &Outgoing,
    ) -> Result<(Grant, Vec<u8>, Vec<OwnedFd>)> {
        let wish = wire::write(wish)?;
        fits(wish.len().saturating_add(after.len()))?;
        let mut answer = self.0.ask(&wish, after, &files.seal()?, || Ok::<(), Error>(()))?;
        let (grant, rest) = wire::read_head::<std::result::Result<Grant, Failure>>(&answer.bytes)?;
        let head = answer.bytes.len() - rest.len();
        Ok((grant?, answer.bytes.split_off(head), answer.files))
    }

    /// Has the session that an instance belongs to decode an array for a call.
    pub fn decode(
        &self,
        instance: u64,
        call: CallParts,
        array: EncodedArray,
        streams: &Streams,
        rooms: Option<&Arc<HostRooms>>,
    ) -> Result<Owned<abi::Batch>> {
        let mut files = Outgoing::to(rooms.map(|rooms| rooms.clone() as Arc<dyn Lender>));
        let schema = column_schema(array.root()?)?;
        let tree = TreeParts::write(array.root()?, &mut files)?;
        let told = files.rooms().to_vec();
        let wish = Wish::Decode { instance, call, tree, rooms: told };
        let granted = self.ask_with(&wish, &[], &files);
        let (grant, _, files) = granted.inspect_err(|_| self.end_rooms(files.rooms()))?;
        let Grant::Batch(With { message, rooms: told }) = grant else {
            return Err(Error::internal("the host gave no batch"));
        };
        let files = match rooms {
            Some(rooms) => rooms.incoming(files, &told)?,
            None => Incoming::of_the_host(files)?,
        };
        let batch = message.read(&schema, &files)?;
        export_batch(&batch, false, streams.of(batch.device()))
    }

    /// Gives rooms back that were asked for, and that the host may not have taken anything from.
    pub fn end_rooms(&self, rooms: &[RoomParts]) {
        rooms.iter().for_each(|room| self.tell(&Wish::EndRoom(room.number)));
    }

    /// The same where an answer does not matter: where the host is gone, so is this process soon.
    pub fn tell(&self, wish: &Wish) {
        let _ = self.ask(wish, &[]);
    }

    /// The same for what may be lost where the host is busy with as much as can be asked of it.
    pub fn mention(&self, wish: &Wish) {
        if self.0.has_room() {
            self.tell(wish);
        }
    }

    /// Tells how far a call is.
    pub fn progress(self: Arc<Self>, call: u64) -> Arc<Progress> {
        let last = Mutex::new(None::<Instant>);
        Arc::new(move |done, total| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| last.elapsed() < TELL_AFTER) && done != total {
                return;
            }
            *last = Some(Instant::now());
            self.mention(&Wish::Progress { call, done, total });
        })
    }
}

/// A source of the host's: in memory that both see, or read by asking.
pub struct HandedSource {
    parts: InputParts,
    mapping: Option<Arc<Mapping>>,
    ask: Arc<Ask>,
}

impl HandedSource {
    pub fn new(parts: InputParts, files: &Incoming, ask: Arc<Ask>) -> Self {
        let mapping = parts.whole.and_then(|place| files.mapping(place));
        Self { parts, mapping, ask }
    }
}

impl Drop for HandedSource {
    fn drop(&mut self) {
        self.ask.tell(&Wish::EndSource(self.parts.number));
    }
}

impl ByteSource for HandedSource {
    fn name(&self) -> &str {
        &self.parts.name
    }

    fn len(&self) -> Option<u64> {
        self.parts.bytes
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        if let Some(bytes) = self.map() {
            return Ok(read_from(bytes, offset, to));
        }
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let bytes = rest.len().min(AT_ONCE) as u64;
            let wish = Wish::Read { source: self.parts.number, offset: offset + done as u64, bytes };
            let (_, got) = self.ask.ask(&wish, &[])?;
            let Some(place) = rest.get_mut(..got.len()).filter(|place| !place.is_empty()) else { break };
            place.copy_from_slice(&got);
            done += got.len();
        }
        Ok(done)
    }

    fn map(&self) -> Option<&[u8]> {
        let (place, mapping) = (self.parts.whole?, self.mapping.as_ref()?);
        let begin = usize::try_from(place.offset()).ok()?;
        mapping.bytes().get(begin..)?.get(..usize::try_from(place.bytes).ok()?)
    }
}

/// A sink of the host's.
pub struct HandedSink {
    parts: SinkParts,
    ask: Arc<Ask>,
}

impl HandedSink {
    pub fn new(parts: SinkParts, ask: Arc<Ask>) -> Self {
        Self { parts, ask }
    }
}

impl Drop for HandedSink {
    fn drop(&mut self) {
        self.ask.tell(&Wish::EndSink(self.parts.number));
    }
}

impl ByteSink for HandedSink {
    fn name(&self) -> &str {
        &self.parts.name
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(AT_ONCE) {
            self.ask.ask(&Wish::Write { sink: self.parts.number }, piece)?;
        }
        Ok(())
    }
}
