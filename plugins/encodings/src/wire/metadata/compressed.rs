//! Metadata of values that are compressed with a codec.

use crossdock_plugin_api::{Error, Result};

use super::for_each_field;

/// `vortex.zstd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zstd {
    /// The size of the dictionary in bytes; 0 if there is no dictionary.
    pub dictionary_bytes: usize,
    pub frames: Vec<Frame>,
}

/// A Zstandard frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The size of the content in bytes.
    pub bytes: usize,
    /// The number of values in the frame. Nulls are not stored.
    pub n_values: usize,
}

impl Zstd {
    /// Parses the metadata of a node with `len` values.
    pub fn read(metadata: &[u8], len: usize) -> Result<Self> {
        let mut parsed = Self { dictionary_bytes: 0, frames: Vec::new() };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.dictionary_bytes = value.usize()?,
                2 => {
                    let mut frame = Frame { bytes: 0, n_values: 0 };
                    for_each_field(value.bytes()?, |number, value| {
                        match number {
                            1 => frame.bytes = value.usize()?,
                            2 => frame.n_values = value.usize()?,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    parsed.frames.push(frame);
                }
                _ => {}
            }
            Ok(())
        })?;
        check_values(parsed.frames.iter().map(|frame| frame.n_values), len)?;
        Ok(parsed)
    }

    /// The size of the content of all frames in bytes.
    pub fn bytes(&self) -> usize {
        self.frames.iter().fold(0, |sum, frame| sum.saturating_add(frame.bytes))
    }

    /// The number of buffers of the node.
    pub fn n_buffers(&self) -> usize {
        self.frames.len() + usize::from(self.dictionary_bytes > 0)
    }
}

/// `vortex.pco`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pco<'a> {
    /// The header, which contains the version of the format.
    pub header: &'a [u8],
    /// The number of values of each page of each chunk. Nulls are not stored.
    pub chunks: Vec<Vec<usize>>,
}

impl<'a> Pco<'a> {
    /// Parses the metadata of a node with `len` values.
    pub fn read(metadata: &'a [u8], len: usize) -> Result<Self> {
        let mut parsed = Self { header: &[], chunks: Vec::new() };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.header = value.bytes()?,
                2 => parsed.chunks.push(pages(value.bytes()?)?),
                _ => {}
            }
            Ok(())
        })?;
        check_values(parsed.chunks.iter().flatten().copied(), len)?;
        Ok(parsed)
    }

    /// The number of buffers of the node.
    pub fn n_buffers(&self) -> usize {
        self.chunks.iter().map(|pages| 1 + pages.len()).sum()
    }
}

fn pages(chunk: &[u8]) -> Result<Vec<usize>> {
    let mut pages = Vec::new();
    for_each_field(chunk, |number, value| {
        if number == 1 {
            let mut n_values = 0;
            for_each_field(value.bytes()?, |number, value| {
                if number == 1 {
                    n_values = value.usize()?;
                }
                Ok(())
            })?;
            pages.push(n_values);
        }
        Ok(())
    })?;
    Ok(pages)
}

/// Returns an error if the parts contain more than `len` values.
fn check_values(parts: impl Iterator<Item = usize>, len: usize) -> Result<()> {
    let sum = parts.fold(0usize, usize::saturating_add);
    if sum <= len {
        return Ok(());
    }
    Err(Error::bad_data(format!("the metadata: {sum} values are stored, expected at most {len}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zstd_lists_its_frames() {
        let metadata = [0x08, 5, 0x12, 4, 0x08, 40, 0x10, 10, 0x12, 2, 0x10, 3];
        let zstd = Zstd::read(&metadata, 13).unwrap();
        assert_eq!(zstd.frames, [Frame { bytes: 40, n_values: 10 }, Frame { bytes: 0, n_values: 3 }]);
        assert_eq!((zstd.dictionary_bytes, zstd.bytes(), zstd.n_buffers()), (5, 40, 3));
        assert!(Zstd::read(&metadata, 12).unwrap_err().message().contains("13 values are stored"));
    }

    #[test]
    fn pco_lists_the_pages_of_its_chunks() {
        let metadata = [0x0a, 1, 4, 0x12, 8, 0x0a, 2, 0x08, 7, 0x0a, 2, 0x08, 2, 0x12, 0];
        let pco = Pco::read(&metadata, 9).unwrap();
        assert_eq!((pco.header, pco.chunks.clone()), (&[4][..], vec![vec![7, 2], vec![]]));
        assert_eq!(pco.n_buffers(), 4);
        assert!(Pco::read(&metadata, 8).is_err());
    }
}
