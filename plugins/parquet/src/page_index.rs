//! Reads the page index: where the pages of a column chunk are, and their least and greatest
//! values.
//!
//! The index is optional, and only saves work. A reader that needs it and finds it damaged reads
//! whole column chunks.

use std::ops::Range;

use bytes::Bytes;
use crossdock_plugin_api::{Error, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use crate::bytes::File;
use crate::footer::chunk_range;
use crate::thrift::{List, Reader, Type};

/// The statistics of the pages of a column chunk.
pub struct Bounds {
    pages: Vec<PageBounds>,
}

/// The statistics of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageBounds {
    /// Whether all values are null.
    pub is_null: bool,
    /// At most the least value.
    pub min: Bytes,
    /// At least the greatest value.
    pub max: Bytes,
}

/// The pages of a column chunk of `n_rows` rows. `None` if the chunk has no index, or a damaged
/// one.
///
/// # Errors
/// The error of the source.
pub fn locations(file: &File, chunk: &ColumnChunkMetaData, n_rows: u64) -> Result<Option<Vec<PageLocation>>> {
    let Some(bytes) = read(file, chunk.offset_index_offset(), chunk.offset_index_length())? else {
        return Ok(None);
    };
    let pages = chunk_range(chunk)?;
    Ok(parse_locations(&bytes).ok().filter(|locations| are_consistent(locations, &pages, n_rows)))
}

/// The statistics of the `n_pages` pages of a column chunk. `None` if the chunk has none, or
/// damaged ones.
///
/// # Errors
/// The error of the source.
pub fn bounds(file: &File, chunk: &ColumnChunkMetaData, n_pages: usize) -> Result<Option<Bounds>> {
    let Some(bytes) = read(file, chunk.column_index_offset(), chunk.column_index_length())? else {
        return Ok(None);
    };
    let pages = parse_bounds(&bytes).ok().filter(|pages| pages.len() == n_pages);
    Ok(pages.map(|pages| Bounds { pages }))
}

impl Bounds {
    /// The statistics of each page.
    pub fn pages(&self) -> &[PageBounds] {
        &self.pages
    }
}

/// The rows of each page of a row group of `n_rows` rows.
pub fn rows_of_pages(locations: &[PageLocation], n_rows: u64) -> impl Iterator<Item = Range<u64>> {
    let begins = locations.iter().map(|page| page.first_row_index as u64);
    let ends = locations.iter().skip(1).map(|page| page.first_row_index as u64).chain([n_rows]);
    begins.zip(ends).map(|(begin, end)| begin..end)
}

fn read(file: &File, offset: Option<i64>, length: Option<i32>) -> Result<Option<Bytes>> {
    let range = offset.zip(length).and_then(|(offset, length)| {
        let begin = u64::try_from(offset).ok()?;
        Some(begin..begin.checked_add(u64::try_from(length).ok()?)?)
    });
    match range.filter(|range| range.end <= file.len() && !range.is_empty()) {
        Some(range) => file.read(range).map(Some),
        None => Ok(None),
    }
}

/// Whether the pages are within the column chunk, and their rows are ascending.
fn are_consistent(locations: &[PageLocation], chunk: &Range<u64>, n_rows: u64) -> bool {
    let (mut end, mut row) = (chunk.start, None);
    for page in locations {
        let Ok(begin) = u64::try_from(page.offset) else { return false };
        let Ok(bytes) = u64::try_from(page.compressed_page_size) else { return false };
        if begin < end || bytes > chunk.end.saturating_sub(begin) {
            return false;
        }
        end = begin + bytes;
        let is_next = match row {
            None => page.first_row_index == 0,
            Some(last) => page.first_row_index > last,
        };
        if !is_next || page.first_row_index as u64 >= n_rows.max(1) {
            return false;
        }
        row = Some(page.first_row_index);
    }
    row.is_some()
}

