//! Reads the text of a source in order, and decompresses it.

use std::io::{self, Read};
use std::sync::Arc;

use crossdock_plugin_api::{Error, Result, Source};
use flate2::bufread::MultiGzDecoder;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::options::Compression;

/// The number of bytes that are read from a compressed source at once.
const READ_BYTES: usize = 256 << 10;
/// The greatest window of a Zstandard frame, as a power of 2. It is the limit of the command
/// `zstd`.
const MAX_WINDOW_LOG: u32 = 27;

/// The text of a source.
pub struct Text {
    raw: RawReader,
    codec: Codec,
}

enum Codec {
    None,
    Gzip(Box<MultiGzDecoder<Buffered>>),
    Zstd(Box<Zstd>),
}

impl Text {
    /// Begins to read `source`. Without `compression`, the first bytes decide: no text begins with
    /// the magic number of a compressed file.
    ///
    /// # Errors
    /// The error of the source.
    pub fn open(source: Arc<Source>, compression: Option<Compression>) -> Result<Self> {
        let mut raw = RawReader { source, position: 0, head: Vec::new(), head_used: 0 };
        let compression = match compression {
            Some(compression) => compression,
            None => Compression::of_bytes(raw.peek()?),
        };
        let codec = match compression {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip(Box::new(MultiGzDecoder::new(Buffered::new(&raw)))),
            Compression::Zstd => Codec::Zstd(Box::new(Zstd::new(Buffered::new(&raw))?)),
        };
        Ok(Self { raw, codec })
    }

    /// Whether the source is compressed. Offsets of the text are then not offsets of the source.
    pub fn is_compressed(&self) -> bool {
        !matches!(self.codec, Codec::None)
    }

    /// The number of bytes that were read from the source, and the length of the source; 0 if it
    /// is unknown.
    pub fn progress(&self) -> (u64, u64) {
        let position = match &self.codec {
            Codec::None => self.raw.position,
            Codec::Gzip(decoder) => decoder.get_ref().raw.position,
            Codec::Zstd(decoder) => decoder.input.raw.position,
        };
        (position, self.raw.source.len().unwrap_or(0))
    }

    /// Fills `to` with the next bytes of the text. Returns their number, which is less than the
    /// length of `to` only at the end of the text.
    ///
    /// # Errors
    /// The error of the source. Bad data if compressed data is damaged or truncated.
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        let (codec, result) = match &mut self.codec {
            Codec::None => return self.raw.fill(to),
            Codec::Gzip(decoder) => {
                ("gzip", read_full(decoder, to).map_err(|e| (e, &mut decoder.get_mut().error)))
            }
            Codec::Zstd(decoder) => {
                ("Zstandard", read_full(decoder, to).map_err(|e| (e, &mut decoder.input.error)))
            }
        };
        result.map_err(|(error, of_source)| {
            of_source.take().unwrap_or_else(|| {
                let what = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "the data ends too early".to_string(),
                    _ => error.to_string(),
                };
                Error::bad_data(format!("the bytes cannot be decompressed with {codec}: {what}"))
            })
        })
    }
}

fn read_full(from: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Reads the bytes of a source in order.
#[derive(Clone)]
struct RawReader {
    source: Arc<Source>,
    /// The number of bytes that were read from the source.
    position: u64,
    /// The first bytes of the source, if they were read before their consumer was known.
    head: Vec<u8>,
    head_used: usize,
}

impl RawReader {
    /// The first bytes of the source, which are not consumed.
    fn peek(&mut self) -> Result<&[u8]> {
        let mut head = vec![0; Compression::MAGIC_BYTES];
        let n = self.fill(&mut head)?;
        head.truncate(n);
        self.head = head;
        Ok(&self.head)
    }

    fn fill(&mut self, to: &mut [u8]) -> Result<usize> {
        let rest = self.head.get(self.head_used..).unwrap_or_default();
        let mut done = rest.len().min(to.len());
        for (to, from) in to.iter_mut().zip(rest) {
            *to = *from;
        }
        self.head_used += done;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.source.read_at(self.position, rest)? {
                0 => break,
                n => {
                    done += n;
                    self.position += n as u64;
                }
            }
        }
        Ok(done)
    }
}

/// Compressed bytes of a source, in a buffer. An error of the source is kept, because
/// [`io::Error`] cannot hold its code and its position.
struct Buffered {
    raw: RawReader,
    bytes: Vec<u8>,
    used: usize,
    error: Option<Error>,
}

impl Buffered {
    fn new(raw: &RawReader) -> Self {
        Self { raw: raw.clone(), bytes: Vec::new(), used: 0, error: None }
    }
}

impl Read for Buffered {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = io::BufRead::fill_buf(self)?.read(to)?;
        io::BufRead::consume(self, n);
        Ok(n)
    }
}

impl io::BufRead for Buffered {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.bytes.len() {
            self.bytes.resize(READ_BYTES, 0);
            let n = self.raw.fill(&mut self.bytes).map_err(|error| {
                let text = io::Error::other(error.message().to_string());
                self.error = Some(error);
                text
            })?;
            self.bytes.truncate(n);
            self.used = 0;
        }
        Ok(self.bytes.get(self.used..).unwrap_or_default())
    }

    fn consume(&mut self, n: usize) {
        self.used = self.used.saturating_add(n).min(self.bytes.len());
    }
}

/// Decompresses the frames of a Zstandard file.
struct Zstd {
    context: DCtx<'static>,
    input: Buffered,
    /// Whether a frame has begun and not ended.
    in_frame: bool,
}

impl Zstd {
    fn new(input: Buffered) -> Result<Self> {
        let none = || Error::out_of_memory("no memory for a Zstandard decoder");
        let mut context = DCtx::try_create().ok_or_else(none)?;
        let failed =
            |code| Error::internal(format!("the Zstandard decoder failed: {}", get_error_name(code)));
        context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(failed)?;
        Ok(Self { context, input, in_frame: false })
    }
}

impl Read for Zstd {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            let input = io::BufRead::fill_buf(&mut self.input)?;
            let is_end = input.is_empty();
            if is_end && !self.in_frame {
                return Ok(0);
            }
            let mut from = InBuffer::around(input);
            let mut out = OutBuffer::around(&mut *to);
            let hint = self.context.decompress_stream(&mut out, &mut from);
            let hint = hint.map_err(|code| io::Error::other(get_error_name(code)))?;
            let (read, written) = (from.pos(), out.pos());
            io::BufRead::consume(&mut self.input, read);
            self.in_frame = hint != 0;
            match written {
                0 if is_end && self.in_frame => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 => {}
                n => return Ok(n),
            }
        }
    }
}
