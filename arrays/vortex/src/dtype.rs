//! Reads Vortex's types (`DType`, a bare flatbuffer) as Arrow types.
//!
//! Vortex's types are logical. If Arrow has several physical types for one logical type, the result
//! is the physical type that Vortex exports: views for text and bytes, 32-bit offsets for lists,
//! 128 bits for decimals up to precision 38 and 256 bits above. Vortex's extension types for dates
//! and times become Arrow types, and those for UUIDs and JSON become Arrow's canonical extension
//! types. All other extension types become Arrow extension types with the same storage, name and
//! metadata.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};
use crossdock_arrays::metadata::{from_pairs, pairs};
use crossdock_arrays::type_name;
use crossdock_plugin_api::{Error, Result};

use crate::flatbuffer::{Flatbuffer, Table};
use crate::ptype::PType;

/// Maximum nesting depth of types.
pub const MAX_DEPTH: usize = 64;

/// Arrow's key for an extension type's name.
pub const EXTENSION_NAME: &str = "ARROW:extension:name";
/// Arrow's key for an extension type's metadata. The value may be any bytes.
pub const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
/// The key for Vortex's metadata of an extension type for which Arrow defines other metadata. The
/// value consists of hexadecimal digits. Releases before 0.3 wrote all metadata that is not text
/// under this key.
pub const EXTENSION_METADATA_HEX: &str = "vortex:extension:metadata:hex";

/// Vortex's and Arrow's names of extension types that both define.
pub(crate) const UUID: (&str, &str) = ("vortex.uuid", "arrow.uuid");
pub(crate) const JSON: (&str, &str) = ("vortex.json", "arrow.json");
/// The number of bytes of a UUID.
pub const UUID_BYTES: i32 = 16;

/// Whether fields have Arrow's type for UUIDs, whose storage in Vortex is [`uuid_storage`].
pub fn is_uuid(field: &Field) -> bool {
    *field.data_type() == DataType::FixedSizeBinary(UUID_BYTES)
        && field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == UUID.1)
}

/// The storage of UUIDs: lists of 16 bytes without nulls.
pub fn uuid_storage() -> DataType {
    DataType::FixedSizeList(Arc::new(Field::new("item", DataType::UInt8, false)), UUID_BYTES)
}

/// Type numbers of the flatbuffer.
pub(crate) mod tag {
    pub const NULL: u8 = 1;
    pub const BOOL: u8 = 2;
    pub const PRIMITIVE: u8 = 3;
    pub const DECIMAL: u8 = 4;
    pub const UTF8: u8 = 5;
    pub const BINARY: u8 = 6;
    pub const STRUCT: u8 = 7;
    pub const LIST: u8 = 8;
    pub const EXTENSION: u8 = 9;
    pub const FIXED_SIZE_LIST: u8 = 10;
    pub const VARIANT: u8 = 11;
    pub const UNION: u8 = 12;
    pub const MAP: u8 = 13;
}

/// The units of Vortex's dates and times by number. The unit of a date is days or milliseconds.
pub(crate) const UNITS: [TimeUnit; 4] =
    [TimeUnit::Nanosecond, TimeUnit::Microsecond, TimeUnit::Millisecond, TimeUnit::Second];
pub(crate) const DAYS: u8 = 4;

/// Reads a type as a field without a name.
///
/// # Errors
/// Returns `BAD_DATA` for a malformed flatbuffer, and `UNSUPPORTED` for unions, variants, and types
/// nested deeper than [`MAX_DEPTH`].
pub fn read(bytes: &[u8]) -> Result<Field> {
    let buffer = Flatbuffer::new(bytes);
    buffer.root().and_then(|root| field("", root, 0)).map_err(|e| e.context("the type"))
}