fn parse_locations(bytes: &[u8]) -> Result<Vec<PageLocation>> {
    let mut pages = Vec::new();
    Reader::new(bytes).fields(|reader, id, of| {
        if (id, of) != (1, Type::List) {
            return Ok(false);
        }
        let List { element, len } = reader.list()?;
        if element != Type::Struct {
            return Err(Error::bad_data("the pages of an offset index are no structs"));
        }
        for _ in 0..len {
            let mut page = PageLocation { offset: -1, compressed_page_size: -1, first_row_index: -1 };
            reader.fields(|reader, id, of| {
                match (id, of) {
                    (1, Type::Int) => page.offset = reader.int()?,
                    (2, Type::Int) => page.compressed_page_size = i32::try_from(reader.int()?).unwrap_or(-1),
                    (3, Type::Int) => page.first_row_index = reader.int()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            pages.push(page);
        }
        Ok(true)
    })?;
    Ok(pages)
}

fn parse_bounds(bytes: &Bytes) -> Result<Vec<PageBounds>> {
    let (mut is_null, mut min, mut max) = (Vec::new(), Vec::new(), Vec::new());
    Reader::new(bytes).fields(|reader, id, of| {
        if of != Type::List || !(1..=3).contains(&id) {
            return Ok(false);
        }
        let List { element, len } = reader.list()?;
        match (id, element) {
            (1, Type::True | Type::False) => {
                for _ in 0..len {
                    is_null.push(reader.bool_element()?);
                }
            }
            (2 | 3, Type::Binary) => {
                let values = if id == 2 { &mut min } else { &mut max };
                for _ in 0..len {
                    values.push(bytes.slice_ref(reader.binary()?));
                }
            }
            _ => return Err(Error::bad_data("a list of a column index has elements of a wrong type")),
        }
        Ok(true)
    })?;
    if min.len() != is_null.len() || max.len() != is_null.len() {
        return Err(Error::bad_data("the lists of a column index have different lengths"));
    }
    let pages = is_null.into_iter().zip(min).zip(max);
    Ok(pages.map(|((is_null, min), max)| PageBounds { is_null, min, max }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(offset: i64, compressed_page_size: i32, first_row_index: i64) -> PageLocation {
        PageLocation { offset, compressed_page_size, first_row_index }
    }

    #[test]
    fn locations_are_read() {
        // [{1: 4, 2: 10, 3: 0}, {1: 14, 2: 6, 3: 100}]
        let bytes = b"\x19\x2c\x16\x08\x15\x14\x16\x00\x00\x16\x1c\x15\x0c\x16\xc8\x01\x00\x00";
        let pages = parse_locations(bytes).unwrap();
        assert_eq!(pages, [page(4, 10, 0), page(14, 6, 100)]);
        assert_eq!(rows_of_pages(&pages, 150).collect::<Vec<_>>(), [0..100, 100..150]);
        assert!(are_consistent(&pages, &(4..20), 150));
        assert!(!are_consistent(&pages, &(4..19), 150), "a page ends behind the chunk");
        assert!(!are_consistent(&pages, &(5..20), 150), "a page begins before the chunk");
        assert!(!are_consistent(&pages, &(4..20), 100), "a page begins behind the last row");
    }

    #[test]
    fn inconsistent_locations_are_not_used() {
        for pages in [
            vec![],
            vec![page(4, 1, 1)],
            vec![page(4, 1, 0), page(5, 1, 0)],
            vec![page(4, 2, 0), page(5, 1, 3)],
            vec![page(-4, 2, 0)],
            vec![page(4, -2, 0)],
        ] {
            assert!(!are_consistent(&pages, &(4..100), 10), "{pages:?}");
        }
    }

    #[test]
    fn bounds_are_read() {
        // 1: [false, true], 2: ["a", ""], 3: ["b", ""], 4: 0
        let bytes = Bytes::from_static(b"\x19\x21\x02\x01\x19\x28\x01a\x00\x19\x28\x01b\x00\x15\x00\x00");
        let null = PageBounds { is_null: true, ..PageBounds::default() };
        let first = PageBounds { is_null: false, min: "a".into(), max: "b".into() };
        assert_eq!(parse_bounds(&bytes).unwrap(), [first, null]);
        assert!(parse_bounds(&bytes.slice(..9)).is_err());
    }
}
