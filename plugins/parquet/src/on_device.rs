//! Decodes column chunks on a device: the host decompresses the pages and finds the runs of their
//! values, and a kernel decodes the values.

use std::ops::Range;

use arrow_schema::DataType;
use crossdock_arrays::{DeviceArray, decode_dictionary};
use crossdock_kernels::{Checks, HYBRID_PIECE_ROWS, Hybrid, pack_bytes};
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{Error, Result};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_schema_by_columns};
use parquet::basic::Type as Physical;
use parquet::column::page::PageReader;

use crate::encoded::{Dictionary, Encoded, Shape};
use crate::error::{of_reader, reading};
use crate::footer::Footer;
use crate::hybrid::count_ones;

/// The bytes before and after the values of the pages. The kernel reads aligned words around a
/// value.
const MARGIN: usize = 16;

/// How a column is decoded on a device.
#[derive(Clone, Debug)]
pub struct OnDevice {
    data_type: DataType,
    shape: Shape,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Booleans,
    /// Numbers of this width in bytes.
    Numbers {
        width: usize,
    },
    /// Texts or bytes with a dictionary of the type `values`, with keys of this width in bytes.
    Texts {
        key_bytes: usize,
        values: DataType,
    },
}

impl OnDevice {
    /// Whether and how the leaf `leaf` is decoded on a device to a column of the type `to`. `None`
    /// if the crate must decode it on the host.
    pub fn of(footer: &Footer, leaf: usize, to: &DataType) -> Option<Self> {
        let schema = footer.metadata.file_metadata().schema_descr();
        let descriptor = schema.columns().get(leaf)?;
        if descriptor.max_rep_level() > 0
            || descriptor.max_def_level() > 1
            || descriptor.path().parts().len() != 1
        {
            return None;
        }
        // The type that Parquet's schema states, without Arrow's schema in the metadata.
        let mask = ProjectionMask::leaves(schema, [leaf]);
        let stored = reading(|| {
            parquet_to_arrow_schema_by_columns(schema, mask, None).map_err(|error| of_reader(&error))
        });
        let stored = stored.ok()?.fields().first()?.data_type().clone();
        let is_same = match (&stored, to) {
            (DataType::Timestamp(stored, _), DataType::Timestamp(unit, _)) => stored == unit,
            _ => stored == *to,
        };
        let (plain_bits, values) = match (descriptor.physical_type(), to) {
            (Physical::BOOLEAN, _) if is_same => (Some(1), Values::Booleans),
            (Physical::INT32 | Physical::FLOAT, _) if is_same => {
                (Some(32), Values::Numbers { width: to.primitive_width().filter(|width| *width <= 4)? })
            }
            (Physical::INT64 | Physical::DOUBLE, _) if is_same => {
                (Some(64), Values::Numbers { width: to.primitive_width().filter(|width| *width == 8)? })
            }
            (Physical::BYTE_ARRAY, DataType::Dictionary(keys, values)) if is_text_of(&stored, values) => {
                let key_bytes = keys.primitive_width()?;
                (None, Values::Texts { key_bytes, values: values.as_ref().clone() })
            }
            (Physical::BYTE_ARRAY, _) if is_text_of(&stored, to) => {
                (None, Values::Texts { key_bytes: 4, values: to.clone() })
            }
            _ => return None,
        };
        let shape = Shape { plain_bits, is_nullable: descriptor.max_def_level() == 1 };
        Some(Self { data_type: to.clone(), shape, values })
    }

