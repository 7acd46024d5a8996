//! Finds the ends of the records of a CSV file.

use memchr::{memchr, memchr2, memrchr, memrchr2};

use crate::chunks::RecordEnds;
use crate::options::Dialect;

/// Finds line ends that are not in quotes.
pub struct CsvEnds {
    dialect: Dialect,
    /// The next byte to search.
    at: usize,
    /// The end of the last record that ends with a line feed.
    end: usize,
    /// The start of the current line. A carriage return ends a line too, but only a line feed ends
    /// a chunk.
    line: usize,
    /// The quote that is open at `at`.
    open_quote: Option<usize>,
}

impl CsvEnds {
    /// Begins with an empty text.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, at: 0, end: 0, line: 0, open_quote: None }
    }

    /// Searches text outside of quotes. Returns false at the end of the text.
    fn skip_plain(&mut self, text: &[u8], quote: u8) -> bool {
        let rest = text.get(self.at..).unwrap_or_default();
        let found = memchr(quote, rest);
        let plain = rest.get(..found.unwrap_or(rest.len())).unwrap_or(rest);
        if let Some(line_feed) = memrchr(b'\n', plain) {
            self.end = self.at + line_feed + 1;
        }
        if let Some(line_end) = memrchr2(b'\n', b'\r', plain) {
            self.line = self.at + line_end + 1;
        }
        let Some(found) = found else {
            self.at = text.len();
            return false;
        };
        let quote_at = self.at + found;
        if self.dialect.comment.is_some() && text.get(self.line).copied() == self.dialect.comment {
            // The quote belongs to a comment, which ends with the line.
            let rest = text.get(quote_at..).unwrap_or_default();
            let Some(line_end) = memchr2(b'\n', b'\r', rest) else {
                self.at = quote_at;
                return false;
            };
            self.at = quote_at + line_end + 1;
            self.line = self.at;
            if rest.get(line_end) == Some(&b'\n') {
                self.end = self.at;
            }
            return true;
        }
        let is_after_delimiter = quote_at > 0 && text.get(quote_at - 1) == Some(&self.dialect.delimiter);
        self.open_quote = (quote_at == self.line || is_after_delimiter).then_some(quote_at);
        self.at = quote_at + 1;
        true
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
        self.end
    }

    fn restart(&mut self) {
        (self.at, self.end, self.line, self.open_quote) = (0, 0, 0, None);
    }

    fn open_quote(&self) -> Option<usize> {
        self.open_quote
    }
}
