//! Writes CSV.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, Schema};
use crossdock_plugin_api::{Error, Result};

use crate::options::CsvWriteOptions;
use crate::writer::{Format, keys_of};

/// The format of a CSV file.
pub struct CsvFormat(pub CsvWriteOptions);

impl Format for CsvFormat {
    fn head(&self, schema: &Schema) -> Vec<u8> {
        let mut text = Vec::new();
        if self.0.header {
            for (i, field) in schema.fields().iter().enumerate() {
                if i > 0 {
                    text.push(self.0.delimiter);
                }
                self.push_text(field.name(), &mut text);
            }
            text.push(b'\n');
        }
        text
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Vec<u8>> {
        let options = FormatOptions::default().with_display_error(false);
        let schema = batch.schema();
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(array, field)| Column::new(array, field, &options));
        let mut columns = columns.collect::<Result<Vec<_>>>()?;
        let mut text = Vec::with_capacity(batch.num_rows() * columns.len() * 8);
        for row in 0..batch.num_rows() {
            for (i, column) in columns.iter_mut().enumerate() {
                if i > 0 {
                    text.push(self.0.delimiter);
                }
                self.push(column, row, &mut text)?;
            }
            text.push(b'\n');
        }
        Ok(text)
    }

    fn problem(&self, field: &Field) -> Option<String> {
        let flat = match field.data_type() {
            DataType::Dictionary(_, values) => values,
            other => other,
        };
        let why = match flat {
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
                if !self.0.hex =>
            {
                "CSV has no binary values; pass binary=hex to write hexadecimal text"
            }
            DataType::Duration(_) | DataType::Interval(_) => "CSV is not written with this type",
            DataType::RunEndEncoded(..) | DataType::Dictionary(..) => "CSV is not written with this type",
            other if other.is_nested() => "CSV has no nested values; NDJSON has",
            _ => return None,
        };
        Some(why.to_string())
    }

    fn table_problem(&self, schema: &Schema) -> Option<String> {
        schema
            .fields()
            .is_empty()
            .then(|| "a CSV file has at least one column, but the table has none".into())
    }
}

/// The values of a column.
struct Column<'a> {
    name: &'a str,
    nulls: Option<NullBuffer>,
    values: Values<'a>,
    scratch: String,
}

enum Values<'a> {
    Text(Box<dyn Fn(usize) -> &'a str + 'a>),
    Bytes(Box<dyn Fn(usize) -> &'a [u8] + 'a>),
    Other(ArrayFormatter<'a>),
}

impl<'a> Column<'a> {
    fn new(array: &'a ArrayRef, field: &'a Field, options: &'a FormatOptions<'a>) -> Result<Self> {
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let failed = |error| Error::internal(format!("column '{}': {error}", field.name()));
        let values = match values(array) {
            Some(values) => values,
            None => Values::Other(ArrayFormatter::try_new(array, options).map_err(failed)?),
        };
        Ok(Self { name: field.name(), nulls, values, scratch: String::new() })
    }
}

/// The texts or bytes of an array; `None` if it has other values.
fn values(array: &ArrayRef) -> Option<Values<'_>> {
    Some(match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            Values::Text(Box::new(|row| array.value(row)))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            Values::Text(Box::new(|row| array.value(row)))
        }
        DataType::Utf8View => {
            let array = array.as_string_view();
            Values::Text(Box::new(|row| array.value(row)))
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            Values::Bytes(Box::new(|row| array.value(row)))
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            Values::Bytes(Box::new(|row| array.value(row)))
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            Values::Bytes(Box::new(|row| array.value(row)))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            Values::Bytes(Box::new(|row| array.value(row)))
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let keys = keys_of(dictionary);
            match values(dictionary.values())? {
                Values::Text(get) => {
                    Values::Text(Box::new(move |row| keys.get(row).map_or("", |key| get(*key))))
                }
                Values::Bytes(get) => {
                    Values::Bytes(Box::new(move |row| keys.get(row).map_or(&[][..], |key| get(*key))))
                }
                Values::Other(_) => return None,
            }
        }
        _ => return None,
    })
}

impl CsvFormat {
    fn push(&self, column: &mut Column<'_>, row: usize, to: &mut Vec<u8>) -> Result<()> {
        if column.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            to.extend_from_slice(self.0.null.as_bytes());
            return Ok(());
        }
        match &column.values {
            Values::Text(get) => {
                self.push_text(get(row), to);
                return Ok(());
            }
            Values::Bytes(get) => {
                column.scratch.clear();
                for byte in get(row) {
                    // Writing to a string does not fail.
                    let _ = write!(column.scratch, "{byte:02x}");
                }
                self.push_text(&column.scratch, to);
                return Ok(());
            }
            Values::Other(formatter) => {
                column.scratch.clear();
                if let Err(error) = formatter.value(row).write(&mut column.scratch) {
                    return Err(Error::unsupported(format!("column '{}': {error}", column.name)));
                }
            }
        }
        let text = column.scratch.as_str();
        if text == self.0.null {
            // Only a null array has an empty text.
            return if text.is_empty() { Ok(()) } else { Err(self.is_null(column)) };
        }
        if self.needs_quotes(text) {
            self.push_quoted(text, to)
        } else {
            to.extend_from_slice(text.as_bytes())
        }
        Ok(())
    }

    fn is_null(&self, column: &Column<'_>) -> Error {
        Error::unsupported(format!(
            "column '{}' has the value {}, which is also the text of nulls; pass another null_value",
            column.name, self.0.null
        ))
    }

    fn needs_quotes(&self, text: &str) -> bool {
        let special =
            |byte: u8| byte == self.0.delimiter || byte == self.0.quote || byte == b'\n' || byte == b'\r';
        text.bytes().any(special)
    }

    /// Texts that a reader could take for a null or for a byte order mark are in quotes too.
    fn push_text(&self, text: &str, to: &mut Vec<u8>) {
        if text.is_empty() || text == self.0.null || text.starts_with('\u{feff}') || self.needs_quotes(text) {
            self.push_quoted(text, to);
        } else {
            to.extend_from_slice(text.as_bytes());
        }
    }

    fn push_quoted(&self, text: &str, to: &mut Vec<u8>) {
        to.push(self.0.quote);
        for byte in text.bytes() {
            if byte == self.0.quote {
                to.push(byte);
            }
            to.push(byte);
        }
        to.push(self.0.quote);
    }
}