    /// Decodes the pages of a column chunk of `n_rows` rows. The result is `None` if the crate must
    /// decode it, because of an encoding or because its texts are too long for their offsets.
    ///
    /// # Errors
    /// Bad data if pages are damaged.
    pub fn decode(
        &self,
        pages: &mut dyn PageReader,
        n_rows: usize,
        stream: &Stream,
    ) -> Result<Option<DeviceArray>> {
        let Some(encoded) = Encoded::read(pages, self.shape, n_rows)? else { return Ok(None) };
        if encoded.validity.n_valid() == 0 {
            return Ok(None);
        }
        let array = |data_type, rows: Decoded, dictionary| {
            let Decoded { validity, values } = rows;
            let nulls = n_rows - encoded.validity.n_valid();
            let buffers = vec![validity, Some(values)];
            DeviceArray::try_new(data_type, n_rows, 0, Some(nulls), buffers, Vec::new(), dictionary)
        };
        let (key_bytes, values) = match &self.values {
            Values::Booleans => {
                let Decoded { validity, values } = decode(&encoded, &[], 0, n_rows, 1, stream)?;
                let mut bits = stream.memory().alloc(stream, n_rows.div_ceil(8))?;
                pack_bytes(stream, &values, 0, n_rows, false, &mut bits, 0)?;
                let rows = Decoded { validity, values: bits.freeze(stream)? };
                return array(self.data_type.clone(), rows, None).map(Some);
            }
            Values::Numbers { width } => {
                let dictionary = match &encoded.dictionary {
                    Some(dictionary) => numbers(
                        dictionary,
                        self.shape.plain_bits.map_or(*width, |bits| bits as usize / 8),
                        *width,
                    )?,
                    None => Vec::new(),
                };
                let limit = (dictionary.len() / width) as u64;
                let values = decode(&encoded, &dictionary, limit, n_rows, *width, stream)?;
                return array(self.data_type.clone(), values, None).map(Some);
            }
            Values::Texts { key_bytes, values } => (*key_bytes, values),
        };
        let Some(dictionary) = &encoded.dictionary else { return Ok(None) };
        let texts = texts(dictionary)?;
        let is_dictionary = matches!(self.data_type, DataType::Dictionary(..));
        let max_bytes =
            if is_dictionary { dictionary.bytes.len() } else { texts.longest.saturating_mul(n_rows) };
        let fits = max_bytes <= i32::MAX as usize || has_long_offsets(values);
        // Signed keys of this width represent all codes.
        let most_codes = 1u64 << (8 * key_bytes - 1).min(63);
        if !fits || dictionary.n as u64 > most_codes {
            return Ok(None);
        }
        let codes = decode(&encoded, &[], dictionary.n as u64, n_rows, key_bytes, stream)?;
        let texts = texts.upload(values, stream)?;
        if is_dictionary {
            return array(self.data_type.clone(), codes, Some(texts)).map(Some);
        }
        let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(values.clone()));
        decode_dictionary(&array(data_type, codes, Some(texts))?, stream).map(Some)
    }
}

/// Whether texts or bytes of a file become the type `to` without a conversion.
fn is_text_of(stored: &DataType, to: &DataType) -> bool {
    match stored {
        DataType::Utf8 => matches!(to, DataType::Utf8 | DataType::LargeUtf8),
        DataType::Binary => matches!(to, DataType::Binary | DataType::LargeBinary),
        _ => false,
    }
}

fn has_long_offsets(data_type: &DataType) -> bool {
    matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary)
}

/// The buffers of decoded rows.
struct Decoded {
    validity: Option<Buffer>,
    values: Buffer,
}

/// Decodes all rows to `width` bytes each. `dictionary` has values of this width; if it is empty,
/// codes less than `limit` stay codes.
fn decode(
    encoded: &Encoded,
    dictionary: &[u8],
    limit: u64,
    n_rows: usize,
    width: usize,
    stream: &Stream,
) -> Result<Decoded> {
    let memory = stream.memory();
    let bitmap = encoded.validity.bitmap();
    let ranks = bitmap.map(ranks).unwrap_or_default();
    let mut end = 0usize;
    let mut place = |bytes: usize| {
        let begin = end.next_multiple_of(MARGIN);
        end = begin + bytes;
        begin..end
    };
    let bytes = place(encoded.n_bytes + 2 * MARGIN);
    let runs = place(encoded.runs.len() * 8);
    let ends = place(encoded.ends.len() * 4);
    let ranks_at = place(ranks.len() * 4);
    let dictionary_at = place(dictionary.len());
    let block = memory.alloc_with(stream, end, |block| {
        for (at, page) in &encoded.pages {
            write(block, bytes.start + MARGIN + at, page)?;
        }
        write_all(block, &runs, encoded.runs.iter().map(|run| run.to_ne_bytes()))?;
        write_all(block, &ends, encoded.ends.iter().map(|end| end.to_ne_bytes()))?;
        write_all(block, &ranks_at, ranks.iter().map(|rank| rank.to_ne_bytes()))?;
        write(block, dictionary_at.start, dictionary)
    })?;
    let block = block.freeze(stream)?;
    let upload = |bytes: &[u8]| upload(bytes, stream);
    let validity = bitmap.map(upload).transpose()?;
    let from = Hybrid {
        buffer: &block,
        bytes: bytes.start + MARGIN..bytes.end,
        runs,
        ends,
        validity: validity.as_ref(),
        ranks: ranks_at,
        dictionary: dictionary_at,
        limit,
    };
    let mut values = memory.alloc(stream, n_rows.saturating_mul(width))?;
    let mut checks = Checks::new();
    let cell = checks.decode_hybrid(from, &mut values, 0, n_rows, width)?;
    if let Some(row) = checks.run(stream)?.first_wrong(cell) {
        let text = format!("the code of row {row} is not less than {limit}, the size of the dictionary");
        return Err(Error::bad_data(text));
    }
    Ok(Decoded { validity, values: values.freeze(stream)? })
}

