//! The pages of a column chunk, whose values are still encoded.

use bytes::Bytes;
use crossdock_kernels::HybridRun;
use crossdock_plugin_api::{Error, Result};
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};

use crate::error::{of_reader, reading, wrong_rows};
use crate::hybrid::{Run, Validity, for_each_run};

/// The largest number of bits of a code.
const MAX_CODE_BITS: u32 = 32;
/// The number of bytes of the length of the levels in a page of version 1.
const LENGTH_BYTES: usize = 4;
/// The multiple of bytes at which the values of a page begin.
const PAGE_ALIGNMENT: usize = 8;

/// What the values of a column chunk are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The bits of a plain value; `None` if plain values have different lengths.
    pub plain_bits: Option<u32>,
    /// Whether values may be null. The definition levels are then 0 and 1.
    pub is_nullable: bool,
}

/// A dictionary of values in Parquet's plain encoding.
pub struct Dictionary {
    pub bytes: Bytes,
    pub n: usize,
}

/// The encoded values of a column chunk.
#[derive(Default)]
pub struct Encoded {
    /// The values of each page, with the position of their first byte in all values.
    pub pages: Vec<(usize, Bytes)>,
    /// The number of bytes of all values.
    pub n_bytes: usize,
    /// The runs of values, as a kernel reads them.
    pub runs: Vec<u64>,
    /// For each run, the number of values up to its end.
    pub ends: Vec<u32>,
    pub validity: Validity,
    pub dictionary: Option<Dictionary>,
    n_values: usize,
}

impl Encoded {
    /// Reads and decompresses all pages of a column chunk of `n_rows` rows. The result is `None` if
    /// a page has an encoding that only the crate decodes.
    ///
    /// # Errors
    /// Bad data if pages are damaged.
    pub fn read(pages: &mut dyn PageReader, shape: Shape, n_rows: usize) -> Result<Option<Self>> {
        let mut encoded = Self::default();
        while let Some(page) = reading(|| pages.get_next_page().map_err(|error| of_reader(&error)))? {
            // A page of a few bytes may declare any number of rows.
            let in_page = if page.is_data_page() { page.num_values() as usize } else { 0 };
            let n = encoded.validity.n_rows().saturating_add(in_page);
            if n > n_rows {
                return Err(wrong_rows(n, n_rows));
            }
            if !encoded.push(page, shape)? {
                return Ok(None);
            }
        }
        match encoded.validity.n_rows() {
            n if n == n_rows => Ok(Some(encoded)),
            n => Err(wrong_rows(n, n_rows)),
        }
    }

