//! Reads and writes the header of npy files, NumPy's format of one array.
//!
//! A file has the magic bytes, the version, the length of the header, the header, and the elements.
//! The header is a literal of Python: a dictionary with the type (`descr`), the order of the
//! dimensions (`fortran_order`) and the shape (`shape`).

use crossdock_memory::{Error, Result};

use crate::element::Element;
use crate::shape::{MAX_DIMS, Shape};

/// The bytes at the beginning of a file.
pub const MAGIC: &[u8] = b"\x93NUMPY";
/// The bytes that contain the version and the length of the header, at most.
pub const MAX_PREFIX_BYTES: usize = MAGIC.len() + 2 + 4;
/// The maximum length of a header. Headers of arrays without named fields have less than 1 KiB.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The elements of a written file begin at a multiple of this number of bytes.
const ALIGNMENT: usize = 64;

/// The contents of a header.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the elements and whether they are in big-endian order; the reason if Arrow does
    /// not support them.
    pub element: std::result::Result<(Element, bool), String>,
    /// The dimensions.
    pub dims: Vec<u64>,
    /// Whether the first dimension is the innermost in memory.
    pub is_fortran: bool,
}

/// Returns the range of the header's text, given the first [`MAX_PREFIX_BYTES`] bytes of a file, or
/// all bytes of a shorter file.
///
/// # Errors
/// If the bytes are not the beginning of an npy file.
pub fn text_range(prefix: &[u8]) -> Result<std::ops::Range<usize>> {
    let truncated = || Error::bad_data(format!("the array has only {} bytes: it is truncated", prefix.len()));
    if MAGIC.starts_with(prefix) {
        return Err(truncated());
    }
    let Some(rest) = prefix.strip_prefix(MAGIC) else {
        let got = prefix.get(..MAGIC.len()).unwrap_or(prefix);
        return Err(Error::bad_data(format!(
            "the array begins with {got:?}, expected {MAGIC:?} ('\\x93NUMPY')"
        )));
    };
    let (version, begin, bytes) = match rest {
        [major @ 1, minor, a, b, ..] => ((*major, *minor), 10, u32::from(u16::from_le_bytes([*a, *b]))),
        [major @ 2..=3, minor, a, b, c, d, ..] => {
            ((*major, *minor), 12, u32::from_le_bytes([*a, *b, *c, *d]))
        }
        [1..=3, ..] | [] => return Err(truncated()),
        [major, rest @ ..] => ((*major, rest.first().copied().unwrap_or(0)), 0, 0),
    };
    if !matches!(version, (1..=3, 0)) {
        return Err(Error::unsupported(format!(
            "version {}.{} of the npy format, expected 1.0, 2.0 or 3.0",
            version.0, version.1
        )));
    }
    let bytes = bytes as usize;
    if bytes > MAX_HEADER_BYTES {
        return Err(Error::bad_data(format!(
            "the header of the array has {bytes} bytes, expected at most {MAX_HEADER_BYTES}"
        )));
    }
    Ok(begin..begin + bytes)
}

/// Reads the text of a header.
///
/// # Errors
/// If the text is malformed.
pub fn parse(text: &[u8]) -> Result<Header> {
    Parser { text, at: 0 }
        .header()
        .map_err(|why| Error::bad_data(format!("the header of the array is malformed: {why}")))
}

impl Header {
    /// The type and the shape of an array. The inner result is the reason if the array is valid,
    /// but not supported.
    ///
    /// # Errors
    /// If the size in bytes overflows.
    pub fn check(self) -> Result<std::result::Result<(Element, bool, Shape), String>> {
        let (element, is_big_endian) = match self.element {
            Ok(element) => element,
            Err(why) => return Ok(Err(why)),
        };
        let shape = Shape::new(self.dims, element.width())?;
        let long_dims = shape.dims().iter().filter(|size| **size != 1).count();
        if self.is_fortran && long_dims > 1 && shape.bytes() > 0 {
            return Ok(Err(format!(
                "shape {:?} in Fortran order, expected C order: store numpy.ascontiguousarray(array)",
                shape.dims()
            )));
        }
        Ok(Ok((element, is_big_endian, shape)))
    }
}

