//! Reads the metadata of a file.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_plugin_api::{Error, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};

use crate::bytes::File;
use crate::error::{of_reader, reading};
use crate::schema::schema_of;
use crate::thrift::{Reader, Type};

/// The bytes at the beginning and the end of a file.
pub const MAGIC: &[u8] = b"PAR1";
/// The bytes at the beginning and the end of a file with an encrypted footer.
pub const ENCRYPTED: &[u8] = b"PARE";
/// The bytes after the metadata: their length and the magic.
const TAIL_BYTES: u64 = 8;
/// The number of bytes at the end of a file that are read first. Most footers have fewer bytes.
const LIKELY_FOOTER_BYTES: u64 = 64 << 10;
/// The greatest depth of a schema. A list has two levels more than its elements.
const MAX_DEPTH: usize = 192;
/// The field of the file's metadata that is the list of the schema's nodes.
const SCHEMA: i64 = 2;
/// The field of a node that is the number of its children.
const NUM_CHILDREN: i64 = 5;

/// The metadata of a file.
#[derive(Clone)]
pub struct Footer {
    pub metadata: Arc<ParquetMetaData>,
    /// Arrow's schema: the one in the metadata, as far as it agrees with Parquet's schema.
    pub schema: SchemaRef,
    /// The first row of each row group, and the number of rows of the file.
    pub starts: Arc<Vec<u64>>,
    /// Why the schema of Arrow in the metadata is not used, if it is not.
    pub ignored_schema: Option<String>,
}

impl Footer {
    /// Reads the metadata. The memory for them may have `max_bytes` bytes.
    ///
    /// # Errors
    /// Bad data if the metadata are damaged; unsupported if the footer is encrypted.
    pub fn read(file: &File, max_bytes: u64) -> Result<Self> {
        let bytes = tail(file)?;
        check_schema(&bytes)?;
        // A row group of a column needs about 40 bytes in the file, and 500 bytes in memory.
        let estimate = (bytes.len() as u64).saturating_mul(16);
        if estimate > max_bytes {
            return Err(Error::out_of_memory(format!(
                "the metadata have {} bytes and need about {estimate} bytes of memory, but only {max_bytes} are \
                 available: raise the memory limit",
                bytes.len()
            )));
        }
        let metadata =
            reading(|| ParquetMetaDataReader::decode_metadata(&bytes).map_err(|error| of_reader(&error)));
        let metadata = Arc::new(metadata.map_err(|error| error.context("the metadata"))?);
        let (schema, ignored_schema) = schema_of(&metadata)?;
        let starts = Arc::new(starts(&metadata)?);
        let footer = Self { schema, metadata, starts, ignored_schema };
        footer.check_chunks(file.len())?;
        Ok(footer)
    }

    /// The number of rows of the file.
    pub fn n_rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The row group with this index.
    pub fn row_group(&self, index: usize) -> Result<&RowGroupMetaData> {
        let group = self.metadata.row_groups().get(index);
        group.ok_or_else(|| Error::internal(format!("there is no row group {index}")))
    }

    /// The rows of a row group, as positions in the file.
    pub fn rows_of(&self, index: usize) -> Range<u64> {
        let at = |i: usize| self.starts.get(i).copied().unwrap_or(self.n_rows());
        at(index)..at(index + 1)
    }

    /// Checks the positions of all column chunks.
    fn check_chunks(&self, file_bytes: u64) -> Result<()> {
        let n_columns = self.metadata.file_metadata().schema_descr().num_columns();
        for (i, group) in self.metadata.row_groups().iter().enumerate() {
            if group.num_columns() != n_columns {
                return Err(Error::bad_data(format!(
                    "row group {i} has {} column chunks, expected {n_columns} as in the schema",
                    group.num_columns()
                )));
            }
            for chunk in group.columns() {
                check_chunk(chunk, file_bytes).map_err(|error| {
                    error.context(format_args!("row group {i}, column '{}'", chunk.column_path().string()))
                })?;
            }
        }
        Ok(())
    }
}

/// The bytes of a column chunk.
///
/// # Errors
/// Bad data if the numbers are negative or too large.
pub fn chunk_range(chunk: &ColumnChunkMetaData) -> Result<Range<u64>> {
    let (data, dictionary) = (chunk.data_page_offset(), chunk.dictionary_page_offset());
    let begin = dictionary.unwrap_or(data);
    let range = u64::try_from(begin).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let range = range.and_then(|(begin, bytes)| Some(begin..begin.checked_add(bytes)?));
    range.ok_or_else(|| {
        Error::bad_data(format!("the chunk begins at byte {begin} and has {} bytes", chunk.compressed_size()))
    })
}

fn check_chunk(chunk: &ColumnChunkMetaData, file_bytes: u64) -> Result<()> {
    if let Some(path) = chunk.file_path().filter(|path| !path.is_empty()) {
        return Err(Error::unsupported(format!("the chunk is in another file, '{path}'")));
    }
    let range = chunk_range(chunk)?;
    if range.end > file_bytes {
        return Err(Error::bad_data(format!(
            "the chunk has the bytes {}..{}, but the file has {file_bytes} bytes",
            range.start, range.end
        )));
    }
    if chunk.num_values() < 0 {
        return Err(Error::bad_data(format!("the chunk has {} values", chunk.num_values())));
    }
    Ok(())
}

