//! Reads values of Thrift's compact protocol.
//!
//! The crate `parquet` reads the metadata of files. This reader checks bytes before the crate reads
//! them, because some wrong numbers would end the process: memory of a declared size that cannot be
//! allocated, and recursion without a limit. It also reads the page index.

use crossdock_plugin_api::{Error, Result};

/// The greatest depth of nested values that are skipped.
const MAX_DEPTH: usize = 32;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    True,
    False,
    Byte,
    /// An integer of 16, 32 or 64 bits.
    Int,
    Double,
    Binary,
    List,
    Map,
    Struct,
}

/// A list whose elements follow.
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub element: Type,
    /// The number of elements. It is at most the number of bytes that follow.
    pub len: usize,
}

/// Reads values from bytes.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The number of bytes that were read.
    pub fn position(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, what: &str) -> Error {
        Error::bad_data(format!("the Thrift metadata {what} after {} of {} bytes", self.at, self.bytes.len()))
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.rest().first().copied().ok_or_else(|| self.wrong("end"))?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let bytes = self.rest().get(..n).ok_or_else(|| self.wrong("end"))?;
        self.at += n;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong("have a number of more than 64 bits"))
    }

    /// Reads an integer.
    pub fn int(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads bytes.
    pub fn binary(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Reads the beginning of a list.
    pub fn list(&mut self) -> Result<List> {
        let header = self.byte()?;
        let len = match header >> 4 {
            15 => usize::try_from(self.varint()?).unwrap_or(usize::MAX),
            len => usize::from(len),
        };
        if len > self.rest().len() {
            return Err(self.wrong(&format!("have a list of {len} elements, but end")));
        }
        let element = match header & 15 {
            // Some writers store an empty list without the type of its elements.
            0 if len == 0 => Type::Byte,
            element => self.of(element)?,
        };
        Ok(List { element, len })
    }

    /// Reads a boolean in a list.
    pub fn bool_element(&mut self) -> Result<bool> {
        Ok(self.byte()? == 1)
    }

    fn of(&self, id: u8) -> Result<Type> {
        Ok(match id {
            1 => Type::True,
            2 => Type::False,
            3 => Type::Byte,
            4..=6 => Type::Int,
            7 => Type::Double,
            8 => Type::Binary,
            9 | 10 => Type::List,
            11 => Type::Map,
            12 => Type::Struct,
            _ => return Err(self.wrong(&format!("have the unknown type {id}"))),
        })
    }

    /// Calls `f` with the id and the type of each field of a struct. Skips the fields for which `f`
    /// returns false, in which case it must not read.
    pub fn fields(&mut self, mut f: impl FnMut(&mut Self, i64, Type) -> Result<bool>) -> Result<()> {
        let mut id = 0i64;
        while let Some((next, of)) = self.field(id)? {
            id = next;
            if !f(self, id, of)? {
                self.skip(of, 0)?;
            }
        }
        Ok(())
    }

    /// Reads the header of a field; `None` at the end of the struct.
    fn field(&mut self, last: i64) -> Result<Option<(i64, Type)>> {
        let header = self.byte()?;
        if header == 0 {
            return Ok(None);
        }
        let of = self.of(header & 15)?;
        let id = match header >> 4 {
            0 => self.int()?,
            delta => last.saturating_add(i64::from(delta)),
        };
        Ok(Some((id, of)))
    }

    fn skip(&mut self, of: Type, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(&format!("nest deeper than {MAX_DEPTH} levels")));
        }
        match of {
            Type::True | Type::False => {}
            Type::Byte => drop(self.byte()?),
            Type::Int => drop(self.varint()?),
            Type::Double => drop(self.take(8)?),
            Type::Binary => drop(self.binary()?),
            Type::List => {
                let List { element, len } = self.list()?;
                for _ in 0..len {
                    self.skip_element(element, depth)?;
                }
            }
            Type::Map => {
                let len = self.varint()?;
                if len > 0 {
                    let types = self.byte()?;
                    let (key, value) = (self.of(types >> 4)?, self.of(types & 15)?);
                    for _ in 0..len {
                        self.skip_element(key, depth)?;
                        self.skip_element(value, depth)?;
                    }
                }
            }
            Type::Struct => {
                while let Some((_, of)) = self.field(0)? {
                    self.skip(of, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// In a list, a boolean is a byte. In a field, the type contains it.
    fn skip_element(&mut self, of: Type, depth: usize) -> Result<()> {
        match of {
            Type::True | Type::False => self.byte().map(drop),
            other => self.skip(other, depth + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_or_skipped() {
        // 1: 3, 2: true, 5: [1, 2], 6: {1: 7}, 40: "ab"
        let bytes = b"\x15\x06\x11\x39\x25\x02\x04\x1c\x15\x0e\x00\x08\x50\x02ab\x00!";
        let mut seen = Vec::new();
        let mut reader = Reader::new(bytes);
        let read = reader.fields(|reader, id, of| {
            seen.push((id, of));
            match id {
                1 => assert_eq!(reader.int()?, 3),
                40 => assert_eq!(reader.binary()?, b"ab"),
                _ => return Ok(false),
            }
            Ok(true)
        });
        assert_eq!(read, Ok(()));
        let types = [(1, Type::Int), (2, Type::True), (5, Type::List), (6, Type::Struct), (40, Type::Binary)];
        assert_eq!(seen, types);
        assert_eq!(reader.position(), bytes.len() - 1);
    }

    #[test]
    fn malformed_bytes_are_errors() {
        let skip_all = |bytes: &[u8]| Reader::new(bytes).fields(|_, _, _| Ok(false)).unwrap_err();
        for (bytes, expected) in [
            (&b"\x15"[..], "end after 1"),
            (b"\x15\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "more than 64 bits"),
            (b"\x18\xff\x01ab\x00", "end after"),
            (b"\x19\xf5\xff\xff\xff\xff\x07", "a list of 2147483647 elements"),
            (b"\x1d\x00", "unknown type 13"),
            (&[0x1c; 100], "nest deeper than 32"),
            (&[0x19; 100], "nest deeper than 32"),
        ] {
            let error = skip_all(bytes);
            assert!(error.message().contains(expected), "{bytes:?}: {error:?}");
        }
    }
}
