//! Divides the records of a chunk into fields.

use memchr::{memchr2, memchr3};

use super::specials::Specials;
use crate::options::Dialect;

/// The greatest number of bytes of a field, and of a chunk.
pub const MAX_BYTES: usize = (1 << 30) - 1;

/// A field of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// The position of the first byte, after the quote.
    pub start: u32,
    /// The number of bytes, and two flags.
    len: u32,
}

const QUOTED: u32 = 1 << 31;
const ESCAPED: u32 = 1 << 30;

impl Field {
    fn new(start: usize, end: usize, flags: u32) -> Self {
        // A chunk has at most `MAX_BYTES` bytes.
        Self { start: start as u32, len: (end - start) as u32 | flags }
    }

    /// The positions of the bytes.
    #[inline]
    pub fn range(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + (self.len & !(QUOTED | ESCAPED)) as usize
    }

    /// Whether the field is in quotes.
    #[inline]
    pub fn is_quoted(self) -> bool {
        self.len & QUOTED != 0
    }

    /// Whether a quote or an escape character must be removed from the bytes.
    #[inline]
    pub fn is_escaped(self) -> bool {
        self.len & ESCAPED != 0
    }
}

/// A violation of the format, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A record has another number of fields than the columns.
    Fields {
        /// The start of the record.
        at: usize,
        /// The number of fields.
        got: usize,
    },
    /// A quote is not closed.
    OpenQuote {
        /// The position of the quote.
        at: usize,
    },
    /// A field goes on after its closing quote.
    AfterQuote {
        /// The position of the first byte after the quote.
        at: usize,
    },
}

/// Iterates over the records of a text.
pub struct Records<'a> {
    text: &'a [u8],
    dialect: Dialect,
    specials: Specials<'a>,
    at: usize,
    /// Whether a line without text is a record with an empty field.
    keeps_blank: bool,
}

impl<'a> Records<'a> {
    /// Begins at the byte `at` of `text`, which has at most [`MAX_BYTES`] bytes. In a table of one
    /// column, a blank line is a record. Otherwise blank lines are ignored.
    pub fn new(text: &'a [u8], at: usize, dialect: &Dialect, keeps_blank: bool) -> Self {
        let specials = Specials::new(text, dialect.delimiter);
        Self { text, dialect: *dialect, specials, at, keeps_blank }
    }

    /// The position after the last record.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Calls `each` with the index and the position of each field of the next record. Returns the
    /// start of the record and its number of fields, or `None` at the end of the text.
    ///
    /// # Errors
    /// A violation of the rules for quotes.
    #[inline]
    pub fn next(&mut self, mut each: impl FnMut(usize, Field)) -> Result<Option<(usize, usize)>, Violation> {
        if !self.skip_ignored() {
            return Ok(None);
        }
        let record = self.at;
        let mut n = 0;
        loop {
            let (field, end) = match self.text.get(self.at) {
                Some(byte) if Some(*byte) == self.dialect.quote => self.quoted(*byte)?,
                _ => {
                    let end = self.specials.next(self.at);
                    (Field::new(self.at, end, 0), end)
                }
            };
            each(n, field);
            n += 1;
            self.at = end + 1;
            match self.text.get(end) {
                Some(byte) if *byte == self.dialect.delimiter => {}
                Some(b'\r') if self.text.get(end + 1) == Some(&b'\n') => {
                    self.at = end + 2;
                    return Ok(Some((record, n)));
                }
                Some(_) => return Ok(Some((record, n))),
                None => {
                    self.at = end;
                    return Ok(Some((record, n)));
                }
            }
        }
    }

    /// Skips comments and blank lines. Returns false at the end of the text.
    #[inline]
    fn skip_ignored(&mut self) -> bool {
        loop {
            match self.text.get(self.at) {
                None => return false,
                Some(b'\n' | b'\r') if !self.keeps_blank => self.at += 1,
                Some(byte) if Some(*byte) == self.dialect.comment => {
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    let is_crlf = rest.get(end..).is_some_and(|rest| rest.starts_with(b"\r\n"));
                    self.at = (self.at + end + 1 + usize::from(is_crlf)).min(self.text.len());
                }
                Some(_) => return true,
            }
        }
    }

    /// The field whose opening quote is the next byte, and the position after its closing quote.
    fn quoted(&mut self, quote: u8) -> Result<(Field, usize), Violation> {
        let open = self.at;
        let escape = self.dialect.escape.unwrap_or(quote);
        let (mut at, mut flags) = (open + 1, QUOTED);
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            let Some(found) = memchr3(quote, escape, escape, rest) else {
                return Err(Violation::OpenQuote { at: open });
            };
            let next = rest.get(found + 1);
            if rest.get(found) != Some(&quote) {
                if next.is_none() {
                    return Err(Violation::OpenQuote { at: open });
                }
            } else if next != Some(&quote) {
                let end = at + found;
                return match next {
                    Some(byte) if *byte != self.dialect.delimiter && !matches!(byte, b'\n' | b'\r') => {
                        Err(Violation::AfterQuote { at: end + 1 })
                    }
                    _ => Ok((Field::new(open + 1, end, flags), end + 1)),
                };
            }
            flags |= ESCAPED;
            at += found + 2;
        }
    }
}

