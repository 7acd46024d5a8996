//! Streams on which a device decompresses bodies.

use std::sync::{Mutex, PoisonError};

use crossdock_memory::{Device, Memory, Result, Stream};

/// Decompressions on different streams overlap with each other and with the copies of other bodies.
const MAX_STREAMS: usize = 16;

/// The streams of a reader. They are created when they are needed, and used one after the other.
#[derive(Default)]
pub struct DecompressionStreams(Mutex<(Vec<Stream>, usize)>);

impl DecompressionStreams {
    /// Returns the next stream of `device`, which is always the same device.
    pub fn next(&self, memory: &Memory, device: Device) -> Result<Stream> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (streams, used) = &mut *guard;
        if streams.len() < MAX_STREAMS {
            streams.push(memory.create_stream(device)?);
        }
        let stream = streams.get(*used % streams.len()).cloned();
        *used += 1;
        stream.ok_or_else(|| crossdock_plugin_api::Error::internal("there is no stream"))
    }
}
