//! Reads Vortex's `ScalarValue` messages: constants, fill values, references, steps.

use arrow_schema::{DataType, Field};
use crossdock_plugin_api::{Error, Result};

use crate::dtype::MAX_DEPTH;
use crate::protobuf::{Value, fields, in_field, zigzag};
use crate::ptype::PType;

/// A value of some type, borrowed from its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// Null.
    Null,
    /// A bool.
    Bool(bool),
    /// A number, date or time.
    Number(Number),
    /// An unscaled decimal: 256 bits, little-endian, two's complement.
    Decimal([u8; 32]),
    /// Text (valid UTF-8) or bytes.
    Bytes(&'a [u8]),
    /// The elements of a list, the fields of a struct, or the entries of a map. Each entry of a map
    /// is a list of a key and a value.
    List(Vec<Scalar<'a>>),
}

/// A number as its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The type.
    pub ptype: PType,
    /// The bits, in the lowest `ptype.bytes()` bytes. The remaining bytes are 0.
    pub bits: u64,
}

impl Number {
    /// The value, if it is an integer.
    pub fn int(self) -> Option<i128> {
        let unused = 64 - 8 * self.ptype.bytes() as u32;
        match self.ptype.is_signed() {
            true => Some(i128::from((self.bits << unused).cast_signed() >> unused)),
            false => self.ptype.is_unsigned().then_some(i128::from(self.bits)),
        }
    }

    /// Converts an integer to a number of type `ptype`. Returns an error if the integer does not
    /// fit into `ptype`.
    pub fn from_int(value: i128, ptype: PType) -> Result<Self> {
        let bits = 8 * ptype.bytes() as u32;
        let range = match (ptype.is_signed(), ptype.is_unsigned()) {
            (true, _) => -(1i128 << (bits - 1))..1i128 << (bits - 1),
            (_, true) => 0..1i128 << bits,
            _ => return Err(Error::bad_data(format!("got an integer, expected a number of type {ptype}"))),
        };
        if !range.contains(&value) {
            return Err(Error::bad_data(format!("the value {value} does not fit into {ptype}")));
        }
        Ok(Self { ptype, bits: value as u64 & (u64::MAX >> (64 - bits)) })
    }
}

impl<'a> Scalar<'a> {
    /// Reads a value of `field`'s type.
    ///
    /// # Errors
    /// Returns `BAD_DATA` for a message without a value, a value of another type, a value that the
    /// type cannot represent, and null for a non-nullable field.
    pub fn read(message: &'a [u8], field: &Field) -> Result<Self> {
        read(message, field, 0).map_err(|e| e.context("a scalar"))
    }
}

/// Reads a number of type `ptype`. Null is an error.
pub fn number(message: &[u8], ptype: PType) -> Result<Number> {
    match Scalar::read(message, &Field::new("", ptype.arrow(), false))? {
        Scalar::Number(number) => Ok(number),
        other => Err(Error::internal(format!("{other:?} was read for a number of type {ptype}"))),
    }
}

/// Field numbers of a `ScalarValue`.
#[allow(missing_docs)]
pub mod kind {
    pub const NULL: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const INT64: u32 = 3;
    pub const UINT64: u32 = 4;
    pub const F32: u32 = 5;
    pub const F64: u32 = 6;
    pub const STRING: u32 = 7;
    pub const BYTES: u32 = 8;
    pub const LIST: u32 = 9;
    pub const F16: u32 = 10;
    pub const KNOWN: std::ops::RangeInclusive<u32> = NULL..=12;
}

fn read<'a>(message: &'a [u8], field: &Field, depth: usize) -> Result<Scalar<'a>> {
    if depth >= MAX_DEPTH {
        return Err(Error::unsupported(format!("values are nested more than {MAX_DEPTH} levels deep")));
    }
    // The fields belong to a `oneof`, so if there are several, the last field counts.
    let mut last = None;
    for field in fields(message) {
        let (number, value) = field?;
        if kind::KNOWN.contains(&number) {
            last = Some((number, value));
        }
    }
    let (number, value) = last.ok_or_else(|| Error::bad_data("the message has no value, not even null"))?;
    typed(number, value, field, depth).map_err(|e| in_field(e, number))
}

