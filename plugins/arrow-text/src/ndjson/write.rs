//! Writes NDJSON.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch, new_empty_array};
use arrow_buffer::ArrowNativeType;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{
    Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, WriterBuilder, make_encoder,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use crossdock_plugin_api::{Error, Result};

use crate::options::{NdjsonWriteOptions, NonFinite};
use crate::writer::{Format, keys_of};

/// The format of an NDJSON file.
pub struct NdjsonFormat(pub NdjsonWriteOptions);

impl Format for NdjsonFormat {
    fn head(&self, _: &Schema) -> Vec<u8> {
        Vec::new()
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Vec<u8>> {
        let failed = Arc::new(Mutex::new(None));
        let factory = Factory { non_finite: self.0.non_finite, failed: failed.clone() };
        let builder = WriterBuilder::new()
            .with_explicit_nulls(self.0.explicit_nulls)
            .with_encoder_factory(Arc::new(factory));
        let mut text = Vec::with_capacity(batch.num_rows() * batch.num_columns() * 16);
        let mut writer = builder.build::<_, LineDelimited>(&mut text);
        let written = writer.write(batch);
        drop(writer);
        if let Some(what) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(Error::unsupported(what));
        }
        written.map_err(|error| Error::internal(format!("cannot write a batch: {error}")))?;
        Ok(text)
    }

    fn problem(&self, field: &Field) -> Option<String> {
        if let Some(why) = problem(field.data_type(), self.0.hex) {
            return Some(why);
        }
        // arrow-json knows best whether it has an encoder.
        let (field, array) = (Arc::new(field.clone()), new_empty_array(field.data_type()));
        make_encoder(&field, &array, &EncoderOptions::default()).err().map(|error| error.to_string())
    }

    fn table_problem(&self, schema: &Schema) -> Option<String> {
        repeated(schema.fields())
            .map(|name| format!("two columns are called '{name}', but JSON has one field per name"))
    }
}

fn repeated(fields: &Fields) -> Option<&str> {
    let mut names = HashSet::new();
    fields.iter().map(|field| field.name().as_str()).find(|name| !names.insert(*name))
}

fn problem(data_type: &DataType, hex: bool) -> Option<String> {
    let nested = |field: &FieldRef| problem(field.data_type(), hex);
    match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
            if !hex =>
        {
            Some("JSON has no binary values; pass binary=hex to write hexadecimal text".into())
        }
        DataType::Struct(fields) => match repeated(fields) {
            Some(name) => Some(format!("two fields are called '{name}', but JSON has one field per name")),
            None => fields.iter().find_map(nested),
        },
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            nested(field)
        }
        DataType::ListView(field) | DataType::LargeListView(field) | DataType::RunEndEncoded(_, field) => {
            nested(field)
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => match fields.first().map(|keys| keys.data_type()) {
                Some(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => nested(entries),
                _ => Some("only texts are keys of JSON objects".into()),
            },
            _ => nested(entries),
        },
        DataType::Dictionary(_, values) => problem(values, hex),
        DataType::Duration(_) | DataType::Interval(_) => Some("NDJSON is not written with this type".into()),
        _ => None,
    }
}

/// Creates encoders for values that have no JSON text in some cases. The encoders of arrow-json
/// write other values for them.
#[derive(Debug)]
struct Factory {
    non_finite: NonFinite,
    /// The description of the first value that has no text.
    failed: Arc<Mutex<Option<String>>>,
}

