//! Writes Arrow types as Vortex's types. Several physical types of Arrow become one logical type.

use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use crossdock_arrays::metadata::{of_dictionary_values, pairs};
use crossdock_plugin_api::{Error, Result};
use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};

use crate::dtype::{
    DAYS, EXTENSION_METADATA, EXTENSION_METADATA_HEX, EXTENSION_NAME, JSON, MAX_DEPTH, UNITS, UUID, is_uuid,
    tag, uuid_storage,
};
use crate::ptype::PType;

type Builder<'a> = FlatBufferBuilder<'a>;
type Written = WIPOffset<TableFinishedWIPOffset>;

/// Writes the type of `field`, without its name, as Vortex's flatbuffer.
///
/// # Errors
/// Returns `UNSUPPORTED` for a type that Vortex does not have. The message contains the path of the
/// field.
pub fn write(field: &Field) -> Result<Vec<u8>> {
    let mut b = Builder::new();
    let root = dtype(&mut b, field, 0)?;
    b.finish_minimal(root);
    Ok(b.finished_data().to_vec())
}

/// Position of slot `n` in a table's vtable.
fn slot(n: u16) -> u16 {
    4 + 2 * n
}

fn dtype(b: &mut Builder<'_>, field: &Field, depth: usize) -> Result<Written> {
    if depth >= MAX_DEPTH {
        return Err(Error::unsupported(format!("types are nested more than {MAX_DEPTH} levels deep")));
    }
    let Some(id) = field.metadata().get(EXTENSION_NAME) else {
        return plain(b, field, depth);
    };
    let mut pairs = field.metadata().clone();
    let metadata = extension_metadata(field)?;
    pairs.remove(EXTENSION_NAME);
    let mut storage = field.clone().with_metadata(pairs);
    let id = match id.as_str() {
        _ if is_uuid(field) => {
            storage.set_data_type(uuid_storage());
            UUID.0
        }
        id if id == JSON.1 && is_text(field.data_type()) => JSON.0,
        id => id,
    };
    let storage = dtype(b, &storage, depth + 1)?;
    Ok(extension(b, id, storage, &metadata))
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        data_type => data_type.is_string(),
    }
}

fn plain(b: &mut Builder<'_>, field: &Field, depth: usize) -> Result<Written> {
    let nullable = field.is_nullable();
    if let Some(ptype) = PType::from_arrow(field.data_type()) {
        return Ok(primitive(b, ptype, nullable));
    }
    let written = match field.data_type() {
        DataType::Null => bare(b, tag::NULL, |_| ()),
        DataType::Boolean => bare(b, tag::BOOL, |b| b.push_slot(slot(0), nullable, false)),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => bare(b, tag::DECIMAL, |b| {
            b.push_slot(slot(0), *precision, 0);
            b.push_slot(slot(1), *scale, 0);
            b.push_slot(slot(2), nullable, false);
        }),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            bare(b, tag::UTF8, |b| b.push_slot(slot(0), nullable, false))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            bare(b, tag::BINARY, |b| b.push_slot(slot(0), nullable, false))
        }
        DataType::List(e) | DataType::LargeList(e) | DataType::ListView(e) | DataType::LargeListView(e) => {
            let element = child(b, e, depth)?;
            bare(b, tag::LIST, |b| {
                b.push_slot_always(slot(0), element);
                b.push_slot(slot(1), nullable, false);
            })
        }
        DataType::FixedSizeList(e, size) => {
            let element = child(b, e, depth)?;
            bare(b, tag::FIXED_SIZE_LIST, |b| {
                b.push_slot_always(slot(0), element);
                b.push_slot(slot(1), size.cast_unsigned(), 0);
                b.push_slot(slot(2), nullable, false);
            })
        }
        DataType::Struct(fields) => {
            let dtypes = fields.iter().map(|f| child(b, f, depth)).collect::<Result<Vec<_>>>()?;
            let names: Vec<_> = fields.iter().map(|f| b.create_string(f.name())).collect();
            let (names, dtypes) = (b.create_vector(&names), b.create_vector(&dtypes));
            bare(b, tag::STRUCT, |b| {
                b.push_slot_always(slot(0), names);
                b.push_slot_always(slot(1), dtypes);
                b.push_slot(slot(2), nullable, false);
            })
        }
        DataType::Map(entries, sorted) => map(b, entries, *sorted, nullable, depth)?,
        DataType::Dictionary(_, values) => {
            let values = Field::new("", values.as_ref().clone(), nullable)
                .with_metadata(of_dictionary_values(field.metadata()));
            return dtype(b, &values, depth + 1);
        }
        DataType::RunEndEncoded(_, values) => {
            let values = values.as_ref().clone().with_nullable(nullable || values.is_nullable());
            return dtype(b, &values, depth + 1);
        }
        other => temporal(b, other, nullable)?,
    };
    Ok(written)
}

