//! Sources and sinks of the host for code that uses [`std::io`].

use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use crossdock_plugin_api::{Map, Sink, Source};

use crate::error::FirstError;

/// The size of the buffer of a source that is not in memory.
const BUFFER_BYTES: usize = 64 << 10;

/// A source of the host with a position. Clones have their own position.
///
/// If the source is in memory, for example because it is a mapped file, [`BufRead`] returns its
/// bytes without a copy. If its length is unknown, as for a pipe, it can only be read in order, and
/// clones must not be read.
pub struct SourceReader {
    source: Arc<Source>,
    map: Option<Map>,
    position: u64,
    /// The bytes at `position`.
    buffer: Vec<u8>,
    /// The number of bytes of `buffer` that were consumed.
    consumed: usize,
    pub(crate) error: FirstError,
}

impl Clone for SourceReader {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            map: self.map.clone(),
            position: self.at(),
            buffer: Vec::new(),
            consumed: 0,
            error: self.error.clone(),
        }
    }
}

#[allow(clippy::len_without_is_empty)]
impl SourceReader {
    /// Begins at the first byte of the source.
    pub fn new(source: Source) -> Self {
        let map = source.map();
        let error = FirstError::default();
        Self { source: Arc::new(source), map, position: 0, buffer: Vec::new(), consumed: 0, error }
    }

    /// A name for use in messages.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// The length in bytes, or `None` if it is unknown, as for a pipe.
    pub fn len(&self) -> Option<u64> {
        self.source.len()
    }

    /// The whole content, if it is in memory.
    pub fn in_memory(&self) -> Option<&[u8]> {
        self.map.as_ref().map(Map::bytes)
    }

    /// Fills `to` with the bytes that begin at `offset`. Does not change the position.
    ///
    /// # Errors
    /// The source ends too early, or the error of the source.
    pub fn read_exact_at(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.source.read_exact_at(offset, to).map_err(|error| self.error.keep(error))
    }

    /// The number of bytes from the start of the source to the next byte.
    fn at(&self) -> u64 {
        self.position + self.consumed as u64
    }
}

impl BufRead for SourceReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Some(map) = &self.map {
            let bytes = map.bytes();
            let at = usize::try_from(self.position).unwrap_or(usize::MAX).min(bytes.len());
            return Ok(bytes.get(at..).unwrap_or_default());
        }
        if self.consumed == self.buffer.len() {
            self.position = self.at();
            self.consumed = 0;
            self.buffer.resize(BUFFER_BYTES, 0);
            let read = self.source.read_at(self.position, &mut self.buffer);
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            read.map_err(|error| self.error.keep(error))?;
        }
        Ok(self.buffer.get(self.consumed..).unwrap_or_default())
    }

    fn consume(&mut self, n: usize) {
        match &self.map {
            Some(_) => self.position = self.position.saturating_add(n as u64),
            None => self.consumed = self.consumed.saturating_add(n).min(self.buffer.len()),
        }
    }
}

impl Read for SourceReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let is_buffered = self.map.is_some() || self.consumed < self.buffer.len();
        if !is_buffered && to.len() >= BUFFER_BYTES {
            let n = self.source.read_at(self.at(), to).map_err(|error| self.error.keep(error))?;
            self.position = self.at() + n as u64;
            (self.consumed, self.buffer) = (0, Vec::new());
            return Ok(n);
        }
        let n = self.fill_buf()?.read(to)?;
        self.consume(n);
        Ok(n)
    }
}

impl Seek for SourceReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, offset) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(offset) => (self.at(), offset),
            SeekFrom::End(offset) => (self.len().ok_or(io::ErrorKind::NotSeekable)?, offset),
        };
        let position = base.checked_add_signed(offset).ok_or(io::ErrorKind::InvalidInput)?;
        if self.len().is_none() && position != self.at() {
            return Err(io::ErrorKind::NotSeekable.into());
        }
        // The bytes of the buffer are kept if they contain the position.
        let consumed = position.checked_sub(self.position).and_then(|n| usize::try_from(n).ok());
        match consumed.filter(|n| self.map.is_none() && *n <= self.buffer.len()) {
            Some(n) => self.consumed = n,
            None => (self.position, self.consumed, self.buffer) = (position, 0, Vec::new()),
        }
        Ok(position)
    }
}

