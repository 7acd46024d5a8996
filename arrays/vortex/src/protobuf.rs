//! Reads the fields of one message in the wire format of protocol buffers. The fields borrow the
//! message's bytes.
//!
//! Callers ignore unknown fields, as the format requires. Truncated values, numbers of more than 64
//! bits, unknown wire types and groups (which are deprecated) are errors.

use crossdock_plugin_api::{Error, Result};

/// A field's value by wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Integers, booleans and enumerations.
    Varint(u64),
    /// `fixed64`, `sfixed64`, `double`.
    Fixed64(u64),
    /// `fixed32`, `sfixed32`, `float`.
    Fixed32(u32),
    /// Strings, bytes, messages, packed lists.
    Bytes(&'a [u8]),
}

/// A field: its number and its value.
pub type Field<'a> = (u32, Value<'a>);

/// Iterator over the fields of a message. It ends after an error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// The fields of `message`, in their order.
pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<Field<'a>> {
        let key = varint(&mut self.rest)?;
        let number = u32::try_from(key >> 3).ok().filter(|n| (1..1 << 29).contains(n)).ok_or_else(|| {
            Error::bad_data(format!("a field with number {}, expected 1 to {}", key >> 3, (1 << 29) - 1))
        })?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.rest).map_err(|e| in_field(e, number))?),
            1 => Value::Fixed64(u64::from_le_bytes(self.fixed(number)?)),
            2 => {
                let bytes = varint(&mut self.rest).map_err(|e| in_field(e, number))?;
                Value::Bytes(self.take(number, bytes)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.fixed(number)?)),
            other => {
                return Err(Error::bad_data(format!(
                    "field {number} has wire type {other}, expected 0, 1, 2 or 5"
                )));
            }
        };
        Ok((number, value))
    }

    fn fixed<const N: usize>(&mut self, number: u32) -> Result<[u8; N]> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(number, N as u64)?);
        Ok(value)
    }

    fn take(&mut self, number: u32, bytes: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(bytes).ok().and_then(|n| self.rest.split_at_checked(n));
        let (value, rest) = split.ok_or_else(|| {
            Error::bad_data(format!(
                "field {number} declares {bytes} bytes, but the message has {} left",
                self.rest.len()
            ))
        })?;
        self.rest = rest;
        Ok(value)
    }
}

/// Reads a number and advances `bytes`.
pub fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate() {
        if i == 9 && *byte > 1 {
            return Err(Error::bad_data("a number of more than 64 bits, expected at most 10 bytes for 64"));
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Ok(value);
        }
    }
    Err(Error::bad_data(format!("a number is truncated after {} bytes", bytes.len())))
}

/// Decodes a `sint64`.
pub fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

impl<'a> Value<'a> {
    /// A `uint64`.
    pub fn u64(self) -> Result<u64> {
        match self {
            Value::Varint(value) => Ok(value),
            other => Err(other.is_not("a number")),
        }
    }

    /// A number of at most 32 bits.
    pub fn u32(self) -> Result<u32> {
        let value = self.u64()?;
        u32::try_from(value).map_err(|_| {
            Error::bad_data(format!("the value is {value}, expected a number of at most 32 bits"))
        })
    }

    /// A count, length or offset that fits an `isize`.
    pub fn usize(self) -> Result<usize> {
        let value = self.u64()?;
        usize::try_from(value)
            .ok()
            .filter(|n| isize::try_from(*n).is_ok())
            .ok_or_else(|| Error::bad_data(format!("the value {value} overflows an address")))
    }

    /// A `bool`. Any number except 0 is true.
    pub fn bool(self) -> Result<bool> {
        Ok(self.u64()? != 0)
    }

    /// The bytes of a string, a message or a packed list.
    pub fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(other.is_not("bytes")),
        }
    }

    /// The bits of a `float`.
    pub fn fixed32(self) -> Result<u32> {
        match self {
            Value::Fixed32(bits) => Ok(bits),
            other => Err(other.is_not("4 bytes")),
        }
    }

    /// The bits of a `double`.
    pub fn fixed64(self) -> Result<u64> {
        match self {
            Value::Fixed64(bits) => Ok(bits),
            other => Err(other.is_not("8 bytes")),
        }
    }

    fn is_not(self, expected: &str) -> Error {
        let got = match self {
            Value::Varint(_) => "a number",
            Value::Fixed64(_) => "8 bytes",
            Value::Fixed32(_) => "4 bytes",
            Value::Bytes(_) => "bytes with a length",
        };
        Error::bad_data(format!("the value is {got} on the wire, expected {expected}"))
    }
}

