//! Counts the bytes of any sink.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{ByteSink, Result};

/// Wraps any sink and counts the bytes that are written to it. Clones share the sink and the count.
#[derive(Clone)]
pub struct SharedSink {
    name: Arc<str>,
    state: Arc<Mutex<State>>,
}

struct State {
    sink: Box<dyn ByteSink>,
    bytes_written: u64,
}

impl SharedSink {
    pub(crate) fn new(sink: Box<dyn ByteSink>) -> Self {
        let name = sink.name().into();
        Self { name, state: Arc::new(Mutex::new(State { sink, bytes_written: 0 })) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes_written
    }
}

impl ByteSink for SharedSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sink.write(bytes)?;
        state.bytes_written += bytes.len() as u64;
        Ok(())
    }
}
