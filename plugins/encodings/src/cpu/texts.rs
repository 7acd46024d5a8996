//! Texts while they are decoded: what has to be made of their bytes is made when these are in the nearest cache.

use crossdock_plugin_api::{Error, Result};

use super::views::{IN_PLACE, View, write_in_one};
use super::words::Index;

/// Values of known lengths that come to lie one after the other, in one data buffer of at most
/// [`MOST_BYTES`](super::views::MOST_BYTES).
pub struct Texts<'a, L> {
    lengths: &'a [L],
    views: &'a mut [View],
    /// Values whose views are there, and where they end.
    values: usize,
    end: usize,
    /// Bytes that were looked at.
    bytes: usize,
    is_ascii: bool,
}

impl<'a, L: Index> Texts<'a, L> {
    /// None yet; `views` is for as many as there are lengths.
    pub fn new(lengths: &'a [L], views: &'a mut [View]) -> Self {
        Self { lengths, views, values: 0, end: 0, bytes: 0, is_ascii: true }
    }

    /// All bytes up to now, and how many values have ended among them: more than the last time.
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
    pub fn need_buffer(&self) -> bool {
        L::greatest(self.lengths) > IN_PLACE
    }
}

#[cfg(test)]
mod tests {
    use super::super::views::from_lengths;
    use super::*;

    const LENGTHS: [u8; 9] = [3, 0, 12, 13, 40, 0, 1, 30, 12];

    /// What becomes of texts of which so many bytes come at a time.
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
        let told = (texts.is_ascii(), texts.need_buffer());
        (views, told.0, told.1)
    }

    #[test]
    fn views_are_the_same_in_whichever_pieces_their_bytes_come() {
        let data: Vec<u8> = (0..111).map(|i| b'a' + i % 26).collect();
        let mut expected = [[0; 16]; LENGTHS.len()];
        assert_eq!(from_lengths(&LENGTHS, &data, &mut expected).unwrap(), vec![0..111; 1]);
        for bytes in 1..=data.len() {
            assert_eq!(in_pieces(&data, bytes), (expected.to_vec(), true, true), "{bytes}");
        }
    }

    #[test]
    fn a_byte_that_is_not_ascii_is_seen_wherever_it_is() {
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
        assert!(!texts.need_buffer());
    }

    #[test]
    fn more_values_or_fewer_bytes_than_there_are_make_no_views() {
        let mut views = [[0xaa; 16]; 2];
        assert!(Texts::new(&[1u8, 2], &mut views).add(b"abc", 3).is_err());
        let short = Texts::new(&[1u8, 2], &mut views).add(b"ab", 2).unwrap_err();
        assert_eq!(short.message(), "value 1 lies at 1..3, of 2 bytes");
        assert!(Texts::new(&[1u64, u64::MAX], &mut views).add(b"ab", 2).is_err());
    }
}