    /// Appends a page. The result is false if only the crate decodes it.
    fn push(&mut self, page: Page, shape: Shape) -> Result<bool> {
        match page {
            Page::DictionaryPage { buf, num_values, encoding, .. } => {
                let is_first = self.dictionary.is_none();
                self.dictionary = Some(Dictionary { bytes: buf, n: num_values as usize });
                Ok(is_first && matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY))
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, .. } => {
                let n = num_values as usize;
                if !shape.is_nullable {
                    return self.push_page(None, buf, n, encoding, shape);
                }
                if def_level_encoding != Encoding::RLE {
                    return Ok(false);
                }
                let length =
                    buf.first_chunk::<LENGTH_BYTES>().map(|bytes| u32::from_le_bytes(*bytes) as usize);
                let end = length.and_then(|length| length.checked_add(LENGTH_BYTES));
                let Some(end) = end.filter(|end| *end <= buf.len()) else {
                    return Err(Error::bad_data(format!(
                        "the definition levels have {} bytes, but the page has {}",
                        length.unwrap_or(LENGTH_BYTES),
                        buf.len()
                    )));
                };
                self.push_page(Some(buf.slice(LENGTH_BYTES..end)), buf.slice(end..), n, encoding, shape)
            }
            Page::DataPageV2 {
                buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, ..
            } => {
                let begin = rep_levels_byte_len as usize;
                let end = begin.saturating_add(def_levels_byte_len as usize);
                if end > buf.len() {
                    let bytes = buf.len();
                    let text = format!("the levels have {end} bytes, but the page has {bytes}");
                    return Err(Error::bad_data(text));
                }
                let levels = shape.is_nullable.then(|| buf.slice(begin..end));
                self.push_page(levels, buf.slice(end..), num_values as usize, encoding, shape)
            }
        }
    }

    fn push_page(
        &mut self,
        levels: Option<Bytes>,
        values: Bytes,
        n_rows: usize,
        encoding: Encoding,
        shape: Shape,
    ) -> Result<bool> {
        let n = match levels {
            Some(levels) => self.validity.push_levels(&levels, n_rows)?,
            None => {
                self.validity.push_valid(n_rows);
                n_rows
            }
        };
        if n == 0 {
            return Ok(true);
        }
        match (encoding, shape.plain_bits) {
            (Encoding::PLAIN, Some(bits)) => {
                if n.saturating_mul(bits as usize).div_ceil(8) > values.len() {
                    return Err(Error::bad_data(format!(
                        "a page has {n} values of {bits} bits, but only {} bytes",
                        values.len()
                    )));
                }
                self.push_run(true, bits, self.n_bytes as u64 * 8, n)?;
            }
            // Booleans: the length of the runs, and the runs.
            (Encoding::RLE, Some(1)) => self.push_runs(&values, LENGTH_BYTES, 1, true, n)?,
            (Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY, _) => {
                if self.dictionary.is_none() {
                    let text = "a page has codes, but the column chunk has no dictionary";
                    return Err(Error::bad_data(text));
                }
                let bits = values.first().copied().map_or(0, u32::from);
                if bits > MAX_CODE_BITS {
                    let text = format!("codes have {bits} bits, expected at most {MAX_CODE_BITS}");
                    return Err(Error::bad_data(text));
                }
                self.push_runs(&values, 1, bits, false, n)?;
            }
            _ => return Ok(false),
        }
        let bytes = values.len().next_multiple_of(PAGE_ALIGNMENT);
        self.pages.push((self.n_bytes, values));
        self.n_bytes += bytes;
        Ok(true)
    }

    /// Appends the runs of `n` values that begin at byte `begin` of a page.
    fn push_runs(&mut self, page: &Bytes, begin: usize, bits: u32, is_plain: bool, n: usize) -> Result<()> {
        let first_byte = self.n_bytes + begin;
        for_each_run(page.get(begin..).unwrap_or_default(), bits, n, |run, len| match run {
            Run::Repeated(value) => self.push_run(is_plain, 0, value, len),
            Run::Packed(_) if bits == 0 => self.push_run(is_plain, 0, 0, len),
            Run::Packed(range) => self.push_run(is_plain, bits, (first_byte + range.start) as u64 * 8, len),
        })
    }

    /// Appends a run of `n` values that begin at bit `at` or, without bits, are `at`.
    fn push_run(&mut self, is_plain: bool, bits: u32, at: u64, n: usize) -> Result<()> {
        let too_many = || Error::unsupported("a column chunk has more than 4294967295 values");
        let run = HybridRun { first: self.n_values as u64, is_plain, bits, at };
        self.n_values += n;
        self.ends.push(u32::try_from(self.n_values).map_err(|_| too_many())?);
        self.runs.push(run.word().ok_or_else(too_many)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parquet::column::page::PageMetadata;

    use super::*;

    struct Pages(std::vec::IntoIter<Page>);

    impl Iterator for Pages {
        type Item = parquet::errors::Result<Page>;

        fn next(&mut self) -> Option<Self::Item> {
            self.0.next().map(Ok)
        }
    }

    impl PageReader for Pages {
        fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
            Ok(self.0.next())
        }

        fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
            Ok(())
        }
    }

    const SHAPE: Shape = Shape { plain_bits: Some(32), is_nullable: true };

    fn page(bytes: &[u8], n: u32, encoding: Encoding) -> Page {
        Page::DataPage {
            buf: Bytes::copy_from_slice(bytes),
            num_values: n,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    fn dictionary(bytes: &[u8], n: u32) -> Page {
        let buf = Bytes::copy_from_slice(bytes);
        Page::DictionaryPage { buf, num_values: n, encoding: Encoding::PLAIN, is_sorted: false }
    }

    fn read(pages: Vec<Page>, n_rows: usize) -> Result<Option<Encoded>> {
        Encoded::read(&mut Pages(pages.into_iter()), SHAPE, n_rows)
    }

    fn error(pages: Vec<Page>, n_rows: usize) -> String {
        read(pages, n_rows).err().map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn plain_pages_follow_pages_of_codes() {
        // Four levels of 1; codes of 2 bits: 2, 1, 0, 2.
        let codes = page(&[2, 0, 0, 0, 8, 1, 2, 3, 0b1000_0110, 0], 4, Encoding::RLE_DICTIONARY);
        // Eight levels in one byte, of which three are used: valid, null, valid.
        let plain = page(&[2, 0, 0, 0, 3, 0b101, 7, 0, 0, 0, 8, 0, 0, 0], 3, Encoding::PLAIN);
        let encoded = read(vec![dictionary(&[0; 12], 3), codes, plain], 7).unwrap().unwrap();
        assert_eq!(encoded.ends, [4, 6]);
        let code = HybridRun { first: 0, is_plain: false, bits: 2, at: 2 * 8 };
        let plain = HybridRun { first: 4, is_plain: true, bits: 32, at: 8 * 8 };
        assert_eq!(encoded.runs, [code.word().unwrap(), plain.word().unwrap()]);
        assert_eq!(encoded.validity.bitmap(), Some(&[0b101_1111][..]));
        assert_eq!((encoded.n_bytes, encoded.pages.len()), (16, 2));
    }

    #[test]
    fn damaged_pages_are_errors_without_memory_for_declared_rows() {
        let huge = || page(&[6, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0], 1 << 31, Encoding::PLAIN);
        assert!(error(vec![huge()], 10).contains("2147483648 rows where the others have 10"));
        let empty = || page(&[2, 0, 0, 0, 8, 0], 4, Encoding::PLAIN);
        assert!(error(vec![empty()], 5).contains("4 rows where the others have 5"));
        assert!(error(vec![page(&[9, 0, 0, 0, 8, 1], 4, Encoding::PLAIN)], 4).contains("have 9 bytes"));
        assert!(error(vec![page(&[2, 0], 4, Encoding::PLAIN)], 4).contains("the page has 2"));
        let short = page(&[2, 0, 0, 0, 8, 1, 1, 2, 3], 4, Encoding::PLAIN);
        assert!(error(vec![short], 4).contains("4 values of 32 bits, but only 3 bytes"));
        let codes = |bits| page(&[2, 0, 0, 0, 8, 1, bits, 8, 0], 4, Encoding::RLE_DICTIONARY);
        assert!(error(vec![codes(2)], 4).contains("no dictionary"));
        assert!(error(vec![dictionary(&[], 0), codes(33)], 4).contains("33 bits"));
        let cut = page(&[2, 0, 0, 0, 8, 1], 4, Encoding::RLE_DICTIONARY);
        assert!(error(vec![dictionary(&[], 0), cut], 4).contains("after 0 of 4"));
    }

    #[test]
    fn other_encodings_are_left_to_the_crate() {
        let delta = page(&[2, 0, 0, 0, 8, 1, 0], 4, Encoding::DELTA_BINARY_PACKED);
        assert!(read(vec![delta], 4).unwrap().is_none());
        assert!(read(vec![dictionary(&[], 0), dictionary(&[], 0)], 4).unwrap().is_none());
    }
}
