//! Builds views of texts during decoding, while the decoded bytes are in the nearest cache.

use crossdock_plugin_api::{Error, Result};

use super::views::{MAX_INLINE_BYTES, View, write_in_one};
use super::words::Index;

/// Contiguous values of known lengths in one data buffer of at most
/// [`MAX_BUFFER_BYTES`](super::views::MAX_BUFFER_BYTES) bytes.
pub struct Texts<'a, L> {
    lengths: &'a [L],
    views: &'a mut [View],
    /// Number of values whose views have been written, and the end of the last of these values in
    /// the data buffer.
    values: usize,
    end: usize,
    /// Number of bytes that were checked for ASCII.
    bytes: usize,
    is_ascii: bool,
}

impl<'a, L: Index> Texts<'a, L> {
    /// `views` must have the length of `lengths`.
    pub fn new(lengths: &'a [L], views: &'a mut [View]) -> Self {
        Self { lengths, views, values: 0, end: 0, bytes: 0, is_ascii: true }
    }

    /// Adds decoded bytes. `bytes` contains all bytes that were decoded so far, including those of
    /// previous calls, and `values` is the number of complete values in `bytes`.
    pub fn add(&mut self, bytes: &[u8], values: usize) -> Result<()> {
        self.is_ascii = self.is_ascii && bytes.get(self.bytes..).is_some_and(<[u8]>::is_ascii);
        self.bytes = bytes.len();
        let range = self.values..values;
        let (Some(lengths), Some(views)) = (self.lengths.get(range.clone()), self.views.get_mut(range))
        else {
            return Err(Error::internal(format!("{values} of {} values were decoded", self.lengths.len())));
        };
        let mut end = self.end;
        let ranges = lengths.iter().map(|length| {
            let begin = end;
            end = end.saturating_add(length.index());
            begin..end
        });
        write_in_one((self.values..).zip(ranges.zip(views)), bytes)?;
        (self.values, self.end) = (values, end);
        Ok(())
    }

    /// Whether all bytes were ASCII.
    pub fn is_ascii(&self) -> bool {
        self.is_ascii
    }

    /// Whether a view refers to the data buffer.
    pub fn needs_buffer(&self) -> bool {
        L::greatest(self.lengths) > MAX_INLINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::super::views::from_lengths;
    use super::*;

    const LENGTHS: [u8; 9] = [3, 0, 12, 13, 40, 0, 1, 30, 12];

    /// Returns the views of texts that are added `bytes` bytes at a time, and the two flags.
    fn in_pieces(data: &[u8], bytes: usize) -> (Vec<View>, bool, bool) {
        let mut views = vec![[0xaa; 16]; LENGTHS.len()];
        let mut texts = Texts::new(&LENGTHS, &mut views);
        for end in (bytes..data.len()).step_by(bytes) {
            let ends = LENGTHS.iter().scan(0, |at, length| {
                *at += usize::from(*length);
                Some(*at)
            });
            texts.add(&data[..end], ends.take_while(|at| *at < end).count()).unwrap();
        }
        texts.add(data, LENGTHS.len()).unwrap();
        let (is_ascii, needs_buffer) = (texts.is_ascii(), texts.needs_buffer());
        (views, is_ascii, needs_buffer)
    }

    #[test]
    fn views_do_not_depend_on_how_text_is_split() {
        let data: Vec<u8> = (0..111).map(|i| b'a' + i % 26).collect();
        let mut expected = [[0; 16]; LENGTHS.len()];
        assert_eq!(from_lengths(&LENGTHS, &data, &mut expected).unwrap(), vec![0..111; 1]);
        for bytes in 1..=data.len() {
            assert_eq!(in_pieces(&data, bytes), (expected.to_vec(), true, true), "{bytes}");
        }
    }

    #[test]
    fn detects_non_ascii_bytes_at_any_position() {
        for at in 0..111 {
            let mut data = [b'a'; 111];
            data[at] = 0x80;
            assert!([1, 7, 64, 111].iter().all(|bytes| !in_pieces(&data, *bytes).1), "{at}");
        }
    }

    #[test]
    fn short_values_need_no_buffer() {
        let mut views = [[0xaa; 16]; 2];
        let mut texts = Texts::new(&[12u64, 1], &mut views);
        texts.add(b"twelve bytes.", 2).unwrap();
        assert!(!texts.needs_buffer());
    }

    #[test]
    fn rejects_too_many_values_and_too_few_bytes() {
        let mut views = [[0xaa; 16]; 2];
        assert!(Texts::new(&[1u8, 2], &mut views).add(b"abc", 3).is_err());
        let short = Texts::new(&[1u8, 2], &mut views).add(b"ab", 2).unwrap_err();
        assert_eq!(short.message(), "value 1 spans 1..3, expected a range within 2 bytes");
        assert!(Texts::new(&[1u64, u64::MAX], &mut views).add(b"ab", 2).is_err());
    }
}