fn typed<'a>(number: u32, value: Value<'a>, field: &Field, depth: usize) -> Result<Scalar<'a>> {
    let data_type = field.data_type();
    let ptype = PType::stored_as(data_type);
    let of = |ptype, bits| Ok(Scalar::Number(Number { ptype, bits }));
    match (number, data_type, ptype) {
        (kind::NULL, ..) if field.is_nullable() => value.u64().map(|_| Scalar::Null),
        (kind::NULL, ..) => Err(Error::bad_data(format!(
            "got null, expected a value of type {data_type}",
            data_type = crossdock_arrays::type_name(data_type)
        ))),
        (kind::BOOL, DataType::Boolean, _) => value.bool().map(Scalar::Bool),
        (kind::UINT64 | kind::F16, _, Some(PType::F16)) => {
            let bits = value.u64()?;
            let bits = u16::try_from(bits).map_err(|_| {
                Error::bad_data(format!("the bits of an f16 are {bits}, expected at most 65535"))
            })?;
            of(PType::F16, bits.into())
        }
        // Older writers store unsigned numbers as signed numbers, and vice versa.
        (kind::INT64, _, Some(ptype)) if ptype.is_int() => {
            Number::from_int(zigzag(value.u64()?).into(), ptype).map(Scalar::Number)
        }
        (kind::UINT64, _, Some(ptype)) if ptype.is_int() => {
            Number::from_int(value.u64()?.into(), ptype).map(Scalar::Number)
        }
        (kind::F32, _, Some(PType::F32)) => of(PType::F32, value.fixed32()?.into()),
        (kind::F64, _, Some(PType::F64)) => of(PType::F64, value.fixed64()?),
        (kind::STRING | kind::BYTES, DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8, _) => {
            let bytes = value.bytes()?;
            std::str::from_utf8(bytes)
                .map_err(|e| Error::bad_data(format!("a text is not valid UTF-8: {e}")))?;
            Ok(Scalar::Bytes(bytes))
        }
        (kind::STRING | kind::BYTES, DataType::BinaryView | DataType::Binary | DataType::LargeBinary, _) => {
            value.bytes().map(Scalar::Bytes)
        }
        (kind::BYTES, DataType::Decimal128(..), _) => decimal(value.bytes()?, 16).map(Scalar::Decimal),
        (kind::BYTES, DataType::Decimal256(..), _) => decimal(value.bytes()?, 32).map(Scalar::Decimal),
        (kind::LIST, ..) => list(value.bytes()?, data_type, depth).map(Scalar::List),
        _ => Err(Error::bad_data(format!(
            "got a value of another kind, expected a value of type {data_type}",
            data_type = crossdock_arrays::type_name(data_type)
        ))),
    }
}

/// Sign-extends two's complement. Bytes after the first `max_bytes` bytes must repeat the sign.
fn decimal(bytes: &[u8], max_bytes: usize) -> Result<[u8; 32]> {
    if !matches!(bytes.len(), 1 | 2 | 4 | 8 | 16 | 32) {
        return Err(Error::bad_data(format!(
            "a decimal of {} bytes, expected 1, 2, 4, 8, 16 or 32",
            bytes.len()
        )));
    }
    let sign = |b: &u8| if *b >= 0x80 { 0xff } else { 0 };
    let mut wide = [bytes.last().map_or(0, sign); 32];
    wide[..bytes.len()].copy_from_slice(bytes);
    let fill = sign(&wide[max_bytes - 1]);
    if wide[max_bytes..].iter().any(|b| *b != fill) {
        return Err(Error::bad_data(format!("a decimal does not fit into {} bits", 8 * max_bytes)));
    }
    Ok(wide)
}

