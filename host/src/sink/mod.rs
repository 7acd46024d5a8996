//! Destinations of bytes: files, pipes, memory.

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

use crate::error::{Error, Result};
use crate::uri::{scheme_of, without_secrets};

/// The name of standard output in messages. It is also used as a file extension of formats.
pub(crate) const STANDARD_OUTPUT: &str = "-";

/// A destination of bytes. If it is dropped before [`Output::commit`], no file remains.
pub enum Output {
    /// A file, which may replace an existing one.
    File(OutputFile),
    /// A pipe, a terminal or a device. Bytes are written to it directly.
    Stream(StreamSink),
    /// Memory.
    Memory(VecSink),
    /// Any other sink.
    Other(SharedSink),
}

impl Output {
    /// Opens a path for writing. A regular file appears at the path when the output is committed. A
    /// named pipe or a device is written directly.
    ///
    /// # Errors
    /// [`Error::Usage`] if the path has the form of a URI, because plugins only read URIs;
    /// [`Error::Io`] if the path cannot be written.
    pub fn create(path: impl AsRef<Path>, cancel: &CancelFlag) -> Result<Self> {
        let path = path.as_ref();
        if let Some(uri) = path.to_str().filter(|text| scheme_of(text).is_some()) {
            return Err(Error::usage(format!(
                "cannot write '{}': expected a path, because URIs can only be read; begin a path of this form with './'",
                without_secrets(uri)
            )));
        }
        match std::fs::metadata(path) {
            Ok(existing) if !existing.is_file() && !existing.is_dir() => {
                Ok(Self::Stream(StreamSink::open(path, cancel.clone())?))
            }
            _ => Ok(Self::File(OutputFile::create(path)?)),
        }
    }

    /// Standard output.
    pub fn stdout(cancel: &CancelFlag) -> Result<Self> {
        Ok(Self::Stream(StreamSink::stdout(cancel.clone())?))
    }

    /// Wraps a sink. If the commit fails or never happens, the caller must discard the bytes that
    /// were written to the sink.
    pub fn to(sink: impl ByteSink + 'static) -> Self {
        Self::Other(SharedSink::new(Box::new(sink)))
    }

    /// The output's name for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::File(file) => file.name(),
            Self::Stream(stream) => stream.name(),
            Self::Memory(_) => "memory",
            Self::Other(sink) => sink.name(),
        }
    }

    /// The temporary name that the file has until the commit, if any. A process that ends without
    /// dropping the output should remove the file with this name.
    pub fn temporary_path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => file.temporary_path(),
            Self::Stream(_) | Self::Memory(_) | Self::Other(_) => None,
        }
    }

    /// The name by which the format is chosen: the path, or "-" for standard output.
    pub fn target(&self) -> &str {
        match self {
            Self::Stream(stream) if stream.is_stdout() => STANDARD_OUTPUT,
            _ => self.name(),
        }
    }

    /// Returns a sink for an exporter. Only one sink of an output may be used at a time.
    pub fn sink(&self) -> Sink {
        Sink::new(self.bytes())
    }

    /// Returns the sink as a trait object.
    pub(crate) fn bytes(&self) -> Box<dyn ByteSink> {
        match self {
            Self::File(file) => Box::new(file.sink()),
            Self::Stream(stream) => Box::new(stream.clone()),
            Self::Memory(vec) => Box::new(vec.clone()),
            Self::Other(sink) => Box::new(sink.clone()),
        }
    }

    /// The number of bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        match self {
            Self::File(file) => file.bytes_written(),
            Self::Stream(stream) => stream.bytes_written(),
            Self::Memory(vec) => vec.bytes_written(),
            Self::Other(sink) => sink.bytes_written(),
        }
    }

    /// Completes the output. A file then appears at its path.
    pub fn commit(self) -> Result<()> {
        match self {
            Self::File(file) => file.commit(),
            Self::Stream(stream) => stream.flush(),
            Self::Memory(_) | Self::Other(_) => Ok(()),
        }
    }
}
