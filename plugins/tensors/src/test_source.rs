//! Sources and sinks of the unit tests.

use std::sync::{Arc, Mutex};

use crossdock_memory::{Device, Result, StoredSource};
use crossdock_plugin_api::{ByteSink, ByteSource, Call, CallSettings, Sink, Source};

struct Bytes(Vec<u8>);

impl ByteSource for Bytes {
    fn name(&self) -> &str {
        "test input"
    }
    fn len(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let n = to.len().min(rest.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// A source with these bytes.
pub fn stored(bytes: &[u8]) -> StoredSource {
    StoredSource::new(Source::new(Arc::new(Bytes(bytes.to_vec())))).map_err(|_| ()).unwrap()
}

/// Runs `f` with a call.
pub fn with_call<T>(f: impl FnOnce(&Call<'_>) -> T) -> T {
    CallSettings::new(Device::CPU).enter(f)
}

/// A sink, and the bytes that were written to it.
pub fn sink() -> (Sink, Arc<Mutex<Vec<u8>>>) {
    struct Written(Arc<Mutex<Vec<u8>>>);
    impl ByteSink for Written {
        fn name(&self) -> &str {
            "test output"
        }
        fn write(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(())
        }
    }
    let bytes = Arc::default();
    (Sink::new(Box::new(Written(Arc::clone(&bytes)))), bytes)
}
