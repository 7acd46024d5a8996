//! Decompresses values with Zstandard and Pco, and inserts nulls between them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::{Error, Result};
use pco::data_types::Number;
use pco::wrapped::FileDecompressor;

use super::bits::Bits;
use super::words::check_len;

/// Decompresses a frame to exactly `to`.
pub fn zstd_frame(context: &mut zstd_safe::DCtx<'_>, from: &[u8], to: &mut [u8]) -> Result<()> {
    let expected = to.len();
    match context.decompress(to, from) {
        Ok(n) if n == expected => Ok(()),
        Ok(n) => Err(Error::bad_data(format!("a frame has {n} bytes of content, expected {expected}"))),
        Err(code) => Err(Error::bad_data(format!(
            "a frame of {} bytes is invalid: {}",
            from.len(),
            zstd_safe::get_error_name(code)
        ))),
    }
}

/// Decompresses a chunk: its metadata, and its pages with their numbers of values.
pub fn pco_chunk<T: Number>(
    header: &[u8],
    metadata: &[u8],
    pages: &[(&[u8], usize)],
    to: &mut [T],
) -> Result<()> {
    let bad = |error: pco::errors::PcoError| Error::bad_data(format!("pco: {error}"));
    let decompress = || -> Result<()> {
        let (file, _) = FileDecompressor::new(header).map_err(bad)?;
        let (mut chunk, _) = file.chunk_decompressor::<T, _>(metadata).map_err(bad)?;
        let mut rest = to;
        for (page, n) in pages {
            let values;
            (values, rest) = std::mem::take(&mut rest)
                .split_at_mut_checked(*n)
                .ok_or_else(|| Error::internal("the pages have more values than their chunk"))?;
            let progress = chunk.page_decompressor(*page, *n).map_err(bad)?.read(values).map_err(bad)?;
            check_len("values of a page", *n, progress.n_processed)?;
        }
        Ok(())
    };
    // The decoder may panic if the metadata is malformed.
    catch_unwind(AssertUnwindSafe(decompress)).unwrap_or_else(|payload| {
        // Dropping the payload may panic again.
        std::mem::forget(payload);
        Err(Error::bad_data("pco: the metadata of a chunk is malformed"))
    })
}

/// Moves the values at the beginning of `values` to the places of the valid values. The other
/// places get the default value.
pub fn spread<T: Copy + Default>(values: &mut [T], n_values: usize, valid: Option<Bits<'_>>) -> Result<()> {
    let Some(valid) = valid else { return check_len("values", values.len(), n_values) };
    let n_valid = (0..values.len().div_ceil(64)).map(|i| valid.word(i).count_ones() as usize).sum();
    check_len("values, one per valid row", n_valid, n_values)?;
    let mut next = n_values;
    for i in (0..values.len()).rev() {
        let value = if valid.get(i) {
            next = next.saturating_sub(1);
            values.get(next).copied().unwrap_or_default()
        } else {
            T::default()
        };
        if let Some(place) = values.get_mut(i) {
            *place = value;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_moves_values_to_valid_rows() {
        let mut values = [1, 2, 3, 9, 9, 9];
        spread(&mut values, 3, Some(Bits::new(&[0b101010], 0, 6).unwrap())).unwrap();
        assert_eq!(values, [0, 1, 0, 2, 0, 3]);
        let mut values = [1, 2, 3, 9];
        spread(&mut values, 3, Some(Bits::new(&[0b0111], 0, 4).unwrap())).unwrap();
        assert_eq!(values, [1, 2, 3, 0]);
        assert!(spread(&mut values, 3, Some(Bits::new(&[0b1111], 0, 4).unwrap())).is_err());
        assert!(spread(&mut values, 3, None).is_err());
        spread(&mut [0u8; 0], 0, None).unwrap();
    }

    #[test]
    fn malformed_pco_chunks_are_errors() {
        for byte in 0..=u8::MAX {
            let bytes = [byte; 40];
            assert!(pco_chunk::<u32>(&bytes, &bytes, &[(&bytes, 10)], &mut [0; 10]).is_err(), "{byte}");
            let header = [4, 1];
            assert!(pco_chunk::<u32>(&header, &bytes, &[(&[], 10)], &mut [0; 10]).is_err(), "{byte}");
        }
    }
}