/// Returns the bytes before the elements of an array.
///
/// # Errors
/// Internal if NumPy does not have the type.
pub fn header(element: &Element, shape: &Shape) -> Result<Vec<u8>> {
    let name = element.numpy_name().ok_or_else(|| Error::internal("a column's type is not a NumPy type"))?;
    let dims: Vec<_> = shape.dims().iter().map(|size| format!("{size},")).collect();
    let dims = match dims.as_slice() {
        [only] => only.clone(),
        many => many.join(" ").trim_end_matches(',').to_owned(),
    };
    let mut text = format!("{{'descr': '{name}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The bytes before the text have a fixed length, because at most 64 dimensions of 20 digits fit
    // into a header of version 1.0.
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    text.push('\n');
    let bytes =
        u16::try_from(text.len()).map_err(|_| Error::internal("the header of an array is too long"))?;
    Ok([MAGIC, &[1, 0], &bytes.to_le_bytes(), text.as_bytes()].concat())
}

/// Reads the literal of Python.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

type Parsed<T> = std::result::Result<T, String>;

impl Parser<'_> {
    fn header(&mut self) -> Parsed<Header> {
        let (mut element, mut is_fortran, mut dims) = (None, None, None);
        self.expect(b'{')?;
        while !self.accept(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let is_new = match key.as_str() {
                "descr" => element.replace(self.descr()?).is_none(),
                "fortran_order" => is_fortran.replace(self.boolean()?).is_none(),
                "shape" => dims.replace(self.dims()?).is_none(),
                other => {
                    return Err(format!("unknown key '{other}', expected descr, fortran_order and shape"));
                }
            };
            if !is_new {
                return Err(format!("two values of '{key}'"));
            }
            if !self.accept(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_spaces();
        if self.at < self.text.len() {
            return Err(format!("unexpected text at byte {} after the dictionary", self.at));
        }
        let missing = |key: &str| format!("there is no '{key}'");
        Ok(Header {
            element: element.ok_or_else(|| missing("descr"))?,
            is_fortran: is_fortran.ok_or_else(|| missing("fortran_order"))?,
            dims: dims.ok_or_else(|| missing("shape"))?,
        })
    }

    fn skip_spaces(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        let is_next = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.accept(byte) {
            Ok(())
        } else {
            Err(format!("expected '{}' at byte {}", byte as char, self.at))
        }
    }

    fn string(&mut self) -> Parsed<String> {
        let quote = if self.accept(b'"') { b'"' } else { b'\'' };
        if quote == b'\'' {
            self.expect(quote)?;
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == quote || *byte == b'\\');
        let bytes = end.filter(|end| rest.get(*end) == Some(&quote)).and_then(|end| rest.get(..end));
        let bytes = bytes.ok_or_else(|| format!("expected the end of a string after byte {}", self.at))?;
        self.at += bytes.len() + 1;
        String::from_utf8(bytes.to_vec()).map_err(|_| "a string is not UTF-8".to_owned())
    }

    fn boolean(&mut self) -> Parsed<bool> {
        self.skip_spaces();
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (word, value) in [("True", true), ("False", false)] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(format!("expected True or False at byte {}", self.at))
    }

    fn dims(&mut self) -> Parsed<Vec<u64>> {
        let mut dims = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')') {
            if dims.len() == MAX_DIMS {
                return Err(format!("the shape has more than {MAX_DIMS} dimensions"));
            }
            dims.push(self.size()?);
            if !self.accept(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(dims)
    }

    fn size(&mut self) -> Parsed<u64> {
        self.skip_spaces();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = rest.get(..digits).map(String::from_utf8_lossy).unwrap_or_default();
        let size = text.parse().map_err(|_| {
            format!("expected the size of a dimension at byte {}, 0 to {}", self.at, u64::MAX)
        })?;
        self.at += digits;
        // Python 2 wrote sizes as long integers.
        self.at += usize::from(self.text.get(self.at) == Some(&b'L'));
        Ok(size)
    }

    /// Reads the type. The inner result is the reason if the type is not supported.
    fn descr(&mut self) -> Parsed<std::result::Result<(Element, bool), String>> {
        self.skip_spaces();
        if matches!(self.text.get(self.at), Some(b'[' | b'(')) {
            self.skip_list()?;
            return Ok(Err("a structured type: store its fields as separate arrays".to_owned()));
        }
        let name = self.string()?;
        let (is_big_endian, rest) = match name.as_bytes().first() {
            Some(b'>') => (true, name.get(1..)),
            Some(b'<' | b'|' | b'=') => (false, name.get(1..)),
            _ => (false, Some(name.as_str())),
        };
        let element = Element::from_numpy(rest.unwrap_or_default());
        Ok(element.map(|element| (element, is_big_endian)).map_err(|why| format!("type '{name}': {why}")))
    }

    /// Skips a list or tuple of strings, numbers, lists and tuples.
    fn skip_list(&mut self) -> Parsed<()> {
        let mut depth = 0u32;
        loop {
            self.skip_spaces();
            match self.text.get(self.at) {
                Some(b'[' | b'(') => depth += 1,
                Some(b']' | b')') => depth = depth.saturating_sub(1),
                Some(b'\'' | b'"') => {
                    self.string()?;
                    continue;
                }
                Some(_) => {}
                None => return Err("the type is not complete".to_owned()),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }
}
