//! Decodes a column of a row group.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_arrow::to_device_array;
use crossdock_memory::{Memory, Stream};
use crossdock_plugin_api::{Error, Result, intersection};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection};
use parquet::basic::Type as Physical;
use parquet::column::page::{Page, PageIterator, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::serialized_reader::SerializedPageReader;

use crate::bytes::{Chunk, File};
use crate::columns::Column;
use crate::error::{Cause, of_reader, reading, text_of, wrong_rows};
use crate::footer::{Footer, chunk_range};
use crate::page_index;
use crate::pages::{CheckedPages, Checks, longest_value};

/// The greatest number of rows that are decoded on a device at once.
const MAX_DEVICE_ROWS: usize = 1 << 28;
/// The crate's error for texts that exceed the offsets of their type.
const OFFSET_OVERFLOW: &str = "index overflow decoding byte array";

/// The rows of a row group that are decoded in order, and the largest batch.
#[derive(Clone)]
pub struct Part {
    /// The index of the row group.
    pub group: usize,
    /// The rows, as ascending ranges of positions in the row group.
    pub rows: Vec<Range<u64>>,
    /// The number of rows of the row group.
    pub n_group_rows: u64,
    /// The number of rows of a batch.
    pub step: usize,
}

impl Part {
    /// Whether all rows of the row group are needed.
    pub fn is_whole(&self) -> bool {
        crate::rows::count(&self.rows) == self.n_group_rows
    }
}

/// What limits the memory of a batch.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The largest page, in bytes.
    pub page_bytes: u64,
    /// The number of bytes of a column chunk that are read together.
    pub window_bytes: u64,
    /// The largest batch of a column, in bytes; `None` if there is no memory limit.
    pub column_bytes: Option<u64>,
}

/// A request of a column for batches with fewer rows.
#[derive(Default)]
pub struct SmallerStep(AtomicUsize);

impl SmallerStep {
    /// Requests batches of at most `rows` rows.
    fn request(&self, rows: usize) -> Error {
        let rows = rows.max(1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
            Some(if old == 0 { rows } else { old.min(rows) })
        });
        Error::out_of_memory(format!("a batch of more than {rows} rows exceeds its limit"))
    }

    /// Takes the request.
    pub fn take(&self) -> Option<usize> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|rows| *rows > 0)
    }
}

/// A column of a row group that is being decoded.
pub struct Lane {
    file: Arc<File>,
    footer: Footer,
    column: Arc<Column>,
    part: Part,
    limits: Limits,
    /// The crate's reader, which is opened by the first batch.
    reader: Option<ParquetRecordBatchReader>,
    /// The stream of the device on which the first batch tries to decode all rows.
    device: Option<Stream>,
    /// All rows on the device, and the number of rows that were returned.
    decoded: Option<(DeviceArray, usize)>,
    cause: Cause,
}

impl Lane {
    /// With the stream of a device, the column is decoded on the device if possible.
    pub fn new(
        file: &Arc<File>,
        footer: &Footer,
        column: &Arc<Column>,
        part: Part,
        limits: Limits,
        device: Option<Stream>,
    ) -> Self {
        Self {
            file: file.clone(),
            footer: footer.clone(),
            column: column.clone(),
            device: device.filter(|_| part.is_whole()),
            decoded: None,
            part,
            limits,
            reader: None,
            cause: Cause::default(),
        }
    }

    /// Decodes the next batch, which must have `n` rows.
    ///
    /// # Errors
    /// Bad data if the pages are damaged. If the batch would be too large, requests a smaller one.
    pub fn next(&mut self, n: usize, memory: &Memory, smaller: &SmallerStep) -> Result<DeviceArray> {
        let name = self.column.field.name().clone();
        let decoded = self.decode(n, memory, smaller);
        decoded
            .map_err(|error| self.cause.take().unwrap_or(error))
            .map_err(|error| error.context(format_args!("row group {}, column '{name}'", self.part.group)))
    }

