//! Where bytes go: files that appear whole or not at all, pipes, memory.

mod failure;
mod file;
mod shared;
mod stream;
mod vec;

use std::path::Path;

use crossdock_plugin_api::{ByteSink, CancelFlag, Sink};

pub use file::OutputFile;
pub use shared::SharedSink;
pub use stream::StreamSink;
pub use vec::VecSink;

use crate::error::Result;

/// By which formats claim standard output, and users name it.
pub(crate) const STANDARD_OUTPUT: &str = "-";

/// Where output goes. Dropped without [`Output::commit`], it leaves no file behind.
pub enum Output {
    /// A file that does not exist yet, or is to be replaced.
    File(OutputFile),
    /// A pipe, a terminal, a device: written as it comes.
    Stream(StreamSink),
    /// Memory.
    Memory(VecSink),
    /// Anything else.
    Other(SharedSink),
}

impl Output {
    /// Opens a path. A regular file is written beside and moved into place at the end; what is there already and is
    /// no regular file (a named pipe, a device) is written directly.
    pub fn create(path: impl AsRef<Path>, cancel: &CancelFlag) -> Result<Self> {
        let path = path.as_ref();
        match std::fs::metadata(path) {
            Ok(there) if !there.is_file() && !there.is_dir() => {
                Ok(Self::Stream(StreamSink::open(path, cancel.clone())?))
            }
            _ => Ok(Self::File(OutputFile::create(path)?)),
        }
    }

    /// Standard output.
    pub fn stdout(cancel: &CancelFlag) -> Result<Self> {
        Ok(Self::Stream(StreamSink::stdout(cancel.clone())?))
    }

    /// A sink of the caller's. What was written to it when the commit fails, or never comes, is its own to throw away.
    pub fn to(sink: impl ByteSink + 'static) -> Self {
        Self::Other(SharedSink::new(Box::new(sink)))
    }

    /// A name for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::File(file) => file.name(),
            Self::Stream(stream) => stream.name(),
            Self::Memory(_) => "memory",
            Self::Other(sink) => sink.name(),
        }
    }

    /// The temporary name that it has until the commit, if any. Who ends the process without dropping it removes this.
    pub fn unfinished(&self) -> Option<&Path> {
        match self {
            Self::File(file) => file.unfinished(),
            Self::Stream(_) | Self::Memory(_) | Self::Other(_) => None,
        }
    }

    /// By what its format is known: the path, or "-" for standard output.
    pub fn target(&self) -> &str {
        match self {
            Self::Stream(stream) if stream.is_stdout() => STANDARD_OUTPUT,
            _ => self.name(),
        }
    }

    /// What an exporter writes to. One at a time.
    pub fn sink(&self) -> Sink {
        Sink::new(self.bytes())
    }

    /// The same, not yet offered to anybody.
    pub(crate) fn bytes(&self) -> Box<dyn ByteSink> {
        match self {
            Self::File(file) => Box::new(file.sink()),
            Self::Stream(stream) => Box::new(stream.clone()),
            Self::Memory(vec) => Box::new(vec.clone()),
            Self::Other(sink) => Box::new(sink.clone()),
        }
    }

    /// Bytes that were written so far.
    pub fn bytes_written(&self) -> u64 {
        match self {
            Self::File(file) => file.bytes_written(),
            Self::Stream(stream) => stream.bytes_written(),
            Self::Memory(vec) => vec.bytes_written(),
            Self::Other(sink) => sink.bytes_written(),
        }
    }

    /// Everything was written: makes it appear.
    pub fn commit(self) -> Result<()> {
        match self {
            Self::File(file) => file.commit(),
            Self::Stream(stream) => stream.flush(),
            Self::Memory(_) | Self::Other(_) => Ok(()),
        }
    }
}
