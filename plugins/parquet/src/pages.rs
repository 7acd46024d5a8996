//! Checks the headers of pages before the crate `parquet` decodes them.
//!
//! A header declares how much memory a page needs, and a few bytes of a damaged file may declare
//! any number. The crate would allocate it.

use std::ops::Range;

use crossdock_plugin_api::{Error, Result};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use crate::bytes::Chunk;
use crate::thrift::{Reader, Type};

/// The number of bytes that most headers have at most.
const LIKELY_HEADER_BYTES: u64 = 1 << 10;
/// The type of pages that the crate does not know.
const INDEX_PAGE: i64 = 1;

/// The numbers of a page's header.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Header {
    /// The number of bytes of the header.
    bytes: usize,
    page_type: i64,
    uncompressed: i64,
    compressed: i64,
    /// The number of values, including nulls.
    n_values: i64,
}

/// What is checked.
#[derive(Clone)]
pub struct Checks {
    pub chunk: Chunk,
    /// The bytes of the column chunk.
    pub range: Range<u64>,
    /// The pages, if the index is used. Otherwise, they are found by their headers.
    pub locations: Option<Vec<PageLocation>>,
    /// The size of a decoded value.
    pub value_bytes: u64,
    /// The greatest memory of a page.
    pub max_bytes: u64,
}

impl Checks {
    /// Checks the header of the page at a position.
    fn header(&self, offset: u64) -> Result<Header> {
        let available = self.range.end.saturating_sub(offset);
        let mut least = LIKELY_HEADER_BYTES;
        let header = loop {
            let bytes = self.chunk.from(offset, least)?;
            match parse(&bytes) {
                // The header may be longer than the bytes that were read.
                Err(_) if (bytes.len() as u64) < available && least < available => {
                    least = (bytes.len() as u64).max(least).saturating_mul(2);
                }
                header => break header,
            }
        };
        let header = header.and_then(|header| {
            check_header(&header, available, self.value_bytes, self.max_bytes)?;
            Ok(header)
        });
        header.map_err(|error| error.context(format_args!("the page at byte {offset}")))
    }
}

/// Reads the pages of a column chunk with the crate's reader, and checks each header before.
pub struct CheckedPages<R> {
    reader: R,
    checks: Checks,
    /// The position of the next page, if pages are found by their headers.
    offset: u64,
    /// The index of the next page in the list of the locations. The dictionary is before page 0.
    next: Option<usize>,
}

impl<R: PageReader> CheckedPages<R> {
    pub fn new(reader: R, checks: Checks) -> Self {
        let first = checks.locations.as_ref().and_then(|locations| locations.first());
        let has_dictionary = first.is_some_and(|page| page.offset as u64 > checks.range.start);
        Self { reader, offset: checks.range.start, next: (!has_dictionary).then_some(0), checks }
    }

    /// Passes the next page. If `reads`, its memory is checked.
    fn pass(&mut self, reads: bool) -> Result<()> {
        if let Some(locations) = &self.checks.locations {
            let offset = match self.next {
                None => Some(self.checks.range.start),
                Some(i) => locations.get(i).map(|page| page.offset as u64),
            };
            self.next = Some(self.next.map_or(0, |i| i + 1));
            return match offset {
                Some(offset) if reads => self.checks.header(offset).map(drop),
                _ => Ok(()),
            };
        }
        while self.offset < self.checks.range.end {
            let header = self.checks.header(self.offset)?;
            let bytes = header.bytes as u64 + header.compressed.unsigned_abs();
            self.offset = self.offset.saturating_add(bytes);
            // The crate passes over pages of an unknown type.
            if header.page_type != INDEX_PAGE {
                break;
            }
        }
        Ok(())
    }
}

impl<R: PageReader> Iterator for CheckedPages<R> {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: PageReader> PageReader for CheckedPages<R> {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        self.pass(true).map_err(|error| self.checks.chunk.cause().set(error))?;
        self.reader.get_next_page()
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        self.reader.peek_next_page()
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        self.pass(false).map_err(|error| self.checks.chunk.cause().set(error))?;
        self.reader.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.reader.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> parquet::errors::Result<Option<Page>> {
        self.reader.take_deferred_dictionary()
    }

