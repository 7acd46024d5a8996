//! Compresses text and writes it to a sink.

use std::io::{self, Write};

use crossdock_plugin_api::{Error, Result, Sink};
use flate2::write::GzEncoder;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name};

use crate::options::Compression;

/// When the buffer has this many bytes, it is written to the sink.
const BUFFERED_BYTES: usize = 256 << 10;
/// The default level of the command `zstd`.
const ZSTD_LEVEL: i32 = 3;

/// The text of a sink.
pub struct Output(Codec);

enum Codec {
    None(Buffered),
    Gzip(Box<GzEncoder<Buffered>>),
    Zstd(Box<Zstd>),
}

impl Output {
    /// Begins to write to `sink`.
    ///
    /// # Errors
    /// Out of memory if there is none for a compressor.
    pub fn new(sink: Sink, compression: Compression) -> Result<Self> {
        let buffered = Buffered { sink, bytes: Vec::new(), error: None };
        Ok(Self(match compression {
            Compression::None => Codec::None(buffered),
            Compression::Gzip => {
                Codec::Gzip(Box::new(GzEncoder::new(buffered, flate2::Compression::default())))
            }
            Compression::Zstd => Codec::Zstd(Box::new(Zstd::new(buffered)?)),
        }))
    }

    /// Writes text.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.0 {
            Codec::None(to) => to.write_all(bytes).map_err(|error| to.explain(error)),
            Codec::Gzip(to) => to.write_all(bytes).map_err(|error| to.get_mut().explain(error)),
            Codec::Zstd(to) => to.write(bytes),
        }
    }

    /// Writes the end of the compressed data and the buffered bytes.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.0 {
            Codec::None(to) => to.flush().map_err(|error| to.explain(error)),
            Codec::Gzip(to) => {
                let finished = to.try_finish();
                let to = to.get_mut();
                finished.and_then(|()| to.flush()).map_err(|error| to.explain(error))
            }
            Codec::Zstd(to) => to.finish(),
        }
    }
}

/// A buffered sink. An error of the sink is kept, because [`io::Error`] cannot hold its code.
struct Buffered {
    sink: Sink,
    bytes: Vec<u8>,
    error: Option<Error>,
}

impl Buffered {
    fn explain(&mut self, error: io::Error) -> Error {
        let error = self.error.take().unwrap_or_else(|| error.into());
        let name = self.sink.name();
        if error.message().contains(name) { error } else { error.context(format_args!("'{name}'")) }
    }
}

impl Write for Buffered {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(from);
        if self.bytes.len() >= BUFFERED_BYTES {
            self.flush()?;
        }
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let written = self.sink.write(&self.bytes);
        self.bytes.clear();
        written.map_err(|error| {
            let text = io::Error::other(error.message().to_string());
            self.error = Some(error);
            text
        })
    }
}

/// Compresses text to a Zstandard frame.
struct Zstd {
    context: CCtx<'static>,
    to: Buffered,
    scratch: Vec<u8>,
}

impl Zstd {
    fn new(to: Buffered) -> Result<Self> {
        let none = || Error::out_of_memory("no memory for a Zstandard encoder");
        let mut context = CCtx::try_create().ok_or_else(none)?;
        for parameter in [CParameter::CompressionLevel(ZSTD_LEVEL), CParameter::ChecksumFlag(true)] {
            context.set_parameter(parameter).map_err(failed)?;
        }
        Ok(Self { context, to, scratch: vec![0; CCtx::out_size()] })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut from = InBuffer::around(bytes);
        while from.pos() < bytes.len() {
            let mut out = OutBuffer::around(self.scratch.as_mut_slice());
            self.context.compress_stream(&mut out, &mut from).map_err(failed)?;
            let n = out.pos();
            self.send(n)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        loop {
            let mut out = OutBuffer::around(self.scratch.as_mut_slice());
            let rest = self.context.end_stream(&mut out).map_err(failed)?;
            let n = out.pos();
            self.send(n)?;
            if rest == 0 {
                return self.to.flush().map_err(|error| self.to.explain(error));
            }
        }
    }

    fn send(&mut self, n: usize) -> Result<()> {
        let bytes = self.scratch.get(..n).unwrap_or_default();
        self.to.write_all(bytes).map_err(|error| self.to.explain(error))
    }
}

fn failed(code: usize) -> Error {
    Error::internal(format!("the Zstandard encoder failed: {}", get_error_name(code)))
}