fn list<'a>(message: &'a [u8], data_type: &DataType, depth: usize) -> Result<Vec<Scalar<'a>>> {
    let values = fields(message).filter_map(|field| match field {
        Ok((1, value)) => Some(value.bytes()),
        Ok(_) => None,
        Err(e) => Some(Err(e)),
    });
    let all = |field: &Field| values.clone().map(|v| read(v?, field, depth + 1)).collect::<Result<Vec<_>>>();
    let expected = match data_type {
        DataType::List(f) | DataType::LargeList(f) | DataType::Map(f, _) => return all(f),
        DataType::FixedSizeList(f, size) => {
            let elements = all(f)?;
            if usize::try_from(*size) == Ok(elements.len()) {
                return Ok(elements);
            }
            return Err(Error::bad_data(format!("a list of {} values, expected {size}", elements.len())));
        }
        DataType::FixedSizeBinary(size) => {
            let bytes = all(&Field::new("byte", DataType::UInt8, false))?;
            if usize::try_from(*size) == Ok(bytes.len()) {
                return Ok(bytes);
            }
            return Err(Error::bad_data(format!("a value of {} bytes, expected {size}", bytes.len())));
        }
        DataType::Struct(expected) => expected,
        other => return Err(Error::bad_data(format!("got a list, expected a value of type {other}"))),
    };
    let count = values.clone().count();
    if count != expected.len() {
        return Err(Error::bad_data(format!("a struct of {count} values, expected {}", expected.len())));
    }
    values.zip(expected).map(|(value, field)| read(value?, field, depth + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn get(message: &[u8], data_type: DataType) -> Result<Scalar<'_>> {
        Scalar::read(message, &Field::new("", data_type, true))
    }

    fn int(message: &[u8], ptype: PType) -> Option<i128> {
        number(message, ptype).ok().and_then(Number::int)
    }

    #[test]
    fn reads_integers_in_signed_and_unsigned_form() {
        assert_eq!(int(&[0x18, 9], PType::I8), Some(-5));
        assert_eq!(number(&[0x18, 9], PType::I8).unwrap().bits, 0xfb);
        assert_eq!(int(&[0x20, 0xc8, 1], PType::U8), Some(200));
        assert_eq!(int(&[0x18, 10], PType::U8), Some(5));
        assert_eq!(int(&[0x20, 5], PType::I64), Some(5));
        assert_eq!(int(&[0x18, 0], PType::I32), Some(0));
        let max_bytes = [&[0x18][..], &[0xff; 9], &[1]].concat();
        assert_eq!(int(&max_bytes, PType::I64), Some(i64::MIN.into()));
        let max_bytes = [&[0x20][..], &[0xff; 9], &[1]].concat();
        assert_eq!(int(&max_bytes, PType::U64), Some(u64::MAX.into()));
        assert_eq!(get(&[0x18, 14], DataType::Date32).unwrap(), get(&[0x18, 14], DataType::Int32).unwrap());
    }

    #[test]
    fn rejects_integers_that_do_not_fit() {
        for (message, ptype) in [
            (&[0x20, 0xc8, 1][..], PType::I8),
            (&[0x20, 0x80, 2], PType::U8),
            (&[0x18, 9], PType::U64),
            (&[0x18, 0x81, 2], PType::I8),
        ] {
            let error = number(message, ptype).unwrap_err();
            assert!(error.message().contains("does not fit into"), "{error}");
        }
        assert_eq!(int(&[0x18, 0xff, 1], PType::I8), Some(-128));
    }

    #[test]
    fn floats_keep_their_bits() {
        let bits = |message, ptype| number(message, ptype).unwrap().bits;
        assert_eq!(bits(&[0x2d, 0, 0, 0xc0, 0x3f], PType::F32), u64::from(1.5f32.to_bits()));
        assert_eq!(bits(&[0x31, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f], PType::F64), 1.5f64.to_bits());
        assert_eq!(bits(&[0x50, 0x80, 0x7c], PType::F16), 0x3e00);
        assert_eq!(bits(&[0x20, 0x80, 0x7c], PType::F16), 0x3e00);
        assert!(number(&[0x50, 0x80, 0x80, 4], PType::F16).is_err());
        assert!(number(&[0x2d, 0, 0, 0xc0, 0x3f], PType::F64).is_err());
        assert!(number(&[0x18, 2], PType::F64).is_err());
    }

    #[test]
    fn reads_texts_bytes_and_bools() {
        assert_eq!(get(b"\x3a\x02hi", DataType::Utf8View).unwrap(), Scalar::Bytes(b"hi"));
        assert_eq!(get(&[0x42, 1, 0xff], DataType::BinaryView).unwrap(), Scalar::Bytes(&[0xff]));
        assert!(get(&[0x42, 1, 0xff], DataType::Utf8View).unwrap_err().message().contains("UTF-8"));
        assert_eq!(get(&[0x10, 1], DataType::Boolean).unwrap(), Scalar::Bool(true));
        assert!(get(&[0x10, 1], DataType::Int8).is_err());
    }

    #[test]
    fn widens_decimals_and_rejects_decimals_that_do_not_fit() {
        let mut expected = [0xff; 32];
        expected[0] = 0x85;
        let narrow = get(&[0x42, 4, 0x85, 0xff, 0xff, 0xff], DataType::Decimal128(5, 2)).unwrap();
        assert_eq!(narrow, Scalar::Decimal(expected));
        let wide = [&[0x42, 32][..], &expected].concat();
        assert_eq!(get(&wide, DataType::Decimal128(5, 2)).unwrap(), Scalar::Decimal(expected));
        let large = [&[0x42, 32][..], &[0xff; 16], &[0; 16]].concat();
        assert!(get(&large, DataType::Decimal256(60, 2)).is_ok());
        assert!(get(&large, DataType::Decimal128(38, 2)).unwrap_err().message().contains("128 bits"));
        assert!(get(&[0x42, 3, 1, 2, 3], DataType::Decimal128(5, 2)).is_err());
        assert!(get(&[0x42, 0], DataType::Decimal128(5, 2)).is_err());
    }

    #[test]
    fn rejects_null_for_non_nullable_fields() {
        assert_eq!(get(&[8, 0], DataType::Int32).unwrap(), Scalar::Null);
        assert!(number(&[8, 0], PType::I32).unwrap_err().message().contains("null, expected"));
        assert!(get(&[], DataType::Int32).unwrap_err().message().contains("has no value"));
    }

    #[test]
    fn rejects_lists_and_structs_of_wrong_length() {
        let element = || Arc::new(Field::new("item", DataType::Int8, false));
        let two = [0x4a, 8, 0x0a, 2, 0x18, 2, 0x0a, 2, 0x18, 4];
        let read = get(&two, DataType::List(element())).unwrap();
        assert!(matches!(&read, Scalar::List(v) if v.len() == 2), "{read:?}");
        assert!(get(&two, DataType::FixedSizeList(element(), 2)).is_ok());
        assert!(get(&two, DataType::FixedSizeList(element(), 3)).is_err());
        let pair = |n| DataType::Struct((0..n).map(|_| element()).collect());
        assert!(get(&two, pair(2)).is_ok());
        assert!(get(&two, pair(3)).unwrap_err().message().contains("2 values, expected 3"));
        assert!(get(&[0x4a, 4, 0x0a, 2, 8, 0], DataType::List(element())).is_err());
        assert!(get(&two, DataType::Int8).is_err());
    }

    #[test]
    fn rejects_values_nested_too_deep() {
        let mut deep = DataType::Int8;
        let mut bytes = vec![0x18, 0];
        for _ in 0..70 {
            deep = DataType::List(Arc::new(Field::new("item", deep, true)));
            bytes = wrapped(9, &wrapped(1, &bytes));
        }
        assert!(get(&bytes, deep).unwrap_err().message().contains("nested more than 64"));
    }

    fn wrapped(field: u8, inner: &[u8]) -> Vec<u8> {
        let mut out = vec![field << 3 | 2];
        let mut n = inner.len();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out.extend_from_slice(inner);
        out
    }
}
