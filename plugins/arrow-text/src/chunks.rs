//! Divides the text of a source into chunks of whole records.

use std::sync::Arc;

use crossdock_plugin_api::{Error, Result};

use crate::input::Text;
use crate::lines::{count_lines, shortened};

/// Finds the ends of records in a text that begins with a record.
pub trait RecordEnds: Send {
    /// Continues the search to the end of `text`, which begins with the bytes of the previous
    /// call. Returns the end of the last record that ends with a line end, or 0.
    fn last_end(&mut self, text: &[u8]) -> usize;

    /// Begins with another text.
    fn restart(&mut self);

    /// The position of the quote that is still open at the end of the searched text.
    fn open_quote(&self) -> Option<usize> {
        None
    }
}

/// Whole records of a text.
#[derive(Clone)]
pub struct Chunk {
    /// The records. The last record of a text may have no line end.
    pub bytes: Arc<Vec<u8>>,
    /// The position of the first record in `bytes`, which may begin with a header.
    pub begin: usize,
    /// The number of the first line. The first line of a text is 1.
    pub first_line: u64,
    /// The offset of the first byte in the text.
    pub offset: u64,
    /// Whether offsets in the text are offsets in the source.
    pub is_plain: bool,
}

impl Chunk {
    /// An error about the byte at `at` of the chunk. The message begins with the number of the
    /// line. The host adds the name of the source.
    pub fn error_at(&self, at: usize, text: impl std::fmt::Display) -> Error {
        let before = self.bytes.get(..at.min(self.bytes.len())).unwrap_or_default();
        let line = self.first_line + count_lines(before);
        let error = Error::bad_data(format!("line {line}: {text}"));
        if self.is_plain { error.with_offset(self.offset.saturating_add(at as u64)) } else { error }
    }

    /// The records as text.
    ///
    /// # Errors
    /// Bad data with the position of the first byte that is not UTF-8.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.bytes).map_err(|error| {
            let at = error.valid_up_to();
            let bad = self.bytes.get(at..).and_then(|rest| rest.first()).copied().unwrap_or(0);
            let begin = self.bytes.get(..at).and_then(|before| memchr::memrchr(b'\n', before));
            let column = at - begin.map_or(0, |end| end + 1) + 1;
            self.error_at(at, format_args!("byte {column} is 0x{bad:02x}, expected UTF-8"))
        })
    }
}

/// The sizes of chunks, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The size of the first chunk. Each chunk is twice as large as the previous one.
    pub first: usize,
    /// The greatest size of a chunk with several records.
    pub most: usize,
    /// The greatest size of a record.
    pub record: usize,
}

/// Divides a text into chunks.
pub struct Chunks {
    text: Text,
    ends: Box<dyn RecordEnds>,
    sizes: Sizes,
    /// The size of the next chunk.
    bytes: usize,
    /// The beginning of a record whose end has not been read.
    rest: Vec<u8>,
    first_line: u64,
    offset: u64,
    is_at_end: bool,
}

const BOM: &[u8] = b"\xef\xbb\xbf";

impl Chunks {
    /// Begins with the first record of `text`, after a byte order mark.
    ///
    /// # Errors
    /// The error of the source. Bad data if the text is UTF-16 or UTF-32.
    pub fn new(mut text: Text, ends: Box<dyn RecordEnds>, sizes: Sizes) -> Result<Self> {
        let mut rest = vec![0; BOM.len()];
        let n = text.read(&mut rest)?;
        rest.truncate(n);
        let is_at_end = n < BOM.len();
        if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe] = rest.as_slice() {
            return Err(Error::bad_data("the byte order mark is that of UTF-16 or UTF-32, expected UTF-8"));
        }
        let offset = if rest == BOM { rest.drain(..).len() as u64 } else { 0 };
        let bytes = sizes.first.min(sizes.most);
        Ok(Self { text, ends, sizes, bytes, rest, first_line: 1, offset, is_at_end })
    }

    /// The number of bytes that were read from the source, and the length of the source.
    pub fn progress(&self) -> (u64, u64) {
        self.text.progress()
    }

    /// The next chunk, or `None` at the end of the text.
    ///
    /// # Errors
    /// The error of the source. Bad data if a record exceeds the limit.
    pub fn next(&mut self) -> Result<Option<Chunk>> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut end = 0;
        self.ends.restart();
        let mut target = self.bytes.max(bytes.len().saturating_mul(2));
        while end == 0 {
            if !self.is_at_end {
                let begin = bytes.len();
                bytes.resize(target.max(begin + 1), 0);
                let wanted = bytes.len() - begin;
                let n = self.text.read(bytes.get_mut(begin..).unwrap_or_default())?;
                bytes.truncate(begin + n);
                self.is_at_end = n < wanted;
            }
            end = if self.is_at_end { bytes.len() } else { self.ends.last_end(&bytes) };
            if self.is_at_end {
                break;
            }
            if end == 0 && bytes.len() >= self.sizes.record {
                return Err(self.too_long(bytes));
            }
            target = bytes.len().saturating_mul(2).min(self.sizes.record);
        }
        if end == 0 {
            return Ok(None);
        }
        self.rest.extend_from_slice(bytes.get(end..).unwrap_or_default());
        bytes.truncate(end);
        self.bytes = self.bytes.saturating_mul(2).min(self.sizes.most);
        let chunk = self.chunk(bytes);
        self.first_line += count_lines(&chunk.bytes);
        self.offset += chunk.bytes.len() as u64;
        Ok(Some(chunk))
    }

    fn chunk(&self, bytes: Vec<u8>) -> Chunk {
        Chunk {
            bytes: bytes.into(),
            begin: 0,
            first_line: self.first_line,
            offset: self.offset,
            is_plain: !self.text.is_compressed(),
        }
    }

    fn too_long(&self, bytes: Vec<u8>) -> Error {
        let quote = self.ends.open_quote();
        let head = shortened(&String::from_utf8_lossy(bytes.get(..200).unwrap_or(&bytes)));
        let mut text = format!(
            "a record has more than {} bytes, expected a line end earlier; it begins with {head}",
            bytes.len()
        );
        let chunk = self.chunk(bytes);
        if let Some(quote) = quote {
            let line = self.first_line + count_lines(chunk.bytes.get(..quote).unwrap_or_default());
            text += &format!(" and has a quote in line {line} that is not closed");
        }
        chunk.error_at(0, text)
    }
}