/// Adds the field to an error.
pub fn in_field(error: Error, number: u32) -> Error {
    error.context(format_args!("field {number}"))
}

/// Encodes a protobuf message of integer fields. Zeros are omitted.
pub fn message(numbers: &[(u32, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut varint = |mut value: u64| {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    };
    for (number, value) in numbers.iter().filter(|(_, value)| *value != 0) {
        varint(u64::from(*number) << 3);
        varint(*value);
    }
    bytes
}

/// Encodes a protobuf message of one integer field, also if the integer is zero.
pub fn one_field(number: u32, value: u64) -> Vec<u8> {
    if value == 0 { vec![(number << 3) as u8, 0] } else { message(&[(number, value)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &[u8]) -> Result<Vec<Field<'_>>> {
        fields(message).collect()
    }

    fn message_of(message: &[u8]) -> String {
        read(message).unwrap_err().message().to_owned()
    }

    #[test]
    fn reads_every_wire_type() {
        let message = [
            &[0x08, 0x96, 0x01][..],
            &[0x11, 1, 0, 0, 0, 0, 0, 0, 0x80],
            &[0x1a, 2, 7, 8],
            &[0x25, 1, 0, 0, 0x40],
        ]
        .concat();
        assert_eq!(
            read(&message).unwrap(),
            [
                (1, Value::Varint(150)),
                (2, Value::Fixed64(0x8000_0000_0000_0001)),
                (3, Value::Bytes(&[7, 8])),
                (4, Value::Fixed32(0x4000_0001)),
            ]
        );
        assert_eq!(read(&[]).unwrap(), []);
    }

    #[test]
    fn rejects_numbers_of_more_than_64_bits() {
        let most = [&[0x08][..], &[0xff; 9], &[1]].concat();
        assert_eq!(read(&most).unwrap(), [(1, Value::Varint(u64::MAX))]);
        assert!(message_of(&[&[0x08][..], &[0xff; 9], &[2]].concat()).contains("more than 64 bits"));
        assert!(message_of(&[&[0x08][..], &[0x80; 10], &[1]].concat()).contains("more than 64 bits"));
    }

    #[test]
    fn rejects_truncated_messages() {
        let message = [&[0x11, 1, 2, 3, 4, 5, 6, 7, 8][..], &[0x1a, 2, 7, 8], &[0x25, 1, 2, 3, 4]].concat();
        let whole = [9, 13, 18];
        for n in 1..message.len() {
            assert_eq!(read(&message[..n]).is_ok(), whole.contains(&n), "{n} bytes");
        }
        assert!(message_of(&[0x08, 0x80]).contains("truncated"));
        assert_eq!(
            message_of(&[0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]),
            "field 3 declares 4294967295 bytes, but the message has 1 left"
        );
    }

    #[test]
    fn rejects_unknown_wire_types_and_numbers() {
        assert_eq!(message_of(&[0x0b]), "field 1 has wire type 3, expected 0, 1, 2 or 5");
        assert!(message_of(&[0x0e]).contains("wire type 6"));
        assert!(message_of(&[0x00, 0x00]).contains("number 0"));
        assert!(message_of(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).contains("expected 1 to 536870911"));
    }

    #[test]
    fn iterator_ends_after_an_error() {
        let mut fields = fields(&[0x0b, 0x08, 0x01]);
        assert!(fields.next().unwrap().is_err());
        assert!(fields.next().is_none());
    }

    #[test]
    fn zigzag_alternates_between_the_signs() {
        let decoded: Vec<i64> = [0, 1, 2, 3, u64::MAX - 1, u64::MAX].map(zigzag).to_vec();
        assert_eq!(decoded, [0, -1, 1, -2, i64::MAX, i64::MIN]);
    }

    #[test]
    fn rejects_values_of_another_wire_type() {
        assert!(Value::Fixed32(1).u64().is_err());
        assert!(Value::Varint(1).bytes().is_err());
        assert!(Value::Varint(1).fixed32().is_err());
        assert!(Value::Fixed32(1).fixed64().is_err());
        assert!(Value::Varint(1 << 32).u32().is_err());
        assert!(Value::Varint(u64::MAX).usize().is_err());
    }
}