/// Reads the bytes of the metadata.
fn tail(file: &File) -> Result<bytes::Bytes> {
    let len = file.len();
    let smallest = MAGIC.len() as u64 + TAIL_BYTES;
    if len < smallest {
        return Err(Error::bad_data(format!("the file has {len} bytes, expected at least {smallest}")));
    }
    let likely = file.read(len - len.min(LIKELY_FOOTER_BYTES)..len)?;
    let (rest, magic) = likely.split_last_chunk::<4>().ok_or_else(|| Error::internal("an empty footer"))?;
    if magic == ENCRYPTED {
        return Err(Error::unsupported("the footer is encrypted, which this plugin does not read"));
    }
    if magic != MAGIC {
        return Err(Error::bad_data(
            "the file does not end with 'PAR1': it is truncated, or not a Parquet file",
        ));
    }
    let length = rest.last_chunk::<4>().map_or(0, |length| u64::from(u32::from_le_bytes(*length)));
    let begin = len.checked_sub(TAIL_BYTES + length).filter(|begin| *begin >= MAGIC.len() as u64);
    let begin = begin.ok_or_else(|| {
        Error::bad_data(format!("the metadata have {length} bytes, but the file has only {len}"))
    })?;
    let range = begin..begin + length;
    match range.start.checked_sub(len - likely.len() as u64) {
        Some(skipped) if range.start < range.end => {
            let begin = usize::try_from(skipped).unwrap_or(usize::MAX);
            let end = begin.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            let found = likely.get(begin..end).map(|bytes| likely.slice_ref(bytes));
            found.ok_or_else(|| Error::internal("the metadata are not in the footer"))
        }
        _ => file.read(range),
    }
}

/// Checks the tree of the schema, which the crate would read with recursion, and the number of
/// elements of all lists.
fn check_schema(metadata: &[u8]) -> Result<()> {
    let mut children = Vec::new();
    let read = Reader::new(metadata).fields(|reader, id, of| {
        if id != SCHEMA || of != Type::List {
            return Ok(false);
        }
        for _ in 0..reader.list()?.len {
            let mut n = 0;
            reader.fields(|reader, id, of| {
                let is_count = id == NUM_CHILDREN && of == Type::Int;
                if is_count {
                    n = reader.int()?;
                }
                Ok(is_count)
            })?;
            children.push(n);
        }
        Ok(true)
    });
    read.map_err(|error| error.context("the metadata"))?;
    let n_nodes = children.len();
    let mut open: Vec<i64> = Vec::new();
    for (i, n) in children.into_iter().enumerate() {
        if n < 0 || n as usize > n_nodes {
            return Err(Error::bad_data(format!(
                "node {i} of the schema has {n} children, but the schema has {n_nodes} nodes"
            )));
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(missing) = open.last_mut() {
            *missing -= 1;
        }
        if n > 0 {
            open.push(n);
        }
        if open.len() > MAX_DEPTH {
            return Err(Error::unsupported(format!("the schema nests deeper than {MAX_DEPTH} levels")));
        }
    }
    Ok(())
}

/// The first row of each row group, and the number of all rows.
fn starts(metadata: &ParquetMetaData) -> Result<Vec<u64>> {
    let mut starts = vec![0];
    let mut end = 0u64;
    for (i, group) in metadata.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).ok();
        let next = rows.and_then(|rows| end.checked_add(rows)).filter(|end| *end <= i64::MAX as u64);
        end = next.ok_or_else(|| Error::bad_data(format!("row group {i} has {} rows", group.num_rows())))?;
        starts.push(end);
    }
    let declared = metadata.file_metadata().num_rows();
    // Some writers leave the number of rows of the file 0.
    if declared != 0 && u64::try_from(declared) != Ok(end) {
        return Err(Error::bad_data(format!(
            "the file declares {declared} rows, but its row groups have {end} rows"
        )));
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metadata of a schema whose nodes have these numbers of children.
    fn schema(children: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x15\x02\x19\xfc".to_vec();
        let mut len = children.len();
        while len > 127 {
            bytes.push(len as u8 | 0x80);
            len >>= 7;
        }
        bytes.push(len as u8);
        for n in children {
            bytes.extend([0x55, n * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn depth_of_a_schema_is_limited() {
        let deepest = [vec![1; MAX_DEPTH], vec![0]].concat();
        assert_eq!(check_schema(&schema(&deepest)), Ok(()));
        let deeper = [vec![1; 100_000], vec![0]].concat();
        let error = check_schema(&schema(&deeper)).unwrap_err();
        assert_eq!(error.message(), "the schema nests deeper than 192 levels");
        let wide = [vec![60], [[1, 0]; 60].concat()].concat();
        assert_eq!(check_schema(&schema(&wide)), Ok(()));
    }

    #[test]
    fn number_of_children_is_at_most_that_of_nodes() {
        let error = check_schema(&schema(&[3, 0])).unwrap_err();
        assert_eq!(error.message(), "node 0 of the schema has 3 children, but the schema has 2 nodes");
        assert!(check_schema(schema(&[1, 0]).get(..6).unwrap()).is_err());
    }
}