    fn at_record_boundary(&mut self) -> parquet::errors::Result<bool> {
        self.reader.at_record_boundary()
    }
}

fn check_header(header: &Header, available: u64, value_bytes: u64, max_bytes: u64) -> Result<()> {
    let Header { bytes, uncompressed, compressed, n_values, .. } = *header;
    let numbers = u64::try_from(uncompressed).ok().zip(u64::try_from(n_values).ok());
    let needed = u64::try_from(compressed).ok().map(|compressed| compressed.saturating_add(bytes as u64));
    let Some((uncompressed, n_values)) = numbers.filter(|_| needed.is_some_and(|bytes| bytes <= available))
    else {
        return Err(Error::bad_data(format!(
            "the header declares {n_values} values in {compressed} bytes that become {uncompressed} bytes, but \
             {available} bytes are left in the column chunk"
        )));
    };
    let largest = uncompressed.max(n_values.saturating_mul(value_bytes));
    if largest > max_bytes {
        return Err(Error::out_of_memory(format!(
            "the page needs {largest} bytes of memory, but the memory limit leaves {max_bytes} for a page: raise the \
             limit"
        )));
    }
    Ok(())
}

fn parse(bytes: &[u8]) -> Result<Header> {
    let mut header = Header { uncompressed: -1, compressed: -1, ..Header::default() };
    let mut reader = Reader::new(bytes);
    reader.fields(|reader, id, of| {
        match (id, of) {
            (1, Type::Int) => header.page_type = reader.int()?,
            (2, Type::Int) => header.uncompressed = reader.int()?,
            (3, Type::Int) => header.compressed = reader.int()?,
            // The headers of data pages, dictionaries, and data pages of version 2.
            (5 | 7 | 8, Type::Struct) => reader.fields(|reader, id, of| {
                let is_count = (id, of) == (1, Type::Int);
                if is_count {
                    header.n_values = reader.int()?;
                }
                Ok(is_count)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    header.bytes = reader.position();
    Ok(header)
}

/// The length of the longest value of a dictionary of byte arrays, in Parquet's plain encoding.
pub fn longest_value(dictionary: &[u8]) -> u64 {
    let (mut rest, mut longest) = (dictionary, 0);
    while let Some((length, values)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(u64::from(length));
        rest = values.get(length as usize..).unwrap_or_default();
    }
    longest
}

/// The average size of the decoded values of a row, estimated from the metadata, in bytes.
/// `value_bytes` is the size of a decoded value without the bytes of texts.
pub fn row_bytes(chunk: &ColumnChunkMetaData, value_bytes: u64, has_texts: bool, n_rows: u64) -> f64 {
    let values = chunk.num_values().max(0) as f64 * value_bytes as f64;
    let texts = chunk.unencoded_byte_array_data_bytes().unwrap_or(chunk.uncompressed_size()).max(0) as f64;
    (values + if has_texts { texts } else { 0.0 }) / n_rows.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1: 0, 2: 20, 3: 10, 5: {1: 5}
    const HEADER: &[u8] = b"\x15\x00\x15\x28\x15\x14\x2c\x15\x0a\x00\x00";

    #[test]
    fn header_is_parsed() {
        let expected =
            Header { bytes: HEADER.len(), page_type: 0, uncompressed: 20, compressed: 10, n_values: 5 };
        assert_eq!(parse(HEADER), Ok(expected));
        assert!(parse(HEADER.get(..5).unwrap()).is_err());
    }

    #[test]
    fn pages_are_limited() {
        let header = parse(HEADER).unwrap();
        let check = |available, value_bytes, max| check_header(&header, available, value_bytes, max);
        assert_eq!(check(21, 4, 20), Ok(()));
        assert!(check(20, 4, 20).unwrap_err().message().contains("20 bytes are left"));
        assert!(check(21, 4, 19).unwrap_err().message().contains("needs 20 bytes of memory"));
        assert!(check(21, 8, 39).unwrap_err().message().contains("needs 40 bytes of memory"));
        let missing = Header { compressed: -1, ..header };
        assert!(check_header(&missing, 100, 1, 100).is_err());
    }

    #[test]
    fn longest_value_of_a_dictionary() {
        assert_eq!(longest_value(b"\x01\0\0\0a\x03\0\0\0abc\x02\0\0\0ab"), 3);
        assert_eq!(longest_value(b"\xff\0\0\0a"), 255, "a damaged dictionary");
        assert_eq!(longest_value(b""), 0);
    }
}
