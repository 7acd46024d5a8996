//! Finds the ends of the records of a CSV file.

use memchr::{memchr, memchr2, memrchr, memrchr2};

use crate::chunks::RecordEnds;
use crate::options::Dialect;

/// The greatest number of parts that are kept.
const MAX_PARTS: usize = 4096;

/// Finds line ends that are not in quotes.
pub struct CsvEnds {
    dialect: Dialect,
    /// The next byte to search.
    at: usize,
    /// The end of the last record that ends with a line feed.
    end: usize,
    /// The start of the last line in the searched parts, if there are comments. A carriage return
    /// ends a line too, but only a line feed ends a chunk.
    line: usize,
    /// The parts outside of quotes in which line ends were not searched.
    plain: Vec<(usize, usize)>,
    /// The quote that is open at `at`.
    open_quote: Option<usize>,
}

impl CsvEnds {
    /// Begins with an empty text.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, at: 0, end: 0, line: 0, plain: Vec::new(), open_quote: None }
    }

    /// Searches text outside of quotes. Returns false at the end of the text.
    fn skip_plain(&mut self, text: &[u8], quote: u8) -> bool {
        let rest = text.get(self.at..).unwrap_or_default();
        let found = memchr(quote, rest);
        let end = self.at + found.unwrap_or(rest.len());
        if self.plain.len() == MAX_PARTS {
            self.find_last_end(text);
        }
        self.plain.push((self.at, end));
        self.at = end;
        if found.is_none() {
            return false;
        }
        if let Some(comment) = self.dialect.comment {
            self.find_last_end(text);
            if text.get(self.line) == Some(&comment) {
                return self.skip_comment(text);
            }
        }
        let before = end.checked_sub(1).and_then(|before| text.get(before));
        let opens =
            before.is_none_or(|byte| *byte == self.dialect.delimiter || matches!(byte, b'\n' | b'\r'));
        self.open_quote = opens.then_some(end);
        self.at = end + 1;
        true
    }

    /// Searches the end of a comment with a quote. Returns false at the end of the text.
    fn skip_comment(&mut self, text: &[u8]) -> bool {
        let rest = text.get(self.at..).unwrap_or_default();
        let Some(line_end) = memchr2(b'\n', b'\r', rest) else { return false };
        self.plain.push((self.at, self.at + line_end + 1));
        self.at += line_end + 1;
        true
    }

    /// Finds the last line ends in the plain parts, from the last part on. Searching only then is
    /// faster than a search in each part.
    fn find_last_end(&mut self, text: &[u8]) {
        let (mut line_found, parts) = (self.dialect.comment.is_none(), std::mem::take(&mut self.plain));
        for (start, end) in parts.iter().rev() {
            let part = text.get(*start..*end).unwrap_or_default();
            if !line_found && let Some(at) = memrchr2(b'\n', b'\r', part) {
                self.line = start + at + 1;
                line_found = true;
            }
            if let Some(at) = memrchr(b'\n', part) {
                self.end = start + at + 1;
                break;
            }
        }
        self.plain = parts;
        self.plain.clear();
    }

    /// Searches the end of a quoted field. Returns false at the end of the text.
    fn skip_quoted(&mut self, text: &[u8], quote: u8) -> bool {
        let rest = text.get(self.at..).unwrap_or_default();
        let Some(found) = memchr2(quote, self.dialect.escape.unwrap_or(quote), rest) else {
            self.at = text.len();
            return false;
        };
        let at = self.at + found;
        let Some(next) = text.get(at + 1) else {
            // The next byte decides.
            self.at = at;
            return false;
        };
        if rest.get(found) != Some(&quote) || *next == quote {
            self.at = at + 2;
        } else {
            self.at = at + 1;
            self.open_quote = None;
        }
        true
    }
}

impl RecordEnds for CsvEnds {
    fn last_end(&mut self, text: &[u8]) -> usize {
        let Some(quote) = self.dialect.quote else {
            let rest = text.get(self.at..).unwrap_or_default();
            self.end = memrchr(b'\n', rest).map_or(self.end, |at| self.at + at + 1);
            self.at = text.len();
            return self.end;
        };
        while match self.open_quote {
            None => self.skip_plain(text, quote),
            Some(_) => self.skip_quoted(text, quote),
        } {}
        self.find_last_end(text);
        self.end
    }

    fn restart(&mut self) {
        (self.at, self.end, self.line, self.open_quote) = (0, 0, 0, None);
        self.plain.clear();
    }

    fn open_quote(&self) -> Option<usize> {
        self.open_quote
    }
}
