//! Sources and sinks that the suite passes to a plugin, with injected failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock::api::{ByteSink, ByteSource, Code, Error, Result, Sink, Source};

use super::host_calls;
use super::watch::INJECTED_FAILURE;

/// A source of bytes.
#[derive(Clone, Default)]
pub struct TestSource {
    pub bytes: Vec<u8>,
    /// Whether the source is a pipe, which has an unknown length and must be read in order.
    pub pipe: bool,
    /// Whether the source also offers its content as mapped memory.
    pub map: bool,
    /// The number of `bytes` before the content, which sets the alignment of the content.
    pub lead: usize,
    /// The number of bytes by which the declared length exceeds the actual length.
    pub missing: u64,
    /// The number of the read that fails, or 0 if no read fails.
    pub failing: u64,
    pub state: Arc<ReadState>,
}

/// How a source was read.
#[derive(Default)]
pub struct ReadState {
    reads: AtomicU64,
    /// The offset at which the last read of a pipe ended.
    next: AtomicU64,
    /// The number of reads of a pipe that did not begin at `next`.
    jumps: AtomicU64,
}

impl ReadState {
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    pub fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::SeqCst)
    }
}

impl ByteSource for TestSource {
    fn name(&self) -> &str {
        "a source of crossdock verify"
    }

    fn len(&self) -> Option<u64> {
        (!self.pipe).then_some(self.content().len() as u64 + self.missing)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        host_calls::on_call("read_at", true);
        if self.state.reads.fetch_add(1, Ordering::SeqCst) + 1 == self.failing {
            return Err(Error::io(format!("{INJECTED_FAILURE}: read_at")));
        }
        if self.pipe && self.state.next.load(Ordering::SeqCst) != offset {
            self.state.jumps.fetch_add(1, Ordering::SeqCst);
            return Err(Error::invalid_argument("a pipe can only be read in order"));
        }
        let rest =
            usize::try_from(offset).ok().and_then(|offset| self.content().get(offset..)).unwrap_or_default();
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        self.state.next.store(offset + n as u64, Ordering::SeqCst);
        Ok(n)
    }

    fn map(&self) -> Option<&[u8]> {
        (self.map && !self.pipe).then(|| self.content())
    }
}

impl TestSource {
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    fn content(&self) -> &[u8] {
        self.bytes.get(self.lead..).unwrap_or_default()
    }

    pub fn source(self) -> Source {
        Source::new(Arc::new(self))
    }
}

/// A sink that stores what is written.
#[derive(Default)]
pub struct TestSink {
    bytes: Mutex<Vec<u8>>,
    writes: AtomicU64,
    /// The number of the first write that fails, or 0 if no write fails. All later writes fail too.
    failing: AtomicU64,
}

struct SinkHandle(Arc<TestSink>);

impl TestSink {
    pub fn failing(nth: u64) -> Arc<Self> {
        Arc::new(Self { failing: AtomicU64::new(nth), ..Self::default() })
    }

    /// Returns a `Sink` that writes to this value, and that holds a reference to this value until
    /// the sink is released.
    pub fn sink(self: &Arc<Self>) -> Sink {
        Sink::new(Box::new(SinkHandle(self.clone())))
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }
}

impl ByteSink for SinkHandle {
    fn name(&self) -> &str {
        "a sink of crossdock verify"
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        host_calls::on_call("write", true);
        let (nth, failing) =
            (self.0.writes.fetch_add(1, Ordering::SeqCst) + 1, self.0.failing.load(Ordering::SeqCst));
        if failing != 0 && nth >= failing {
            return Err(Error::new(Code::IO, format!("{INJECTED_FAILURE}: write")));
        }
        self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(())
    }
}
