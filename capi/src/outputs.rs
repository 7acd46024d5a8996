//! Wraps sinks that the application provides.

use crossdock_plugin_api::{ByteSink, Result, Sink};

/// A sink that the application provides.
pub struct ForeignSink {
    sink: Sink,
    name: String,
}

impl ForeignSink {
    /// Takes ownership of the sink.
    pub fn new(sink: Sink) -> Self {
        let name = match sink.name() {
            "" => "the application's sink".to_string(),
            name => crossdock::one_line(name),
        };
        Self { sink, name }
    }
}

impl ByteSink for ForeignSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write(bytes)
    }
}