fn field(name: &str, dtype: Table<'_, '_>, depth: usize) -> Result<Field> {
    if depth >= MAX_DEPTH {
        return Err(Error::unsupported(format!("types are nested more than {MAX_DEPTH} levels deep")));
    }
    let number = dtype.u8(0)?;
    let kind = dtype.table(1, "the type's table")?;
    let plain = |data_type, nullable| Ok(Field::new(name, data_type, nullable));
    match number {
        tag::NULL => plain(DataType::Null, true),
        tag::BOOL => plain(DataType::Boolean, kind.bool(0)?),
        tag::PRIMITIVE => plain(PType::from_wire(kind.u8(0)?.into())?.arrow(), kind.bool(1)?),
        tag::DECIMAL => plain(decimal(kind.u8(0)?, kind.u8(1)?.cast_signed())?, kind.bool(2)?),
        tag::UTF8 => plain(DataType::Utf8View, kind.bool(0)?),
        tag::BINARY => plain(DataType::BinaryView, kind.bool(0)?),
        tag::STRUCT => plain(DataType::Struct(children(kind, depth)?), kind.bool(2)?),
        tag::LIST => plain(DataType::List(element(kind, depth)?), kind.bool(1)?),
        tag::FIXED_SIZE_LIST => {
            let size = kind.u32(1)?;
            let size = i32::try_from(size).map_err(|_| {
                Error::unsupported(format!("lists of {size} values, expected at most {}", i32::MAX))
            })?;
            plain(DataType::FixedSizeList(element(kind, depth)?, size), kind.bool(2)?)
        }
        tag::EXTENSION => extension(name, kind, depth),
        tag::MAP => plain(map(kind, depth)?, kind.bool(3)?),
        tag::VARIANT => Err(Error::unsupported("a variant: Arrow has no such type")),
        tag::UNION => Err(Error::unsupported("a union: Vortex's unions are unsupported")),
        other => Err(Error::bad_data(format!("type number {other}, expected 1 to {}", tag::MAP))),
    }
}

fn element(list: Table<'_, '_>, depth: usize) -> Result<FieldRef> {
    let dtype = list.table(0, "the type of its elements")?;
    Ok(Arc::new(field("item", dtype, depth + 1).map_err(|e| e.context("the elements"))?))
}

fn children(kind: Table<'_, '_>, depth: usize) -> Result<Fields> {
    let (names, dtypes) = (kind.texts(0)?, kind.tables(1)?);
    if names.len() != dtypes.len() {
        return Err(Error::bad_data(format!(
            "a struct with {} names for {} fields",
            names.len(),
            dtypes.len()
        )));
    }
    let fields = names.zip(dtypes).map(|(name, dtype)| {
        let name = without_nul(name?, "a field's name")?;
        field(name, dtype?, depth + 1).map_err(|e| e.context(format_args!("field '{name}'")))
    });
    fields.collect()
}

fn map(kind: Table<'_, '_>, depth: usize) -> Result<DataType> {
    let key = field("key", kind.table(0, "the keys' type")?, depth + 1).map_err(|e| e.context("the keys"))?;
    if key.is_nullable() {
        return Err(Error::bad_data("a map's keys are nullable, expected keys without nulls"));
    }
    let value = kind.table(1, "the values' type")?;
    let value = field("value", value, depth + 1).map_err(|e| e.context("the values"))?;
    let entries = Field::new("entries", DataType::Struct(vec![key, value].into()), false);
    Ok(DataType::Map(Arc::new(entries), kind.bool(2)?))
}

fn decimal(precision: u8, scale: i8) -> Result<DataType> {
    match precision {
        1..=38 => Ok(DataType::Decimal128(precision, scale)),
        39..=76 => Ok(DataType::Decimal256(precision, scale)),
        _ => Err(Error::bad_data(format!("a decimal with precision {precision}, expected 1 to 76"))),
    }
}

