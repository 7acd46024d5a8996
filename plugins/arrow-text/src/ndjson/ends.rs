//! Finds the ends of the records of an NDJSON file.

use crate::chunks::RecordEnds;

/// Finds line feeds. JSON allows none within a string, and NDJSON none within a record.
#[derive(Default)]
pub struct NdjsonEnds {
    /// The next byte to search.
    at: usize,
    /// The end of the last record.
    end: usize,
}

impl RecordEnds for NdjsonEnds {
    fn last_end(&mut self, text: &[u8]) -> usize {
        let rest = text.get(self.at..).unwrap_or_default();
        self.end = memchr::memrchr(b'\n', rest).map_or(self.end, |at| self.at + at + 1);
        self.at = text.len();
        self.end
    }

    fn restart(&mut self) {
        (self.at, self.end) = (0, 0);
    }
}