impl EncoderFactory for Factory {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let is_finite: Box<dyn Fn(usize) -> bool + 'a> = match array.data_type() {
            DataType::Float16 => {
                let array = array.as_primitive::<Float16Type>();
                Box::new(|row| array.value(row).is_finite())
            }
            DataType::Float32 => {
                let array = array.as_primitive::<Float32Type>();
                Box::new(|row| array.value(row).is_finite())
            }
            DataType::Float64 => {
                let array = array.as_primitive::<Float64Type>();
                Box::new(|row| array.value(row).is_finite())
            }
            // Times have no quotes and no control characters.
            data_type if data_type.is_temporal() => Box::new(|_| false),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = make_encoder(field, dictionary.values(), options)?;
                let encoder = Dictionary { keys: keys_of(dictionary), values };
                return Ok(Some(NullableEncoder::new(Box::new(encoder), array.logical_nulls())));
            }
            DataType::Map(..) if !options.explicit_nulls() => {
                let array = array.as_map();
                let entries = Entries {
                    offsets: array.value_offsets(),
                    keys: make_encoder(field, array.keys(), options)?,
                    values: make_encoder(field, array.values(), options)?,
                };
                return Ok(Some(NullableEncoder::new(Box::new(entries), array.nulls().cloned())));
            }
            _ => return Ok(None),
        };
        let encoder = Guarded {
            is_plain: is_finite,
            plain: make_encoder(field, array, defaults())?,
            text: ArrayFormatter::try_new(array, &FORMAT)?,
            name: field.name(),
            non_finite: if array.data_type().is_floating() { self.non_finite } else { NonFinite::Text },
            failed: self.failed.clone(),
        };
        Ok(Some(NullableEncoder::new(Box::new(encoder), array.nulls().cloned())))
    }
}

/// Encodes dictionaries. The encoder of arrow-json writes another value for nulls among the values.
struct Dictionary<'a> {
    keys: Vec<usize>,
    values: NullableEncoder<'a>,
}

impl Encoder for Dictionary<'_> {
    fn encode(&mut self, row: usize, to: &mut Vec<u8>) {
        if let Some(key) = self.keys.get(row) {
            self.values.encode(*key, to);
        }
    }
}

/// Encodes maps. The encoder of arrow-json leaves out entries whose value is null if fields that
/// are null are left out, although an entry is not a field.
struct Entries<'a> {
    offsets: &'a [i32],
    keys: NullableEncoder<'a>,
    values: NullableEncoder<'a>,
}

impl Encoder for Entries<'_> {
    fn encode(&mut self, row: usize, to: &mut Vec<u8>) {
        let end = |row: usize| self.offsets.get(row).map_or(0, |offset| offset.as_usize());
        to.push(b'{');
        for (i, entry) in (end(row)..end(row + 1)).enumerate() {
            if i > 0 {
                to.push(b',');
            }
            self.keys.encode(entry, to);
            to.push(b':');
            match self.values.is_null(entry) {
                true => to.extend_from_slice(b"null"),
                false => self.values.encode(entry, to),
            }
        }
        to.push(b'}');
    }
}

const FORMAT: FormatOptions<'static> = FormatOptions::new().with_display_error(false);

fn defaults() -> &'static EncoderOptions {
    static DEFAULTS: OnceLock<EncoderOptions> = OnceLock::new();
    DEFAULTS.get_or_init(EncoderOptions::default)
}

/// Encodes values of which some have no JSON number.
struct Guarded<'a> {
    is_plain: Box<dyn Fn(usize) -> bool + 'a>,
    /// Encodes plain values.
    plain: NullableEncoder<'a>,
    /// Encodes other values.
    text: ArrayFormatter<'a>,
    name: &'a str,
    non_finite: NonFinite,
    failed: Arc<Mutex<Option<String>>>,
}

impl Guarded<'_> {
    fn fail(&self, what: String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }
}

impl Encoder for Guarded<'_> {
    fn encode(&mut self, row: usize, to: &mut Vec<u8>) {
        if (self.is_plain)(row) {
            return self.plain.encode(row, to);
        }
        let mut text = String::new();
        if let Err(error) = self.text.value(row).write(&mut text) {
            self.fail(format!("column '{}': {error}", self.name));
        }
        match self.non_finite {
            NonFinite::Text => {
                to.push(b'"');
                to.extend_from_slice(text.as_bytes());
                to.push(b'"');
            }
            NonFinite::Null => to.extend_from_slice(b"null"),
            NonFinite::Fail => self.fail(format!(
                "column '{}' has the value {text}, which is no JSON number; pass non_finite=null or text",
                self.name
            )),
        }
    }
}