fn extension(name: &str, kind: Table<'_, '_>, depth: usize) -> Result<Field> {
    let (id, metadata) = (kind.text(0)?, kind.blob(2)?);
    if id.is_empty() {
        return Err(Error::bad_data("an extension type has no name"));
    }
    let in_extension = |e: Error| e.context(format_args!("extension type '{}'", id.escape_debug()));
    let storage = kind.table(1, "the storage's type").map_err(in_extension)?;
    let storage = field(name, storage, depth + 1).map_err(in_extension)?;
    if let Some(temporal) = temporal(id, metadata, storage.data_type()).map_err(in_extension)? {
        return Ok(storage.with_data_type(temporal));
    }
    if storage.metadata().contains_key(EXTENSION_NAME) {
        return Err(in_extension(Error::unsupported(
            "the storage is an extension type too, but Arrow's extension types cannot be nested",
        )));
    }
    let (id, storage, hex) = match id {
        id if id == UUID.0 && *storage.data_type() == uuid_storage() => {
            (UUID.1, storage.with_data_type(DataType::FixedSizeBinary(UUID_BYTES)), true)
        }
        id if id == JSON.0 && *storage.data_type() == DataType::Utf8View => (JSON.1, storage, true),
        id => (without_nul(id, "the name")?, storage, false),
    };
    let digits: String = metadata.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut extension_pairs = vec![(EXTENSION_NAME.as_bytes(), id.as_bytes())];
    match (metadata.is_empty(), hex) {
        (true, _) => {}
        (false, false) => extension_pairs.push((EXTENSION_METADATA.as_bytes(), metadata)),
        // Arrow defines other metadata for its own extension types.
        (false, true) => extension_pairs.push((EXTENSION_METADATA_HEX.as_bytes(), digits.as_bytes())),
    }
    let storage_pairs = pairs(storage.metadata());
    let storage_pairs = storage_pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
    Ok(storage.with_metadata(from_pairs(extension_pairs.into_iter().chain(storage_pairs))))
}

/// The Arrow type of a Vortex extension type for dates or times; `None` for other extension types.
fn temporal(id: &str, metadata: &[u8], storage: &DataType) -> Result<Option<DataType>> {
    if !matches!(id, "vortex.date" | "vortex.time" | "vortex.timestamp") {
        return Ok(None);
    }
    let unit = *metadata.first().ok_or_else(|| Error::bad_data("the metadata is empty, expected a unit"))?;
    let named = UNITS.get(usize::from(unit)).copied();
    let (data_type, expected) = match (id, named) {
        ("vortex.date", _) if unit == DAYS => (DataType::Date32, DataType::Int32),
        ("vortex.date", Some(TimeUnit::Millisecond)) => (DataType::Date64, DataType::Int64),
        ("vortex.time", Some(unit @ (TimeUnit::Second | TimeUnit::Millisecond))) => {
            (DataType::Time32(unit), DataType::Int32)
        }
        ("vortex.time", Some(unit)) => (DataType::Time64(unit), DataType::Int64),
        ("vortex.timestamp", Some(unit)) => (DataType::Timestamp(unit, zone(metadata)?), DataType::Int64),
        _ => {
            return Err(Error::bad_data(format!(
                "unit number {unit}, expected a unit that this type supports"
            )));
        }
    };
    if *storage != expected {
        return Err(Error::bad_data(format!(
            "the storage is {}, expected {} for {}",
            type_name(storage),
            type_name(&expected),
            type_name(&data_type)
        )));
    }
    Ok(Some(data_type))
}

fn zone(metadata: &[u8]) -> Result<Option<Arc<str>>> {
    let rest = metadata.get(1..).and_then(|rest| rest.split_first_chunk::<2>());
    let (length, rest) =
        rest.ok_or_else(|| Error::bad_data(format!("metadata of {} bytes, expected 3", metadata.len())))?;
    let length = usize::from(u16::from_le_bytes(*length));
    if length == 0 {
        return Ok(None);
    }
    let zone = rest.get(..length).ok_or_else(|| {
        Error::bad_data(format!("the time zone declares {length} bytes, but {} are left", rest.len()))
    })?;
    let zone = std::str::from_utf8(zone)
        .map_err(|e| Error::bad_data(format!("the time zone is not valid UTF-8: {e}")))?;
    Ok(Some(without_nul(zone, "the time zone")?.into()))
}

/// Rejects text that contains a NUL, because a C string would end at the NUL.
fn without_nul<'a>(text: &'a str, what: &str) -> Result<&'a str> {
    if text.contains('\0') {
        return Err(Error::unsupported(format!(
            "{what}, '{}', contains a NUL, which Arrow's C interface cannot represent",
            text.escape_debug()
        )));
    }
    Ok(text)
}