    fn decode(&mut self, n: usize, memory: &Memory, smaller: &SmallerStep) -> Result<DeviceArray> {
        if let Some(stream) = self.device.take() {
            self.decoded = self.decode_on_device(&stream, smaller)?.map(|array| (array, 0));
        }
        if let Some((array, done)) = &mut self.decoded {
            let begin = *done;
            *done += n;
            return array.slice(begin, n);
        }
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.open(smaller)?,
        };
        let batch = reading(|| Ok(reader.next()))?;
        let batch = match batch {
            Some(Ok(batch)) => batch,
            Some(Err(error)) => {
                let text = text_of(&error);
                return Err(match text.contains(OFFSET_OVERFLOW) && n > 1 {
                    true => smaller.request(n / 2),
                    false => Error::bad_data(text),
                });
            }
            None => return Err(Error::bad_data(format!("the column ends before its last {n} rows"))),
        };
        self.reader = Some(reader);
        let array = self.array_of(batch, n)?;
        to_device_array(&array, &self.column.field, memory)
    }

    /// Decodes all rows on a device. The result is `None` if the crate must decode them.
    fn decode_on_device(&self, stream: &Stream, smaller: &SmallerStep) -> Result<Option<DeviceArray>> {
        let column = self.column.on_device.as_ref().zip(self.column.leaves.first());
        let n_rows = usize::try_from(self.part.n_group_rows).ok().filter(|rows| *rows <= MAX_DEVICE_ROWS);
        let (Some((on_device, leaf)), Some(n_rows)) = (column, n_rows) else { return Ok(None) };
        let chunk = self.footer.row_group(self.part.group)?.columns().get(*leaf);
        let chunk = chunk.ok_or_else(|| Error::internal(format!("there is no column chunk {leaf}")))?;
        let open = self.open_chunk(chunk, false, smaller)?;
        let mut pages = open.reader(chunk, n_rows).map_err(|error| of_reader(&error))?;
        on_device.decode(&mut pages, n_rows, stream)
    }

    /// The only column of a batch.
    fn array_of(&self, batch: RecordBatch, n: usize) -> Result<ArrayRef> {
        if batch.num_rows() != n {
            return Err(wrong_rows(batch.num_rows(), n));
        }
        let array = batch.columns().first().ok_or_else(|| Error::internal("the batch has no column"))?;
        let expected = self.column.field.data_type();
        if array.data_type() != expected {
            return Err(Error::internal(format!(
                "the crate decoded the type {}, expected {expected}",
                crossdock_arrays::type_name(array.data_type())
            )));
        }
        Ok(array.clone())
    }

    fn open(&self, smaller: &SmallerStep) -> Result<ParquetRecordBatchReader> {
        let group = self.footer.row_group(self.part.group)?;
        let is_partial = !self.part.is_whole();
        let mut chunks = Vec::with_capacity(self.column.leaves.len());
        for leaf in &self.column.leaves {
            let chunk = group.columns().get(*leaf);
            let chunk = chunk.ok_or_else(|| Error::internal(format!("there is no column chunk {leaf}")))?;
            chunks.push((*leaf, self.open_chunk(chunk, is_partial, smaller)?));
        }
        let selection = is_partial.then(|| {
            let rows = self.part.rows.iter().map(|rows| rows.start as usize..rows.end as usize);
            RowSelection::from_consecutive_ranges(rows, self.part.n_group_rows as usize)
        });
        let groups = OneGroup { metadata: self.footer.metadata.clone(), group: self.part.group, chunks };
        reading(|| {
            let step = self.part.step;
            ParquetRecordBatchReader::try_new_with_row_groups(&self.column.levels, &groups, step, selection)
                .map_err(|error| of_reader(&error))
        })
    }

    fn open_chunk(
        &self,
        chunk: &ColumnChunkMetaData,
        is_partial: bool,
        smaller: &SmallerStep,
    ) -> Result<OpenChunk> {
        let range = chunk_range(chunk)?;
        // Without the index, pages are found by their headers.
        let locations = match is_partial {
            true => page_index::locations(&self.file, chunk, self.part.n_group_rows)?,
            false => None,
        };
        let needed: Option<Vec<PageLocation>> = locations.as_ref().map(|locations| {
            let rows = page_index::rows_of_pages(locations, self.part.n_group_rows);
            let is_needed = |rows: Range<u64>| !intersection(&self.part.rows, &[rows]).is_empty();
            locations
                .iter()
                .zip(rows)
                .filter(|(_, rows)| is_needed(rows.clone()))
                .map(|(page, _)| page.clone())
                .collect()
        });
        let ranges = match (&needed, &locations) {
            (Some(needed), Some(all)) => {
                let first = all.first().map_or(range.end, |page| page.offset as u64);
                let pages = needed.iter().map(|page| {
                    let begin = page.offset as u64;
                    begin..begin + page.compressed_page_size as u64
                });
                std::iter::once(range.start..first).chain(pages).filter(|range| !range.is_empty()).collect()
            }
            _ => vec![range.clone()],
        };
        let checks = Checks {
            chunk: Chunk::new(&self.file, ranges, self.limits.window_bytes, self.cause.clone()),
            range,
            locations,
            value_bytes: value_bytes(chunk.column_type(), chunk.column_descr().type_length()),
            max_bytes: self.limits.page_bytes,
        };
        let open = OpenChunk(checks);
        if let Some(max_bytes) = self.limits.column_bytes
            && chunk.column_type() == Physical::BYTE_ARRAY
            && chunk.dictionary_page_offset().is_some()
            && copies_values(self.column.field.data_type())
        {
            let longest = reading(|| open.longest_dictionary_value(chunk))?;
            let rows = usize::try_from(max_bytes / longest.max(1)).unwrap_or(usize::MAX).max(1);
            let n_rows = self
                .part
                .step
                .min(usize::try_from(crate::rows::count(&self.part.rows)).unwrap_or(usize::MAX));
            if rows < n_rows && !self.column.is_repeated {
                return Err(smaller.request(rows));
            }
        }
        Ok(open)
    }
}