fn upload(bytes: &[u8], stream: &Stream) -> Result<Buffer> {
    stream.memory().alloc_with(stream, bytes.len(), |to| write(to, 0, bytes))?.freeze(stream)
}

fn write(to: &mut [u8], at: usize, bytes: &[u8]) -> Result<()> {
    let end = at.saturating_add(bytes.len());
    let to = to.get_mut(at..end).ok_or_else(|| Error::internal("a block is too small for its parts"))?;
    to.copy_from_slice(bytes);
    Ok(())
}

fn write_all<const N: usize>(
    to: &mut [u8],
    range: &Range<usize>,
    values: impl Iterator<Item = [u8; N]>,
) -> Result<()> {
    let to =
        to.get_mut(range.clone()).ok_or_else(|| Error::internal("a block is too small for its parts"))?;
    for (to, value) in to.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *to = value;
    }
    Ok(())
}

/// The number of set bits before each piece.
fn ranks(bitmap: &[u8]) -> Vec<u32> {
    let pieces = bitmap.chunks(HYBRID_PIECE_ROWS / 8);
    let rank = |before: &mut u32, piece: &[u8]| {
        let rank = *before;
        *before += count_ones(piece, piece.len() * 8) as u32;
        Some(rank)
    };
    pieces.scan(0, rank).collect()
}

/// The numbers of a dictionary with `plain_bytes` bytes each, truncated to `width` bytes.
fn numbers(dictionary: &Dictionary, plain_bytes: usize, width: usize) -> Result<Vec<u8>> {
    let Dictionary { bytes, n } = dictionary;
    let needed = n.saturating_mul(plain_bytes);
    let numbers = bytes.get(..needed).ok_or_else(|| {
        Error::bad_data(format!("the dictionary has {n} values, but only {} bytes", bytes.len()))
    })?;
    let truncated = numbers.chunks(plain_bytes).filter_map(|number| number.get(..width));
    Ok(truncated.flatten().copied().collect())
}

/// The texts of a dictionary.
struct Texts {
    offsets: Vec<usize>,
    data: Vec<u8>,
    longest: usize,
}

fn texts(dictionary: &Dictionary) -> Result<Texts> {
    let mut rest: &[u8] = &dictionary.bytes;
    let mut texts = Texts { offsets: vec![0], data: Vec::with_capacity(rest.len()), longest: 0 };
    for i in 0..dictionary.n {
        let text = rest.split_first_chunk().and_then(|(length, after)| {
            let length = u32::from_le_bytes(*length) as usize;
            after.split_at_checked(length)
        });
        let (text, after) = text.ok_or_else(|| {
            Error::bad_data(format!("the dictionary ends within value {i} of {}", dictionary.n))
        })?;
        texts.data.extend_from_slice(text);
        texts.offsets.push(texts.data.len());
        texts.longest = texts.longest.max(text.len());
        rest = after;
    }
    Ok(texts)
}

impl Texts {
    /// An array of the type `data_type` on the stream's device.
    fn upload(&self, data_type: &DataType, stream: &Stream) -> Result<DeviceArray> {
        if matches!(data_type, DataType::Utf8 | DataType::LargeUtf8) {
            self.check_utf8()?;
        }
        let offsets: Vec<u8> = match has_long_offsets(data_type) {
            true => self.offsets.iter().flat_map(|offset| (*offset as u64).to_ne_bytes()).collect(),
            false => self.offsets.iter().flat_map(|offset| (*offset as u32).to_ne_bytes()).collect(),
        };
        let buffers = vec![None, Some(upload(&offsets, stream)?), Some(upload(&self.data, stream)?)];
        let len = self.offsets.len() - 1;
        DeviceArray::try_new(data_type.clone(), len, 0, Some(0), buffers, Vec::new(), None)
    }

    fn check_utf8(&self) -> Result<()> {
        let is_text = |i: usize| {
            let range = self.offsets.get(i).zip(self.offsets.get(i + 1)).map(|(begin, end)| *begin..*end);
            range.and_then(|range| self.data.get(range)).is_some_and(|text| std::str::from_utf8(text).is_ok())
        };
        match (0..self.offsets.len() - 1).find(|i| !is_text(*i)) {
            Some(i) => Err(Error::bad_data(format!("value {i} of the dictionary is not UTF-8"))),
            None => Ok(()),
        }
    }
}
