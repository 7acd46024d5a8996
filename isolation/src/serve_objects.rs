//! What the process of an isolated plugin reads and writes of the host's.

use std::sync::Arc;

use crossdock_plugin_api::{ByteSink, ByteSource, Result};

use crate::mapping::{Mapping, read_from};
use crate::serve_ask::Ask;
use crate::shared::Incoming;
use crate::wire::{InputParts, SinkParts, Wish};

/// Bytes that are asked for, or sent, at once.
const AT_ONCE: usize = 1 << 20;

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