fn child(b: &mut Builder<'_>, field: &FieldRef, depth: usize) -> Result<Written> {
    dtype(b, field, depth + 1).map_err(|e| e.context(format_args!("field '{}'", field.name())))
}

/// Writes a type: its number, and a table whose slots `fill` sets.
fn bare(b: &mut Builder<'_>, number: u8, fill: impl FnOnce(&mut Builder<'_>)) -> Written {
    let start = b.start_table();
    fill(b);
    let kind = b.end_table(start);
    let start = b.start_table();
    b.push_slot_always(slot(1), kind);
    b.push_slot(slot(0), number, 0);
    let written = b.end_table(start);
    WIPOffset::new(written.value())
}

fn primitive(b: &mut Builder<'_>, ptype: PType, nullable: bool) -> Written {
    bare(b, tag::PRIMITIVE, |b| {
        b.push_slot(slot(0), ptype as u8, 0);
        b.push_slot(slot(1), nullable, false);
    })
}

fn map(
    b: &mut Builder<'_>,
    entries: &FieldRef,
    sorted: bool,
    nullable: bool,
    depth: usize,
) -> Result<Written> {
    let DataType::Struct(pair) = entries.data_type() else {
        return Err(Error::bad_data(format!(
            "a map has entries of type {}, expected a struct",
            crossdock_arrays::type_name(entries.data_type())
        )));
    };
    let [key, value] = pair.as_ref() else {
        return Err(Error::bad_data(format!(
            "a map has entries of {} fields, expected a key and a value",
            pair.len()
        )));
    };
    let (key, value) = (child(b, key, depth)?, child(b, value, depth)?);
    Ok(bare(b, tag::MAP, |b| {
        b.push_slot_always(slot(0), key);
        b.push_slot_always(slot(1), value);
        b.push_slot(slot(2), sorted, false);
        b.push_slot(slot(3), nullable, false);
    }))
}

fn temporal(b: &mut Builder<'_>, data_type: &DataType, nullable: bool) -> Result<Written> {
    let (id, storage, metadata) = match data_type {
        DataType::Date32 => ("vortex.date", PType::I32, vec![DAYS]),
        DataType::Date64 => ("vortex.date", PType::I64, vec![unit(TimeUnit::Millisecond)]),
        DataType::Time32(u) => ("vortex.time", PType::I32, vec![unit(*u)]),
        DataType::Time64(u) => ("vortex.time", PType::I64, vec![unit(*u)]),
        DataType::Timestamp(u, zone) => {
            let zone = zone.as_deref().unwrap_or_default();
            let length = u16::try_from(zone.len()).map_err(|_| {
                Error::unsupported(format!(
                    "a time zone has {} bytes, expected at most {}",
                    zone.len(),
                    u16::MAX
                ))
            })?;
            let metadata = [&[unit(*u)][..], &length.to_le_bytes(), zone.as_bytes()].concat();
            ("vortex.timestamp", PType::I64, metadata)
        }
        other => return Err(Error::unsupported(format!("Vortex has no type for Arrow's {other}"))),
    };
    let storage = primitive(b, storage, nullable);
    Ok(extension(b, id, storage, &metadata))
}

fn unit(unit: TimeUnit) -> u8 {
    UNITS.iter().position(|u| *u == unit).unwrap_or_default() as u8
}

fn extension(b: &mut Builder<'_>, id: &str, storage: Written, metadata: &[u8]) -> Written {
    let id = b.create_string(id);
    let metadata = b.create_vector(metadata);
    bare(b, tag::EXTENSION, |b| {
        b.push_slot_always(slot(0), id);
        b.push_slot_always(slot(1), storage);
        b.push_slot_always(slot(2), metadata);
    })
}

fn extension_metadata(field: &Field) -> Result<Vec<u8>> {
    let Some(digits) = field.metadata().get(EXTENSION_METADATA_HEX) else {
        // `pairs` returns bytes, because the value need not be text.
        let mut pairs = pairs(field.metadata()).into_iter();
        let metadata = pairs.find(|(key, _)| key == EXTENSION_METADATA.as_bytes());
        return Ok(metadata.map(|(_, value)| value).unwrap_or_default());
    };
    let digits = digits.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()));
    let digits = digits.collect::<Option<Vec<_>>>().filter(|digits| digits.len().is_multiple_of(2));
    let digits = digits.ok_or_else(|| {
        Error::bad_data(format!(
            "the metadata under '{EXTENSION_METADATA_HEX}' are not pairs of hexadecimal digits"
        ))
    })?;
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