/// The text of an escaped field: each pair of a quote or an escape character and another character
/// stands for the other character.
pub fn unescape(bytes: &[u8], dialect: &Dialect, to: &mut Vec<u8>) {
    to.clear();
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        let is_escape = Some(*byte) == dialect.quote || Some(*byte) == dialect.escape;
        let byte = if is_escape { bytes.next().unwrap_or(byte) } else { byte };
        to.push(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::RecordEnds;
    use crate::csv::ends::CsvEnds;

    const DIALECT: Dialect =
        Dialect { delimiter: b',', quote: Some(b'"'), escape: None, comment: None, header: true };

    fn records(text: &str, dialect: &Dialect, keeps_blank: bool) -> Result<Vec<Vec<String>>, Violation> {
        let mut records = Records::new(text.as_bytes(), 0, dialect, keeps_blank);
        let mut all = Vec::new();
        loop {
            let mut fields = Vec::new();
            let record = records.next(|_, field| {
                let mut bytes = text.as_bytes()[field.range()].to_vec();
                if field.is_escaped() {
                    unescape(&text.as_bytes()[field.range()], dialect, &mut bytes);
                }
                fields.push(String::from_utf8(bytes).unwrap());
            })?;
            match record {
                None => return Ok(all),
                Some((_, n)) => assert_eq!(n, fields.len()),
            }
            all.push(fields);
        }
    }

    #[test]
    fn records_end_at_line_feeds_carriage_returns_and_both() {
        let rows = records("a,b\r\nc,\n\n\r\n,d\re,f", &DIALECT, false).unwrap();
        assert_eq!(rows, [["a", "b"], ["c", ""], ["", "d"], ["e", "f"]]);
        assert_eq!(records("a\n\nb\n", &DIALECT, true).unwrap(), [["a"], [""], ["b"]]);
        assert_eq!(records("", &DIALECT, true).unwrap(), Vec::<Vec<String>>::new());
        assert_eq!(records("a,", &DIALECT, false).unwrap(), [["a", ""]]);
    }

    #[test]
    fn quotes_protect_delimiters_and_line_ends() {
        let rows = records("\"a,\n\"\"b\"\"\",\"\"\nc\"d\",e\n", &DIALECT, false).unwrap();
        assert_eq!(rows, [["a,\n\"b\"", ""], ["c\"d\"", "e"]]);
        let escaping = Dialect { escape: Some(b'\\'), ..DIALECT };
        assert_eq!(records("\"a\\\"\\\\b\",c", &escaping, false).unwrap(), [["a\"\\b", "c"]]);
        let plain = Dialect { quote: None, ..DIALECT };
        assert_eq!(records("\"a,b\"", &plain, false).unwrap(), [["\"a", "b\""]]);
        assert_eq!(records("a,\"b", &DIALECT, false), Err(Violation::OpenQuote { at: 2 }));
        assert_eq!(records("\"a\"b,c", &DIALECT, false), Err(Violation::AfterQuote { at: 3 }));
    }

    #[test]
    fn comments_are_ignored() {
        let commented = Dialect { comment: Some(b'#'), ..DIALECT };
        let rows = records("#x\r\na,b\n# \"c\n#\nd,#e\n#", &commented, false).unwrap();
        assert_eq!(rows, [["a", "b"], ["d", "#e"]]);
    }

    /// A chunk may be cut only where a record ends: the records of both parts are the records of
    /// the whole.
    #[test]
    fn texts_are_divided_between_records() {
        let escaping = Dialect { escape: Some(b'\\'), comment: Some(b'#'), ..DIALECT };
        let mut random = 1u32;
        for round in 0..20_000 {
            let text: String = (0..random % 24)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    char::from(b"a,\"\"\n\n\r\\#b"[(random >> 20) as usize % 10])
                })
                .collect();
            random = random.wrapping_mul(1_664_525).wrapping_add(round);
            let dialect = if round % 2 == 0 { DIALECT } else { escaping };
            let Ok(whole) = records(&text, &dialect, false) else { continue };
            let mut ends = CsvEnds::new(dialect);
            for step in 1..=text.len() {
                let end = ends.last_end(&text.as_bytes()[..step]);
                let [Ok(mut first), Ok(second)] =
                    [&text[..end], &text[end..]].map(|part| records(part, &dialect, false))
                else {
                    panic!("{text:?} was cut at {end}");
                };
                first.extend(second);
                assert_eq!(first, whole, "{text:?} was cut at {end}");
            }
        }
    }
}