/// The size of a decoded value without the bytes of texts.
pub fn value_bytes(physical: Physical, type_length: i32) -> u64 {
    match physical {
        Physical::BOOLEAN => 1,
        Physical::INT32 | Physical::FLOAT => 4,
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 => 12,
        Physical::BYTE_ARRAY => 8,
        Physical::FIXED_LEN_BYTE_ARRAY => u64::try_from(type_length).unwrap_or(0).max(1),
    }
}

/// Whether decoding copies each value of a dictionary as often as it occurs.
pub fn copies_values(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView)
}

/// A column chunk.
struct OpenChunk(Checks);

impl OpenChunk {
    fn reader(
        &self,
        chunk: &ColumnChunkMetaData,
        n_rows: usize,
    ) -> parquet::errors::Result<CheckedPages<SerializedPageReader<Chunk>>> {
        let Checks { chunk: bytes, locations, .. } = &self.0;
        let reader = SerializedPageReader::new(Arc::new(bytes.clone()), chunk, n_rows, locations.clone())?;
        Ok(CheckedPages::new(reader, self.0.clone()))
    }

    fn longest_dictionary_value(&self, chunk: &ColumnChunkMetaData) -> Result<u64> {
        let page = self.reader(chunk, 0).and_then(|mut reader| reader.get_next_page());
        match page.map_err(|error| of_reader(&error))? {
            Some(Page::DictionaryPage { buf, .. }) => Ok(longest_value(&buf)),
            _ => Ok(0),
        }
    }
}

/// A row group, of which some column chunks are open.
struct OneGroup {
    metadata: Arc<ParquetMetaData>,
    group: usize,
    chunks: Vec<(usize, OpenChunk)>,
}

impl RowGroups for OneGroup {
    fn num_rows(&self) -> usize {
        self.metadata.row_groups().get(self.group).map_or(0, |group| group.num_rows() as usize)
    }

    fn column_chunks(&self, i: usize) -> parquet::errors::Result<Box<dyn PageIterator>> {
        let missing = || parquet::errors::ParquetError::General(format!("the column chunk {i} is not open"));
        let (_, open) = self.chunks.iter().find(|(leaf, _)| *leaf == i).ok_or_else(missing)?;
        let group = self.metadata.row_groups().get(self.group).ok_or_else(missing)?;
        let chunk = group.columns().get(i).ok_or_else(missing)?;
        Ok(Box::new(OneChunk(Some(Box::new(open.reader(chunk, self.num_rows())?)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().get(self.group).into_iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

struct OneChunk(Option<Box<dyn PageReader>>);

impl Iterator for OneChunk {
    type Item = parquet::errors::Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OneChunk {}
