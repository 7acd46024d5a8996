//! Builds columns from the fields of a chunk.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, GenericStringBuilder,
    LargeBinaryBuilder, StringDictionaryBuilder, StringViewBuilder,
};
use arrow_array::types::*;
use arrow_array::{ArrayRef, NullArray, OffsetSizeTrait, PrimitiveArray};
use arrow_buffer::NullBufferBuilder;
use arrow_cast::parse::Parser;
use arrow_schema::{DataType, FieldRef, TimeUnit};
use crossdock_plugin_api::{Error, Result};

use super::fields::{Field, unescape};
use crate::chunks::Chunk;
use crate::lines::shortened;
use crate::options::CsvOptions;
use crate::values::{self, Zone};

/// The fields of one column of a chunk.
pub struct Column<'a> {
    /// The chunk, whose text is `text`.
    pub chunk: &'a Chunk,
    /// The text of the chunk.
    pub text: &'a str,
    /// The fields of this column.
    pub fields: &'a [Field],
    /// The name and the type of the column.
    pub field: &'a FieldRef,
    /// The options of the file.
    pub options: &'a CsvOptions,
}

/// Whether values of this type can be read.
///
/// # Errors
/// Unsupported with the name of the column if not.
pub fn check_type(field: &FieldRef, options: &CsvOptions) -> Result<()> {
    let why = match field.data_type() {
        DataType::Boolean | DataType::Null | DataType::Date32 | DataType::Date64 => return Ok(()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => return Ok(()),
        DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => return Ok(()),
        DataType::Decimal32(..) | DataType::Decimal64(..) => return Ok(()),
        DataType::Decimal128(..) | DataType::Decimal256(..) => return Ok(()),
        data_type if data_type.is_integer() || data_type.is_floating() => return Ok(()),
        DataType::Dictionary(_, values) if **values == DataType::Utf8 => return Ok(()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            match options.hex {
                true => return Ok(()),
                false => "CSV has no text for binary values; pass binary=hex if they are hexadecimal",
            }
        }
        data_type if data_type.is_nested() => "CSV has no nested values",
        _ => "CSV is not read with this type",
    };
    Err(Error::unsupported(format!(
        "column '{}' is {}: {why}",
        field.name(),
        crossdock_arrays::type_name(field.data_type())
    )))
}

impl Column<'_> {
    /// The column's values.
    ///
    /// # Errors
    /// Bad data with the line and the column if a text does not have the type.
    pub fn build(&self) -> Result<ArrayRef> {
        match self.field.data_type() {
            DataType::Boolean => self.booleans(),
            DataType::Null => {
                self.each(false, |text| text.is_none().then_some(()))?;
                Ok(Arc::new(NullArray::new(self.rows())))
            }
            DataType::Int8 => self.primitive::<Int8Type>(values::integer::<Int8Type>),
            DataType::Int16 => self.primitive::<Int16Type>(values::integer::<Int16Type>),
            DataType::Int32 => self.primitive::<Int32Type>(values::integer::<Int32Type>),
            DataType::Int64 => self.primitive::<Int64Type>(values::integer::<Int64Type>),
            DataType::UInt8 => self.primitive::<UInt8Type>(values::integer::<UInt8Type>),
            DataType::UInt16 => self.primitive::<UInt16Type>(values::integer::<UInt16Type>),
            DataType::UInt32 => self.primitive::<UInt32Type>(values::integer::<UInt32Type>),
            DataType::UInt64 => self.primitive::<UInt64Type>(values::integer::<UInt64Type>),
            DataType::Float16 => self.primitive::<Float16Type>(Float16Type::parse),
            DataType::Float32 => self.primitive::<Float32Type>(Float32Type::parse),
            DataType::Float64 => self.primitive::<Float64Type>(Float64Type::parse),
            DataType::Date32 => self.primitive::<Date32Type>(values::date),
            DataType::Date64 => self.primitive::<Date64Type>(values::date_millis),
            DataType::Decimal32(p, s) => {
                self.primitive::<Decimal32Type>(|text| values::decimal::<Decimal32Type>(text, *p, *s))
            }
            DataType::Decimal64(p, s) => {
                self.primitive::<Decimal64Type>(|text| values::decimal::<Decimal64Type>(text, *p, *s))
            }
            DataType::Decimal128(p, s) => {
                self.primitive::<Decimal128Type>(|text| values::decimal::<Decimal128Type>(text, *p, *s))
            }
            DataType::Decimal256(p, s) => {
                self.primitive::<Decimal256Type>(|text| values::decimal::<Decimal256Type>(text, *p, *s))
            }
            DataType::Time32(TimeUnit::Second) => self.times32::<Time32SecondType>(TimeUnit::Second),
            DataType::Time32(_) => self.times32::<Time32MillisecondType>(TimeUnit::Millisecond),
            DataType::Time64(TimeUnit::Nanosecond) => {
                self.times64::<Time64NanosecondType>(TimeUnit::Nanosecond)
            }
            DataType::Time64(_) => self.times64::<Time64MicrosecondType>(TimeUnit::Microsecond),
            DataType::Timestamp(unit, zone) => self.timestamps(*unit, zone.as_deref()),
            DataType::Utf8 => self.strings::<i32>(),
            DataType::LargeUtf8 => self.strings::<i64>(),
            DataType::Utf8View => {
                let mut builder = StringViewBuilder::with_capacity(self.rows());
                self.each(true, |text| {
                    builder.append_option(text);
                    Some(())
                })?;
                Ok(Arc::new(builder.finish()))
            }
            DataType::Dictionary(keys, _) => self.dictionary(keys),
            _ => self.binary(),
        }
    }

    fn rows(&self) -> usize {
        self.fields.len()
    }

    /// Calls `read` with each text, or with `None` for a null. Quoted texts are not null if
    /// `is_text`. If the result is `None`, the text does not have the type.
    #[inline]
    fn each(&self, is_text: bool, mut read: impl FnMut(Option<&str>) -> Option<()>) -> Result<()> {
        let mut unescaped = Vec::new();
        let is_nullable = self.field.is_nullable();
        for field in self.fields {
            let text = self.text.get(field.range()).unwrap_or_default();
            let is_null = !(is_text && field.is_quoted()) && self.options.nulls.contains(text.as_bytes());
            if is_null {
                if !is_nullable {
                    return Err(self.error(field, "a null"));
                }
                // A null has each type.
                let _ = read(None);
                continue;
            }
            let text = match field.is_escaped() {
                false => text,
                true => {
                    unescape(text.as_bytes(), &self.options.dialect, &mut unescaped);
                    // Only ASCII is removed from the text, so it is still UTF-8.
                    std::str::from_utf8(&unescaped).unwrap_or_default()
                }
            };
            if read(Some(text)).is_none() {
                return Err(self.error(field, &shortened(text)));
            }
        }
        Ok(())
    }

    fn error(&self, field: &Field, got: &str) -> Error {
        let text = format!(
            "column '{}': expected {}, got {got}",
            self.field.name(),
            crossdock_arrays::type_name(self.field.data_type())
        );
        self.chunk.error_at(field.start as usize, text)
    }

    #[inline]
    fn primitive<T: ArrowPrimitiveType>(
        &self,
        parse: impl Fn(&str) -> Option<T::Native>,
    ) -> Result<ArrayRef> {
        let mut values = Vec::with_capacity(self.rows());
        let mut nulls = NullBufferBuilder::new(self.rows());
        self.each(false, |text| {
            match text {
                Some(text) => {
                    values.push(parse(text)?);
                    nulls.append_non_null();
                }
                None => {
                    values.push(T::Native::default());
                    nulls.append_null();
                }
            }
            Some(())
        })?;
        let array = PrimitiveArray::<T>::new(values.into(), nulls.finish());
        Ok(Arc::new(array.with_data_type(self.field.data_type().clone())))
    }

    fn booleans(&self) -> Result<ArrayRef> {
        let mut builder = BooleanBuilder::with_capacity(self.rows());
        self.each(false, |text| {
            match text {
                Some(text) => builder.append_value(values::boolean(text)?),
                None => builder.append_null(),
            }
            Some(())
        })?;
        Ok(Arc::new(builder.finish()))
    }

    fn times32<T: ArrowPrimitiveType<Native = i32>>(&self, unit: TimeUnit) -> Result<ArrayRef> {
        self.primitive::<T>(|text| i32::try_from(values::time(text, unit)?).ok())
    }

    fn times64<T: ArrowPrimitiveType<Native = i64>>(&self, unit: TimeUnit) -> Result<ArrayRef> {
        self.primitive::<T>(|text| values::time(text, unit))
    }

    fn timestamps(&self, unit: TimeUnit, zone: Option<&str>) -> Result<ArrayRef> {
        let zone = Zone::new(zone);
        let parse = |text: &str| values::timestamp(text, unit, zone);
        match unit {
            TimeUnit::Second => self.primitive::<TimestampSecondType>(parse),
            TimeUnit::Millisecond => self.primitive::<TimestampMillisecondType>(parse),
            TimeUnit::Microsecond => self.primitive::<TimestampMicrosecondType>(parse),
            TimeUnit::Nanosecond => self.primitive::<TimestampNanosecondType>(parse),
        }
    }

    fn strings<O: OffsetSizeTrait>(&self) -> Result<ArrayRef> {
        let bytes = self.fields.iter().map(|field| field.range().len()).sum();
        let mut builder = GenericStringBuilder::<O>::with_capacity(self.rows(), bytes);
        self.each(true, |text| {
            builder.append_option(text);
            Some(())
        })?;
        Ok(Arc::new(builder.finish()))
    }

    fn dictionary(&self, keys: &DataType) -> Result<ArrayRef> {
        match keys {
            DataType::Int8 => self.dictionary_of::<Int8Type>(),
            DataType::Int16 => self.dictionary_of::<Int16Type>(),
            DataType::Int32 => self.dictionary_of::<Int32Type>(),
            DataType::Int64 => self.dictionary_of::<Int64Type>(),
            DataType::UInt8 => self.dictionary_of::<UInt8Type>(),
            DataType::UInt16 => self.dictionary_of::<UInt16Type>(),
            DataType::UInt32 => self.dictionary_of::<UInt32Type>(),
            _ => self.dictionary_of::<UInt64Type>(),
        }
    }

    fn dictionary_of<K: ArrowDictionaryKeyType>(&self) -> Result<ArrayRef> {
        let mut builder = StringDictionaryBuilder::<K>::with_capacity(self.rows(), 0, 0);
        // The only error is that a key type has too few values.
        self.each(true, |text| match text {
            Some(text) => builder.append(text).ok().map(|_| ()),
            None => {
                builder.append_null();
                Some(())
            }
        })?;
        Ok(Arc::new(builder.finish()))
    }

    fn binary(&self) -> Result<ArrayRef> {
        macro_rules! build {
            ($builder:expr, $append:expr) => {{
                let mut builder = $builder;
                let mut bytes = Vec::new();
                self.each(true, |text| {
                    match text {
                        Some(text) => {
                            values::hex(text, &mut bytes)?;
                            $append(&mut builder, &bytes)?;
                        }
                        None => builder.append_null(),
                    }
                    Some(())
                })?;
                Ok(Arc::new(builder.finish()))
            }};
        }
        match self.field.data_type() {
            DataType::Binary => build!(BinaryBuilder::new(), |builder: &mut BinaryBuilder, bytes: &[u8]| {
                builder.append_value(bytes);
                Some(())
            }),
            DataType::LargeBinary => {
                build!(LargeBinaryBuilder::new(), |builder: &mut LargeBinaryBuilder, bytes: &[u8]| {
                    builder.append_value(bytes);
                    Some(())
                })
            }
            DataType::BinaryView => {
                build!(BinaryViewBuilder::new(), |builder: &mut BinaryViewBuilder, bytes: &[u8]| {
                    builder.append_value(bytes);
                    Some(())
                })
            }
            DataType::FixedSizeBinary(width) => {
                build!(
                    FixedSizeBinaryBuilder::new(*width),
                    |builder: &mut FixedSizeBinaryBuilder, bytes: &[u8]| { builder.append_value(bytes).ok() }
                )
            }
            other => Err(Error::internal(format!("column '{}' is {other}", self.field.name()))),
        }
    }
}