/// A sink of the host. Writes are not buffered.
pub struct SinkWriter {
    sink: Sink,
    pub(crate) error: FirstError,
}

impl SinkWriter {
    /// Writes to `sink`.
    pub fn new(sink: Sink) -> Self {
        Self { sink, error: FirstError::default() }
    }

    /// A name for use in messages.
    pub fn name(&self) -> &str {
        self.sink.name()
    }
}

impl Write for SinkWriter {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.sink.write(from).map_err(|error| self.error.keep(error))?;
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crossdock_plugin_api::{ByteSource, Error, Result};

    use super::*;

    struct Bytes {
        content: Vec<u8>,
        is_mapped: bool,
        is_pipe: bool,
    }

    impl ByteSource for Bytes {
        fn name(&self) -> &str {
            "bytes"
        }

        fn len(&self) -> Option<u64> {
            (!self.is_pipe).then_some(self.content.len() as u64)
        }

        fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
            let from = self.content.get(offset as usize..).ok_or_else(|| Error::io("after the end"))?;
            let n = from.len().min(to.len());
            to[..n].copy_from_slice(&from[..n]);
            Ok(n)
        }

        fn map(&self) -> Option<&[u8]> {
            self.is_mapped.then_some(&self.content)
        }
    }

    fn content() -> Vec<u8> {
        (0..300_000u32).map(|i| (i * 7 / 3) as u8).collect()
    }

    fn reader(is_mapped: bool, is_pipe: bool) -> SourceReader {
        SourceReader::new(Source::new(Arc::new(Bytes { content: content(), is_mapped, is_pipe })))
    }

    #[test]
    fn reads_of_any_size_return_all_bytes_in_order() {
        for (is_mapped, is_pipe) in [(true, false), (false, false), (false, true)] {
            for step in [1, 1000, BUFFER_BYTES - 1, BUFFER_BYTES, 400_000] {
                let (mut reader, mut got) = (reader(is_mapped, is_pipe), Vec::new());
                let mut part = vec![0; step];
                loop {
                    match reader.read(&mut part).unwrap() {
                        0 => break,
                        n => got.extend_from_slice(&part[..n]),
                    }
                }
                assert!(got == content(), "{is_mapped} {is_pipe} {step}");
            }
        }
    }

    #[test]
    fn seeks_to_any_position() {
        let content = content();
        for is_mapped in [true, false] {
            let mut reader = reader(is_mapped, false);
            let mut two = [0; 2];
            for at in [5, 70_000, 69_998, 0, 299_998, 3, 65_535, 65_536] {
                assert_eq!(reader.seek(SeekFrom::Start(at)).unwrap(), at);
                reader.read_exact(&mut two).unwrap();
                assert_eq!(two, content[at as usize..][..2], "{is_mapped} {at}");
                assert_eq!(reader.stream_position().unwrap(), at + 2);
                assert_eq!(reader.seek(SeekFrom::Current(-2)).unwrap(), at);
                let mut clone = reader.clone();
                clone.read_exact(&mut two).unwrap();
                assert_eq!(two, content[at as usize..][..2]);
            }
            assert_eq!(reader.seek(SeekFrom::End(-1)).unwrap(), 299_999);
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, content[299_999..]);
            assert_eq!(reader.seek(SeekFrom::Start(1 << 40)).unwrap(), 1 << 40);
            assert_eq!(
                reader.seek(SeekFrom::Current(-(1 << 41))).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
            let mut buffer = [0; 4];
            reader.read_exact_at(100, &mut buffer).unwrap();
            assert_eq!(buffer, content[100..104]);
        }
    }

    #[test]
    fn pipe_is_only_read_in_order() {
        let mut reader = reader(false, true);
        reader.read_exact(&mut [0; 100]).unwrap();
        assert_eq!(reader.stream_position().unwrap(), 100);
        for to in [SeekFrom::Start(0), SeekFrom::End(0), SeekFrom::Current(1)] {
            assert_eq!(reader.seek(to).unwrap_err().kind(), io::ErrorKind::NotSeekable);
        }
        assert!(reader.in_memory().is_none() && reader.len().is_none());
    }
}
